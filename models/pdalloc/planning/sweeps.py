"""Cost and latency against demand: the numbers behind the figures.

Admissible rates per replica do not depend on how much traffic is offered, so one
:class:`~pdalloc.capacity.Capacity` serves all demands of a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.population import population_values
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.serving import best_traffic, serves
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import Capacity, demand_limit
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.planning.plan import single_type_costs
from pdalloc.prediction import DecodeState, PrefillState, predict
from pdalloc.scenario import Scenario
from pdalloc.slo.interface import Objective
from pdalloc.slo.objective import Slo

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]

POINTS, FEW_POINTS = 41, 11
"""Demands of a default sweep; few where each costs seconds."""
LOWEST, HIGHEST = 0.2, 1.6
"""Ends of a default sweep, relative to the scenario's demand."""
STEPS_BETWEEN = 8
"""Most steps looked for between two neighbouring demands."""
HALVINGS = 8
"""Bisections that place a step between two demands, where there is no closed form."""
JUST_ABOVE = 1e-9
"""A step is placed this far (relative) above the limit of the fleet before it."""
SAME_COST = 1e-9


@dataclass(frozen=True)
class CostPoint:
    """The cheapest fleet at ``demand`` requests/s.

    ``cost`` in USD/hour; ``fleet`` and ``cost`` are None when no fleet keeps the SLOs.
    ``single_type``: cheapest fleet of one GPU type alone, USD/hour (empty with one type).
    ``step``: the cheapest fleet changes exactly here, so that the point's left neighbour
    holds up to this demand.
    """

    demand: float
    fleet: Fleet | None
    cost: float | None
    single_type: Mapping[str, float | None] = field(default_factory=dict)
    step: bool = False

    @property
    def xpyd(self) -> str | None:
        """Replicas per role, as ``3P4D``."""
        return self.fleet.xpyd if self.fleet else None


@dataclass(frozen=True)
class LatencyCurve:
    """Predicted latency of ``fleet`` against demand.

    ``demands`` in requests/s, shape (n,); ``seconds``, shape (SLOs, n), in the order of the
    scenario's SLOs on one latency, worst path of the fleet; NaN where there is no steady state.
    """

    fleet: Fleet
    demands: Array
    seconds: Array


def costly(scenario: Scenario) -> bool:
    """Whether one plan may take seconds: several types, coupled stages and percentiles."""
    means = all(slo.level == 0.0 for slo in scenario.slos)
    several = len(scenario.system.replica_types) > 1
    return several and not means and scenario.capacity().coupled


def demand_grid(scenario: Scenario) -> tuple[float, ...]:
    """Demands of a default sweep in requests/s, rising; the scenario's own is one of them."""
    points = FEW_POINTS if costly(scenario) else POINTS
    grid = set(np.linspace(LOWEST, HIGHEST, points) * scenario.demand)
    return tuple(float(demand) for demand in sorted(grid | {scenario.demand}))


def cost_sweep(
    scenario: Scenario, demands: Iterable[float], progress: Progress | None = None
) -> tuple[CostPoint, ...]:
    """The cheapest fleet at each of ``demands`` (requests/s) and at each step between them.

    Steps are looked for where two neighbouring demands differ in cost (at most
    STEPS_BETWEEN); not in :func:`costly` scenarios.
    """
    problem = scenario.problem()
    wanted = sorted(set(demands))
    points: list[CostPoint] = []
    for done, demand in enumerate(wanted):
        point = _cost_point(problem, demand)
        if points and not costly(scenario):
            points += _steps_between(problem, points[-1], point)
        points.append(point)
        if progress is not None:
            progress(done + 1, len(wanted))
    return tuple(points)


def _cost_point(problem: AllocationProblem, demand: float, step: bool = False) -> CostPoint:
    problem = replace(problem, demand=demand)
    found = solver_named("exact").solve(problem)
    several = len({o.gpu for o in problem.options}) > 1
    single = single_type_costs(problem) if several and found.cost is not None else {}
    fleet = found.fleet if found.cost is not None else None
    return CostPoint(demand, fleet, found.cost, single, step)


def _steps_between(
    problem: AllocationProblem, left: CostPoint, right: CostPoint
) -> list[CostPoint]:
    """Points at which the cost steps up between two solved ones, by each fleet's own limit."""
    steps: list[CostPoint] = []
    while left.fleet is not None and len(steps) < STEPS_BETWEEN:
        if right.cost is not None and right.cost <= (left.cost or 0.0) + SAME_COST:
            break
        start = _end_of(problem, left.fleet, left.demand, right.demand)
        if not left.demand < start < right.demand:
            break
        left = _cost_point(problem, start, step=True)
        steps.append(left)
    return steps


def _end_of(problem: AllocationProblem, fleet: Fleet, low: float, high: float) -> float:
    """A demand in requests/s just above what ``fleet`` serves; it serves ``low``."""
    if problem.slo_scope == "pool" and not problem.capacity.coupled:
        return demand_limit(problem.capacity, fleet, high) + JUST_ABOVE * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        fits = serves(replace(problem, demand=middle), fleet)
        low, high = (middle, high) if fits else (low, middle)
    return high


def neighbours(fleet: Fleet) -> tuple[Fleet, ...]:
    """``fleet`` with one replica fewer, and one more, in each pool; no role left empty."""
    counts = fleet.counts
    changed = [
        Fleet.of({**counts, key: n + change}) for key, n in counts.items() for change in (-1, 1)
    ]
    return tuple(f for f in changed if all(f.in_role(role) for role in ROLES))


def latency_sweep(
    scenario: Scenario,
    fleets: Sequence[Fleet],
    demands: Iterable[float],
    progress: Progress | None = None,
) -> tuple[LatencyCurve, ...]:
    """Predicted value of every SLO for each of ``fleets`` over ``demands`` (requests/s).

    Each curve has points of its own near the demand at which its fleet saturates.
    """
    sweep = _Latencies(scenario.problem())
    grid = np.unique(np.fromiter(demands, float))
    curves = []
    for done, fleet in enumerate(fleets):
        own = sweep.saturation(fleet) * (1.0 - 0.5 ** np.arange(2, 8, 1 / 6))
        inside = own[(own > grid[0]) & (own < grid[-1])]
        points = np.unique(np.concatenate([grid, inside]))
        values = [sweep.at(fleet, float(demand)) for demand in points]
        curves.append(LatencyCurve(fleet, points, np.array(values).T))
        if progress is not None:
            progress(done + 1, len(fleets))
    return tuple(curves)


@dataclass(frozen=True)
class _Latencies:
    """Predictions with a memory: fleets that differ in decode alone share prefill's values."""

    problem: AllocationProblem
    known: dict[tuple[object, ...], float] = field(default_factory=dict)

    @property
    def capacity(self) -> Capacity:
        return self.problem.capacity

    def saturation(self, fleet: Fleet) -> float:
        """Requests/s at which the busier role of ``fleet`` has no time left."""
        types = self.capacity.system.replica_types
        return min(
            sum(
                pool.replicas * self.capacity.stability_limit(role, types[pool.replica_type])
                for pool in fleet.in_role(role)
            )
            for role in ROLES
        )

    def at(self, fleet: Fleet, demand: float) -> list[float]:
        """Seconds per SLO on one latency at ``demand`` requests/s; NaN without a steady state."""
        slos = [(s, index) for s, index in self.capacity.slo_classes if isinstance(s, Slo)]
        nothing = [float("nan")] * len(slos)
        if demand >= self.saturation(fleet):
            return nothing
        try:
            prediction = predict(self.capacity.predictor, fleet, self._rates(fleet, demand))
            if self.problem.slo_scope == "population":
                return population_values(self.capacity, prediction)
            paths = prediction.paths()
            return [
                max(self._value(slo, index, p, d, fleet) for p, d in paths) for slo, index in slos
            ]
        except UnstableError:
            return nothing

    def _rates(self, fleet: Fleet, demand: float) -> Mapping[tuple[str, str], float]:
        if len(fleet.pools) == len(ROLES):  # one type per role: nothing to route
            return {(pool.role, pool.replica_type): demand for pool in fleet.pools}
        return best_traffic(replace(self.problem, demand=demand), fleet)

    def _value(
        self, slo: Objective, index: int, p: PrefillState, d: DecodeState, fleet: Fleet
    ) -> float:
        key: tuple[object, ...] = (slo,)
        if self.capacity.decided_by(PREFILL) & slo.limits.keys():
            key += (PREFILL, p.replica_type.name, p.rate, p.replicas)
        if self.capacity.decided_by(DECODE) & slo.limits.keys():
            # what decode gets is what all of prefill gives out
            key += (DECODE, d.replica_type.name, d.rate, d.replicas, str(fleet))
        if key not in self.known:
            self.known[key] = self.capacity.value(slo, index, p, d)
        return self.known[key]
