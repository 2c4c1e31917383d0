"""Schedules where counts do not tell - coupled stages, pools, lost replicas - against every one.

Fleets that any schedule as cheap as the answer may hold are all certified, and the cheapest way
through those that pass is the optimum (test_period_paths.py holds the ways themselves).
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.periods import PeriodsProblem, solve_periods
from pdalloc.allocation.periods.cuts import Cut, cuts_of, reach
from pdalloc.allocation.periods.paths import cheapest_path
from pdalloc.allocation.periods.program import Least, solve_program
from pdalloc.allocation.solvers import solver_named
from pdalloc.fleet import DECODE, PREFILL, Fleet

SECONDS = 10.0
KINDS = ("coupled", "pooled", "stock", "redundant", "compatible")


def question(small: Any, kind: str, seed: int) -> PeriodsProblem:
    """Two types for both roles over three periods, with start costs and at times a limit."""
    rng = random.Random(seed)
    system = small.two_type_system(seed, "decode" if kind == "coupled" else "prefill")
    if kind in ("pooled", "stock"):
        system = replace(system, dispatch={PREFILL: "central_queue", DECODE: "least_loaded"})
    template = small.problem_on(system, {"ttft": rng.uniform(0.4, 0.9), "tpot": 0.05})
    if kind == "redundant":
        template = replace(template, redundancy=1)
    if kind == "stock":  # both roles want the cheap type's few GPUs
        template = replace(template, stock={"small": 4})
    if kind == "compatible":
        alike = frozenset({("big", "big"), ("small", "small")})
        template = replace(template, compatible=alike, redundancy=rng.choice([0, 1]))
    demands = [template.demand * share for share in (0.35, 0.8, 0.55)]
    found = PeriodsProblem.of(template, [1.0, 1.0, 1.0], demands)
    each = len(template.options)
    return replace(
        found,
        start_usd=tuple(rng.uniform(0.5, 4.0) for _ in range(each)),
        stop_usd=(rng.choice([0.0, 0.5]),) * each,
        most_starts=rng.choice([math.inf, 2.0]),
    )


def enumerated(problem: PeriodsProblem, total: float) -> float:
    """Least total of all schedules that cost no more than ``total``, which one does.

    Such a schedule leaves a period no more than ``total`` less the others' own optima.
    """
    exact = solver_named("exact").solve
    least = [p.hours * (exact(p.problem).cost or 0.0) for p in problem.periods]
    room = [total - sum(least) + own + 1e-6 for own in least]
    tops = [int(max(room) / o.usd_per_hour) for o in problem.options]
    fleets = map(problem.fleet, itertools.product(*(range(top + 1) for top in tops)))
    near = [f for f in fleets if problem.periods[0].problem.cost(f) <= max(room)]
    serves = [
        [p.problem.cost(f) <= most and certify(p.problem, f).certified for f in near]
        for p, most in zip(problem.periods, room, strict=True)
    ]
    found = cheapest_path(problem, near, np.array(serves))
    assert found is not None
    return problem.costs(found).total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_the_cheapest_of_all_schedules(small: Any, kind: str, seed: int) -> None:
    problem = question(small, kind, seed)
    found = solve_periods(problem, SECONDS)
    assert found.costs is not None and found.bound is not None
    assert problem.broken(found.fleets) == []
    assert found.status == "optimal"
    best = enumerated(problem, found.costs.total)
    assert found.costs.total == pytest.approx(best, rel=1e-9)
    assert found.bound <= best * (1.0 + 1e-9)


def certified(problem: PeriodsProblem, t: int) -> Any:
    return lambda fleet: certify(problem.periods[t].problem, fleet).certified


def kept_by(cut: Cut, counts: Any) -> bool:
    """Whether ``counts`` (options,) satisfy ``cut``, as its sentence says."""
    more = cut.more and any(counts[i] > cut.at[i] for i in cut.members)
    fewer = cut.fewer and any(counts[i] < cut.at[i] for i in cut.members)
    return more or fewer or float(cut.share @ counts) >= 1.0 - 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_cuts_remove_what_fails_and_nothing_that_serves(small: Any, kind: str) -> None:
    problem = question(small, kind, 2)
    serves = certified(problem, 1)
    own = problem.counts([solver_named("exact").solve(problem.periods[1].problem).fleet])[0]
    few = itertools.product(range(3), repeat=len(problem.options))
    passing = {counts: serves(problem.fleet(counts)) for counts in few}
    failing = [np.array(counts) for counts, good in passing.items() if not good]
    made = 0
    for counts in failing[:: max(len(failing) // 12, 1)]:
        for cut in cuts_of(problem, 1, counts, own):
            made += 1
            assert not kept_by(cut, counts)
            for other, good in passing.items():
                assert kept_by(cut, np.array(other)) or not good
    assert made > 3


def test_what_fails_by_a_condition_that_no_cut_knows_makes_none(small: Any) -> None:
    problem = question(small, "pooled", 1)
    period = problem.periods[0]
    counts, own = np.zeros(4, np.int64), np.ones(4, np.int64)
    wide = replace(period, problem=replace(period.problem, slo_scope="population"))
    assert cuts_of(replace(problem, periods=(wide,)), 0, counts, own) == []
    coupled = question(small, "coupled", 1)
    both = replace(coupled.periods[0].problem, redundancy=1)
    asked = replace(coupled, periods=(replace(coupled.periods[0], problem=both),))
    assert cuts_of(asked, 0, counts, own) == []


def test_a_fleet_whose_prefill_suffices_makes_no_cut(small: Any) -> None:
    """It failed by something else, or by a hair."""
    problem = question(small, "coupled", 1)
    good = problem.counts([solver_named("exact").solve(problem.periods[1].problem).fleet])[0]
    assert cuts_of(problem, 1, good, good) == []


def test_what_the_roles_take_of_the_stock_is_no_fault_of_either(small: Any) -> None:
    """Both sides serve; together they need more than there is. More of either is no cure."""
    problem = question(small, "stock", 2)
    few = {"small": 1, "big": 1}
    short = [replace(p, problem=replace(p.problem, stock=few)) for p in problem.periods]
    own = problem.counts([solver_named("exact").solve(problem.periods[1].problem).fleet])[0]
    assert cuts_of(replace(problem, periods=tuple(short)), 1, own, own) == []


def test_types_that_do_not_fit_cut_each_other_off(small: Any) -> None:
    problem = question(small, "compatible", 2)
    counts = np.full(4, 2)
    found = cuts_of(problem, 0, counts, counts)
    named = [{problem.options[i].replica_type for i in cut.members} for cut in found]
    assert named == [{"big", "small"}] * 2  # big prefills small, and the other way round
    assert all(cut.fewer and not cut.more for cut in found)
    alone = np.array([2, 0, 2, 0])
    assert all(kept_by(cut, alone) and not kept_by(cut, counts) for cut in found)


# Cuts as rows


def linear(small: Any) -> PeriodsProblem:
    """1 req/s for every replica; 2 then 1 req/s; starts for free; all types fit each other.

    That they must makes the rows less than the whole problem, so that any count is of use.
    """
    rows = [
        (PREFILL, "p", "g", 1, 0.9, 1.0, 0, math.inf),
        (DECODE, "d", "g", 1, 1.0, 1.0, 0, math.inf),
        (DECODE, "e", "g", 1, 1.5, 1.0, 0, math.inf),
    ]
    template = small.problem_of(rows, 1.0, {})
    fits = frozenset({("p", "d"), ("p", "e")})
    return PeriodsProblem.of(replace(template, compatible=fits), [1.0, 1.0], [2.0, 1.0])


def cheapest(problem: PeriodsProblem, *cuts: Cut) -> list[list[int]]:
    most = np.full((2, len(problem.options)), 6.0)
    found = solve_program(problem, [Least(), Least()], SECONDS, None, cuts, most)
    assert found.counts is not None
    rows: list[list[int]] = found.counts.tolist()
    return rows


def cut(kind: int, members: tuple[int, ...], at: list[int], share: list[float], ways: bool) -> Cut:
    return Cut(kind, members, np.array(at), np.array(share), more=True, fewer=ways)


def test_a_cut_works_in_its_own_period_only(small: Any) -> None:
    problem = linear(small)
    assert cheapest(problem) == [[2, 2, 0], [1, 1, 0]]
    more = cut(0, (1,), [2, 2, 0], [0.0] * 3, False)
    assert cheapest(problem, more) == [[2, 3, 0], [1, 1, 0]]


def test_counts_may_leave_downwards_where_both_ways_help(small: Any) -> None:
    """One dear decode replica instead of a cheap one is the cheapest way to differ."""
    problem = linear(small)
    both = cut(0, (1, 2), [2, 2, 0], [0.0] * 3, True)
    assert cheapest(problem, both) == [[2, 1, 1], [1, 1, 0]]


def test_enough_prefill_is_the_other_way_out(small: Any) -> None:
    """A third prefill replica costs 0.9, and two cheap changes of decode are cut off, too."""
    problem = linear(small)
    both = cut(0, (1, 2), [2, 2, 0], [0.4, 0.0, 0.0], True)
    assert cheapest(problem, both)[0] == [2, 1, 1]
    other = cut(0, (1, 2), [2, 1, 1], [0.4, 0.0, 0.0], True)
    assert cheapest(problem, both, other)[0] == [3, 2, 0]


def test_several_cuts_hold_at_once(small: Any) -> None:
    problem = linear(small)
    cuts = [cut(1, (1, 2), [1, n, 0], [0.0] * 3, True) for n in (1, 2)]
    found = cheapest(problem, *cuts, cut(1, (1, 2), [1, 0, 1], [0.0] * 3, True))
    assert found[1][1:] not in ([1, 0], [2, 0], [0, 1])
    assert found[1][1] + found[1][2] >= 1


# Reach


def test_reach_is_what_a_cheaper_schedule_may_buy(small: Any) -> None:
    """4 + 2 USD at the least; a total of 9 leaves 3 for one period: 7 or 5 USD of one type.

    A replica costs 0.9, 1 or 1.5 USD.
    """
    problem = linear(small)
    found = reach(problem, [4.0, 2.0], 9.0)
    assert found.tolist() == [[7.0, 7.0, 4.0], [5.0, 5.0, 3.0]]
    long = replace(problem, periods=tuple(replace(p, hours=3.0) for p in problem.periods))
    assert reach(long, [4.0, 2.0], 21.0)[0, 1] == 5.0  # 12 + 3 USD over three hours


def test_owned_replicas_are_beyond_reach_and_free_ones_without_end(small: Any) -> None:
    rows = [
        (PREFILL, "p", "g", 1, 1.0, 1.0, 2, math.inf),
        (DECODE, "d", "g", 1, 0.0, 1.0, 0, math.inf),
    ]
    problem = PeriodsProblem.of(small.problem_of(rows, 1.0, {}), [1.0], [1.0])
    assert reach(problem, [0.0], 3.0).tolist() == [[5.0, math.inf]]


def test_free_replicas_leave_a_valid_answer(small: Any) -> None:
    """Without a reach no cut can be written both ways; the bound is then the relaxation's."""
    problem = question(small, "coupled", 1)
    free = replace(problem.periods[0].problem.options[-1], usd_per_hour=0.0, most=2.0)
    periods = tuple(
        replace(p, problem=replace(p.problem, options=(*p.problem.options[:-1], free)))
        for p in problem.periods
    )
    found = solve_periods(replace(problem, periods=periods), SECONDS)
    assert found.costs is not None and found.bound is not None
    assert found.bound <= found.costs.total
    assert replace(problem, periods=periods).broken(found.fleets) == []


def test_the_solver_of_a_period_may_be_given(small: Any) -> None:
    """A weaker one gives weaker bounds, and schedules that are still certified."""
    problem = question(small, "coupled", 3)
    exact = solver_named("exact").solve
    asked: list[float] = []

    def weak(period: Any) -> Any:
        asked.append(period.demand)
        found = exact(period)
        return replace(found, status="feasible", bound=0.5 * (found.bound or 0.0))

    found = solve_periods(problem, SECONDS, None, weak)
    assert sorted(asked) == sorted(problem.demands)
    assert problem.broken(found.fleets) == []
    best = solve_periods(problem, SECONDS)
    assert found.costs is not None and best.costs is not None and found.bound is not None
    assert found.bound <= best.costs.total * (1.0 + 1e-9) <= found.costs.total * (1.0 + 1e-8)


def test_an_optimum_that_fails_its_check_is_not_taken(small: Any) -> None:
    """The period's fleet is one decode replica short; the schedule is certified all the same."""
    problem = question(small, "redundant", 1)
    exact = solver_named("exact").solve

    def short(period: Any) -> Any:
        found = exact(period)
        (key, n), *others = found.fleet.counts.items()
        return replace(found, fleet=Fleet.of({key: n - 1, **dict(others)}))

    found = solve_periods(problem, SECONDS, None, short)
    if found.costs is not None:
        assert problem.broken(found.fleets) == []
