"""plan_dedicated: pools per traffic class or prompt-length bucket, beside shared pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pdalloc.allocation.certify import certify
from pdalloc.allocation.dedicated import DedicatedAllocation, DedicatedProblem, solve_dedicated
from pdalloc.allocation.problem import Allocation, AllocationProblem, infeasible
from pdalloc.errors import InputError, PdallocError, UnsupportedError
from pdalloc.fleet import DECODE, Fleet
from pdalloc.planning.assembly import answer_of
from pdalloc.planning.dedicated_answer import DedicatedAnswer, PartAnswer, SharedAnswer, TriedAnswer
from pdalloc.planning.effort import SEED, Effort
from pdalloc.planning.plan import AGAIN, check_apart, solved
from pdalloc.planning.shortfall import refuse_shed
from pdalloc.planning.validated import Progress, validated
from pdalloc.scenario import Scenario
from pdalloc.scenario.pools import fitting, together
from pdalloc.version import provenance
from pdalloc.workload.traffic import TrafficClass

Promise = Literal["class", "bucket"]
SOLVER = "dedicated"
TOGETHER = (
    "buckets of a class that is not Poisson are no independent streams in shared pools; no formula "
    "knows them"
)


def plan_dedicated(
    scenario: Scenario,
    simulate: bool = False,
    progress: Progress | None = None,
    seed: int = SEED,
    effort: Effort | None = None,
) -> DedicatedAnswer:
    """The cheapest pools per part of ``scenario`` under its common stock, certified.

    ``simulate`` puts simulated latencies beside the predicted ones, part by part: dedicated
    pools meet in no queue and in no link. Where a class asks for auto buckets the cheapest of
    the tried ones are taken. Raises InputError where all classes share pools.
    """
    if not scenario.parts:
        raise InputError("pools: all classes share pools here; set pools: dedicated, or use plan")
    check_apart(scenario.parts[0])
    refuse_shed(scenario, "a plan of dedicated pools")
    scenario, tried = chosen_buckets(scenario)
    problem = dedicated_problem(scenario)
    found = _certified(problem)
    parts, rate = [], scenario.system.workload.rate
    for i, part in enumerate(scenario.parts if found.fleets else ()):
        given = part_given(part, problem, i, found.fleets)
        asked, cost = given.problem(), given.problem().cost(found.fleets[i])
        bound = cost if found.status == "optimal" else None
        allocation = Allocation(found.status, SOLVER, found.fleets[i], cost, bound)
        answer = answer_of(given, asked, allocation, seed + i)
        if simulate:
            answer = validated(given, asked, answer, effort or Effort(), seed + i, progress)
        workload = part.system.workload
        tokens = scenario.system.workload.tokens_per_second
        parts.append(
            PartAnswer(
                classes=[c.name for c in workload.classes],
                rate_share=workload.rate / rate,
                token_share=workload.tokens_per_second / tokens,
                left_out=_left_out(scenario, part),
                answer=answer,
            )
        )
    return _summed(scenario, problem, found, parts, seed).model_copy(update={"tried": tried})


def chosen_buckets(scenario: Scenario) -> tuple[Scenario, list[TriedAnswer]]:
    """The choice of least cost, fewest parts first, and what every choice costs."""
    if not scenario.choices:
        return scenario, []
    choices, tried = [replace(c, owned=scenario.owned) for c in scenario.choices], []
    for choice in choices:
        try:
            cost = solve_dedicated(dedicated_problem(choice)).cost
        except UnsupportedError:  # one choice too hard to prove leaves the others
            cost = None
        names = [c.name for c in _buckets(choice)]
        tried.append(TriedAnswer(buckets=names, cost_usd_per_hour=cost))
    costs = [math.inf if t.cost_usd_per_hour is None else t.cost_usd_per_hour for t in tried]
    return choices[costs.index(min(costs))], tried


def dedicated_problem(scenario: Scenario) -> DedicatedProblem:
    """The allocation problem of ``scenario``'s parts; a part's name lists its classes."""
    parts = {part.title: part.problem() for part in scenario.parts}
    return DedicatedProblem.of(scenario.problem(), parts)


def part_given(
    part: Scenario, problem: DedicatedProblem, index: int, fleets: Sequence[Fleet]
) -> Scenario:
    """``part`` with what the other parts' fleets leave of stock and limits.

    Its owned replicas are those it uses, earlier parts first: were it to use fewer, others could.
    """
    rest, mine = problem.rest(index, fleets), fleets[index]
    owned = {
        (o.role, o.replica_type): min(o.owned, mine.count(o.role, o.replica_type))
        for o in rest.options
    }
    stock = dict(rest.stock)  # of a scenario: what can be had beside owned replicas
    for o in rest.options:
        if o.gpu in stock:
            stock[o.gpu] -= o.gpus * owned[o.role, o.replica_type]
    limits = {(o.role, o.replica_type): int(o.most) for o in rest.options if math.isfinite(o.most)}
    return replace(part, stock=stock, limits=limits, owned=Fleet.of(owned))


def _certified(problem: DedicatedProblem) -> DedicatedAllocation:
    """The solver's answer; parts that miss a bound by a hair are planned for a little more."""
    first = found = solve_dedicated(problem)
    for more in AGAIN:
        short = [
            i
            for i, fleet in enumerate(found.fleets)
            if not certify(problem.rest(i, found.fleets), fleet).certified
        ]
        if not short:
            break
        grown = [
            replace(part.problem, demand=part.problem.demand * (1.0 + more * (i in short)))
            for i, part in enumerate(problem.parts)
        ]
        found = solve_dedicated(problem.changed(grown))
        if not found.fleets:
            return first
        found = replace(found, status="feasible", bound=first.bound)
    return found


def _left_out(scenario: Scenario, part: Scenario) -> list[str]:
    mine = part.system.type_names[DECODE]
    return [f"{DECODE}/{n}" for n in scenario.system.type_names[DECODE] if n not in mine]


def _summed(
    scenario: Scenario,
    problem: DedicatedProblem,
    found: DedicatedAllocation,
    parts: list[PartAnswer],
    seed: int,
) -> DedicatedAnswer:
    """Totals over ``parts``; prediction has the last word on the status."""
    failed = [
        f"{', '.join(p.classes)}: {p.answer.reason}"
        for p in parts
        if p.answer.status == "infeasible"
    ]
    per_minute = 60.0 * scenario.system.workload.tokens_per_second
    cost, gpus = found.cost, problem.gpus(found.fleets)
    return DedicatedAnswer(
        scenario=scenario.name,
        title=scenario.title,
        variant=scenario.variant,
        status="infeasible" if failed else found.status,
        reason="; ".join(failed) or found.reason,
        parts=parts,
        gpus=sum(gpus.values()),
        gpus_by_type=gpus,
        demand_requests_per_s=scenario.demand,
        demand_tokens_per_minute=per_minute,
        cost_usd_per_hour=cost,
        bound_usd_per_hour=None if failed else found.bound,
        proof=found.method,
        cost_usd_per_million_tokens=None if cost is None else cost / (60.0 * per_minute) * 1e6,
        shared=shared_pools(scenario, None if failed else cost),
        warnings=_warnings(scenario),
        produced_by=provenance(SOLVER, seed),
    )


def shared_pools(scenario: Scenario, dedicated: float | None) -> list[SharedAnswer]:
    """What pools that all classes share would cost, beside ``dedicated`` USD/hour.

    With buckets there are two answers: SLOs over each class, as users without buckets have
    them, and in each bucket, the promise that dedicated pools make.
    """
    found = [_shared(scenario, "class", dedicated)]
    if _buckets(scenario):
        found.append(_shared(scenario, "bucket", dedicated))
    return found


def _buckets(scenario: Scenario) -> list[TrafficClass]:
    """The classes of parts that are not classes of the scenario as written."""
    whole = {c.name for c in scenario.system.workload.classes}
    classes = (c for part in scenario.parts for c in part.system.workload.classes)
    return [c for c in classes if c.name not in whole]


def _shared(scenario: Scenario, promise: Promise, dedicated: float | None) -> SharedAnswer:
    gpus: dict[str, int] = {}
    try:
        problem = _shared_problem(scenario, promise)
        found = solved(problem, "exact")
        if found.fleet.pools:
            check, gpus = certify(problem, found.fleet), problem.gpus(found.fleet)
            if not check.certified:
                found = infeasible(SOLVER, f"the fleet fails its check: {'; '.join(check.broken)}")
    except PdallocError as error:  # only a comparison: without it the answer still stands
        found = infeasible(SOLVER, str(error))
    fleet, cost = found.fleet, found.cost
    return SharedAnswer(
        promise=promise,
        status=found.status,
        reason=found.reason,
        fleet=str(fleet) if fleet.pools else None,
        xpyd=fleet.xpyd if fleet.pools else None,
        gpus_by_type=gpus if fleet.pools else {},
        cost_usd_per_hour=cost,
        bound_usd_per_hour=found.bound,
        dedicated_change=dedicated / cost - 1.0 if dedicated is not None and cost else None,
    )


def _shared_problem(scenario: Scenario, promise: Promise) -> AllocationProblem:
    """All classes on shared pools; UnsupportedError where no formula knows them there."""
    if promise == "class":
        return replace(scenario, parts=(), system=fitting(scenario.system)).problem()
    asked = together(scenario)
    if asked is None:
        raise UnsupportedError(TOGETHER)
    return asked.problem()


def _warnings(scenario: Scenario) -> list[str]:
    """What splitting classes into buckets promises, and assumes."""
    buckets = _buckets(scenario)
    found = []
    if buckets:
        found.append(
            "SLOs hold in every bucket, which promises more than over the class: a percentile, "
            "or a mean, of short prompts no longer makes up for long ones"
        )
    if any(c.arrival_scv != 1.0 for c in buckets):
        found.append(
            "buckets thin their class's gaps: SCV 1 + p (SCV - 1) at share p of its requests; the "
            "simulation draws gaps of that SCV, which is exact for Poisson bursts only"
        )
    return found
