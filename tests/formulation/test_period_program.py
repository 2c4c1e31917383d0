"""The integer program of the periods: its rows one by one, its bounds, and its edges."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import highspy
import numpy as np
import pytest

from pdalloc.allocation.linear import COVERED, LEEWAY
from pdalloc.allocation.periods import Period, PeriodsProblem, solve_periods
from pdalloc.allocation.periods import program as programs
from pdalloc.allocation.periods.program import (
    BOUND_SLACK,
    Least,
    is_whole,
    least_by_role,
    most_shares,
    solve_program,
)
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.fleet import DECODE, PREFILL, ROLES

SECONDS = 10.0


def rows_of(*more: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [
        (PREFILL, "p", "g", 2, 3.0, 2.0, 0, 5.0),
        (DECODE, "d", "g", 1, 1.0, 1.0, 2, math.inf),
        *more,
    ]


def two_periods(small: Any, **keys: Any) -> PeriodsProblem:
    template = small.problem_of(rows_of(), 1.0, {"g": 9})
    found = PeriodsProblem.of(template, [2.0, 3.0], [2.0, 4.0], start_usd=7.0, stop_usd=5.0)
    return replace(found, **keys)


def matrix(problem: PeriodsProblem, least: Any) -> tuple[Any, Any]:
    """(the program, its rows as a dense matrix)."""
    program = programs._Program(problem, least)
    lp = program.model(highspy)
    dense = np.zeros((lp.num_row_, lp.num_col_))
    start, index, value = (
        np.array(part) for part in (lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_)
    )
    for row in range(lp.num_row_):
        part = slice(start[row], start[row + 1])
        np.add.at(dense[row], index[part], value[part])
    return lp, dense


def has(lp: Any, dense: Any, row: dict[int, float], low: float, high: float) -> bool:
    """Whether some row has these entries and ends, and no other entries."""
    wanted = np.zeros(lp.num_col_)
    wanted[list(row)] = list(row.values())
    ends = zip(lp.row_lower_, lp.row_upper_, strict=True)
    return any(
        np.allclose(found, wanted, rtol=1e-12)
        and (math.isclose(a, low, abs_tol=1e-12) or a == low)
        and (math.isclose(b, high, abs_tol=1e-12) or b == high)
        for found, (a, b) in zip(dense, ends, strict=True)
    )


# Columns: n of both periods 0-3, u 4-7, v 8-11, then decode's bought ones, 12 and 13.


def test_costs_and_columns(small: Any) -> None:
    """Hours times USD/hour: prefill on n, decode, of which some are owned, on b."""
    lp, _ = matrix(two_periods(small), [Least(), Least()])
    expected = [6.0, 0.0, 9.0, 0.0, 7.0, 7.0, 7.0, 7.0, 5.0, 5.0, 5.0, 5.0, 2.0, 3.0]
    assert list(lp.col_cost_) == pytest.approx(expected)
    whole = [kind == highspy.HighsVarType.kInteger for kind in lp.integrality_]
    assert whole == [True] * 4 + [False] * 10
    # at most five prefill replicas; decode: four serve the greater demand alone
    assert list(lp.col_upper_[:4]) == [2.0, 4.0, 2.0, 4.0]
    assert all(math.isinf(top) for top in lp.col_upper_[4:])


def test_demand_and_stock_rows(small: Any) -> None:
    lp, dense = matrix(two_periods(small), [Least(), Least()])
    more = 1.0 + LEEWAY
    assert has(lp, dense, {0: more * 2.0 / 2.0}, COVERED, math.inf)
    assert has(lp, dense, {1: more * 1.0 / 2.0}, COVERED, math.inf)
    assert has(lp, dense, {2: more * 2.0 / 4.0}, COVERED, math.inf)
    assert has(lp, dense, {3: more * 1.0 / 4.0}, COVERED, math.inf)
    for t in (0, 1):
        assert has(lp, dense, {2 * t: 2.0, 2 * t + 1: 1.0}, -math.inf, 9.0)
        assert has(lp, dense, {12 + t: 1.0, 2 * t + 1: -1.0}, -2.0, math.inf)


def test_change_rows_close_the_day_or_begin_with_a_fleet(small: Any) -> None:
    lp, dense = matrix(two_periods(small), [Least(), Least()])
    for i in (0, 1):
        assert has(lp, dense, {i: 1.0, 2 + i: -1.0, 4 + i: -1.0, 8 + i: 1.0}, 0.0, 0.0)
        assert has(lp, dense, {2 + i: 1.0, i: -1.0, 6 + i: -1.0, 10 + i: 1.0}, 0.0, 0.0)
    problem = two_periods(small)
    begun = replace(problem, initial=problem.fleet([3, 1]))
    lp, dense = matrix(begun, [Least(), Least()])
    assert has(lp, dense, {0: 1.0, 4: -1.0, 8: 1.0}, 3.0, 3.0)
    assert has(lp, dense, {1: 1.0, 5: -1.0, 9: 1.0}, 1.0, 1.0)
    assert lp.col_upper_[0] == 3.0  # what is there may stay


def test_limits_on_starts_and_stops(small: Any) -> None:
    free, _ = matrix(two_periods(small), [Least(), Least()])
    lp, dense = matrix(two_periods(small, most_starts=2.0, most_stops=1.0), [Least(), Least()])
    assert lp.num_row_ == free.num_row_ + 4
    for t in (0, 1):
        assert has(lp, dense, {4 + 2 * t: 1.0, 5 + 2 * t: 1.0}, -math.inf, 2.0)
        assert has(lp, dense, {8 + 2 * t: 1.0, 9 + 2 * t: 1.0}, -math.inf, 1.0)


def test_least_costs_by_role_and_in_all(small: Any) -> None:
    """A row in all only where it says more than those of the roles."""
    roles = {PREFILL: 3.0, DECODE: 1.0}
    lp, dense = matrix(two_periods(small), [Least(4.0, roles), Least(9.0, roles)])
    for t in (0, 1):
        assert has(lp, dense, {2 * t: 3.0}, 3.0, math.inf)
        assert has(lp, dense, {12 + t: 1.0}, 1.0, math.inf)
    assert has(lp, dense, {2: 3.0, 13: 1.0}, 9.0 * (1.0 - BOUND_SLACK), math.inf)
    assert not has(lp, dense, {0: 3.0, 12: 1.0}, 4.0 * (1.0 - BOUND_SLACK), math.inf)


def test_one_period_that_repeats_cannot_change(small: Any) -> None:
    template = small.problem_of(rows_of(), 2.0, {})
    problem = PeriodsProblem.of(template, [1.0], [2.0], start_usd=100.0)
    lp, dense = matrix(problem, [Least()])
    assert has(lp, dense, {2: -1.0, 4: 1.0}, 0.0, 0.0)  # n cancels
    found = solve_program(problem, [Least()], SECONDS)
    assert found.counts is not None and found.counts[0].tolist() == [1, 2]


# Shares and bounds


def test_shares_are_rates_over_demand_with_headroom(small: Any) -> None:
    problem = replace(small.problem_of(rows_of(), 4.0, {}), headroom=0.25)
    assert most_shares(problem) == pytest.approx([2.0 / 5.0, 1.0 / 5.0])
    useless = small.problem_of(rows_of((DECODE, "e", "g", 1, 0.1, 0.0, 0, math.inf)), 4.0, {})
    assert most_shares(useless)[2] == 0.0


def test_over_all_requests_only_stability_caps_a_replica(small: Any) -> None:
    problem = small.problem_on(small.two_type_system(1, "prefill"), {"ttft": 0.5, "tpot": 0.06})
    apart = most_shares(problem)
    whole = most_shares(replace(problem, slo_scope="population"))
    assert (whole > apart).all()
    types = problem.capacity.system.replica_types
    for o, share in zip(problem.options, whole, strict=True):
        limit = problem.capacity.stability_limit(o.role, types[o.replica_type])
        assert share == pytest.approx(limit / problem.demand)


def test_shares_bound_what_fleets_carry_when_stages_are_coupled(small: Any) -> None:
    """No optimum of the coupled problem serves with less than its shares say."""
    for seed in range(4):
        problem = small.problem_on(small.two_type_system(seed), {"ttft": 0.6, "tpot": 0.05})
        fleet = solver_named("exact").solve(problem).fleet
        shares = dict(zip(problem.options, most_shares(problem), strict=True))
        for role in ROLES:
            carried = sum(
                shares[o] * fleet.count(o.role, o.replica_type) for o in problem.in_role(role)
            )
            assert carried >= 1.0 - 1e-9


def test_what_is_whole(small: Any) -> None:
    linear = small.problem_of(rows_of(), 1.0, {})
    assert is_whole(linear) and is_whole(replace(linear, headroom=0.3))
    assert not is_whole(replace(linear, redundancy=1))
    assert not is_whole(replace(linear, compatible=frozenset({("p", "d")})))
    assert not is_whole(replace(linear, slo_scope="population"))
    coupled = small.problem_on(small.two_type_system(1), {"ttft": 0.5})
    assert coupled.capacity.coupled and not is_whole(coupled)


def cheapest_side(problem: AllocationProblem, role: str) -> float:
    """Least USD/hour that covers one role, by enumeration up to four replicas of a type."""
    options = problem.in_role(role)
    best = math.inf
    for counts in itertools.product(range(5), repeat=len(options)):
        pairs = list(zip(options, counts, strict=True))
        held: dict[str, int] = {}
        for o, n in pairs:
            held[o.gpu] = held.get(o.gpu, 0) + o.gpus * n
        fits = all(n <= problem.stock.get(g, n) for g, n in held.items())
        fits = fits and all(n <= o.most for o, n in pairs)
        if fits and sum(problem.rate(o) * n for o, n in pairs) >= problem.demand * (1 - 1e-12):
            best = min(best, sum(o.cost(n) for o, n in pairs))
    return best


@pytest.mark.parametrize("few", [0, 4])
@pytest.mark.parametrize("seed", range(6))
def test_each_roles_least_cost(
    small: Any, monkeypatch: pytest.MonkeyPatch, seed: int, few: int
) -> None:
    """By covers and by HiGHS, as there are few or many types."""
    monkeypatch.setattr(programs, "FEW", few)
    rng = random.Random(seed)
    rows = [
        (
            role,
            f"t{i}",
            f"g{rng.randrange(2)}",
            rng.choice([1, 2]),
            rng.uniform(1.0, 9.0),
            rng.uniform(0.8, 2.5),
            rng.choice([0, 1]),
            rng.choice([math.inf, 3.0]),
        )
        for role in ROLES
        for i in range(3)
    ]
    problem = small.problem_of(rows, rng.uniform(1.0, 3.0), {"g0": 12})
    found = least_by_role(Period(3.0, problem))
    for role in ROLES:
        best = cheapest_side(problem, role)
        assert found[role] <= best
        assert found[role] == pytest.approx(best, rel=5e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_below_the_optimum_without_any_help(small: Any, seed: int) -> None:
    """Neither least costs nor much time: still a lower bound, and never above with them."""
    rng = random.Random(seed)
    rows = [
        (role, f"t{i}", "g", 1, rng.uniform(1.0, 9.0), rng.uniform(0.3, 1.5), 0, math.inf)
        for role in ROLES
        for i in range(5)
    ]
    demands = [rng.uniform(1.0, 6.0) for _ in range(6)]
    problem = PeriodsProblem.of(
        small.problem_of(rows, 1.0, {}), [1.0] * 6, demands, start_usd=rng.uniform(0.0, 6.0)
    )
    best = solve_periods(problem, SECONDS)
    assert best.status == "optimal" and best.costs is not None
    bare = solve_program(problem, [Least()] * 6, 0.05)
    helped = solve_program(
        problem, [Least(by_role=least_by_role(p)) for p in problem.periods], 0.05
    )
    for found in (bare, helped):
        assert 0.0 <= found.bound <= best.costs.total * (1.0 + 1e-9)
        assert not found.infeasible and not found.interrupted


def test_a_demand_that_counts_meet_to_the_last_bit(small: Any) -> None:
    """Three replicas of 0.1 req/s serve 0.3 req/s, although 0.1 + 0.1 + 0.1 > 0.3 in doubles."""
    rows = [(role, "t", "g", 1, 1.0, 0.1, 0, math.inf) for role in ROLES]
    for demand, needed in ((0.3, 3), (0.3000001, 4), (0.1 * 3, 3)):
        problem = PeriodsProblem.of(small.problem_of(rows, 1.0, {}), [1.0], [demand])
        found = solve_periods(problem, SECONDS)
        assert found.status == "optimal"
        assert problem.counts(found.fleets).tolist() == [[needed, needed]]


def test_a_shortfall_below_solver_tolerance_is_mended(small: Any) -> None:
    """HiGHS takes 1e-7 too little for enough; the schedule does not, and its bound says less."""
    rows = [(role, "t", "g", 1, 1.0, 1.0, 0, math.inf) for role in ROLES]
    template = small.problem_of(rows, 1.0, {})
    demands = [3.0 * (1.0 + 1e-7), 1.0]
    problem = PeriodsProblem.of(template, [1.0, 1.0], demands, start_usd=0.5)
    program = solve_program(problem, [Least(), Least()], SECONDS)
    assert program.counts is not None and program.counts.tolist() == [[3, 3], [1, 1]]
    found = solve_periods(problem, SECONDS)
    assert problem.counts(found.fleets).tolist() == [[4, 4], [1, 1]]
    assert problem.broken(found.fleets) == []
    assert found.costs is not None and found.bound is not None
    assert found.costs.total == pytest.approx(13.0) and found.bound <= 13.0


def test_infeasible_is_told_apart_from_not_found(small: Any) -> None:
    problem = two_periods(small, most_starts=0.0)
    stuck = replace(problem, initial=problem.fleet([0, 0]))
    found = solve_program(stuck, [Least(), Least()], SECONDS)
    assert found.infeasible and found.counts is None and math.isinf(found.bound)


def test_prefill_alone_may_be_asked_for(small: Any) -> None:
    template = small.problem_of(rows_of(), 4.0, {})
    alone = replace(template, options=template.in_role(PREFILL))
    problem = PeriodsProblem((Period(1.0, alone),), (0.0,), (0.0,))
    found = solve_program(problem, [Least()], SECONDS)
    assert found.counts is not None and found.counts.tolist() == [[2]]
    assert found.bound == pytest.approx(6.0, rel=1e-5)


def test_reports_rise_and_stop(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "POLL_SECONDS", 1e-3)
    told: list[float] = []
    found = solve_program(two_periods(small), [Least(), Least()], SECONDS, told.append)
    assert found.counts is not None and not found.interrupted
    assert told == sorted(told) and all(0.0 < t < SECONDS for t in told)
