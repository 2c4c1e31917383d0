"""Rounds of the conic program with backends that say what the test asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation import conic_rounds
from pdalloc.allocation.certify import certify
from pdalloc.allocation.conic import ConicData, conic_data
from pdalloc.allocation.conic_rounds import Point, solve_integer, solve_relaxation, whole_optimum
from pdalloc.allocation.covers import MOST_REPLICAS
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import cvxpy_misocp, cvxpy_relaxation, solver_named
from pdalloc.capacity import Capacity
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.slo.joint import JointSlo
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean
from pdalloc.workload.lengths import fixed
from pdalloc.workload.traffic import TrafficClass, Workload


def problem_of(small: Any, slos: tuple[Any, ...], **changes: Any) -> AllocationProblem:
    system = small.two_type_system(1, "transfer")
    plain: AllocationProblem = small.problem_on(system, {})
    more = {"slo_scope": "population"} | changes
    return replace(plain, capacity=Capacity(system, slos), **more)


TTFT = Slo("all", "ttft", Mean(), 0.5)
TPOT = Slo("all", "tpot", Mean(), 0.03)


def boxed(small: Any) -> ConicData:
    """One type per role, 2 and 3 USD/hour, no stock; a box of ceil(4/1) and ceil(4/2)."""
    rows = [
        (PREFILL, "p", "a", 1, 2.0, 1.0, 0, math.inf),
        (DECODE, "d", "b", 1, 3.0, 2.0, 0, math.inf),
    ]
    data, _ = conic_data(small.problem_of(rows, 4.0, {}), "x")
    assert data.room.tolist() == [4.0, 2.0]
    return data


def test_the_box_grows_until_nothing_cheaper_is_outside(small: Any) -> None:
    """At 38 USD/hour 19 p or 12 d could be bought: the box must hold them before the answer
    counts."""
    seen = []

    def minimise(data: ConicData) -> Point | None:
        seen.append(data.room.tolist())
        return Point(np.array([10.0, 6.0]), np.zeros(2), 38.0)

    found = whole_optimum(boxed(small), minimise)
    assert found is not None and found.bound == 38.0
    assert seen[0] == [4.0, 2.0] and seen[-1] == [19.0, 12.0]
    for before, after in pairwise(seen):
        assert all(w <= 4.0 * v for v, w in zip(before, after, strict=True))


def test_nothing_is_infeasible_before_the_widest_box(small: Any) -> None:
    rooms = []

    def minimise(data: ConicData) -> Point | None:
        rooms.append(data.room)
        return None

    assert whole_optimum(boxed(small), minimise) is None
    assert np.all(rooms[-1] == MOST_REPLICAS) and len(rooms) < 12


def test_a_box_that_stock_sets_is_looked_at_once(small: Any) -> None:
    data = boxed(small)
    data = replace(data, linear=replace(data.linear, stock={"a": 4, "b": 2}))
    calls = []
    assert whole_optimum(data, lambda d: calls.append(d)) is None
    assert len(calls) == 1


def counting(inner: Callable[[ConicData], Point | None]) -> tuple[Any, list[ConicData]]:
    seen: list[ConicData] = []

    def minimise(data: ConicData) -> Point | None:
        seen.append(data)
        return inner(data)

    return minimise, seen


def test_tangents_are_added_where_the_answer_is_and_bounds_rise(small: Any) -> None:
    problem = problem_of(small, (TTFT, TPOT))
    minimise, seen = counting(cvxpy_relaxation.minimise)
    answer = solve_relaxation(problem, "x", minimise)
    bounds = [p.bound for p in map(cvxpy_relaxation.minimise, seen) if p is not None]
    assert len(seen) > 2 and all(b > a - 1e-6 for a, b in pairwise(bounds))
    assert answer.details["relaxation_usd_per_hour"] == pytest.approx(bounds[-1], rel=1e-9)
    for before, after in pairwise(seen):
        found = cvxpy_relaxation.minimise(before)
        assert found is not None
        new = [t for t in after.tangents if t not in before.tangents]
        for t in new:  # above the tangents that made the answer: it is cut off
            n, a = float(found.counts[t.i]), float(found.busy[t.i])
            same = [s for s in before.tangents if (s.k, s.i) == (t.k, t.i)]
            old = max(s.slope * a + s.level * n for s in same)
            assert t.slope * a + t.level * n >= old - 1e-7


@pytest.mark.parametrize("solve", [solve_relaxation, solve_integer])
def test_rounds_that_do_not_settle_are_refused(
    small: Any, solve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conic_rounds, "MOST_ROUNDS", 1)

    def busy(data: ConicData) -> Point | None:
        """Half of each role's work on either type: busy beyond what the laws allow."""
        counts = np.ceil(0.5 / data.linear.share)
        return Point(counts, 0.97 * counts, 1.0)

    with pytest.raises(UnsupportedError, match=r"'mine' has not settled after 1 rounds") as caught:
        solve(problem_of(small, (replace(TTFT, bound=0.25), TPOT)), "mine", busy)
    assert "\n" not in str(caught.value)


def test_a_burden_that_is_not_convex_is_refused(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delay that falls with the load: its tangents would cut off what works."""
    from pdalloc.allocation import conic

    def concave(*_: Any) -> Callable[[float], float]:
        return lambda load: 0.02 * math.log1p(load)

    monkeypatch.setattr(conic, "burden_of", concave)
    with pytest.raises(UnsupportedError, match="is not convex; use --solver exact") as caught:
        solve_relaxation(problem_of(small, (TPOT,)), "mine", cvxpy_relaxation.minimise)
    assert "'mine'" in str(caught.value) and "all/tpot.mean" in str(caught.value)


def test_an_answer_that_fails_by_a_hair_is_refused(small: Any) -> None:
    """Cones are kept to a solver's tolerance, and the certificate says no."""
    problem = problem_of(small, (replace(TTFT, bound=0.3),))
    best = solver_named("cvxpy_misocp").solve(problem)

    def short(data: ConicData) -> Point | None:
        """A replica less than needed, and busy replicas that the tolerance forgives."""
        found = whole_optimum(data, cvxpy_misocp.minimise)
        assert found is not None
        counts = found.counts.copy()
        counts[np.argmax(counts)] -= 1.0
        return Point(counts, np.zeros_like(counts), found.bound)

    assert best.status == "optimal"
    with pytest.raises(UnsupportedError, match=r"'mine' is at its tolerance: .* by a hair"):
        solve_integer(problem, "mine", short)


def test_a_fleet_that_rounding_pushes_beyond_stock_is_said_to_break_it(small: Any) -> None:
    """2.5 replicas in each role fit 5 GPUs; rounded up they need 6."""
    rows = [
        (PREFILL, "p", "a", 1, 2.0, 1.0, 0, math.inf),
        (DECODE, "d", "a", 1, 3.0, 1.0, 0, math.inf),
    ]
    problem = small.problem_of(rows, 2.5, {"a": 5})
    answer = solver_named("cvxpy_relaxation").solve(problem)
    assert answer.status == "infeasible" and answer.bound is None
    assert answer.reason == "6 a GPUs needed, stock has 5"
    assert float(answer.details["relaxation_usd_per_hour"]) == pytest.approx(12.5)
    assert not certify(problem, answer.fleet).certified


@pytest.mark.parametrize("name", ["cvxpy_relaxation", "cvxpy_misocp", "pyomo_misocp"])
def test_headroom_is_a_larger_demand(small: Any, name: str) -> None:
    problem = problem_of(small, (TTFT,))
    ahead = solver_named(name).solve(replace(problem, headroom=0.25))
    more = solver_named(name).solve(replace(problem, demand=problem.demand * 1.25))
    assert (ahead.fleet, ahead.cost) == (more.fleet, more.cost)
    assert ahead.bound == pytest.approx(more.bound, rel=1e-9)


def test_two_classes_have_an_slo_each(small: Any) -> None:
    """Short prompts ask for 0.3 s, long ones for 0.6 s; all are over all requests of a class."""
    system = small.two_type_system(1, "transfer")
    short, long = fixed(500, 100), fixed(2500, 100)
    classes = (TrafficClass("short", 4.0, short), TrafficClass("long", 2.0, long))
    system = replace(system, workload=Workload(classes))
    slos = (Slo("short", "ttft", Mean(), 0.3), Slo("long", "ttft", Mean(), 0.6))
    problem: AllocationProblem = small.problem_on(system, {})
    problem = replace(problem, capacity=Capacity(system, slos), slo_scope="population")
    data, _ = conic_data(problem, "x")
    assert data.slos == ("short/ttft.mean", "long/ttft.mean")
    # both classes wait alike, and their requests take their own times
    assert data.queue[0] * 0.3 == pytest.approx(data.queue[1] * 0.6, rel=1e-6)
    exact = solver_named("exact").solve(problem)
    for name in ("cvxpy_misocp", "pyomo_misocp"):
        assert solver_named(name).solve(problem).cost == pytest.approx(exact.cost)
    relaxed = solver_named("cvxpy_relaxation").solve(problem)
    assert relaxed.bound is not None and exact.cost is not None and relaxed.bound <= exact.cost
    prices = [float(relaxed.details[f"d_cost/d_bound[{name}]"]) for name in data.slos]
    assert min(prices) < -1e-3 and max(prices) <= 1e-6


def test_a_joint_slo_of_one_stage_caps_its_pools_and_has_no_price(small: Any) -> None:
    """Not on one latency, so that it is not a row; where each pool keeps it the rates know it."""
    joint = JointSlo("all", 0.9, (("ttft", 1.5),))
    problem = problem_of(small, (joint, TPOT), slo_scope="pool")
    answer = solver_named("cvxpy_relaxation").solve(problem)
    merit = sum(
        min(o.usd_per_hour / problem.rate(o) for o in problem.in_role(role)) for role in ROLES
    )
    assert answer.bound == pytest.approx(merit * problem.demand, rel=1e-6)
    priced = {name for name in answer.details if name.startswith("d_cost/d_bound")}
    assert priced == {"d_cost/d_bound[all/tpot.mean]"}
    with pytest.raises(UnsupportedError, match="means and percentiles"):
        solver_named("cvxpy_relaxation").solve(replace(problem, slo_scope="population"))


def test_out_of_stock_is_infeasible_for_the_relaxation_too(small: Any) -> None:
    problem = problem_of(small, (TTFT,), stock={"big": 0, "small": 0})
    answer = solver_named("cvxpy_relaxation").solve(problem)
    assert answer.status == "infeasible" and not answer.fleet.pools and "stock" in answer.reason
