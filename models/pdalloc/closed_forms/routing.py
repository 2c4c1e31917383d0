r"""Fixed whole replicas under one mean delay: the best split of traffic, and its dual.

Whether a fleet of several types keeps a mean delay over all its requests depends on how the
requests are split. By convex duality it is so iff one inequality per price of latency nu holds,
linear in the counts: the cuts of a search over integers. Source: theorem ``dual_cut``; the
split for M/M/1 is Bell and Stidham's (1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pdalloc.closed_forms.checks import not_negative, positive
from pdalloc.closed_forms.stages import Stage
from pdalloc.errors import InfeasibleError, UnstableError


def _growth(stage: Stage, nu: float) -> float:
    """q = sqrt(1 + (nu - floor)^+ work/congestion): idle share is 1/q."""
    return math.sqrt(1.0 + max(nu - stage.floor, 0.0) * stage.work / stage.congestion)


def replica_rate(stage: Stage, nu: float) -> float:
    """Requests/s that a replica takes in the best split when delay costs ``nu`` s: (1 - 1/q)/work.

    A type with floor >= nu is left idle.
    """
    not_negative(nu=nu)
    return (1.0 - 1.0 / _growth(stage, nu)) / stage.work


def replica_dual(stage: Stage, nu: float) -> float:
    r"""D*(nu) = max over x of x nu - x T(x) for one replica = kappa (q - 1)^2, a pure number.

    kappa = congestion/work^2, ``nu`` in s. For M/M/1 it is ((sqrt(mu nu) - 1)^+)^2. A fleet n
    keeps mean delay tau at rate lambda iff sum n D*(nu) >= lambda (nu - tau) for every nu.

    >>> replica_dual(Stage.mm1(1.0, 4.0), 1.0)
    1.0
    """
    not_negative(nu=nu)
    return stage.congestion / stage.work**2 * (_growth(stage, nu) - 1.0) ** 2


def dual_horizon(stages: Sequence[Stage], bound: float) -> float:
    """The nu, s, up to which cuts need to be looked for under a mean delay of ``bound`` s.

    A fleet that breaks the bound breaks a cut at or below it: the nu at which the last of the
    types is as slow as the bound (mu_max tau^2 for M/M/1).

    >>> dual_horizon([Stage.mm1(1.0, 4.0), Stage.mm1(1.0, 2.0)], 2.0)
    16.0
    """
    found = [_price(stage, bound) for stage in stages if bound > stage.floor]
    if not found:
        raise InfeasibleError(f"no type has a delay below {bound:.4g} s, even idle")
    return max(found)


def _price(stage: Stage, delay: float) -> float:
    """nu at which the best split gives ``stage`` this mean delay."""
    spread = stage.congestion / stage.work
    q = 1.0 + (delay - stage.floor) / spread
    return stage.floor + spread * (q * q - 1.0)


def best_split(rate: float, stages: Sequence[Stage], counts: Sequence[int]) -> tuple[float, ...]:
    """Requests/s per type that make the mean delay of a fleet of whole ``counts`` least.

    Raises UnstableError when the replicas serve less than ``rate`` requests/s.
    """
    from scipy.optimize import brentq

    positive(rate=rate)
    fleet = list(zip(stages, counts, strict=True))
    most = sum(n / s.work for s, n in fleet)
    if most <= rate:
        raise UnstableError(f"the fleet serves at most {most:.4g} of {rate:.4g} requests/s")

    def excess(nu: float) -> float:
        return sum(n * replica_rate(s, nu) for s, n in fleet) - rate

    high = max(s.floor + s.congestion / s.work for s in stages)
    while excess(high) < 0.0:
        high *= 2.0
    nu = float(brentq(excess, 0.0, high, xtol=1e-15 * high, rtol=1e-14))
    return tuple(n * replica_rate(s, nu) for s, n in fleet)


def population_delay(rate: float, stages: Sequence[Stage], counts: Sequence[int]) -> float:
    """Mean delay, s, of ``rate`` requests/s over a fleet under its best split.

    >>> round(population_delay(6.0, [Stage.mm1(1.0, 4.0)], [2]), 9)
    1.0
    """
    split = best_split(rate, stages, counts)
    served = [(s, x, n) for s, x, n in zip(stages, split, counts, strict=True) if x > 0.0]
    return sum(x * s.delay(x, n) for s, x, n in served) / sum(x for _, x, _ in served)
