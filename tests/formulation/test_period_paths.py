"""The cheapest way through given fleets against every way there is."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.periods import PeriodsProblem
from pdalloc.allocation.periods.paths import cheapest_path
from pdalloc.fleet import DECODE, PREFILL, Fleet


def instance(small: Any, seed: int) -> tuple[PeriodsProblem, list[Fleet], Any]:
    """1 to 4 periods, 2 to 5 fleets of up to two replicas a pool, each serving at random."""
    rng = random.Random(seed)
    rows = [
        (role, f"t{i}", "g", 1, rng.uniform(1.0, 9.0), 1.0, rng.choice([0, 1]), math.inf)
        for role, i in ((PREFILL, 0), (PREFILL, 1), (DECODE, 0))
    ]
    periods = rng.randint(1, 4)
    problem = PeriodsProblem.of(
        small.problem_of(rows, 1.0, {}),
        [rng.choice([0.5, 1.0, 3.0]) for _ in range(periods)],
        [1.0] * periods,
    )
    found = replace(
        problem,
        start_usd=tuple(rng.uniform(0.0, 6.0) for _ in rows),
        stop_usd=tuple(rng.choice([0.0, rng.uniform(0.0, 3.0)]) for _ in rows),
        most_starts=rng.choice([math.inf, 1.0, 2.0]),
        most_stops=rng.choice([math.inf, 1.0, 2.0]),
    )
    draw = [[rng.randrange(3) for _ in rows] for _ in range(rng.randint(2, 5))]
    fleets = list(dict.fromkeys(found.fleet(counts) for counts in draw))
    if rng.random() < 0.4:
        found = replace(found, initial=rng.choice(fleets))
    serves = np.array([[rng.random() < 0.75 for _ in fleets] for _ in range(periods)])
    return found, fleets, serves


def every_way(problem: PeriodsProblem, fleets: list[Fleet], serves: Any) -> float:
    """Least total over all ways that keep the limits; infinity where there is none."""
    choices = [[f for f, ok in zip(fleets, row, strict=True) if ok] for row in serves]
    totals = [
        problem.costs(way).total for way in itertools.product(*choices) if not problem.too_many(way)
    ]
    return min(totals, default=math.inf)


@pytest.mark.parametrize("seed", range(120))
def test_no_way_is_cheaper(small: Any, seed: int) -> None:
    problem, fleets, serves = instance(small, seed)
    best, found = every_way(problem, fleets, serves), cheapest_path(problem, fleets, serves)
    if found is None:
        assert math.isinf(best)
        return
    assert len(found) == len(problem.periods)
    assert problem.costs(found).total == pytest.approx(best, rel=1e-9)
    assert problem.too_many(found) == []
    for t, fleet in enumerate(found):
        assert serves[t, fleets.index(fleet)]


def test_both_outcomes_are_tried(small: Any) -> None:
    """The instances above are not all of one kind."""
    cases = [instance(small, seed) for seed in range(120)]
    ways = [every_way(*case) for case in cases]
    assert 5 < sum(map(math.isinf, ways)) < 100
    assert 20 < sum(problem.initial is None for problem, _, _ in cases) < 100
    assert {len(problem.periods) for problem, _, _ in cases} == {1, 2, 3, 4}


def plain(small: Any, periods: int, **more: Any) -> PeriodsProblem:
    rows = [
        (PREFILL, "p", "g", 1, 2.0, 1.0, 0, math.inf),
        (DECODE, "d", "g", 1, 1.0, 1.0, 0, math.inf),
    ]
    template = small.problem_of(rows, 1.0, {})
    return PeriodsProblem.of(template, [1.0] * periods, [1.0] * periods, start_usd=1.0, **more)


def test_one_repeating_period_starts_nothing(small: Any) -> None:
    problem = plain(small, 1)
    one, two = problem.fleet([1, 1]), problem.fleet([2, 2])
    found = cheapest_path(problem, [two, one], np.array([[True, True]]))
    assert found == (one,)
    assert problem.costs(found).total == pytest.approx(3.0)


def test_the_way_closes_where_the_day_repeats(small: Any) -> None:
    """A cheap first fleet that cannot be reached from the last is not taken."""
    problem = plain(small, 2, most_starts=0.0)
    one, two = problem.fleet([1, 1]), problem.fleet([2, 2])
    serves = np.array([[True, True], [False, True]])
    assert cheapest_path(problem, [one, two], serves) == (two, two)
    free = plain(small, 2)
    assert cheapest_path(free, [one, two], serves) == (one, two)
    assert cheapest_path(replace(problem, initial=one), [one, two], serves) is None


def test_no_fleet_in_some_period_is_no_way(small: Any) -> None:
    problem = plain(small, 2)
    serves = np.array([[True], [False]])
    for initial in (None, problem.fleet([1, 1])):
        stuck = replace(problem, initial=initial)
        assert cheapest_path(stuck, [problem.fleet([1, 1])], serves) is None


def test_dear_starts_hold_a_fleet_through_a_dip(small: Any) -> None:
    """Peak, dip, peak: keeping two replicas costs 3 USD, stopping and starting them 2 x cost."""
    one_each = plain(small, 3)
    one, two = one_each.fleet([1, 1]), one_each.fleet([2, 2])
    serves = np.array([[False, True], [True, True], [False, True]])
    for usd, dip in ((1.4, one), (1.6, two)):
        problem = replace(one_each, start_usd=(usd, usd))
        assert cheapest_path(problem, [one, two], serves) == (two, dip, two)
