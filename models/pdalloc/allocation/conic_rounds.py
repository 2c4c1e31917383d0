r"""Conic rounds: tangents where the answer is, until it keeps the SLOs by the laws.

Every round solves a relaxation (:mod:`pdalloc.allocation.conic`), so the last optimum is a lower
bound, and the first answer that keeps the SLOs attains it. A tangent removes the answer it was
made at. A burden that is not convex is refused: its tangents would cut off fleets that work.

**Prices.** By the envelope theorem a bound's price is the Lagrangian's derivative at the optimum:
with the multiplier eta of an SLO over all requests, :math:`\partial cost/\partial\tau = \eta
\sum_i n_i \partial F_i/\partial\tau`, for means :math:`-\eta/\tau`; of an SLO that each pool
keeps, with the multipliers z of ``busy``, :math:`-\sum_i z_i n_i \partial cap_i/\partial\tau`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pdalloc.allocation.baselines import judged
from pdalloc.allocation.certify import certify
from pdalloc.allocation.conic import (
    NOT_CONVEX,
    ConicData,
    burdens_of,
    conic_data,
    not_convex,
    tangents_at,
)
from pdalloc.allocation.covers import MOST_REPLICAS
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.linear import Array
from pdalloc.allocation.population import explain_population
from pdalloc.allocation.problem import Allocation, AllocationProblem, infeasible
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean

MOST_ROUNDS = 60
KEPT = 1e-9
"""Excess over a budget, relative, that still counts as kept."""
NEAR = 1e-7
"""The same of a relaxation by tangents: it is a lower bound before it is kept."""
WIDER = 4.0
"""Factor on the box of counts where it may bind: SCIP errs in boxes that are too wide."""
WHOLE = 1e-6
"""A count this little above a whole number is that number."""
STEP = 1e-4
"""Relative change of a bound in a difference quotient."""


@dataclass(frozen=True)
class Point:
    """An optimum: ``counts`` and ``busy`` replicas (n,), a proven lower ``bound`` in USD/hour.

    ``duals`` by constraint name, not negative, in USD/hour per unit of the right-hand side.
    """

    counts: Array
    busy: Array
    bound: float
    duals: Mapping[str, float] = field(default_factory=dict)


Minimise = Callable[[ConicData], Point | None]
"""A backend: the optimum of one round, or None when it is infeasible."""


def solve_relaxation(
    problem: AllocationProblem, solver: str, minimise: Minimise, near: float = NEAR
) -> Allocation:
    """The relaxation's bound, fractions and prices, with its counts rounded up and certified.

    ``details``: ``count[role/type]`` replicas (real); ``d_cost/d_demand[role]`` USD/hour per
    request/s of one role, ``d_cost/d_demand`` of all; ``d_cost/d_stock[gpu]`` USD/hour per GPU;
    ``d_cost/d_bound[class/slo]`` USD/hour per second. Raises UnsupportedError as
    :func:`~pdalloc.allocation.conic.conic_data`.
    """
    problem = problem.with_headroom()
    refined = _Refined(problem, solver)
    for _ in range(MOST_ROUNDS):
        point = minimise(refined.data)
        if point is None:
            return infeasible(solver, _why(problem))
        if refined.keeps(point, near):
            break
    else:
        raise UnsupportedError(refined.unsettled(MOST_ROUNDS))
    data = refined.data
    details: dict[str, float | str] = {"relaxation_usd_per_hour": point.bound}
    pairs = zip(data.linear.labels, point.counts, strict=True)
    details |= {f"count[{label}]": float(n) for label, n in pairs}
    if point.duals:
        details |= prices(problem, data, point)
    fleet = data.linear.fleet(np.ceil(point.counts - WHOLE))
    answer = judged(problem, solver, fleet, details)
    return answer if answer.status == "infeasible" else replace(answer, bound=point.bound)


def solve_integer(problem: AllocationProblem, solver: str, minimise: Minimise) -> Allocation:
    """The cheapest fleet that keeps its SLOs over all requests, certified.

    Raises UnsupportedError as :func:`~pdalloc.allocation.conic.conic_data`, where every SLO is
    linear or only relaxed by cones, and where the answer breaks one by a solver's tolerance.
    """
    problem = problem.with_headroom()
    refined = _Refined(problem, solver)
    if not refined.data.slos:
        raise UnsupportedError(
            f"solver {solver!r} has no cone to solve where each pool keeps SLOs of one stage; use "
            "--solver cvxpy_scip, or slo_scope: population"
        )
    if refined.data.relaxed:
        raise UnsupportedError(
            f"solver {solver!r} knows SLOs that span both stages for one type per role, or "
            "slo_scope: population; use --solver exact"
        )
    for rounds in range(1, MOST_ROUNDS + 1):
        point = whole_optimum(refined.data, minimise)
        if point is None:
            return infeasible(solver, _why(problem))
        fleet = refined.data.linear.fleet(point.counts)
        check = certify(problem, fleet)
        if check.certified:
            cost, details = problem.cost(fleet), {"rounds": rounds}
            return Allocation("optimal", solver, fleet, cost, min(point.bound, cost), "", details)
        if refined.keeps(point):
            raise UnsupportedError(
                f"solver {solver!r} is at its tolerance: {fleet} fails by a hair "
                f"({'; '.join(check.broken)}); use --solver exact"
            )
    raise UnsupportedError(refined.unsettled(MOST_ROUNDS))


def whole_optimum(data: ConicData, minimise: Minimise) -> Point | None:
    """The optimum with whole counts in a box that is wide enough; None when it is infeasible.

    No cheaper fleet has more replicas of a type than its cost affords.
    """
    while True:
        point = minimise(data)
        cost = math.inf if point is None else data.linear.cost(point.counts)
        reach = np.minimum(data.linear.reach(cost), MOST_REPLICAS)
        if np.all(reach <= data.room):
            return point
        data = replace(data, room=np.maximum(data.room, np.minimum(reach, WIDER * data.room)))


class _Refined:
    """``data`` of a problem, with ever more tangents."""

    def __init__(self, problem: AllocationProblem, solver: str) -> None:
        self.solver = solver
        self.data, self.burdens = conic_data(problem, solver)

    def keeps(self, point: Point, tolerance: float = KEPT) -> bool:
        """Whether ``point`` keeps the SLOs by the laws; if not, the data gets tangents there."""
        data, added, total = self.data, list(self.data.tangents), self._by_cones(point)
        for i, burden in self.burdens.items():
            n = float(point.counts[i])
            u = min(float(point.busy[i]) / n, float(data.cap[i])) if n > WHOLE else 0.0
            if u <= WHOLE:
                continue
            there = burden.at(u)
            curved = [int(k) for k in np.flatnonzero(data.curved[:, i])]
            for k in curved:
                lines = [t.slope * u + t.level for t in data.tangents if (t.k, t.i) == (k, i)]
                if max(lines) > there[k] * (1.0 + NOT_CONVEX):
                    raise UnsupportedError(not_convex(data, k, i, self.solver))
                total[k] += n * there[k]
            added += tangents_at(burden, i, curved, u)
        if np.all(total <= 1.0 + tolerance):
            return True
        kept = len(added) == len(data.tangents)  # no law is left to disagree with
        self.data = replace(data, tangents=tuple(added))
        return kept

    def _by_cones(self, point: Point) -> Array:
        """Share of every budget that lines and cones account for; (K,)."""
        data = self.data
        q = np.zeros_like(point.busy)
        for i in data.queues:
            if point.busy[i] > WHOLE:
                q[i] = point.busy[i] ** 2 / max(point.counts[i] - point.busy[i], 1e-300)
        total: Array = data.work @ point.busy + data.queue @ q
        return total

    def unsettled(self, rounds: int) -> str:
        """That the rounds were too few, in one line."""
        return f"solver {self.solver!r} has not settled after {rounds} rounds; use --solver exact"


def _why(problem: AllocationProblem) -> str:
    if problem.slo_scope == "population":
        return explain_population(problem)
    return explain_infeasible(problem)


def prices(problem: AllocationProblem, data: ConicData, point: Point) -> dict[str, float]:
    """Derivatives of the relaxation's cost, by name, as :func:`solve_relaxation` lists them."""
    duals = point.duals
    found = {f"d_cost/d_demand[{r}]": duals[f"demand[{r}]"] / problem.demand for r in ROLES}
    late = sum(duals[f"slo[{name}]"] for name in data.slos)
    # more traffic has more delay to spend: the right-hand side of an SLO is lambda tau
    found["d_cost/d_demand"] = sum(found.values()) - late / problem.demand
    found |= {f"d_cost/d_stock[{gpu}]": -duals[f"stock[{gpu}]"] for gpu in data.linear.stock}
    for slo, index in problem.capacity.slo_classes:
        if isinstance(slo, Slo):
            name = f"{slo.traffic_class}/{slo.name}"
            by_all = name in data.slos
            price = _over_all if by_all else _per_pool
            found[f"d_cost/d_bound[{name}]"] = price(problem, data, point, slo, index)
    return found


def _over_all(
    problem: AllocationProblem, data: ConicData, point: Point, slo: Slo, index: int
) -> float:
    """d cost/d bound of an SLO over all requests, USD/hour per second."""
    eta = point.duals[f"slo[{slo.traffic_class}/{slo.name}]"]
    if isinstance(slo.statistic, Mean):
        return -eta / slo.bound

    def total(bound: float) -> float:
        moved = [(replace(slo, bound=bound), index)]
        return sum(
            float(n) * float(burdens_of(problem, o, moved).at(float(a / n))[0])
            for o, n, a in zip(data.linear.options, point.counts, point.busy, strict=True)
            if n > WHOLE
        )

    return eta * _slope(total, slo.bound)


def _per_pool(
    problem: AllocationProblem, data: ConicData, point: Point, slo: Slo, index: int
) -> float:
    """d cost/d bound of an SLO that each pool keeps, USD/hour per second."""
    capacity, options = problem.capacity, data.linear.options
    names = data.linear.labels
    shadow = np.array([point.duals[f"busy[{x}]"] for x in names]) * point.counts
    held = [
        i
        for i in np.flatnonzero(shadow > WHOLE * max(point.bound, WHOLE))
        if slo.metric in capacity.decided_by(options[i].role)
    ]

    def total(bound: float) -> float:
        slos = tuple(replace(slo, bound=bound) if s == slo else s for s in capacity.slos)
        moved = replace(problem, capacity=type(capacity)(capacity.system, slos, capacity.options))
        return sum(float(shadow[i] * moved.rate(options[i]) / data.full[i]) for i in held)

    return -_slope(total, slo.bound) if held else 0.0


def _slope(value: Callable[[float], float], at: float) -> float:
    return (value(at * (1.0 + STEP)) - value(at * (1.0 - STEP))) / (2.0 * STEP * at)
