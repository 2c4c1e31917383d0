"""A plan validated: simulated latencies beside the predicted ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.serving import best_traffic
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning.answer import Answer
from pdalloc.planning.effort import Effort
from pdalloc.planning.promises import late_shares, with_lateness
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
    predicted, late = predictions(scenario, answer), list[list[float]]()
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


def predictions(scenario: Scenario, answer: Answer) -> dict[Objective, float]:
    """What ``answer`` predicts of each SLO; infinity where there is no steady state."""
    shares = (s.predicted_share for s in answer.joint_slos)
    late = (None if share is None else 1.0 - share for share in shares)
    pairs = zip(scenario.slos, [*(s.predicted_s for s in answer.slos), *late], strict=True)
    return {slo: math.inf if value is None else value for slo, value in pairs}


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
        best_traffic(problem, fleet),
        predicted,
        effort.requests_for(scenario.system, scenario.options),
        effort.replications,
        seed,
        progress,
        scenario.options,
        scope=problem.slo_scope,
        observe=None if late is None else lambda run: late.append(late_shares(scenario, run)),
    )


def with_comparisons(answer: Answer, found: Sequence[Comparison]) -> Answer:
    """``answer`` with what the simulation found, SLO by SLO in the same order."""
    count = len(answer.slos)
    single = [
        s.model_copy(
            update={
                "simulated_s": c.simulated if math.isfinite(c.simulated) else None,
                "simulated_half_width_s": c.half_width if math.isfinite(c.simulated) else None,
                "simulated_verdict": c.verdict,
            }
        )
        for c, s in zip(found[:count], answer.slos, strict=True)
    ]
    joint = [
        s.model_copy(
            update={
                "simulated_share": 1.0 - c.simulated if math.isfinite(c.simulated) else None,
                "simulated_half_width": c.half_width if math.isfinite(c.simulated) else None,
                "simulated_verdict": c.verdict,
            }
        )
        for c, s in zip(found[count:], answer.joint_slos, strict=True)
    ]
    doubts = [c.doubt for c in found if c.doubt]
    doubts += [c.statement for c in found if not math.isfinite(c.simulated)]
    warnings = [*answer.warnings, *doubts]
    return answer.model_copy(update={"slos": single, "joint_slos": joint, "warnings": warnings})
