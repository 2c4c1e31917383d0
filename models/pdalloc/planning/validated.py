"""A plan validated: simulated latencies beside the predicted ones."""

from __future__ import annotations

from collections.abc import Callable

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning.answer import Answer
from pdalloc.planning.effort import Effort
from pdalloc.planning.promises import (
    late_shares,
    predicted_numbers,
    with_comparisons,
    with_lateness,
)
from pdalloc.scenario import Scenario
from pdalloc.slo.interface import Objective
from pdalloc.validation import Comparison, validate

Progress = Callable[[int, int], None]
"""Called with (done, total) while something long runs."""
NOT_VALIDATED = "the simulation was stopped before two replications were done; nothing is simulated"


def validated(
    scenario: Scenario,
    problem: AllocationProblem,
    answer: Answer,
    effort: Effort,
    seed: int,
    progress: Progress | None,
) -> Answer:
    """``answer`` with simulated latencies, their half-widths and a word where they differ.

    ^C before anything is simulated gives the answer as it was, and says so.
    """
    fleet = parse_fleet(answer.fleet or "", scenario.system.type_names)
    predicted, late = predicted_numbers(scenario.slos, answer), list[list[float]]()
    try:
        found = compared(scenario, problem, fleet, predicted, effort, seed, progress, late)
    except KeyboardInterrupt:
        return answer.model_copy(update={"warnings": [*answer.warnings, NOT_VALIDATED]})
    unseen = effort.unseen(scenario.system, scenario.options)
    answer = answer.model_copy(update={"warnings": [*answer.warnings, *unseen]})
    done = min(c.replications for c in found)
    if done < effort.replications:
        stopped = f"stopped after {done} of {effort.replications} replications"
        answer = answer.model_copy(update={"warnings": [*answer.warnings, stopped]})
    return with_lateness(scenario, with_comparisons(answer, found), late[:done])


def compared(
    scenario: Scenario,
    problem: AllocationProblem,
    fleet: Fleet,
    predicted: dict[Objective, float],
    effort: Effort,
    seed: int,
    progress: Progress | None,
    late: list[list[float]] | None = None,
) -> tuple[Comparison, ...]:
    """Every SLO of ``fleet`` under the plan's routing, simulated; in the scenario's order.

    ``late`` is given each replication's late shares of the best-effort SLOs.
    """
    return validate(
        scenario.system,
        scenario.slos,
        fleet,
        problem.capacity.best_route(fleet, problem.demand),
        predicted,
        effort.requests_for(scenario.system, scenario.options),
        effort.replications,
        seed,
        progress,
        scenario.options,
        observe=None if late is None else lambda run: late.append(late_shares(scenario, run)),
    )
