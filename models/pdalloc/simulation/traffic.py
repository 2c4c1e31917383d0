"""Everything random in a run: when requests arrive, how long they are, where they go.

Each class arrives by its own process (:mod:`pdalloc.workload.arrivals`), gamma gaps of its SCV
where none is given; all classes are superposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Fleet, Role
from pdalloc.simulation.sampling import choose_points
from pdalloc.workload.arrivals.sessions import Sessions, carried_context, turns_before
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
    on [0, 1), chooses the replica under random dispatch. ``key``, a 64-bit integer, names the
    run's own random numbers that options look up (:mod:`pdalloc.simulation.hashing`).
    """

    stream: RequestStream
    noise: Array
    pool: Mapping[Role, Ints]
    pick: Mapping[Role, Array]
    key: int = 0


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
    arrival, traffic_class = _merged_arrivals(workload, requests, seed)
    prompt, output = (np.ones(requests, np.int64) for _ in range(2))
    cached = np.zeros(requests)
    for q, c in enumerate(workload.classes):
        one = len(workload.classes) == 1
        mine: slice | Ints = slice(None) if one else np.flatnonzero(traffic_class == q)
        count = requests if one else int((traffic_class == q).sum())
        rng = np.random.default_rng(child_seed(seed, 1, q))
        prompt[mine], output[mine] = _lengths(c, count, rng)
        if c.prefix_hit_rate > 0.0:
            cached[mine] = prompt[mine] * c.prefix_hit_rate
        if isinstance(c.arrivals, Sessions):
            same = np.random.default_rng(child_seed(seed, 0, q))
            carried = _carried(c, requests, prompt[mine] + output[mine], same, rng)
            prompt[mine] += carried
            cached[mine] += carried
    return RequestStream(arrival, traffic_class, prompt, cached, output)


def _merged_arrivals(workload: Workload, requests: int, seed: Seed) -> tuple[Array, Ints]:
    """(times in s, class indices) of the first ``requests`` arrivals of all classes."""
    # The first n of all arrivals hold at most n of each class.
    times = [
        arrival_times(c, requests, np.random.default_rng(child_seed(seed, 0, q)))
        for q, c in enumerate(workload.classes)
    ]
    if len(times) == 1:
        return times[0], np.zeros(requests, np.int64)
    together = np.concatenate(times)
    order = np.argsort(together, kind="stable")[:requests]
    return together[order], order // requests


def _lengths(traffic: TrafficClass, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(prompt, output) tokens of ``count`` requests, whole and at least 1; shape (count,)."""
    law = traffic.lengths
    point = choose_points(rng, law.weight, count)
    prompt, output = (np.maximum(np.rint(x), 1.0) for x in (law.prompt, law.output))
    return prompt.astype(np.int64)[point], output.astype(np.int64)[point]


def _carried(
    traffic: TrafficClass,
    requests: int,
    new: Ints,
    arrivals: np.random.Generator,
    rng: np.random.Generator,
) -> Ints:
    """Context that the first turns of a class of sessions carry over, tokens; as ``new``, (n,).

    ``arrivals`` draws again what :func:`arrival_times` drew.
    """
    assert isinstance(traffic.arrivals, Sessions)
    _, session, turn = traffic.arrivals.conversations(requests, arrivals)
    session, turn = session[: len(new)], turn[: len(new)]
    before = _lengths(traffic, turns_before(session, turn), rng)
    limit = traffic.arrivals.context_limit
    return carried_context(session, turn, new, before[0] + before[1], limit)


def arrival_times(traffic: TrafficClass, count: int, rng: np.random.Generator) -> Array:
    """``count`` arrival times in seconds of one class, increasing; shape (count,)."""
    return traffic.process.times(count, rng)


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
        pool[role] = choose_points(rng, shares, requests)
        pick[role] = rng.uniform(size=requests)
    noise = np.random.default_rng(child_seed(seed, 1)).exponential(size=requests)
    key = int(child_seed(seed, 3).generate_state(1, np.uint64)[0])
    return Draws(stream, noise, pool, pick, key)


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
