r"""How much a mix of two types in one role can save over the better one alone: at most so much.

A bound to be read before an integer search: where it is below a replica's price, mixing cannot
pay but by whole numbers, stock or requests of different kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from pdalloc.closed_forms.checks import positive
from pdalloc.closed_forms.population import population_mix, positive_roots
from pdalloc.closed_forms.stages import Stage
from pdalloc.errors import InfeasibleError, InputError


def mixing_gain(price_ratio: float, speed_ratio: float) -> float:
    r"""The most that one type alone can cost, over the best mix of two: a bound on mixing.

    With C = sqrt(``price_ratio``) = sqrt(c2/c1) and M = sqrt(``speed_ratio``) =
    sqrt(mu2/mu1) > 1: (C+1)(C+M)/(2C(M+1)) where C > M, else 1 (one type is best at every bound).
    Reached at tau = (c2-c1)/(c2 mu1 - c1 mu2). M/M/1 replicas or decode with equal a/b, real
    counts, a bound on the mean over all requests; with more types, the largest over pairs.
    Service of SCV below 1 can gain more (M/D/1: 1.10 where M/M/1 has 1.06), above 1 less, as
    :func:`greatest_gain` finds. Source: theorem ``mixing_gain``.

    >>> round(mixing_gain(4.0, 2.0), 4)  # at most 6 % for four times the price at twice the speed
    1.0607
    """
    positive(price_ratio=price_ratio, speed_ratio=speed_ratio)
    if speed_ratio < 1.0:
        raise InputError(f"speed_ratio must be at least 1, got {speed_ratio:g}: type 2 is faster")
    dear, fast = math.sqrt(price_ratio), math.sqrt(speed_ratio)
    if dear <= fast or fast == 1.0:
        return 1.0
    return (dear + 1.0) * (dear + fast) / (2.0 * dear * (fast + 1.0))


def price_only_gain(price_ratio: float) -> float:
    r"""The bound of :func:`mixing_gain` whatever the speeds: (C+1)^2/(4C), C = sqrt(c2/c1).

    Kantorovich's constant of sqrt(c); not reached. ``price_ratio`` >= 1.

    >>> price_only_gain(4.0)
    1.125
    """
    positive(price_ratio=price_ratio)
    if price_ratio < 1.0:
        raise InputError(f"price_ratio must be at least 1, got {price_ratio:g}")
    root = math.sqrt(price_ratio)
    return (root + 1.0) ** 2 / (4.0 * root)


def single_type_cost(rate: float, stages: Sequence[Stage], bound: float) -> float:
    """USD/h of the cheapest real fleet of one type with mean delay ``bound`` s.

    min over types of price x replicas: for M/M/1 argmin c/(mu - 1/tau).

    >>> single_type_cost(10.0, [Stage.mm1(1.0, 1.0), Stage.mm1(3.0, 2.0)], 2.0)
    20.0
    """
    positive(rate=rate)
    found = [s.price * s.replicas(rate, bound) for s in stages if bound > s.floor]
    if not found:
        floor = min((s.floor for s in stages), default=math.inf)
        raise InfeasibleError(
            f"a mean delay of {bound:.4g} s is at or below the {floor:.4g} s of the fastest type, "
            "idle"
        )
    return min(found)


def greatest_gain(stages: Sequence[Stage]) -> float:
    """The most, over all bounds, that the best single type costs over the best mix; exact.

    For any stages of the family and any number of types: the quotient peaks where two types
    cost the same (theorem ``mixing_gain``, steps 5 and 6).

    >>> round(greatest_gain([Stage.mm1(1.0, 1.0), Stage.mm1(4.0, 2.0)]), 4)
    1.0607
    """
    ties = {tie for a, b in combinations(stages, 2) for tie in _ties(a, b)}
    return max(
        (single_type_cost(1.0, stages, t) / population_mix(1.0, stages, t).cost for t in ties),
        default=1.0,
    )


def _ties(a: Stage, b: Stage) -> Iterator[float]:
    """Mean delays at which two types cost the same: a quadratic above the larger floor."""
    slow, fast = (a, b) if a.floor >= b.floor else (b, a)
    gap = slow.floor - fast.floor
    load = slow.load_cost - fast.load_cost
    half = (load * gap + slow.delay_cost - fast.delay_cost) / 2.0
    return (slow.floor + y for y in positive_roots(load, half, slow.delay_cost * gap))
