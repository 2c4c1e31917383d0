"""Several periods against enumeration of every schedule, and what theory says of start costs."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.periods import Period, PeriodsProblem, Schedule, solve_periods
from pdalloc.allocation.periods import program as programs
from pdalloc.allocation.periods import search as searching
from pdalloc.allocation.solvers import solver_named
from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet

SECONDS = 10.0
TOLERANCE = 1e-5
"""Relative; what solver tolerances leave between a bound and an optimum."""


def random_periods(small: Any, seed: int, periods: int = 3) -> PeriodsProblem:
    """2 prefill types and 1 or 2 decode types; limits, stock, owned replicas at times."""
    rng = random.Random(seed)
    rows = [
        (
            role,
            f"t{i}",
            f"g{rng.randrange(2)}",
            rng.choice([1, 2]),
            rng.choice([float(rng.randint(1, 9)), rng.uniform(1.0, 9.0)]),
            rng.uniform(0.8, 2.5),
            rng.choice([0, 0, 1]),
            rng.choice([math.inf, 2.0]),
        )
        for role in ROLES
        for i in range(2 if role == PREFILL else rng.choice([1, 2]))
    ]
    stock = {"g0": rng.randint(3, 9)} if rng.random() < 0.4 else {}
    demands = [rng.uniform(0.5, 2.4) for _ in range(periods)]
    hours = [rng.choice([1.0, 1.0, 2.5]) for _ in range(periods)]
    template = small.problem_of(rows, 1.0, stock)
    found = PeriodsProblem.of(template, hours, demands)
    free = rng.random() < 0.2
    return replace(
        found,
        start_usd=tuple(0.0 if free else rng.uniform(0.0, 8.0) for _ in rows),
        stop_usd=tuple(rng.choice([0.0, rng.uniform(0.0, 2.0)]) for _ in rows),
        most_starts=rng.choice([math.inf, math.inf, 1.0, 2.0]),
        most_stops=rng.choice([math.inf, math.inf, 2.0]),
        initial=None if rng.random() < 0.6 else found.fleet([rng.randrange(3) for _ in rows]),
    )


def serving(problem: PeriodsProblem, t: int, most: int = 3) -> list[tuple[int, ...]]:
    """Every fleet that covers period ``t``'s demand within stock and limits, by sums alone.

    No rate is below a third of a demand, so that a fourth replica of a type is never needed.
    """
    p = problem.periods[t].problem
    tops = [int(min(o.most, most)) for o in p.options]
    kept = []
    for counts in itertools.product(*(range(top + 1) for top in tops)):
        pairs = list(zip(p.options, counts, strict=True))
        covered = {r: sum(p.rate(o) * n for o, n in pairs if o.role == r) for r in ROLES}
        used = {g: sum(o.gpus * n for o, n in pairs if o.gpu == g) for g in p.stock}
        enough = all(covered[r] >= p.demand * (1.0 - 1e-12) for r in ROLES)
        if enough and all(used[g] <= held for g, held in p.stock.items()):
            kept.append(counts)
    return kept


def enumerated(problem: PeriodsProblem) -> float:
    """Least total over every schedule: the way matrices of all fleets, multiplied out.

    min-plus products of complete transition tables are the enumeration, summed in another
    order; nothing is left out.
    """
    fleets = [np.array(serving(problem, t)).reshape(-1, len(problem.options)) for t in range(3)]
    usd = np.array([o.usd_per_hour for o in problem.options])
    owned = np.array([o.owned for o in problem.options])

    def step(before: Any, after: Any, t: int) -> Any:
        change = after[None] - before[:, None]
        up, down = np.maximum(change, 0), np.maximum(-change, 0)
        cost = up @ np.array(problem.start_usd) + down @ np.array(problem.stop_usd)
        cost = cost + problem.hours[t] * (np.maximum(after - owned, 0) @ usd)[None]
        cost[up.sum(2) > problem.most_starts] = math.inf
        cost[down.sum(2) > problem.most_stops] = math.inf
        return cost

    if not all(len(f) for f in fleets):
        return math.inf
    first = fleets[2] if problem.initial is None else problem.counts([problem.initial])
    total = step(first, fleets[0], 0)
    for t in (1, 2):
        total = (total[:, :, None] + step(fleets[t - 1], fleets[t], t)[None]).min(axis=1)
    ends = np.diag(total) if problem.initial is None else total[0]
    return float(ends.min())


def check(problem: PeriodsProblem, found: Schedule) -> None:
    """What holds of every schedule: certified, conserved, priced as it is, above its bound."""
    assert found.costs is not None and found.bound is not None
    assert problem.broken(found.fleets) == []
    before = found.fleets[-1] if problem.initial is None else problem.initial
    usd = 0.0
    for t, fleet in enumerate(found.fleets):
        change = problem.counts([fleet])[0] - problem.counts([before])[0]
        assert (problem.changes(found.fleets)[t] == change).all()
        assert np.maximum(change, 0).sum() <= problem.most_starts
        assert np.maximum(-change, 0).sum() <= problem.most_stops
        usd += float(np.maximum(change, 0) @ np.array(problem.start_usd))
        usd += float(np.maximum(-change, 0) @ np.array(problem.stop_usd))
        usd += problem.hours[t] * problem.periods[t].problem.cost(fleet)
        before = fleet
    assert found.costs.total == pytest.approx(usd, rel=1e-9)
    assert found.bound <= found.costs.total
    if problem.initial is None:
        assert problem.changes(found.fleets).sum(axis=0).tolist() == [0] * len(problem.options)


@pytest.mark.parametrize("seed", range(40))
def test_every_schedule_enumerated(small: Any, seed: int) -> None:
    problem = random_periods(small, seed)
    best, found = enumerated(problem), solve_periods(problem, SECONDS)
    if math.isinf(best):
        assert found.status == "infeasible" and found.costs is None and found.reason
        return
    check(problem, found)
    assert found.status == "optimal"
    assert found.costs is not None and found.costs.total == pytest.approx(best, rel=1e-9)


def day(small: Any, start_usd: float, **more: Any) -> PeriodsProblem:
    """A dear, fast and a cheap, slow type for both roles over six periods."""
    rows = [
        (role, name, name, 1, usd, rate, 0, math.inf)
        for role in ROLES
        for name, usd, rate in (("fast", 5.0, 2.0), ("slow", 2.2, 0.8))
    ]
    demands = [1.0, 3.1, 5.9, 4.4, 5.2, 2.0]
    return PeriodsProblem.of(
        small.problem_of(rows, 1.0, {}), [1.0] * 6, demands, start_usd=start_usd, **more
    )


def alone(problem: PeriodsProblem) -> float:
    """Each period's own optimum, summed."""
    return sum(
        p.hours * (solver_named("exact").solve(p.problem).cost or 0.0) for p in problem.periods
    )


def total(problem: PeriodsProblem) -> float:
    found = solve_periods(problem, SECONDS)
    check(problem, found)
    assert found.costs is not None and found.status == "optimal"
    return found.costs.total


def test_free_starts_leave_each_period_its_optimum(small: Any) -> None:
    """Without start and stop costs or limits the problem falls apart into its periods."""
    problem = day(small, 0.0)
    assert total(problem) == pytest.approx(alone(problem), rel=1e-9)


def test_dear_starts_keep_the_peak_fleet_all_day(small: Any) -> None:
    """A start that costs more than the day never pays: one fleet, the peak's optimum."""
    problem = day(small, 1e4)
    found = solve_periods(problem, SECONDS)
    check(problem, found)
    assert len(set(found.fleets)) == 1
    peak = solver_named("exact").solve(problem.periods[2].problem)
    assert found.costs is not None and peak.cost is not None
    assert found.costs.total == pytest.approx(6.0 * peak.cost, rel=1e-9)
    assert found.costs.starting == 0.0


def test_the_total_rises_with_the_start_cost_and_is_concave_in_it(small: Any) -> None:
    """A least value over schedules, each affine in the start cost with a slope not below 0."""
    costs = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0]
    totals = [total(day(small, usd)) for usd in costs]
    slopes = np.diff(totals) / np.diff(costs)
    assert (slopes >= -TOLERANCE).all()
    assert (np.diff(slopes) <= TOLERANCE * totals[-1]).all()
    assert totals[0] < totals[-1]


def test_limits_bind(small: Any) -> None:
    """Fewer starts at once never cost less; none at all leaves one fleet, as dear starts do."""
    totals = [total(day(small, 0.5, most_starts=float(k))) for k in (0, 1, 2, 3, 99)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > totals[1] > totals[-1]
    assert totals[-1] == pytest.approx(total(day(small, 0.5)))
    assert totals[0] == pytest.approx(total(day(small, 1e4)))
    found = solve_periods(day(small, 0.5, most_starts=1.0), SECONDS)
    starts = np.maximum(day(small, 0.5).changes(found.fleets), 0).sum(axis=1)
    assert starts.max() == 1
    free = solve_periods(day(small, 0.5), SECONDS)
    assert np.maximum(day(small, 0.5).changes(free.fleets), 0).sum(axis=1).max() > 1


def test_stops_of_a_repeating_day_are_as_many_as_its_starts(small: Any) -> None:
    """So that a stop cost is a start cost: moving it from one to the other changes nothing."""
    problem = day(small, 3.0)
    moved = replace(problem, start_usd=(1.0,) * 4, stop_usd=(2.0,) * 4)
    assert total(moved) == pytest.approx(total(problem), rel=1e-6)


def test_periods_may_be_turned_round_the_day(small: Any) -> None:
    """Where the day repeats, it matters not which period is called the first."""
    problem = day(small, 2.5)
    turned = replace(problem, periods=problem.periods[2:] + problem.periods[:2])
    assert total(turned) == pytest.approx(total(problem), rel=1e-6)


def test_split_periods_cost_the_same(small: Any) -> None:
    """A period of two hours is two periods of one hour at the same demand."""
    problem = day(small, 2.5)
    halves = tuple(
        half for p in problem.periods for half in (Period(0.5, p.problem), Period(0.5, p.problem))
    )
    split = replace(problem, periods=halves)
    assert total(split) == pytest.approx(total(problem), rel=1e-6)
    assert split.kinds == (0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10)


def test_a_start_from_a_given_fleet(small: Any) -> None:
    """The fleet that is there need not be started; an empty one has all to start."""
    bare = day(small, 4.0)
    peak = solve_periods(day(small, 1e4), SECONDS).fleets[0]
    cold = total(replace(bare, initial=Fleet(())))
    warm = total(replace(bare, initial=peak))
    started = sum(bare.counts([peak])[0]) * 4.0
    assert cold <= warm + started + TOLERANCE
    assert warm <= cold
    stuck = solve_periods(replace(bare, initial=Fleet(()), most_starts=1.0), SECONDS)
    assert stuck.status == "infeasible" and "most_starts" in stuck.reason
    assert stuck.fleets == () and stuck.gap is None


def test_a_period_without_a_fleet_is_named(small: Any) -> None:
    problem = day(small, 1.0)
    tight = [
        Period(p.hours, replace(p.problem, stock={"fast": 2, "slow": 5})) for p in problem.periods
    ]
    found = solve_periods(replace(problem, periods=tuple(tight)), SECONDS)
    assert found.status == "infeasible" and found.costs is None
    assert found.reason.startswith("period 3 (5.9 req/s): stock")


# Time, and ^C


def wavy(small: Any) -> PeriodsProblem:
    """Twenty-four periods of four types per role: HiGHS needs more than a blink."""
    rng = random.Random(5)
    rows = [
        (role, f"t{i}", f"g{i}", 1, rng.uniform(1.0, 9.0), rng.uniform(0.3, 2.5), 0, math.inf)
        for role in ROLES
        for i in range(4)
    ]
    demands = [
        6.0 + 4.0 * math.sin(t / 24.0 * 2.0 * math.pi) + rng.uniform(0, 1) for t in range(24)
    ]
    return PeriodsProblem.of(small.problem_of(rows, 1.0, {}), [1.0] * 24, demands, start_usd=3.0)


def test_little_time_gives_a_certified_schedule_and_a_true_bound(small: Any) -> None:
    problem = wavy(small)
    short, long = solve_periods(problem, 0.01), solve_periods(problem, 4.0)
    for found in (short, long):
        check(problem, found)
        assert found.gap is not None and 0.0 <= found.gap < 0.1
    # Each bound is below every schedule, whichever run found it.
    assert short.costs is not None and long.costs is not None
    assert short.bound is not None and long.bound is not None
    assert max(short.bound, long.bound) <= min(short.costs.total, long.costs.total) * (1 + 1e-9)
    assert long.bound >= alone(problem) * (1.0 - TOLERANCE)


@pytest.mark.parametrize("calls", [1, 10, 25])
def test_interrupted_answers_are_valid(
    small: Any, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """^C after so many reports: among the 24 periods, or in the integer program."""
    problem, seen = wavy(small), []
    monkeypatch.setattr(programs, "POLL_SECONDS", 1e-3)

    def stop(done: int, all_: int) -> None:
        seen.append((done, all_))
        if len(seen) == calls:
            raise KeyboardInterrupt

    found = solve_periods(problem, SECONDS, stop)
    check(problem, found)
    assert found.interrupted and len(seen) == calls
    assert all(0 < done <= all_ for done, all_ in seen)
    assert found.status == "feasible" or calls > 24  # the fleets' ways may do without HiGHS
    assert found.seconds < SECONDS


def test_an_interrupt_before_the_first_schedule_is_passed_on(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(searching._Search, "_alone", at_once)
    with pytest.raises(KeyboardInterrupt):
        solve_periods(day(small, 1.0), SECONDS)


# Where counts do not tell: coupled stages, pools, conditions


@pytest.mark.parametrize("kind", ["coupled", "pooled", "redundant", "headroom"])
def test_bounds_hold_and_schedules_are_certified(small: Any, kind: str) -> None:
    if kind == "pooled":
        system = replace(
            small.two_type_system(3, "prefill"),
            dispatch={PREFILL: "central_queue", DECODE: "least_loaded"},
        )
    else:
        system = small.two_type_system(3, "decode" if kind == "coupled" else "prefill")
    template = small.problem_on(system, {"ttft": 0.6, "tpot": 0.05})
    asked: dict[str, dict[str, Any]] = {
        "redundant": {"redundancy": 1},
        "headroom": {"headroom": 0.2},
    }
    more = asked.get(kind, {})
    template = replace(template, **more)
    demands = [template.demand * share for share in (0.4, 1.0, 0.7)]
    problem = PeriodsProblem.of(template, [1.0, 1.0, 1.0], demands, start_usd=2.0)
    found = solve_periods(problem, SECONDS)
    check(problem, found)
    assert found.costs is not None and found.bound is not None
    assert found.bound >= alone(problem) * (1.0 - TOLERANCE)
    peak = solver_named("exact").solve(problem.periods[1].problem)
    assert peak.cost is not None
    assert found.costs.total <= 3.0 * peak.cost + 1e-9
    free = solve_periods(replace(problem, start_usd=(0.0,) * 4), SECONDS)
    assert free.status == "optimal" and free.costs is not None
    assert free.costs.total == pytest.approx(alone(problem), rel=1e-9)


def test_over_all_requests(small: Any) -> None:
    """A population SLO: rates have no cap but stability, and the bound is the periods' own."""
    template = small.problem_on(small.two_type_system(2, "prefill"), {"ttft": 0.4, "tpot": 0.05})
    template = replace(template, slo_scope="population")
    demands = [template.demand * share for share in (0.5, 1.0)]
    problem = PeriodsProblem.of(template, [1.0, 1.0], demands, start_usd=1.0)
    found = solve_periods(problem, SECONDS)
    check(problem, found)
    assert found.bound is not None and found.bound >= alone(problem) * (1.0 - TOLERANCE)


# What is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"periods": ()}, "at least one period"),
        ({"start_usd": (1.0,)}, "one start cost per option, 4 in all"),
        ({"start_usd": (1.0, 1.0, -1.0, 1.0)}, "start costs must be finite"),
        ({"stop_usd": (math.inf,) * 4}, "stop costs must be finite"),
        ({"most_starts": -1.0}, "most_starts: must not be negative"),
        ({"most_stops": math.nan}, "most_stops: must not be negative"),
    ],
)
def test_bad_problems(small: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(day(small, 1.0), **change)


def test_bad_periods(small: Any) -> None:
    problem = day(small, 1.0)
    one = problem.periods[0].problem
    for hours in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="positive number of hours"):
            Period(hours, one)
    with pytest.raises(InputError, match="demand of a period"):
        Period(1.0, replace(one, demand=0.0))
    other = Period(1.0, replace(one, options=one.options[:3]))
    with pytest.raises(InputError, match="same options"):
        replace(problem, periods=(problem.periods[0], other))
    with pytest.raises(InputError, match="time limit must be positive"):
        solve_periods(problem, 0.0)
