"""The cheapest fleet that keeps its SLOs over all requests: dual cuts on an integer program.

The integer program knows stock, limits and how much each type can carry at all. The best split
of the fleet it proposes (:mod:`.split`) either keeps the SLOs - then no cheaper fleet does,
since every cut holds for all fleets that do - or gives one more cut. The burden curves are known
at points: tables above and below them, where they are convex, hold the least cost between them.
The answer is checked on the laws.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pdalloc.allocation.covers import MOST_REPLICAS
from pdalloc.allocation.linear import LEEWAY, Array, LinearData, integer_program, linear_data
from pdalloc.allocation.population.burden import Burdens, below, burdens
from pdalloc.allocation.population.split import Split, add_points, best_split
from pdalloc.allocation.population.verdict import certify_population, population_traffic
from pdalloc.allocation.problem import Allocation, AllocationProblem, Status, infeasible
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES, Fleet
from pdalloc.prediction import PoolKey

MOST_REFINEMENTS = 6
"""Times that points are added before the gap between the tables is stated."""
MOST_CUTS = 400
"""Dual cuts before the search is given up."""
NOISE = 1e-6
"""Relative noise of the laws, by which they may fail to be convex."""
WIDER = 4.0
"""Factor on the box of counts where it binds."""
KEPT = 1e-9
"""Relative excess over a budget that still counts as kept."""


def solve_population(problem: AllocationProblem, solver: str) -> Allocation:
    """The cheapest fleet, checked on the laws; UnsupportedError as :func:`burdens` raises it.

    On tables below the curves a fleet may seem to do that does not, so that its cost is a bound;
    on those above them none does that fails. Points are added where the two disagree.
    """
    b, more = burdens(problem), dict[PoolKey, list[float]]()
    if floor := _floor(b, [slo.title for slo in problem.capacity.slos]):
        return infeasible(solver, floor)
    data = linear_data(problem, b.rates[:, -1] / b.demand)
    bound, best, cuts = 0.0, None, 0
    for times in range(MOST_REFINEMENTS):
        hopeful = cheapest_counts(below(b), data)
        if hopeful is None:
            return infeasible(solver, _shortage(b))
        fleet, cuts = data.fleet(hopeful[0]), cuts + hopeful[2]
        bound = problem.cost(fleet)
        if population_traffic(problem, fleet)[1]:
            return _answer(problem, solver, fleet, bound, cuts)
        best = cheapest_counts(replace(b, budgets=b.budgets * (1.0 - NOISE)), data)
        for counts, split, _ in (hopeful, best) if best else (hopeful,):
            add_points(more, b, counts, split, times)
        b = burdens(problem, more)
    if best is None:
        raise UnsupportedError("a fleet at the edge of its SLOs cannot be told; vary the demand")
    return _answer(problem, solver, data.fleet(best[0]), bound, cuts + best[2])


def cheapest_counts(b: Burdens, data: LinearData) -> tuple[Array, Split, int] | None:
    """Cheapest counts (n,) on the tabulated curves, their split and the cuts it took.

    ``data`` with the greatest shares that the curves know; None when no counts keep the SLOs.
    """
    cuts, least = np.empty((0, len(b.options))), np.empty(0)
    before = np.full(len(b.options), -1.0)
    while len(cuts) <= MOST_CUTS:
        counts = integer_program(data, rows=cuts, least=least)
        reach = data.reach(math.inf if counts is None else data.cost(counts))
        boxed = bool(np.any(reach > data.ceiling))
        if counts is None and (not boxed or data.ceiling.max() > MOST_REPLICAS):
            return None
        split = None if counts is None else best_split(b, counts)
        if counts is None or (split is not None and split.excess <= KEPT):
            if counts is not None and split is not None and not boxed:
                return counts, split, len(cuts)
            wider = np.minimum(reach, WIDER * data.ceiling)
            data = replace(data, ceiling=np.maximum(data.ceiling, wider))
            continue
        if split is None:
            raise UnsupportedError("a fleet at full load is at HiGHS's tolerance; vary the demand")
        scale = float(np.abs(split.slope).max())
        if scale <= 0.0:
            return None
        if np.array_equal(counts, before):  # the last cut holds within HiGHS's tolerance
            least[-1] += LEEWAY
            continue
        before = counts
        cuts = np.vstack([cuts, -split.slope / scale])
        least = np.append(least, (split.excess - split.slope @ counts) / scale)
    raise UnsupportedError(f"this problem is not settled after {MOST_CUTS} dual cuts")


def _answer(
    problem: AllocationProblem, solver: str, fleet: Fleet, bound: float, cuts: int
) -> Allocation:
    check = certify_population(problem, fleet)
    if not check.certified:
        raise UnsupportedError(
            f"{fleet} keeps its SLOs on the tabulated burden only ({'; '.join(check.broken)}): it "
            "is not convex here; use slo_scope: pool"
        )
    cost = problem.cost(fleet)
    details: dict[str, float | str] = {"cuts": cuts}
    rates = {} if check.prediction is None else check.prediction.rates
    for (role, name), rate in rates.items():
        if rate > 0.0:
            details[f"{role}/{name}_requests_per_s"] = rate
    status: Status = "optimal" if cost <= bound else "feasible"
    return Allocation(status, solver, fleet, cost, min(bound, cost), details=details)


def _floor(b: Burdens, names: list[str]) -> str:
    """The SLO that idle replicas of the best types break already, in words; "" for none."""
    for k, name in enumerate(names):
        least = sum(
            min(float(b.values[k, i, 1] / b.rates[i, 1]) for i in b.members(role)) for role in ROLES
        )
        if least >= b.budgets[k]:
            return (
                f"{name} over all requests cannot be kept with any number of replicas: idle, the "
                f"best types come to {least:.4g} against {b.budgets[k]:.4g}; loosen it"
            )
    return ""


def _shortage(b: Burdens) -> str:
    return (
        f"no fleet within stock and limits keeps the SLOs over all requests at {b.demand:.4g} "
        "req/s; raise stock or limits, loosen the SLOs, or lower the demand"
    )
