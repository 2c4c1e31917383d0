"""A plan validated: simulated latencies beside the predicted ones."""

from __future__ import annotations

import math
from collections.abc import Callable

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning.answer import Answer
from pdalloc.planning.effort import Effort
from pdalloc.scenario import Scenario
from pdalloc.slo.objective import Slo
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
    try:
        found = compared(
            scenario, problem, fleet, predictions(scenario, answer), effort, seed, progress
        )
    except KeyboardInterrupt:
        return answer.model_copy(update={"warnings": [*answer.warnings, NOT_VALIDATED]})
    unseen = effort.unseen(scenario.system, scenario.options)
    answer = answer.model_copy(update={"warnings": [*answer.warnings, *unseen]})
    done = min(c.replications for c in found)
    if done < effort.replications:
        stopped = f"stopped after {done} of {effort.replications} replications"
        answer = answer.model_copy(update={"warnings": [*answer.warnings, stopped]})
    return with_comparisons(answer, found)


def predictions(scenario: Scenario, answer: Answer) -> dict[Slo, float]:
    """What ``answer`` predicts of each SLO, seconds; infinity where there is no steady state."""
    pairs = zip(scenario.slos, answer.slos, strict=True)
    return {slo: float("inf") if s.predicted_s is None else s.predicted_s for slo, s in pairs}


def compared(
    scenario: Scenario,
    problem: AllocationProblem,
    fleet: Fleet,
    predicted: dict[Slo, float],
    effort: Effort,
    seed: int,
    progress: Progress | None,
) -> tuple[Comparison, ...]:
    """Every SLO of ``fleet`` under the plan's routing, simulated; in the scenario's order."""
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
    )


def with_comparisons(answer: Answer, found: tuple[Comparison, ...]) -> Answer:
    """``answer`` with what the simulation found, SLO by SLO in the same order."""
    slos = [
        s.model_copy(
            update={
                "simulated_s": c.simulated if math.isfinite(c.simulated) else None,
                "simulated_half_width_s": c.half_width if math.isfinite(c.simulated) else None,
                "simulated_verdict": c.verdict,
            }
        )
        for c, s in zip(found, answer.slos, strict=True)
    ]
    doubts = [c.doubt for c in found if c.doubt]
    doubts += [c.statement for c in found if not math.isfinite(c.simulated)]
    return answer.model_copy(update={"slos": slos, "warnings": [*answer.warnings, *doubts]})
