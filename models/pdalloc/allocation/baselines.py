"""What the baselines share: merit order, a fleet along a P:D ratio, and a word on what breaks.

A baseline proves nothing. Its fleet is certified here as any other: where it breaks an SLO or
exceeds stock or a limit, it is returned as infeasible with the reason, never mended in secret.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pdalloc.allocation.certify import certify
from pdalloc.allocation.covers import MOST_REPLICAS, SHORTFALL
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.problem import Allocation, AllocationProblem, Option, infeasible
from pdalloc.fleet import DECODE, PREFILL, Fleet, Role
from pdalloc.prediction import PoolKey

Details = Mapping[str, float | str]


def judged(
    problem: AllocationProblem, solver: str, fleet: Fleet, details: Details | None = None
) -> Allocation:
    """``fleet`` as an answer without proof: feasible, or infeasible with what it breaks."""
    check = certify(problem, fleet)
    return Allocation(
        status="feasible" if check.certified else "infeasible",
        solver=solver,
        fleet=fleet,
        cost=problem.cost(fleet),
        bound=None,
        reason="; ".join(check.broken),
        details=details or {},
    )


def keeps_slos(problem: AllocationProblem, fleet: Fleet) -> bool:
    """Whether ``fleet`` keeps every SLO, stock and limits left aside."""
    options = tuple(replace(o, most=math.inf) for o in problem.options)
    return certify(replace(problem, options=options, stock={}), fleet).certified


def merit_order(problem: AllocationProblem, role: Role) -> list[tuple[Option, float]]:
    """(option, requests/s per replica) by USD per admissible request; useless types left out."""
    rated = [(o, problem.rate(o)) for o in problem.in_role(role)]
    useful = [(o, rate) for o, rate in rated if rate * MOST_REPLICAS >= problem.demand]
    return sorted(useful, key=lambda item: item[0].usd_per_hour / item[1])


def one_type_each(
    problem: AllocationProblem,
) -> tuple[tuple[Option, float], tuple[Option, float]] | None:
    """The first prefill and decode type in merit order that could serve alone, with rates.

    Where stock and limits allow none, the first of all. None when a role has no useful type.
    """
    chosen = []
    for role in (PREFILL, DECODE):
        ranked = merit_order(problem, role)
        if not ranked:
            return None
        able = [item for item in ranked if room(problem, item[0]) * item[1] >= problem.demand]
        chosen.append((able or ranked)[0])
    return chosen[0], chosen[1]


def room(
    problem: AllocationProblem, option: Option, counts: Mapping[PoolKey, int] | None = None
) -> int:
    """Replicas of ``option`` that stock and limit leave beside ``counts`` by (role, type)."""
    fleet = Fleet.of(dict(counts or {}))
    here = fleet.count(option.role, option.replica_type)
    left = problem.stock.get(option.gpu, math.inf) - problem.gpus(fleet).get(option.gpu, 0)
    return int(max(min(option.most - here, left // option.gpus, MOST_REPLICAS), 0))


def whole(count: float) -> int:
    """``count`` rounded up, rounding noise left aside; at least 1."""
    return max(math.ceil(count * (1.0 - SHORTFALL)), 1)


def along_ratio(
    problem: AllocationProblem, solver: str, ratio: float, details: Details
) -> Allocation:
    """The least fleet at ``ratio`` P per D, one type per role, that keeps every SLO.

    Types as :func:`one_type_each` chooses them; both roles only grow on the way.
    """
    chosen = one_type_each(problem)
    if chosen is None:
        return infeasible(solver, explain_infeasible(problem))
    names = tuple(option.replica_type for option, _ in chosen)
    size = _least_size(problem, names, ratio)
    if size is None:
        reason = explain_infeasible(problem)
        return infeasible(solver, f"no fleet of {ratio:.3g} P per D keeps every SLO: {reason}")
    fleet = by_ratio(names, ratio, size)
    return judged(problem, solver, fleet, {"prefill_per_decode": ratio, **details})


def by_ratio(names: tuple[str, ...], ratio: float, size: int) -> Fleet:
    """``size`` replicas of the larger role, and of the other ``ratio`` P per D, rounded up.

    >>> by_ratio(("h200", "h200"), 1 / 3, 7).xpyd
    '3P7D'
    """
    other = whole(size * min(ratio, 1.0 / ratio))
    prefill, decode = (other, size) if ratio < 1.0 else (size, other)
    return Fleet.of({(PREFILL, names[0]): prefill, (DECODE, names[1]): decode})


def _least_size(problem: AllocationProblem, names: tuple[str, ...], ratio: float) -> int | None:
    """Fewest replicas of the larger role that keep the SLOs; more never break them."""

    def enough(size: int) -> bool:
        return keeps_slos(problem, by_ratio(names, ratio, size))

    low, high = 0, 1
    while not enough(high):
        if high > MOST_REPLICAS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
