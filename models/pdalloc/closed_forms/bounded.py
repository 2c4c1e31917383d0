r"""Bounds on each stage and one on their sum: TTFT, TPOT and E2E means at once, at least cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdalloc.closed_forms.checks import positive
from pdalloc.closed_forms.stages import Stage
from pdalloc.errors import InfeasibleError, InputError


@dataclass(frozen=True)
class Bounded:
    """Least-cost stages under their own bounds and a common one.

    Per stage ``delays`` s, ``counts`` (real) and ``bound_prices``, USD/h saved per second that
    its own bound is eased; ``budget_price`` is that of the common bound. ``cost`` USD/h.
    """

    delays: tuple[float, ...]
    counts: tuple[float, ...]
    cost: float
    budget_price: float
    bound_prices: tuple[float, ...]


def bounded_budget(
    rate: float, stages: Sequence[Stage], bounds: Sequence[float], budget: float = math.inf
) -> Bounded:
    r"""Stages with mean delays of at most ``bounds`` each and ``budget`` together, all in s.

    Slack y_i = min(u_i, theta sqrt(beta_i)), u_i = bound_i - floor_i, with theta such that the
    slacks spend the budget, or all y_i = u_i if it is not binding. Infinite bounds are allowed,
    as long as the budget or all bounds are finite. ``rate`` requests/s. Source: theorem
    ``three_bounds``. Raises InfeasibleError naming the bound at or below its floor.

    >>> one = Stage.mm1(2.0, 4.0)
    >>> found = bounded_budget(10.0, [one, one], [0.45, math.inf], 1.0)
    >>> found.delays, found.cost, found.budget_price
    ((0.45, 0.55), 20.416667, 13.888889)
    """
    positive(rate=rate)
    if len(bounds) != len(stages) or not stages:
        raise InputError(f"{len(stages)} stages need as many bounds, got {len(bounds)}")
    rooms = [_room(stage, bound) for stage, bound in zip(stages, bounds, strict=True)]
    slack = _common_room(stages, budget)
    roots = [math.sqrt(stage.delay_cost) for stage in stages]
    theta = _level(rooms, roots, slack)
    spent = [min(u, theta * r) for u, r in zip(rooms, roots, strict=True)]
    common = rate / theta**2
    prices = tuple(
        max(rate * (r / y) ** 2 - common, 0.0) if y == u else 0.0
        for r, y, u in zip(roots, spent, rooms, strict=True)
    )
    delays = tuple(s.floor + y for s, y in zip(stages, spent, strict=True))
    counts = tuple(rate * (s.work + s.congestion / y) for s, y in zip(stages, spent, strict=True))
    cost = math.fsum(s.price * n for s, n in zip(stages, counts, strict=True))
    return Bounded(delays, counts, cost, common, prices)


def _room(stage: Stage, bound: float) -> float:
    if math.isnan(bound) or bound <= stage.floor:
        raise InfeasibleError(
            f"a bound of {bound:.4g} s is at or below the {stage.floor:.4g} s of an idle replica"
        )
    return bound - stage.floor


def _common_room(stages: Sequence[Stage], budget: float) -> float:
    floor = sum(stage.floor for stage in stages)
    if math.isnan(budget) or budget <= floor:
        raise InfeasibleError(
            f"{budget:.4g} s for {len(stages)} stages is at or below the {floor:.4g} s of an "
            "unloaded request"
        )
    return budget - floor


def _level(rooms: Sequence[float], roots: Sequence[float], slack: float) -> float:
    """theta with sum min(u, theta r) = slack; inf when all bounds fit into it."""
    if sum(rooms) <= slack:
        if math.isinf(sum(rooms)):
            raise InputError("bounded_budget: give every stage a bound, or a finite budget")
        return math.inf
    free = sum(roots)
    for u, r in sorted(zip(rooms, roots, strict=True), key=lambda pair: pair[0] / pair[1]):
        if slack * r <= u * free:
            break
        slack -= u
        free -= r
    return slack / free
