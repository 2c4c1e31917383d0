"""Plans and verdicts in which shed and late requests have their price: from question to answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pdalloc.allocation.problem import Allocation, AllocationProblem, Status
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import demand_limit
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import Fleet
from pdalloc.planning.answer import Answer, ShedAnswer, ShortfallAnswer
from pdalloc.planning.shortfall.lateness import (
    Weighed,
    driving,
    weigh_fleet,
    weigh_lateness,
)
from pdalloc.planning.shortfall.served import Offer, Point, served
from pdalloc.planning.shortfall.shedding import TOLERANCE, Least, LeastTotal, Priced
from pdalloc.scenario import Scenario

Solve = Callable[[AllocationProblem], Allocation]
UNPRICED = "costs are of fleets alone; pdalloc plan weighs the prices of late requests, too"
KEPT_SCV = (
    "{name}: what is served is taken to come as irregularly as all of it (arrival SCV {scv:.3g}); "
    "requests shed at random leave gaps a little nearer to Poisson"
)


@dataclass(frozen=True)
class Outcome:
    """What is served (``scenario``), by which fleet, and what that comes to.

    ``scenario`` is the offered one where nothing is served. ``bound``: least total, USD/hour.
    """

    offered: Scenario
    scenario: Scenario
    problem: AllocationProblem
    allocation: Allocation
    point: Point
    bound: float | None

    def completed(self, answer: Answer) -> Answer:
        """``answer``, for the served part, with the shortfall and the total."""
        offer = Offer(self.offered)
        rows = [
            ShedAnswer(
                traffic_class=s.traffic_class,
                usd_per_shed_request=s.price,
                most_share=s.most,
                share=1.0 - kept / rate,
                requests_per_s=rate - kept,
                usd_per_hour=s.usd_per_hour(rate - kept),
            )
            for s, rate, kept in zip(self.offered.shed, offer.most, self.point, strict=True)
        ]
        works = answer.status != "infeasible"
        late = sum(row.predicted_usd_per_hour or 0.0 for row in answer.lateness)
        shed = sum(row.usd_per_hour for row in rows)
        total = (answer.cost_usd_per_hour or 0.0) + shed + late if works else None
        found = ShortfallAnswer(
            offered_requests_per_s=self.offered.demand,
            shed=rows if works else [],
            shed_usd_per_hour=shed if works else None,
            lateness_usd_per_hour=late if works else None,
            total_usd_per_hour=total,
            bound_usd_per_hour=self.bound if works else None,
        )
        extra = self._caveats(rows) if works else []
        answer = answer.model_copy(
            update={"shortfall": found, "warnings": [*answer.warnings, *extra]}
        )
        return self._of_nothing(answer) if works and answer.fleet is None else answer

    def _caveats(self, rows: list[ShedAnswer]) -> list[str]:
        classes = {c.name: c for c in self.offered.system.workload.classes}
        shed = [classes[row.traffic_class] for row in rows if 0.0 < row.share < 1.0]
        return [
            KEPT_SCV.format(name=c.name, scv=c.arrival_scv) for c in shed if c.arrival_scv != 1.0
        ]

    def _of_nothing(self, answer: Answer) -> Answer:
        """The answer that all is shed: nothing to serve, nothing to promise."""
        return answer.model_copy(
            update={
                "demand_requests_per_s": 0.0,
                "demand_tokens_per_minute": 0.0,
                "cost_usd_per_million_tokens": None,
                "slos": [],
                "joint_slos": [],
                "lateness": [],
            }
        )


def priced_plan(scenario: Scenario, solver: str, alternatives: int, solve: Solve) -> Outcome | None:
    """The plan whose cost and shortfall are least; None where no price drives the plan.

    A baseline's fleet is its own, whatever lateness costs. Raises UnsupportedError for shedding
    without a proof, and for ``alternatives``, which are ranked by the fleet's cost alone.
    """
    exact = solver_named(solver).exact
    if scenario.shed and not exact:
        raise UnsupportedError(f"solver {solver!r} proves no bound; shed needs --solver exact")
    if not scenario.shed and not (exact and driving(scenario)):
        return None
    if not scenario.shed and scenario.problem().slo_scope == "population":
        return None
    if alternatives:
        raise UnsupportedError(
            "alternatives are ranked by the fleet's cost alone; leave them out, or the prices of "
            "shed and late requests"
        )
    return least_total_plan(scenario, solve)


def least_total_plan(scenario: Scenario, solve: Solve) -> Outcome:
    """The fleet, and what it serves, whose cost and shortfall are least together.

    ``solve`` gives the cheapest fleet of a problem, and its proven bound.
    """

    def price(point: Point) -> Priced:
        question = served(scenario, point)
        if question is None:
            nothing = Allocation("optimal", "exact", Fleet(()), 0.0, 0.0)
            return Priced(Weighed(nothing, 0.0, 0.0), lambda other: None)
        problem = question.problem()
        best = weigh_lateness(question, problem, solve(problem))
        fleet = best.allocation.fleet
        return Priced(
            best, lambda other: _weight(scenario, fleet, other), _guess(scenario, problem, fleet)
        )

    return _outcome(scenario, price)


def least_total_of(scenario: Scenario, fleet: Fleet) -> Outcome:
    """What ``fleet`` best serves: the cost of it is spent, the shortfall least.

    Where it breaks an SLO even at the least that must be served, its verdict there.
    """
    whole = scenario.problem()

    def price(point: Point) -> Priced:
        usd = _weight(scenario, fleet, point)
        known = math.inf if usd is None else usd
        status: Status = "infeasible" if usd is None else "feasible"
        verdict = Allocation(status, "evaluate", fleet, whole.cost(fleet), None)
        return Priced(
            Weighed(verdict, known, known),
            lambda other: _weight(scenario, fleet, other),
            _guess(scenario, whole, fleet),
        )

    return _outcome(scenario, price)


def _guess(
    scenario: Scenario, problem: AllocationProblem, fleet: Fleet
) -> Callable[[], float] | None:
    """The most that ``fleet`` serves, requests/s, by its own rates; for a class alone."""
    if len(scenario.system.workload.classes) > 1 or problem.slo_scope != "pool":
        return None
    most = scenario.demand * (1.0 + problem.headroom)
    return lambda: demand_limit(problem.capacity, fleet, most) / (1.0 + problem.headroom)


def _weight(scenario: Scenario, fleet: Fleet, point: Point) -> float | None:
    """Cost and lateness of ``fleet`` where ``point`` is served; None where an SLO breaks."""
    question = served(scenario, point)
    if question is None:
        return scenario.problem().cost(fleet)
    return weigh_fleet(question, question.problem(), fleet)


def _outcome(scenario: Scenario, price: Callable[[Point], Priced]) -> Outcome:
    offer = Offer(scenario)
    if scenario.shed:
        found = LeastTotal(offer, price, flat=not driving(scenario)).run()
    else:
        best = price(()).best
        found = Least((), best, best.usd, best.bound, 1)
    question = served(scenario, found.point) or scenario
    allocation = found.best.allocation
    if math.isfinite(found.usd) and allocation.solver != "evaluate":
        proven = found.bound >= found.usd - TOLERANCE * found.usd
        details = allocation.details
        if scenario.shed:  # the solver's own are about another point
            details = {"served_rates_solved": float(found.solved)}
        status: Status = "optimal" if proven else "feasible"
        allocation = replace(allocation, status=status, bound=None, details=details)
    bound = None if allocation.solver == "evaluate" else found.bound
    return Outcome(scenario, question, question.problem(), allocation, found.point, bound)


def as_served(scenario: Scenario, answer: Answer) -> Scenario:
    """``scenario`` with what ``answer`` serves of it; as it is where that is nothing."""
    rows = answer.shortfall.shed if answer.shortfall else []
    if not rows:
        return scenario
    pairs = zip(Offer(scenario).most, rows, strict=True)
    return served(scenario, tuple(rate - row.requests_per_s for rate, row in pairs)) or scenario


def unpriced(scenario: Scenario) -> list[str]:
    """What to say where costs are of fleets alone, though late requests have a price."""
    return [UNPRICED] if driving(scenario) else []


def refuse_shed(scenario: Scenario, command: str) -> None:
    """Raise UnsupportedError where ``command`` would take all demand for served."""
    if scenario.shed:
        raise UnsupportedError(
            f"shed: {command} serves all that is offered; use pdalloc plan, or leave shed out"
        )
