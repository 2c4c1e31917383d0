r"""From a fleet and its traffic shares to laws of TTFT, TPOT, ITL and E2E.

A request waits for a prefill replica (W), is prefilled (S), its KV cache moves (X), it
enters a decode batch (B: step boundary, or a slot) and decodes. On the path from prefill
type r to decode type r':

.. math:: TTFT = W_r + S_r + X \; [+ B_{r'} + \text{first step}], \qquad
          E2E = W_r + (S_r + X + n\,\bar t_{r'} \mid \text{request}) + B_{r'}

with n decode iterations of mean :math:`\bar t`. The wait is convolved with the joint law of
(S, X, decode) of one request, so correlated prompt and output lengths are kept
(design 3.4); percentiles of stages are never added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, Fleet, Role
from pdalloc.laws import Array, Atoms, Exponentials, Law, Mixture, StopLossLaw, constant, total
from pdalloc.queueing.batch import BatchLaw
from pdalloc.queueing.request_tpot import request_tpot, step_variance
from pdalloc.queueing.single_server import SingleServerWait
from pdalloc.system import ReplicaType, System
from pdalloc.workload.traffic import RequestMix

PoolKey = tuple[Role, str]

SPREAD_NODES = np.sqrt(1.5) * np.array([-1.0, 0.0, 1.0])
"""Three equally likely points of mean 0 and variance 1: the spread of a decode time."""
ENTRY_LEVELS = 4
"""Equally likely points that carry the law of the wait for a step boundary or a slot."""


@dataclass(frozen=True)
class PrefillState:
    """One prefill replica of a type at ``rate`` requests/s."""

    replica_type: ReplicaType
    rate: float
    wait: SingleServerWait

    @property
    def utilisation(self) -> float:
        """Share of time the replica is busy."""
        return self.wait.utilisation


@dataclass(frozen=True)
class DecodeState:
    """One decode replica of a type at ``rate`` requests/s."""

    replica_type: ReplicaType
    rate: float
    batch: BatchLaw

    @property
    def utilisation(self) -> float:
        """Offered tokens/s over the most the replica can make."""
        return self.batch.utilisation


@dataclass(frozen=True)
class Predictor:
    """Laws of one replica and of one path; everything is per system, nothing per fleet."""

    system: System
    _services: dict[tuple[str, int], StopLossLaw] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def mix(self) -> RequestMix:
        """The law of a random request."""
        return self.system.workload.mix()

    @cached_property
    def _class_mixes(self) -> list[RequestMix]:
        return [self.mix.of_class(i) for i in range(len(self.system.workload.classes))]

    @cached_property
    def mean_steps(self) -> float:
        """E[decode iterations] of a random request."""
        return float(self.mix.weight @ self.system.decode_steps(self.mix))

    @cached_property
    def steps_scv(self) -> float:
        """SCV of the decode iterations of a random request."""
        steps = self.system.decode_steps(self.mix)
        return max(float(self.mix.weight @ steps**2) / self.mean_steps**2 - 1.0, 0.0)

    @cached_property
    def context(self) -> float:
        """Mean context of a decoding request, tokens, seen at a random step (size-biased)."""
        steps = self.system.decode_steps(self.mix)
        if self.mean_steps <= 0:
            return float(self.mix.weight @ self.mix.prompt)
        held = self.mix.prompt * steps + 0.5 * steps**2
        return float(self.mix.weight @ held) / self.mean_steps

    def prefill(self, replica_type: ReplicaType, rate: float) -> PrefillState:
        """A prefill replica at ``rate`` requests/s; UnstableError at utilisation >= 1."""
        if self.system.dispatch[PREFILL] != "random":
            raise UnsupportedError(
                f"dispatch {self.system.dispatch[PREFILL]!r} of prefill has no delay law yet; "
                "set dispatch: random (never better than the other rules)"
            )
        service = self._service(replica_type, self.mix, np.zeros_like(self.mix.prompt))
        # Splitting smooths bursts and thins regular streams; neither is credited here.
        scv = max(self.system.workload.arrival_scv, 1.0)
        return PrefillState(replica_type, rate, SingleServerWait(rate, service, scv))

    def decode(self, replica_type: ReplicaType, rate: float) -> DecodeState:
        """A decode replica at ``rate`` requests/s; UnstableError beyond what it can serve."""
        if self.system.dispatch[DECODE] != "random":
            raise UnsupportedError(
                f"dispatch {self.system.dispatch[DECODE]!r} of decode has no delay law yet; "
                "set dispatch: random (never better than the other rules)"
            )

        def step_time(batch: Array) -> Array:
            return replica_type.latency.step_seconds(batch, batch * self.context)

        if self.mean_steps <= 0.0:
            raise InputError(
                "every request has one output token, made by prefill: nothing to decode; "
                "set first_token: decode, or longer outputs"
            )
        slots = replica_type.batch_limit(self.context)
        return DecodeState(
            replica_type, rate, BatchLaw(rate, self.mean_steps, step_time, slots, self.steps_scv)
        )

    def _service(self, r: ReplicaType, mix: RequestMix, extra: Array) -> StopLossLaw:
        """Law of prefill time plus ``extra`` seconds per request; ``extra`` shape (n,)."""
        key = (r.name, id(mix))
        shared = mix is self.mix and not extra.any()
        if shared and key in self._services:
            return self._services[key]
        seconds = r.latency.prefill_seconds(mix.prompt, mix.cached)
        law: StopLossLaw
        if r.latency.prefill_noise == "exponential":
            law = Exponentials(seconds, mix.weight, extra)
        else:
            law = Atoms(seconds + extra, mix.weight)
        if shared:
            self._services[key] = law
        return law

    def law(self, metric: str, class_index: int, p: PrefillState, d: DecodeState) -> Law:
        """Law of ``metric`` in seconds for class ``class_index`` on the path p -> d."""
        mix = self._class_mixes[class_index]
        if metric == "ttft":
            return self._ttft(mix, p, d)
        if metric == "e2e":
            return self._e2e(mix, p, d)
        if metric == "itl":
            return self._itl(mix, d)
        if metric == "tpot":
            return self._tpot(mix, d)
        raise InputError(f"no prediction for metric {metric!r}")

    def _ttft(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        rule = self.system.first_token
        moved = self.system.transfer_seconds(mix)
        extra = np.zeros_like(moved) if rule == "prefill" else moved
        parts: list[Law] = [p.wait, self._service(p.replica_type, mix, extra)]
        if rule == "decode":
            parts.append(_KnownMean(d.batch.first_token, d.batch.mean_first_token))
        return total(parts)

    def _e2e(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        steps = self.system.decode_steps(mix)
        moved = self.system.transfer_seconds(mix)
        if self.system.first_token == "prefill":
            moved = np.where(steps > 0, moved, 0.0)  # nothing to decode, nothing to move
        decoding = steps > 0
        laws: list[Law] = []
        shares: list[float] = []
        if not decoding.all():
            rest = mix.where(~decoding)
            stay = self._service(p.replica_type, rest, moved[~decoding])
            laws.append(total([p.wait, stay]))
            shares.append(float(mix.weight[~decoding].sum()))
        if decoding.any():
            some, steps = mix.where(decoding), steps[decoding]
            spread = np.sqrt(step_variance(d.batch, steps)) * steps
            # each request's decode time at a few equally likely points of its spread
            extra = moved[decoding] + steps * d.batch.mean_step
            points = (extra[:, None] + spread[:, None] * SPREAD_NODES).ravel()
            stay = self._service(p.replica_type, some.repeated(SPREAD_NODES.size), points)
            entry = _KnownMean(d.batch.entry, d.batch.mean_entry)
            laws.append(total([p.wait, stay, entry]))
            shares.append(float(mix.weight[decoding].sum()))
        return laws[0] if len(laws) == 1 else Mixture(tuple(laws), tuple(shares))

    def _itl(self, mix: RequestMix, d: DecodeState) -> Law:
        """Token-weighted: under ``prefill`` and ``transfer`` first gaps hold the entry too."""
        rule = self.system.first_token
        later = mix.where(mix.output > 1) if (mix.output > 1).any() else None
        if rule == "decode" or later is None:
            return d.batch.itl
        first = 1.0 / float(later.weight @ (later.output - 1.0))
        parts: list[Law] = [d.batch.itl, _KnownMean(d.batch.entry, d.batch.mean_entry)]
        if rule == "prefill":
            parts.append(Atoms(self.system.transfer_seconds(later), later.weight))
        return Mixture((d.batch.itl, total(parts)), (1.0 - first, first))

    def _tpot(self, mix: RequestMix, d: DecodeState) -> Law:
        if not (mix.output > 1).any():
            return constant(0.0)  # one-token answers have no gap
        later = mix.where(mix.output > 1)
        gaps = later.output - 1.0
        extra, weight = np.zeros_like(gaps), later.weight
        if self.system.first_token != "decode":
            levels = (np.arange(ENTRY_LEVELS) + 0.5) / ENTRY_LEVELS
            entry = np.array([d.batch.entry.quantile(p) for p in levels])
            entry += d.batch.mean_entry - entry.mean()
            moved = np.zeros_like(gaps)
            if self.system.first_token == "prefill":
                moved = self.system.transfer_seconds(later)
            extra = np.maximum(moved[:, None] + entry, 0.0).ravel()
            gaps, weight = (
                np.repeat(gaps, ENTRY_LEVELS),
                np.repeat(weight / ENTRY_LEVELS, ENTRY_LEVELS),
            )
        return request_tpot(d.batch, gaps, extra, weight)


@dataclass(frozen=True)
class _KnownMean(Law):
    """``law`` with its mean known better than its points give it, seconds."""

    law: Law
    known: float

    @property
    def mean(self) -> float:
        return self.known

    def _horizon_guess(self) -> float:
        return self.law._horizon_guess()

    def lattice(self, step: float, points: int) -> Array:
        return self.law.lattice(step, points)


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
    per_replica = {
        (p.role, p.replica_type): rates[p.role, p.replica_type] / p.replicas for p in used
    }
    return Prediction(
        predictor,
        fleet,
        rates,
        {t: predictor.prefill(types[t], y) for (s, t), y in per_replica.items() if s == PREFILL},
        {t: predictor.decode(types[t], y) for (s, t), y in per_replica.items() if s == DECODE},
    )
