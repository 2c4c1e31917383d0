"""What holds of the least total whatever the problem: units, symmetries, a wider choice."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.periods import Period, PeriodsProblem, Schedule, solve_periods
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.fleet import ROLES

SECONDS = 10.0
SAME = 5e-6
"""Relative; both totals of a comparison are proven to 3e-6."""


def options_of(rng: random.Random, types: int) -> list[tuple[Any, ...]]:
    return [
        (
            role,
            f"t{i}",
            f"g{i % 2}",
            rng.choice([1, 2]),
            rng.uniform(1.0, 9.0),
            rng.uniform(0.4, 2.5),
            0,
            math.inf,
        )
        for role in ROLES
        for i in range(types)
    ]


def day(small: Any, seed: int, types: int = 2, periods: int = 6) -> PeriodsProblem:
    """A repeating day; each option starts and stops at a price of its own."""
    rng = random.Random(seed)
    template = small.problem_of(options_of(rng, types), 1.0, {"g0": 14})
    demands = [rng.uniform(0.5, 5.0) for _ in range(periods)]
    hours = [rng.choice([0.5, 1.0, 2.0]) for _ in range(periods)]
    found = PeriodsProblem.of(template, hours, demands)
    each = len(template.options)
    return replace(
        found,
        start_usd=tuple(rng.uniform(0.0, 6.0) for _ in range(each)),
        stop_usd=tuple(rng.uniform(0.0, 2.0) for _ in range(each)),
        most_starts=rng.choice([math.inf, 2.0]),
    )


def changed(problem: PeriodsProblem, **keys: Any) -> PeriodsProblem:
    """Each period's allocation problem with other fields."""
    return of_problems(problem, [replace(p.problem, **keys) for p in problem.periods])


def of_problems(problem: PeriodsProblem, problems: Sequence[AllocationProblem]) -> PeriodsProblem:
    pairs = zip(problem.periods, problems, strict=True)
    return replace(problem, periods=tuple(replace(p, problem=q) for p, q in pairs))


def least(problem: PeriodsProblem) -> float:
    found = solve_periods(problem, SECONDS)
    assert found.status == "optimal" and found.costs is not None
    assert problem.broken(found.fleets) == []
    return found.costs.total


seeds = pytest.mark.parametrize("seed", range(4))


@seeds
def test_money_has_no_unit(small: Any, seed: int) -> None:
    problem = day(small, seed)
    dear = tuple(replace(o, usd_per_hour=3.0 * o.usd_per_hour) for o in problem.options)
    tripled = replace(
        changed(problem, options=dear),
        start_usd=tuple(3.0 * usd for usd in problem.start_usd),
        stop_usd=tuple(3.0 * usd for usd in problem.stop_usd),
    )
    assert least(tripled) == pytest.approx(3.0 * least(problem), rel=SAME)


@seeds
def test_longer_hours_and_dearer_starts_are_a_longer_day(small: Any, seed: int) -> None:
    problem = day(small, seed)
    longer = replace(
        problem,
        periods=tuple(Period(2.0 * p.hours, p.problem) for p in problem.periods),
        start_usd=tuple(2.0 * usd for usd in problem.start_usd),
        stop_usd=tuple(2.0 * usd for usd in problem.stop_usd),
    )
    assert least(longer) == pytest.approx(2.0 * least(problem), rel=SAME)


@seeds
def test_a_day_run_backwards_costs_the_same(small: Any, seed: int) -> None:
    """What started stops, and the other way round, with its price and its limit."""
    problem = day(small, seed)
    backwards = replace(
        problem,
        periods=problem.periods[::-1],
        start_usd=problem.stop_usd,
        stop_usd=problem.start_usd,
        most_starts=problem.most_stops,
        most_stops=problem.most_starts,
    )
    assert least(backwards) == pytest.approx(least(problem), rel=SAME)


@seeds
def test_more_to_choose_from_never_costs_more(small: Any, seed: int) -> None:
    """No stock, no limit, replicas of one's own, free stops: each widens the choice."""
    problem = day(small, seed)
    base = least(problem)
    owned = tuple(replace(o, owned=1) for o in problem.options)
    held = {"g0": 14 + sum(o.gpus for o in problem.options if o.gpu == "g0")}
    wider = {
        "stock": changed(problem, stock={}),
        "limits": replace(problem, most_starts=math.inf),
        "owned": changed(problem, options=owned, stock=held),
        "stops": replace(problem, stop_usd=(0.0,) * len(problem.options)),
    }
    for name, other in wider.items():
        assert least(other) <= base * (1.0 + SAME), name


@seeds
def test_more_demand_never_costs_less(small: Any, seed: int) -> None:
    problem = changed(day(small, seed), stock={})
    before = least(problem)
    for t in range(2):
        problems = [p.problem for p in problem.periods]
        problems[t] = replace(problems[t], demand=1.3 * problems[t].demand)
        more = least(of_problems(problem, problems))
        assert more >= before * (1.0 - SAME)


@seeds
def test_headroom_is_a_larger_demand_in_every_period(small: Any, seed: int) -> None:
    problem = changed(day(small, seed), stock={})
    larger = [replace(p.problem, demand=1.2 * p.problem.demand) for p in problem.periods]
    assert least(changed(problem, headroom=0.2)) == pytest.approx(
        least(of_problems(problem, larger)), rel=SAME
    )


@seeds
def test_between_the_optima_and_the_rivals(small: Any, seed: int) -> None:
    problem = day(small, seed, periods=10)
    found = solve_periods(problem, SECONDS)
    assert found.costs is not None and found.bound is not None
    own = [solver_named("exact").solve(p.problem) for p in problem.periods]
    alone = float(problem.hours @ np.array([a.cost for a in own]))
    assert alone * (1.0 - SAME) <= found.bound <= found.costs.total
    peak = own[int(problem.demands.argmax())].fleet
    assert found.costs.total <= problem.costs([peak] * 10).total * (1.0 + 1e-12)
    fleets = [a.fleet for a in own]
    if not problem.too_many(fleets):
        assert found.costs.total <= problem.costs(fleets).total * (1.0 + 1e-12)


def test_two_days_cost_no_more_than_twice_one(small: Any) -> None:
    problem = day(small, 1, periods=4)
    twice = replace(problem, periods=problem.periods * 2)
    assert twice.kinds == (0, 1, 2, 3) * 2
    assert least(twice) <= 2.0 * least(problem) * (1.0 + SAME)


@pytest.mark.parametrize("seed", [0, 1])
def test_many_types(small: Any, seed: int) -> None:
    """Six types a role: their least costs come from HiGHS, and the gap is small or closed."""
    problem = day(small, seed, types=6)
    found: Schedule = solve_periods(problem, 4.0)
    assert found.costs is not None and found.gap is not None
    assert problem.broken(found.fleets) == []
    assert found.gap <= 0.01
    few = least(changed_types(problem, 2))
    assert found.bound is not None and found.bound <= few * (1.0 + SAME)


def changed_types(problem: PeriodsProblem, types: int) -> PeriodsProblem:
    """Only the first ``types`` of each role."""
    kept = [i for i, o in enumerate(problem.options) if int(o.replica_type[1:]) < types]
    options = tuple(problem.options[i] for i in kept)
    periods = tuple(
        replace(p, problem=replace(p.problem, options=options)) for p in problem.periods
    )
    start, stop = (tuple(usd[i] for i in kept) for usd in (problem.start_usd, problem.stop_usd))
    return replace(problem, periods=periods, start_usd=start, stop_usd=stop)
