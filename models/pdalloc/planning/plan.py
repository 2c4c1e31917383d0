"""plan and evaluate: from a scenario to a certified answer."""

from __future__ import annotations

from dataclasses import replace

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES, Fleet, parse_fleet
from pdalloc.planning.answer import Answer
from pdalloc.planning.assembly import answer_of
from pdalloc.planning.effort import SEED, Effort
from pdalloc.planning.repair import repaired
from pdalloc.planning.shortfall import least_total_of, priced_plan
from pdalloc.planning.validated import Progress, validated
from pdalloc.scenario import Scenario
from pdalloc.scenario.pools import check_shared

AGAIN = (0.005, 0.01, 0.02, 0.04, 0.08)
"""Relative growth of demand that is planned for where a fleet falls short of its own."""
NO_STEADY_STATE = (
    "without a steady state there is nothing to validate; pdalloc simulate shows how queues grow"
)


def plan(
    scenario: Scenario,
    solver: str = "exact",
    alternatives: int = 0,
    simulate: bool = False,
    progress: Progress | None = None,
    seed: int = SEED,
    effort: Effort | None = None,
    repair: bool = False,
) -> Answer:
    """The cheapest fleet that keeps every SLO, certified by prediction.

    Where shed or late requests have a price, fleet and shortfall are cheapest together.
    ``solver`` names a module of :mod:`pdalloc.allocation.solvers`; ``alternatives`` next
    cheapest fleets are listed; ``simulate`` puts simulated latencies beside the predicted
    ones; ``repair`` adds the cheapest replicas until the simulation, too, keeps every SLO. An
    infeasible question is an answer too (``status``, ``reason``).
    """
    if alternatives and solver != "exact":
        raise UnsupportedError(f"solver {solver!r} lists no alternatives; use --solver exact")
    check_apart(scenario)
    outcome = priced_plan(scenario, solver, alternatives, lambda p: solved(p, solver))
    if outcome is not None:
        scenario, problem, allocation = outcome.scenario, outcome.problem, outcome.allocation
    else:
        problem = scenario.problem()
        allocation = solved(problem, solver, alternatives)
    answer = answer_of(scenario, problem, allocation, seed)
    several = len({o.gpu for o in problem.options}) > 1
    if several and answer.status == "optimal" and outcome is None:
        answer = answer.model_copy(update={"single_type": single_type_costs(problem)})
    if allocation.fleet.pools and repair:
        answer = repaired(scenario, problem, answer, effort or Effort(), seed, progress)
    elif allocation.fleet.pools and simulate:
        answer = validated(scenario, problem, answer, effort or Effort(), seed, progress)
    return answer if outcome is None else outcome.completed(answer)


def solved(problem: AllocationProblem, solver: str, alternatives: int = 0) -> Allocation:
    """The solver's answer; planned again for a little more demand where its fleet falls short.

    Pools are sized before it is known what their partners make of the arrivals, so an exact
    solver's fleet may miss a bound by a hair. The fleet for more demand is no longer proven
    cheapest: its status is ``feasible``, its bound that of the question.
    """
    chosen = solver_named(solver)
    first = chosen.solve(problem, alternatives)
    if not (chosen.exact and first.fleet.pools) or certify(problem, first.fleet).certified:
        return first
    for more in AGAIN:
        found = chosen.solve(replace(problem, demand=problem.demand * (1.0 + more)), alternatives)
        if found.status == "infeasible":
            break
        if certify(problem, found.fleet).certified:
            cost = problem.cost(found.fleet)
            return replace(found, status="feasible", cost=cost, bound=first.bound)
    return first


def evaluate(
    scenario: Scenario,
    fleet: str | Fleet,
    simulate: bool = False,
    progress: Progress | None = None,
    seed: int = SEED,
    effort: Effort | None = None,
) -> Answer:
    """What a given fleet does: which SLO breaks, its margins, and up to which demand it holds.

    Where requests may be shed, what it best serves.
    ``fleet`` as ``3P4D`` or ``prefill/h200x8=3,decode/h200x8=4``.
    """
    check_apart(scenario)
    if isinstance(fleet, str):
        fleet = parse_fleet(fleet, scenario.system.type_names)
    outcome = least_total_of(scenario, fleet) if scenario.shed else None
    if outcome is not None:
        scenario = outcome.scenario
    problem = scenario.problem()
    check = certify(problem, fleet)
    allocation = Allocation(
        "feasible" if check.certified else "infeasible",
        "evaluate",
        fleet,
        problem.cost(fleet),
        None,
        "; ".join(check.broken),
    )
    answer = answer_of(scenario, problem, allocation, seed)
    if simulate and check.prediction is None:
        answer = answer.model_copy(update={"warnings": [*answer.warnings, NO_STEADY_STATE]})
    elif simulate:
        answer = validated(scenario, problem, answer, effort or Effort(), seed, progress)
    return answer if outcome is None else outcome.completed(answer)


def check_apart(scenario: Scenario) -> None:
    """Raise UnsupportedError for co-located serving, and for pools per class."""
    check_shared(scenario)
    if scenario.options.colocated is not None:
        raise UnsupportedError(
            "simulation.colocated: no formula knows co-located serving; use pdalloc simulate"
        )


def single_type_costs(problem: AllocationProblem) -> dict[str, float | None]:
    """Cheapest fleet of each GPU type alone in both roles, USD/hour; None: infeasible."""
    costs: dict[str, float | None] = {}
    for gpu in dict.fromkeys(o.gpu for o in problem.options):
        alone = replace(problem, options=tuple(o for o in problem.options if o.gpu == gpu))
        roles = {o.role for o in alone.options}
        costs[gpu] = solver_named("exact").solve(alone).cost if roles == set(ROLES) else None
    return costs
