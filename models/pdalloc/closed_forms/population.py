r"""Several types in one role under the mean delay of all requests (a population SLO).

A slow cheap type may serve some requests if a fast one makes up for it. Cost per request/s of
type g at mean delay T is k_g(T) = alpha + beta/(T - floor); fractions of traffic w_g with
sum w_g T_g = tau. Lagrangian index phi_g(nu) = alpha + 2 sqrt(beta nu) + floor nu: the least
cost is max over nu of min_g phi_g(nu) - nu tau, and at most two types carry traffic. Source:
theorem ``two_types``; optimal routing to parallel queues is Bell and Stidham's (1983).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdalloc.closed_forms.checks import not_negative, positive
from pdalloc.closed_forms.stages import Stage
from pdalloc.errors import InfeasibleError, InputError


@dataclass(frozen=True)
class Mix:
    """Least-cost use of several types (real counts) under one mean delay.

    Per type: ``shares`` of the traffic, ``delays`` s (nan where unused), ``counts``; ``cost``
    USD/h; ``price_of_latency`` = nu lambda, USD/h saved per second of bound granted.
    """

    shares: tuple[float, ...]
    delays: tuple[float, ...]
    counts: tuple[float, ...]
    cost: float
    price_of_latency: float


def index(stage: Stage, latency_price: float) -> float:
    """phi(nu) = min over T of cost per request/s plus ``latency_price`` = nu x T.

    For M/M/1: (sqrt(c) + sqrt(nu))^2/mu. nu in USD/h per (request/s x s).
    """
    not_negative(latency_price=latency_price)
    root = math.sqrt(stage.delay_cost * latency_price)
    return stage.load_cost + 2.0 * root + stage.floor * latency_price


def population_mix(rate: float, stages: Sequence[Stage], bound: float) -> Mix:
    """The cheapest split of ``rate`` requests/s with mean delay ``bound`` s over all of them.

    >>> slow, fast = Stage.mm1(1.0, 1.0), Stage.mm1(3.0, 2.0)
    >>> mix = population_mix(10.0, [slow, fast], 2.0)
    >>> mix.shares, mix.cost
    ((0.5505, 0.4495), 19.4586)
    """
    positive(rate=rate, bound=bound)
    if not stages:
        raise InputError("population_mix: give at least one type")
    floor = min(stage.floor for stage in stages)
    if bound <= floor:
        raise InfeasibleError(
            f"a mean delay of {bound:.4g} s is at or below the {floor:.4g} s of the fastest type, "
            "idle"
        )

    def value(nu: float) -> float:
        return min(index(stage, nu) for stage in stages) - nu * bound

    nu = max(_candidates(stages, bound), key=value)
    shares, delays = _split(stages, nu, bound)
    counts = tuple(
        s.replicas(rate * w, t) if w else 0.0
        for s, w, t in zip(stages, shares, delays, strict=True)
    )
    return Mix(shares, delays, counts, rate * value(nu), rate * nu)


def _candidates(stages: Sequence[Stage], bound: float) -> Iterator[float]:
    """Every nu at which the dual can peak: one type alone, or two types that tie."""
    for i, a in enumerate(stages):
        if bound > a.floor:
            yield a.delay_cost / (bound - a.floor) ** 2
        for b in stages[:i]:
            yield from (root**2 for root in _crossings(a, b))


def _crossings(a: Stage, b: Stage) -> Iterator[float]:
    """sqrt(nu) > 0 with phi_a = phi_b: a quadratic in sqrt(nu)."""
    half = math.sqrt(a.delay_cost) - math.sqrt(b.delay_cost)
    return positive_roots(a.floor - b.floor, half, a.load_cost - b.load_cost)


def positive_roots(square: float, half: float, constant: float) -> Iterator[float]:
    """x > 0 with ``square`` x^2 + 2 ``half`` x + ``constant`` = 0, without cancellation."""
    inside = half**2 - square * constant
    if inside < 0.0 or (square == 0.0 and half == 0.0):
        return
    # The larger root in size first; its partner by the product of roots.
    far = -(half + math.copysign(math.sqrt(inside), half))
    roots = [far / square] if square else []
    roots += [constant / far] if far else []
    yield from (root for root in roots if root > 0.0)


def _split(
    stages: Sequence[Stage], nu: float, bound: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(shares, delays) at the optimal ``nu``: the types of least index around the bound."""
    indices = [index(stage, nu) for stage in stages]
    best = min(indices)
    delays = [s.floor + math.sqrt(s.delay_cost / nu) for s in stages]
    tied = [i for i, value in enumerate(indices) if value <= best * (1.0 + 1e-12)]
    below = max((i for i in tied if delays[i] <= bound), key=lambda i: delays[i], default=None)
    above = min((i for i in tied if delays[i] > bound), key=lambda i: delays[i], default=None)
    shares = [0.0] * len(stages)
    if below is None or above is None:
        only = tied[0] if len(tied) == 1 else min(tied, key=lambda i: abs(delays[i] - bound))
        shares[only] = 1.0
        delays[only] = bound
    else:
        shares[above] = (bound - delays[below]) / (delays[above] - delays[below])
        shares[below] = 1.0 - shares[above]
    used = tuple(t if w else math.nan for w, t in zip(shares, delays, strict=True))
    return tuple(shares), used


def switch_price(price_1: float, rate_1: float, price_2: float, rate_2: float) -> float:
    r"""nu* at which slow M/M/1 type 1 and fast type 2 tie; prices USD/h, rates requests/s.

    sqrt(nu*) = (sqrt(c2 mu1) - sqrt(c1 mu2))/(sqrt(mu2) - sqrt(mu1)); 0 when the fast type is
    the cheaper per request too, and is then used alone. Source: theorem ``two_types``.

    >>> round(switch_price(1.0, 1.0, 3.0, 2.0), 4)
    0.5887
    """
    positive(price_1=price_1, rate_1=rate_1, price_2=price_2, rate_2=rate_2)
    if rate_2 <= rate_1:
        raise InputError("switch_price: type 2 must be the faster one")
    root = math.sqrt(price_2 * rate_1) - math.sqrt(price_1 * rate_2)
    return (max(root, 0.0) / (math.sqrt(rate_2) - math.sqrt(rate_1))) ** 2
