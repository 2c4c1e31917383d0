"""Repair: what the simulation breaks, the cheapest replicas mend.

The plan is optimal for its formulas. Where the simulator says that an SLO does not hold with
confidence, one replica at a time is added: the cheapest with which every SLO holds, or else
the one that takes most of the excess away per USD. Fleets are compared on the same arrivals.
The result is a fleet that works, not one that is proven cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pdalloc.allocation.certify import resource_violations
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.errors import InfeasibleError, InputError
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning.answer import Answer
from pdalloc.planning.assembly import answer_of
from pdalloc.planning.effort import Effort
from pdalloc.planning.promises import with_lateness
from pdalloc.planning.validated import (
    NOT_VALIDATED,
    Progress,
    compared,
    predictions,
    with_comparisons,
)
from pdalloc.scenario import Scenario
from pdalloc.validation import Comparison

MOST_ADDED = 50
"""Replicas added at most: a formula that is this far off needs another look, not more GPUs."""
STOPPED = "the repair was stopped: the simulation does not keep every SLO of this fleet yet"
CLOSER = 4
"""How many times as many replications decide what is too close to call."""


@dataclass(frozen=True)
class _Judge:
    """Simulates fleets of one scenario, all on the same random numbers."""

    scenario: Scenario
    problem: AllocationProblem
    effort: Effort
    seed: int
    progress: Progress | None
    late: dict[Fleet, list[list[float]]] = field(default_factory=dict)

    def __call__(self, fleet: Fleet) -> tuple[Comparison, ...]:
        """Every SLO of ``fleet``; looked at more closely when only nearness keeps it open."""
        found = self._simulated(fleet, self.effort)
        verdicts = {c.verdict for c in found}
        if "too close to call" in verdicts and "breaks" not in verdicts:
            more = replace(self.effort, replications=CLOSER * self.effort.replications)
            found = self._simulated(fleet, more)
        return found

    def _simulated(self, fleet: Fleet, effort: Effort) -> tuple[Comparison, ...]:
        unknown = dict.fromkeys(self.scenario.slos, float("inf"))
        late = self.late[fleet] = []
        found = compared(
            self.scenario, self.problem, fleet, unknown, effort, self.seed, self.progress, late
        )
        for c in found:
            if c.verdict == "too few to judge":
                raise InputError(f"--repair: {c.statement} (--requests)")
        if min(c.replications for c in found) < effort.replications:
            raise KeyboardInterrupt  # fleets are compared on all their runs or not at all
        return found


def repaired(
    scenario: Scenario,
    problem: AllocationProblem,
    answer: Answer,
    effort: Effort,
    seed: int,
    progress: Progress | None,
) -> Answer:
    """``answer`` for the fleet that keeps every SLO in simulation, with what was added.

    ^C gives the fleet that was reached, and says so. The answer is infeasible, with the reason,
    when stock and limits, or MOST_ADDED, end first.
    """
    judge = _Judge(scenario, problem, effort, seed, progress)
    planned = parse_fleet(answer.fleet or "", scenario.system.type_names)
    fleet, stopped, reason = planned, list[str](), ""
    found: tuple[Comparison, ...] = ()
    try:
        found = judge(planned)
        while not _holds(found):
            if sum(fleet.counts.values()) - sum(planned.counts.values()) >= MOST_ADDED:
                raise InfeasibleError(_gave_up(f"{MOST_ADDED} more replicas are not enough", found))
            fleet, found = _next(judge, problem, fleet, found)
    except KeyboardInterrupt:
        stopped = [STOPPED if found else NOT_VALIDATED]
    except InfeasibleError as error:
        reason = str(error)
    reached = _reached(scenario, problem, answer, seed, planned, fleet)
    reached = reached.model_copy(update={"warnings": [*reached.warnings, *stopped]})
    if reason:
        reached = reached.model_copy(update={"status": "infeasible", "reason": reason})
    if not found:
        return reached
    predicted = predictions(scenario, reached)
    compared_now = tuple(replace(c, predicted=predicted[c.slo]) for c in found)
    return with_lateness(scenario, with_comparisons(reached, compared_now), judge.late[fleet])


def _reached(
    scenario: Scenario,
    problem: AllocationProblem,
    answer: Answer,
    seed: int,
    planned: Fleet,
    fleet: Fleet,
) -> Answer:
    """The answer for ``fleet``: ``answer`` itself where nothing was added."""
    if fleet == planned:
        return answer
    allocation = Allocation(
        "feasible",
        "repair",
        fleet,
        problem.cost(fleet),
        answer.bound_usd_per_hour,
        details={"repaired_from": answer.xpyd or "", "added": str(_added(planned, fleet))},
    )
    mended = answer_of(scenario, problem, allocation, seed)
    return mended.model_copy(update={"single_type": answer.single_type})


def _holds(found: tuple[Comparison, ...]) -> bool:
    return all(c.verdict == "keeps" for c in found)


def _excess(found: tuple[Comparison, ...]) -> float:
    """By how much the upper ends of the intervals exceed their bounds, relative, summed."""
    over = ((c.simulated + c.half_width) / c.slo.bound - 1.0 for c in found)
    return sum(x for x in over if x > 0.0)


def _next(
    judge: _Judge, problem: AllocationProblem, fleet: Fleet, now: tuple[Comparison, ...]
) -> tuple[Fleet, tuple[Comparison, ...]]:
    """The fleet with one replica more, and what the simulation says of it."""
    ranked = []
    for larger in _larger(problem, fleet, now):
        found = judge(larger)
        if _holds(found):
            return larger, found
        gain = _excess(now) - _excess(found)
        ranked.append((gain / (problem.cost(larger) - problem.cost(fleet) + 1e-9), larger, found))
    if not ranked:
        raise InfeasibleError(_gave_up("stock and limits leave no more replicas", now))
    _, larger, found = max(ranked, key=lambda rank: rank[0])
    return larger, found


def _larger(problem: AllocationProblem, fleet: Fleet, now: tuple[Comparison, ...]) -> list[Fleet]:
    """Fleets with one replica more that stock and limits allow, cheapest first.

    More prefill replicas change no gap between tokens.
    """
    broken = {metric for c in now if c.verdict != "keeps" for metric in c.slo.limits}
    only_decode = broken <= {"tpot", "itl"}
    fleets = []
    for o in problem.options:
        if only_decode and o.role == "prefill":
            continue
        key = (o.role, o.replica_type)
        larger = Fleet.of({**fleet.counts, key: fleet.counts.get(key, 0) + 1})
        if not resource_violations(problem, larger):
            fleets.append(larger)
    return sorted(fleets, key=problem.cost)


def _added(planned: Fleet, fleet: Fleet) -> Fleet:
    old = planned.counts
    return Fleet.of({key: n - old.get(key, 0) for key, n in fleet.counts.items()})


def _gave_up(what: str, found: tuple[Comparison, ...]) -> str:
    worst = max(found, key=lambda c: c.simulated / c.slo.bound)
    return f"the plan breaks in simulation and {what}: {worst.statement}"
