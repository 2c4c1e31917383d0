"""The prediction of a whole fleet: states of its pools under given rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pdalloc.fleet import DECODE, PREFILL, Fleet, Role
from pdalloc.prediction.predictor import Predictor
from pdalloc.prediction.states import DecodeState, PrefillState
from pdalloc.queueing.transfer import SharedLink
from pdalloc.system import ReplicaType

PoolKey = tuple[Role, str]


@dataclass(frozen=True)
class Prediction:
    """States of every pool of a fleet under given shares, and the laws on its paths."""

    predictor: Predictor
    fleet: Fleet
    rates: Mapping[PoolKey, float]
    prefill: Mapping[str, PrefillState]
    decode: Mapping[str, DecodeState]

    def state(self, role: Role, replica_type: str) -> PrefillState | DecodeState | None:
        """State of one replica of a pool; None where it carries no traffic."""
        if role == PREFILL:
            return self.prefill.get(replica_type)
        return self.decode.get(replica_type)

    def links(self) -> list[SharedLink]:
        """The links that KV transfers share, each once; empty where they share none."""
        transfers = self.predictor.transfers
        found = (transfers.shared(p, d.replica_type) for p, d in self.paths())
        return list({link.name: link for link in found if link is not None}.values())

    def paths(self) -> list[tuple[PrefillState, DecodeState]]:
        """Every (prefill, decode) pair of types that carries traffic."""
        return [(p, d) for p in self.prefill.values() for d in self.decode.values()]


def predict(predictor: Predictor, fleet: Fleet, rates: Mapping[PoolKey, float]) -> Prediction:
    """States of ``fleet`` when pool (role, type) is offered ``rates`` requests/s in all.

    Pools with rate 0 carry no traffic and are left out of the paths. Raises UnstableError
    when a pool is offered more than it can serve.
    """
    types = predictor.system.replica_types
    used = [pool for pool in fleet.pools if rates[pool.role, pool.replica_type] > 0]

    def pools(role: Role) -> Iterator[tuple[ReplicaType, float, int]]:
        for pool in used:
            if pool.role == role:
                name, n = pool.replica_type, pool.replicas
                yield types[name], rates[role, name] / n, n

    whole = sum(rate * n for _, rate, n in pools(PREFILL))
    prefill = {
        r.name: replace(predictor.prefill(r, rate, n), share=rate * n / whole)
        for r, rate, n in pools(PREFILL)
    }
    served = predictor.served(prefill.values())
    decode = {r.name: predictor.decode(r, rate, n, served) for r, rate, n in pools(DECODE)}
    return Prediction(predictor, fleet, rates, prefill, decode)
