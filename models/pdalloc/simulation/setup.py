"""What both simulators derive from system, fleet, draws and options before the first event.

They share these numbers, not the rules: a run is a function of them alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet, Role
from pdalloc.latency.service import Latency
from pdalloc.simulation import hashing
from pdalloc.simulation.options import Failures, Noise, SimulationOptions
from pdalloc.simulation.traffic import Draws
from pdalloc.system import System

Array = NDArray[np.float64]


def check(system: System, fleet: Fleet, draws: Draws, options: SimulationOptions) -> None:
    """Raise InputError where ``options`` do not fit the fleet or its requests."""
    types = {role: replica_types(fleet, role) for role in ROLES}
    for role, replica in options.slow:
        if not 0 <= replica < len(types[role]):
            raise InputError(
                f"slow {role} replica {replica} does not exist; the fleet has {len(types[role])}"
            )
    if options.colocated is not None and types[PREFILL] != types[DECODE]:
        raise InputError("co-located serving needs the same pools in both roles")
    if options.kv is None:
        return
    total = draws.stream.prompt + draws.stream.output
    serves = PREFILL if options.colocated is not None else DECODE
    for i, pool in enumerate(fleet.in_role(serves)):
        greatest = int(total[draws.pool[serves] == i].max(initial=0))
        if greatest > system.replica_types[pool.replica_type].kv_tokens:
            raise InputError(
                f"replica type {pool.replica_type!r}: its KV tokens never hold a request of "
                f"{greatest} tokens; use more GPUs per replica or shorter requests"
            )


def replica_types(fleet: Fleet, role: Role) -> tuple[str, ...]:
    """The type of each replica of ``role``, by the indices that a log gives them."""
    return tuple(pool.replica_type for pool in fleet.in_role(role) for _ in range(pool.replicas))


def slow_factors(fleet: Fleet, role: Role, options: SimulationOptions) -> list[float]:
    """Factor on the times of each replica of ``role``, 1 where it is not slow."""
    return [options.slow.get((role, i), 1.0) for i in range(len(replica_types(fleet, role)))]


def noise_factor(noise: Noise, key: int, kind: int, a: int, b: int = 0) -> float:
    """The factor of that name (:mod:`pdalloc.simulation.hashing`) under the law ``noise``."""
    if noise.law == "exponential":
        return hashing.exponential(key, kind, a, b)
    law = hashing.gamma if noise.law == "gamma" else hashing.lognormal
    return law(noise.scv, key, kind, a, b)


def prefill_factors(latency: Latency, draws: Draws, options: SimulationOptions) -> Array:
    """Factor on each request's prefill time: the type's noise times the option's; (n,)."""
    n = len(draws.stream)
    factors = draws.noise if latency.prefill_noise == "exponential" else np.ones(n)
    return factors * request_factors(options.prefill_noise, draws, hashing.PREFILL_NOISE)


def request_factors(noise: Noise | None, draws: Draws, kind: int) -> Array:
    """A factor per request of the random numbers ``kind``; ones without noise; (n,)."""
    n = len(draws.stream)
    if noise is None:
        return np.ones(n)
    return np.array([noise_factor(noise, draws.key, kind, i) for i in range(n)])


def up_seconds(key: int, failures: Failures, server: int, k: int) -> float:
    """How long ``server`` is up before its ``k``-th failure, s."""
    return failures.mtbf * hashing.exponential(key, hashing.UP_TIME, server, k)


def down_seconds(key: int, failures: Failures, server: int, k: int) -> float:
    """How long ``server`` is down after its ``k``-th failure, s."""
    return failures.mttr * hashing.exponential(key, hashing.DOWN_TIME, server, k)


@dataclass(frozen=True)
class Paths:
    """Links between pools: arrays (prefill pools, decode pools).

    ``latency`` in s, ``bandwidth`` in bytes/s; ``site_pair`` numbers the pairs of sites.
    """

    latency: Array
    bandwidth: Array
    site_pair: NDArray[np.int64]

    def link(self, scope: str, prefill_replica: int, prefill_pool: int, decode_pool: int) -> int:
        """Number of the link that a transfer shares with others, under ``scope``."""
        if scope == "replica":
            return prefill_replica
        return int(self.site_pair[prefill_pool, decode_pool]) if scope == "sites" else 0


def paths(system: System, fleet: Fleet, options: SimulationOptions) -> Paths:
    """The link of every (prefill pool, decode pool), in fleet order."""
    network = options.network
    where = network.sites if network is not None else {}
    links = network.links if network is not None else {}
    sites = {
        role: [where.get((role, pool.replica_type), "") for pool in fleet.in_role(role)]
        for role in ROLES
    }
    pairs = [[(p, d) for d in sites[DECODE]] for p in sites[PREFILL]]
    number = {pair: i for i, pair in enumerate(dict.fromkeys(p for row in pairs for p in row))}
    link = [[links.get(pair, system.link) for pair in row] for row in pairs]
    return Paths(
        np.array([[x.latency for x in row] for row in link]),
        np.array([[x.bandwidth for x in row] for row in link]),
        np.array([[number[pair] for pair in row] for row in pairs], np.int64),
    )
