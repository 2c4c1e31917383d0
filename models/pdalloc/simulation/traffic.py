r"""Everything random in a run: when requests arrive, how long they are, where they go.

Each class is a stationary renewal stream; all classes are superposed. Gaps of mean
:math:`1/\lambda` and SCV :math:`c^2` are exponential (:math:`c^2 = 1`: Poisson), constant
(:math:`c^2 = 0`) or gamma of shape :math:`1/c^2`. The first arrival comes after a *residual*
gap, so the stream has its long-run rate from time 0 on: a uniform share of a length-biased
gap, and a length-biased Gamma(k) is a Gamma(k + 1) of the same scale (Cox 1962, "Renewal
Theory", section 5.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Fleet, Role
from pdalloc.workload.traffic import RequestMix, TrafficClass, Workload

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Seed = int | np.random.SeedSequence
Rates = Mapping[tuple[Role, str], float]
"""Requests/s offered to each pool, by (role, replica type)."""


@dataclass(frozen=True)
class RequestStream:
    """Requests in order of arrival; arrays (n,).

    ``arrival`` in seconds, nondecreasing; ``traffic_class`` indices; ``prompt`` and
    ``output`` in whole tokens, at least 1; ``cached`` prompt tokens (need not be whole: a
    hit rate times the prompt).
    """

    arrival: Array
    traffic_class: Ints
    prompt: Ints
    cached: Array
    output: Ints

    def __len__(self) -> int:
        return len(self.arrival)

    def as_mix(self) -> RequestMix:
        """The stream's own law of lengths: every request is a point of weight 1/n."""
        return RequestMix(
            prompt=self.prompt.astype(float),
            cached=self.cached,
            output=self.output.astype(float),
            weight=np.full(len(self), 1.0 / len(self)),
            traffic_class=self.traffic_class,
        )


@dataclass(frozen=True)
class Draws:
    """Everything random in a run; arrays (n,), one entry per request in order of arrival.

    ``noise`` is an Exp(1) factor on the prefill time, used where the replica type has
    exponential noise; ``pool[role]`` indexes ``fleet.in_role(role)``; ``pick[role]``, uniform
    on [0, 1), chooses the replica under random dispatch.
    """

    stream: RequestStream
    noise: Array
    pool: Mapping[Role, Ints]
    pick: Mapping[Role, Array]


def child_seed(seed: Seed, *key: int) -> np.random.SeedSequence:
    """The independent stream ``key`` of ``seed``; asking twice gives the same one."""
    parent = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return np.random.SeedSequence(parent.entropy, spawn_key=(*parent.spawn_key, *key))


def draw_requests(workload: Workload, requests: int, seed: Seed) -> RequestStream:
    """The first ``requests`` arrivals of ``workload``; reproducible from ``seed``.

    Lengths are rounded to whole tokens. Raises InputError for ``requests`` below 1.
    """
    if requests < 1:
        raise InputError(f"a simulation needs at least 1 request, got {requests}")
    # The first n of all arrivals hold at most n of each class.
    times = np.concatenate(
        [
            arrival_times(c, requests, np.random.default_rng(child_seed(seed, 0, q)))
            for q, c in enumerate(workload.classes)
        ]
    )
    order = np.argsort(times, kind="stable")[:requests]
    traffic_class = (order // requests).astype(np.int64)
    prompt, output = (np.ones(requests, np.int64) for _ in range(2))
    cached = np.zeros(requests)
    for q, c in enumerate(workload.classes):
        mine = np.flatnonzero(traffic_class == q)
        rng = np.random.default_rng(child_seed(seed, 1, q))
        point = rng.choice(len(c.lengths.weight), size=len(mine), p=c.lengths.weight)
        prompt[mine] = np.maximum(np.rint(c.lengths.prompt[point]), 1.0)
        output[mine] = np.maximum(np.rint(c.lengths.output[point]), 1.0)
        cached[mine] = prompt[mine] * c.prefix_hit_rate
    return RequestStream(times[order], traffic_class, prompt, cached, output)


def arrival_times(traffic: TrafficClass, count: int, rng: np.random.Generator) -> Array:
    """``count`` arrival times in seconds of one class, increasing; shape (count,)."""
    mean, scv = 1.0 / traffic.rate, traffic.arrival_scv
    if scv == 0.0:
        gaps, biased = np.full(count, mean), mean
    elif scv == 1.0:
        gaps, biased = rng.exponential(mean, count), rng.gamma(2.0, mean)
    else:
        shape, scale = 1.0 / scv, mean * scv
        gaps, biased = rng.gamma(shape, scale, count), rng.gamma(shape + 1.0, scale)
    gaps[0] = rng.uniform() * biased
    return np.cumsum(gaps)


def draw(workload: Workload, fleet: Fleet, rates: Rates, requests: int, seed: Seed) -> Draws:
    """All draws of a run; fleets under one seed see the same arrivals, lengths and noise.

    Each request goes to a pool with probability proportional to the pool's rate (requests/s).
    Raises InputError for rates that do not fit the fleet or ``requests`` below 1.
    """
    stream = draw_requests(workload, requests, child_seed(seed, 0))
    pool, pick = {}, {}
    for i, role in enumerate(ROLES):
        rng = np.random.default_rng(child_seed(seed, 2, i))
        shares = pool_shares(fleet, rates, role)
        pool[role] = rng.choice(len(shares), size=requests, p=shares).astype(np.int64)
        pick[role] = rng.uniform(size=requests)
    noise = np.random.default_rng(child_seed(seed, 1)).exponential(size=requests)
    return Draws(stream, noise, pool, pick)


def pool_shares(fleet: Fleet, rates: Rates, role: Role) -> Array:
    """Share of the traffic of each pool in ``fleet.in_role(role)``, summing to 1.

    Raises InputError when the role has no pool, a pool no rate, or a rate no pool.
    """
    pools = [(p.role, p.replica_type) for p in fleet.in_role(role)]
    if not pools:
        raise InputError(f"the fleet has no {role} replica; a simulation needs one of each role")
    for key in pools:
        if key not in rates:
            raise InputError(f"no rate is given for pool {'/'.join(key)}; give 0 to leave it idle")
    for key, rate in rates.items():
        if not np.isfinite(rate) or rate < 0:
            raise InputError(f"the rate of pool {'/'.join(key)} must be finite and not negative")
        if key[0] == role and rate > 0 and key not in pools:
            raise InputError(f"a rate is given for {'/'.join(key)}, which is not in the fleet")
    weights = np.array([rates[key] for key in pools])
    if weights.sum() <= 0:
        raise InputError(f"every {role} pool has rate 0; one must take the traffic")
    share: Array = weights / weights.sum()
    return share
