"""Periods as data: counts, changes, costs and violations of schedules written by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pdalloc.allocation.periods import Costs, Period, PeriodsProblem, Schedule
from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, Fleet


@pytest.fixture
def problem(small: Any) -> PeriodsProblem:
    """One type a role, 1 req/s a replica: 2 h at 1 req/s, then 6 h at 3 req/s; 2 decodes owned."""
    rows = [
        (PREFILL, "p", "g", 2, 3.0, 1.0, 0, 4.0),
        (DECODE, "d", "g", 1, 1.0, 1.0, 2, math.inf),
    ]
    found = PeriodsProblem.of(small.problem_of(rows, 1.0, {"g": 10}), [2.0, 6.0], [1.0, 3.0])
    return replace(found, start_usd=(10.0, 4.0), stop_usd=(1.0, 0.5))


def fleets(problem: PeriodsProblem, *counts: tuple[int, int]) -> list[Fleet]:
    return [problem.fleet(pair) for pair in counts]


def test_counts_and_fleets_are_inverse(problem: PeriodsProblem) -> None:
    pair = fleets(problem, (1, 2), (0, 3))
    assert problem.counts(pair).tolist() == [[1, 2], [0, 3]]
    assert pair[0] == Fleet.of({(PREFILL, "p"): 1, (DECODE, "d"): 2})
    assert problem.counts([]).shape == (0, 2)


def test_hours_and_demands(problem: PeriodsProblem) -> None:
    assert problem.hours.tolist() == [2.0, 6.0]
    assert problem.demands.tolist() == [1.0, 3.0]
    assert problem.options == problem.periods[1].problem.options


def test_changes_go_round_the_day(problem: PeriodsProblem) -> None:
    """What starts before the second period stops before the first."""
    pair = fleets(problem, (1, 4), (3, 3))
    assert problem.changes(pair).tolist() == [[-2, 1], [2, -1]]
    begun = replace(problem, initial=problem.fleet((2, 2)))
    assert begun.changes(pair).tolist() == [[-1, 2], [2, -1]]


def test_costs_by_hand(problem: PeriodsProblem) -> None:
    """2 h (3 + 2) + 6 h (9 + 1) of running: two decode replicas are owned.

    Two prefill and one decode replica start (20 + 4) and as many stop (2 + 0.5).
    """
    costs = problem.costs(fleets(problem, (1, 4), (3, 3)))
    assert costs == Costs(70.0, 24.0, 2.5)
    assert costs.total == 96.5
    begun = replace(problem, initial=Fleet(()))
    assert begun.costs(fleets(problem, (1, 4), (3, 3))) == Costs(70.0, 10.0 + 16.0 + 20.0, 0.5)


def test_one_fleet_all_day_costs_its_hours(problem: PeriodsProblem) -> None:
    costs = problem.costs(fleets(problem, (3, 3), (3, 3)))
    assert costs == Costs(80.0, 0.0, 0.0)


def test_totals_are_ties_whatever_their_order() -> None:
    """0.1 + 0.2 + 0.3 differs in the last bit by order; costs do not."""
    assert Costs(0.1, 0.2, 0.3).total == Costs(0.3, 0.2, 0.1).total == 0.6


def test_limits_on_changes_name_the_period(problem: PeriodsProblem) -> None:
    pair = fleets(problem, (1, 4), (3, 3))
    assert problem.too_many(pair) == []
    tight = replace(problem, most_starts=1.0, most_stops=1.0)
    assert tight.too_many(pair) == [
        "period 2: 2 replicas start, limit 1",
        "period 1: 2 replicas stop, limit 1",
    ]
    assert replace(problem, most_starts=2.0, most_stops=2.0).too_many(pair) == []


def test_each_period_is_certified_at_its_own_demand(problem: PeriodsProblem) -> None:
    assert problem.broken(fleets(problem, (1, 1), (3, 3))) == []
    (words,) = problem.broken(fleets(problem, (1, 1), (2, 3)))
    assert words.startswith("period 2: ")
    stock, limit = problem.broken(fleets(problem, (5, 1), (3, 3)))
    assert stock.startswith("period 1: 11 g GPUs needed")
    assert limit.startswith("period 1: 5 replicas of prefill/p")


def test_periods_of_one_demand_share_a_problem(small: Any, problem: PeriodsProblem) -> None:
    template = problem.periods[0].problem
    found = PeriodsProblem.of(template, [1.0] * 5, [2.0, 3.0, 2.0, 2.0, 3.0])
    assert found.kinds == (0, 1, 0, 0, 1)
    assert found.periods[0].problem is found.periods[3].problem
    # Problems that are merely alike are not taken for one.
    apart = replace(found, periods=tuple(Period(1.0, replace(template)) for _ in range(3)))
    assert apart.kinds == (0, 1, 2)


def test_hours_and_demands_come_in_pairs(problem: PeriodsProblem) -> None:
    with pytest.raises(ValueError, match="shorter"):
        PeriodsProblem.of(problem.periods[0].problem, [1.0, 1.0], [2.0])
    with pytest.raises(InputError, match="positive number of hours"):
        PeriodsProblem.of(problem.periods[0].problem, [0.0], [2.0])


def schedule(total: float, bound: float | None) -> Schedule:
    return Schedule("feasible", (), Costs(total, 0.0, 0.0), bound, ())


@pytest.mark.parametrize(
    ("total", "bound", "gap"),
    [(100.0, 90.0, 0.1), (100.0, 100.0, 0.0), (0.0, 0.0, 0.0), (100.0, None, None)],
)
def test_the_gap_is_relative_to_the_total(
    total: float, bound: float | None, gap: float | None
) -> None:
    assert schedule(total, bound).gap == pytest.approx(gap)


def test_there_is_no_gap_without_a_schedule() -> None:
    assert Schedule("infeasible", (), None, None, (), "why").gap is None
