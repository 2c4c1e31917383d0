"""A fleet for each period of a day: from a scenario to a schedule with its proven gap."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pdalloc.allocation.periods import Period, PeriodsProblem, Schedule, solve_periods
from pdalloc.allocation.periods.search import TIME_LIMIT
from pdalloc.allocation.problem import Allocation
from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Fleet
from pdalloc.planning.answer import Answer
from pdalloc.planning.assembly import answer_of
from pdalloc.planning.effort import SEED, Effort
from pdalloc.planning.plan import check_apart, solved
from pdalloc.planning.schedule_answer import (
    HOURLY,
    PEAK,
    SCHEDULE,
    PeriodAnswer,
    ScheduleAnswer,
    ScheduleCosts,
)
from pdalloc.planning.shortfall import refuse_shed, unpriced
from pdalloc.planning.validated import Progress, compared, predictions, with_comparisons
from pdalloc.scenario import Scenario
from pdalloc.version import provenance

STEADY = (
    "every period is taken in steady state: starts, draining and the backlog of one period in "
    "the next are not in the latencies; a start serves from the beginning of its period"
)


def schedule(
    scenario: Scenario,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
    simulate: bool = False,
    seed: int = SEED,
    effort: Effort | None = None,
) -> ScheduleAnswer:
    """The cheapest fleets of the scenario's ``periods``, certified at each period's demand.

    ``time_limit`` in seconds bounds the integer program; ^C gives the best schedule so far.
    ``simulate`` puts simulated latencies of each period's fleet at its steady demand beside the
    predicted ones. Raises InputError for a scenario without periods.
    """
    check_apart(scenario)
    refuse_shed(scenario, "schedule")
    at = scenarios_of(scenario)
    problem = periods_problem(scenario)
    found = solve_periods(problem, time_limit, progress, lambda p: solved(p, "exact"))
    answers = [
        answer_of(at[k], period.problem, _allocation(period, fleet), seed, with_margins=False)
        for k, period, fleet in zip(problem.kinds, problem.periods, found.fleets, strict=False)
    ]
    interrupted = found.interrupted
    if simulate and not interrupted:
        asked = effort or Effort()
        answers, interrupted = _simulated(at, problem, found, answers, asked, seed, progress)
    return _assembled(scenario, problem, found, answers, interrupted, simulate, seed)


def scenarios_of(scenario: Scenario) -> tuple[Scenario, ...]:
    """The scenario at the traffic of each period; InputError where it has no periods."""
    if scenario.periods is None:
        raise InputError(
            "periods: this key is missing; add e.g. periods: {factors: [0.4, 1, 0.8], "
            'lasts: 8 h, start_cost: "10 min"}'
        )
    workload = scenario.system.workload
    systems = (scenario.system.with_workload(workload.scaled(f)) for f in scenario.periods.factors)
    return tuple(replace(scenario, system=system, periods=None) for system in systems)


def periods_problem(scenario: Scenario) -> PeriodsProblem:
    """The periods of ``scenario`` as an allocation problem; InputError where it has none.

    Periods of one demand share a problem, and all share their rates where those do not depend
    on how much is offered: Poisson arrivals and no link that carries everybody's transfers.
    """
    at, periods = scenarios_of(scenario), scenario.periods
    if periods is None:  # for the type checker: refused above
        raise InputError("periods: this key is missing")
    template = scenario.problem()
    capacity = template.capacity
    alike = scenario.system.workload.arrival_scv == 1.0 and not capacity.links_carry_all
    problems = {
        f: replace(template, demand=each.demand) if alike else each.problem()
        for f, each in zip(periods.factors, at, strict=True)
    }
    pairs = zip(periods.hours, periods.factors, strict=True)
    return PeriodsProblem(
        tuple(Period(hours, problems[f]) for hours, f in pairs),
        tuple(periods.start.of(o.usd_per_hour) for o in template.options),
        tuple(periods.stop.of(o.usd_per_hour) for o in template.options),
        periods.most_starts,
        periods.most_stops,
        periods.initial,
    )


def _allocation(period: Period, fleet: Fleet) -> Allocation:
    return Allocation("feasible", "schedule", fleet, period.problem.cost(fleet), None)


def _simulated(
    at: Sequence[Scenario],
    problem: PeriodsProblem,
    found: Schedule,
    answers: Sequence[Answer],
    effort: Effort,
    seed: int,
    progress: Progress | None,
) -> tuple[list[Answer], bool]:
    """``answers`` with what a simulation of each distinct (period, fleet) says; whether ^C came."""
    keys = [(k, str(a.fleet)) for k, a in zip(problem.kinds, answers, strict=True)]
    distinct, stopped = dict(zip(keys, answers, strict=True)), False
    for number, key in enumerate(list(distinct)):

        def onwards(done: int, total: int, before: int = number) -> None:
            if progress is not None:
                progress(before * total + done, len(distinct) * total)

        k, answer = key[0], distinct[key]
        fleet, predicted = found.fleets[keys.index(key)], predictions(at[k], answer)
        try:
            seen = compared(
                at[k], problem.periods[k].problem, fleet, predicted, effort, seed, onwards
            )
        except KeyboardInterrupt:
            stopped = True
            break
        unseen = effort.unseen(at[k].system, at[k].options)
        judged = with_comparisons(answer, seen)
        distinct[key] = judged.model_copy(update={"warnings": [*judged.warnings, *unseen]})
        stopped = min(c.replications for c in seen) < effort.replications
        if stopped:
            break
    return [distinct[key] for key in keys], stopped


def _assembled(
    scenario: Scenario,
    problem: PeriodsProblem,
    found: Schedule,
    answers: Sequence[Answer],
    interrupted: bool,
    simulated: bool,
    seed: int,
) -> ScheduleAnswer:
    own = [a.fleet for a in found.optima if a is not None]
    peak = int(np.argmax(problem.demands))
    rivals = []
    if len(own) == len(problem.periods):
        rivals = [
            costs_of(problem, PEAK, [own[peak]] * len(own)),
            costs_of(problem, HOURLY, own),
        ]
    warnings = _warnings(answers)
    return ScheduleAnswer(
        scenario=scenario.name,
        title=scenario.title,
        variant=scenario.variant,
        status=found.status,
        reason=found.reason,
        cyclic=problem.initial is None,
        hours=float(problem.hours.sum()),
        most_starts=_limit(problem.most_starts),
        most_stops=_limit(problem.most_stops),
        tokens_per_request=scenario.system.workload.mean_tokens,
        periods=_periods(problem, found, answers),
        cost=costs_of(problem, SCHEDULE, found.fleets) if found.fleets else None,
        bound_usd=found.bound,
        gap=found.gap,
        rivals=rivals,
        seconds=found.seconds,
        interrupted=interrupted,
        validated=simulated and bool(answers) and not interrupted,
        warnings=[*warnings, *unpriced(scenario), STEADY] if answers else [],
        produced_by=provenance("schedule", seed),
    )


def _warnings(answers: Sequence[Answer]) -> list[str]:
    """One line per doubt, with the numbers of the period of most demand that has it."""
    order = sorted(answers, key=lambda a: -a.demand_requests_per_s)
    found: dict[str, str] = {}
    for line in (line for answer in order for line in answer.warnings):
        found.setdefault(re.sub(r"[\d.,]+", "", line), line)
    return list(found.values())


def _limit(most: float) -> int | None:
    return int(most) if math.isfinite(most) else None


def costs_of(problem: PeriodsProblem, name: str, fleets: Sequence[Fleet]) -> ScheduleCosts:
    """What ``fleets``, one per period, cost, under ``name``."""
    costs, changes = problem.costs(fleets), problem.changes(fleets)
    starts, stops = (np.maximum(sign * changes, 0).sum(axis=1) for sign in (1, -1))
    return ScheduleCosts(
        name=name,
        running_usd=costs.running,
        starting_usd=costs.starting,
        stopping_usd=costs.stopping,
        total_usd=costs.total,
        starts=int(starts.sum()),
        most_starts=int(starts.max()),
        most_stops=int(stops.max()),
        keeps_limits=not problem.too_many(fleets),
    )


def _periods(
    problem: PeriodsProblem, found: Schedule, answers: Sequence[Answer]
) -> list[PeriodAnswer]:
    begins = np.concatenate([[0.0], np.cumsum(problem.hours)])
    changes = problem.changes(found.fleets) if found.fleets else None
    labels = [f"{o.role}/{o.replica_type}" for o in problem.options]
    rows = []
    for t, answer in enumerate(answers):
        period, own = problem.periods[t], found.optima[t]
        change = {} if changes is None else dict(zip(labels, changes[t].tolist(), strict=True))
        best = found.fleets[t] if own is None else own.fleet
        rows.append(
            PeriodAnswer(
                start_hour=float(begins[t]),
                hours=period.hours,
                demand_requests_per_s=period.problem.demand,
                fleet=str(answer.fleet),
                xpyd=str(answer.xpyd),
                gpus_by_type=answer.gpus_by_type,
                started={name: n for name, n in change.items() if n > 0},
                stopped={name: -n for name, n in change.items() if n < 0},
                cost_usd_per_hour=period.problem.cost(found.fleets[t]),
                own_optimum=str(best),
                own_optimum_usd_per_hour=period.problem.cost(best),
                utilisation={role: _utilisation(answer, role) for role in ROLES},
                pools=answer.pools,
                slos=answer.slos,
                joint_slos=answer.joint_slos,
            )
        )
    return rows


def _utilisation(answer: Answer, role: str) -> float | None:
    """Mean over the replicas of ``role``; None without a steady state."""
    pools = [p for p in answer.pools if p.role == role]
    busy = [p.replicas * p.utilisation for p in pools if p.utilisation is not None]
    if len(busy) < len(pools) or not pools:
        return None
    return sum(busy) / sum(p.replicas for p in pools)
