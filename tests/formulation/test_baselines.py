"""Baselines on instances solved by hand: what each picks, and that what breaks is said."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from pdalloc.allocation.baselines import by_ratio, merit_order, one_type_each, room, whole
from pdalloc.allocation.certify import certify
from pdalloc.allocation.solvers import fixed_point, solver_named
from pdalloc.allocation.solvers.fixed_point import FIRST_STEP, MOST_ROUNDS, Point, iterate
from pdalloc.allocation.solvers.proportional import ProportionalRatio
from pdalloc.closed_forms import golden_ratio
from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL

ANY = math.inf
DECODER = ("decode", "d", "g", 1, 1.0, 100.0, 0, ANY)
"""One decode type: 1 USD/hour, 100 requests/s."""
A, B = ("prefill", "a", "g", 1, 10.0, 200.0, 0, ANY), ("prefill", "b", "g", 1, 6.0, 100.0, 0, ANY)
SIMPLE = ["greedy", "proportional", "golden", "one_to_one", "fixed_point"]


def solve(name: str, problem: Any) -> Any:
    return solver_named(name).solve(problem)


# Greedy.


def test_the_greedy_trap(small) -> None:
    """Need 100: A has the least unit cost, 0.05 against 0.06 USD per request/s, yet B costs 6."""
    problem = small.problem_of([A, B, DECODER], 100.0, {})
    greedy, exact = solve("greedy", problem), solve("exact", problem)
    assert (greedy.cost, greedy.status, greedy.bound) == (10.0 + 1.0, "feasible", None)
    assert (exact.cost, exact.status) == (6.0 + 1.0, "optimal")


def test_greedy_rounds_the_cheapest_up(small) -> None:
    """300 by A of 200 each: two of them, though one A and one B cost 4 less."""
    problem = small.problem_of([A, B, DECODER], 300.0, {})
    assert solve("greedy", problem).fleet.counts == {(PREFILL, "a"): 2, (DECODE, "d"): 3}
    assert solve("exact", problem).cost == 16.0 + 3.0


def test_greedy_goes_down_the_merit_order_where_a_limit_ends(small) -> None:
    limited = (*A[:7], 1.0)
    problem = small.problem_of([limited, B, DECODER], 400.0, {})
    expected = {(PREFILL, "a"): 1, (PREFILL, "b"): 2, (DECODE, "d"): 4}
    assert solve("greedy", problem).fleet.counts == expected


def test_greedy_takes_owned_replicas_first(small) -> None:
    """Three B are owned: free, so their unit cost is nil."""
    owned = (*B[:6], 3, ANY)
    found = solve("greedy", small.problem_of([A, owned, DECODER], 400.0, {}))
    assert found.fleet.counts == {(PREFILL, "a"): 1, (PREFILL, "b"): 3, (DECODE, "d"): 4}
    assert found.cost == 10.0 + 4.0


def test_greedy_stays_within_the_stock_and_says_that_it_falls_short(small) -> None:
    """Five GPUs: decode takes three, two A serve 400 of them; with four GPUs nothing serves."""
    rows = [A, DECODER]
    assert solve("greedy", small.problem_of(rows, 300.0, {"g": 5})).status == "feasible"
    short = solve("greedy", small.problem_of(rows, 300.0, {"g": 4}))
    assert short.status == "infeasible" and short.reason
    assert sum(short.fleet.counts.values()) <= 4


@pytest.mark.parametrize("seed", range(60))
def test_greedy_never_beats_the_optimum(small, seed: int) -> None:
    problem = small.random_linear(seed)
    greedy, exact = solve("greedy", problem), solve("exact", problem)
    assert certify(problem, greedy.fleet).certified == (greedy.status == "feasible")
    if greedy.status == "feasible":
        assert greedy.cost >= exact.cost - 1e-9


# Merit order and types.


def test_merit_order_is_by_unit_cost_and_leaves_useless_types_out(small) -> None:
    nothing = ("prefill", "n", "g", 1, 0.1, 0.0, 0, ANY)
    problem = small.problem_of([B, A, nothing, DECODER], 100.0, {})
    assert [o.replica_type for o, _ in merit_order(problem, PREFILL)] == ["a", "b"]


def test_one_type_each_passes_over_what_the_stock_cannot_give(small) -> None:
    """A is cheaper per request, but its one GPU serves only 200 of 300."""
    scarce = ("prefill", "a", "rare", 1, 10.0, 200.0, 0, ANY)
    chosen = one_type_each(small.problem_of([scarce, B, DECODER], 300.0, {"rare": 1}))
    assert chosen is not None and chosen[0][0].replica_type == "b"
    first = one_type_each(small.problem_of([scarce, DECODER], 300.0, {"rare": 1}))
    assert first is not None and first[0][0].replica_type == "a"  # the only one there is
    nothing = ("prefill", "n", "g", 1, 1.0, 0.0, 0, ANY)
    assert one_type_each(small.problem_of([nothing, DECODER], 1.0, {})) is None


def test_room_is_what_stock_and_limit_leave(small) -> None:
    two = ("prefill", "a", "g", 2, 1.0, 1.0, 0, 4.0)
    problem = small.problem_of([two, DECODER], 1.0, {"g": 9})
    option = problem.in_role(PREFILL)[0]
    assert room(problem, option) == 4
    assert room(problem, option, {(DECODE, "d"): 4}) == 2  # 5 GPUs are left, 2 each
    assert room(problem, option, {(PREFILL, "a"): 3}) == 1


@pytest.mark.parametrize(("count", "up"), [(0.2, 1), (3.0, 3), (3.0 + 1e-13, 3), (3.01, 4)])
def test_whole_rounds_up(count: float, up: int) -> None:
    assert whole(count) == up


# Ratios.


@pytest.mark.parametrize("ratio", [0.05, 0.3, 1 / 3, 1.0, 1.7, 12.0])
def test_fleets_along_a_ratio_only_grow(ratio: float) -> None:
    """The larger role is given; the other is the ratio's count, rounded up."""
    before = (0, 0)
    for size in range(1, 40):
        fleet = by_ratio(("p", "d"), ratio, size)
        x, y = fleet.count(PREFILL, "p"), fleet.count(DECODE, "d")
        assert max(x, y) == size
        small, exact = min(x, y), size * min(ratio, 1.0 / ratio)
        assert exact - 1e-9 <= small < max(exact, 0.0) + 1.0
        assert x >= before[0] and y >= before[1]
        before = x, y


def test_a_fixed_ratio_is_scaled_until_the_slos_hold(small) -> None:
    """Prefill 300/200 -> 2 replicas, decode 300/100 -> 3; at 1:1 both take 3."""
    problem = small.problem_of([A, DECODER], 300.0, {})
    found = solve("one_to_one", problem)
    assert found.fleet.xpyd == "3P3D" and found.cost == 33.0 and found.status == "feasible"
    third = ProportionalRatio(1 / 3).solve(problem)
    assert third.fleet.xpyd == "2P4D" and third.details["prefill_per_decode"] == 1 / 3


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan])
def test_a_ratio_is_positive_and_finite(ratio: float) -> None:
    with pytest.raises(InputError, match="ratio"):
        ProportionalRatio(ratio)


def test_the_stock_is_checked_not_searched(small) -> None:
    """3P3D needs 6 GPUs of 5; 2P3D would fit."""
    problem = small.problem_of([A, DECODER], 300.0, {"g": 5})
    found = solve("one_to_one", problem)
    assert (found.status, found.fleet.xpyd) == ("infeasible", "3P3D")
    assert "6 g GPUs needed, stock has 5" in found.reason
    assert solve("exact", problem).fleet.xpyd == "2P3D"


@pytest.mark.parametrize("seed", range(8))
def test_no_smaller_fleet_at_the_ratio_keeps_the_slos(small, seed: int) -> None:
    problem = small.problem_on(small.two_type_system(seed), {"ttft": 1.0, "tpot": 0.05})
    found = ProportionalRatio(0.5).solve(problem)
    size = found.fleet.in_role(DECODE)[0].replicas
    names = tuple(p.replica_type for p in found.fleet.pools)
    assert found.status == "feasible"
    assert size == 1 or not certify(problem, by_ratio(names, 0.5, size - 1)).certified


def test_proportional_keeps_both_roles_equally_busy(small) -> None:
    """P/D = mu_D/mu_P: 1/mu_P is one prefill, 1/mu_D = L b, decode's cost of a full batch."""
    system = small.two_type_system(3)
    problem = small.problem_on(system, {"ttft": 5.0, "tpot": 0.2})
    found = solve("proportional", problem)
    (prefill, _), (decode, _) = one_type_each(problem)  # type: ignore[misc]
    p, d = (system.replica_types[o.replica_type] for o in (prefill, decode))
    ttft = float(p.latency.prefill_seconds(np.array([1500.0]), np.zeros(1))[0])
    steps = 200.0  # the first token, too, is decode's work
    work = 1.0 / problem.capacity.stability_limit(DECODE, d)
    assert work >= steps * d.latency.decode.per_request * (1.0 - 1e-6)
    assert found.details["prefill_per_decode"] == pytest.approx(ttft / work, rel=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "c_p", "c_d"), [(0.2, 5.0, 10.0, 10.0), (0.2, 5.0, 30.0, 10.0), (2.0, 0.5, 1.0, 7.0)]
)
def test_the_golden_ratio_minimises_its_own_model(
    a: float, b: float, c_p: float, c_d: float
) -> None:
    """min c_P P + c_D D on A/P + B/D = 1: with P = r D, D = A/r + B."""
    ratios = np.geomspace(1e-3, 1e3, 200_001)
    cost = (c_p * ratios + c_d) * (a / ratios + b)
    assert golden_ratio(a, b, c_p, c_d) == pytest.approx(ratios[cost.argmin()], rel=1e-4)


@pytest.mark.parametrize("values", [(0.0, 1, 1, 1), (1, 1, 0.0, 1), (1, math.inf, 1, 1)])
def test_the_golden_ratio_refuses_what_has_no_ratio(values: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="positive"):
        golden_ratio(*values)


def test_golden_buys_decode_for_a_batch_it_does_not_know(small) -> None:
    """A request alone decodes for L (a + b) seconds, of which a batch shares all but L b."""
    problem = small.problem_on(small.two_type_system(1), {"ttft": 1.0, "tpot": 0.05})
    golden, exact = solve("golden", problem), solve("exact", problem)
    assert golden.status == "feasible" and golden.cost > exact.cost
    ratio = golden.details["prefill_per_decode"]
    assert ratio < solve("proportional", problem).details["prefill_per_decode"]


# The fixed-point iteration.


@pytest.mark.parametrize("demand", [37.0, 250.0, 1999.0])
def test_uncoupled_stages_have_the_fixed_point_of_division(small, demand: float) -> None:
    """Nothing passes between the roles: ceil(demand/rate) each, from above, no failure."""
    problem = small.problem_of([A, DECODER], demand, {})
    found = solve("fixed_point", problem)
    assert found.fleet.counts[PREFILL, "a"] == math.ceil(demand / 200.0)
    assert found.fleet.counts[DECODE, "d"] == math.ceil(demand / 100.0)
    assert (found.details["ended"], found.details["failures"]) == ("converged", 0.0)
    assert found.details["rounds"] <= MOST_ROUNDS


@dataclass(frozen=True)
class ByHand:
    """Sizing by two given functions of the point."""

    prefill: Any
    decode: Any

    def point(self, x: float, y: float) -> Point:
        return Point(x, y, x >= 10.0)

    def targets(self, point: Point) -> tuple[float, float] | None:
        if self.prefill is None:
            return None
        return self.prefill(point), self.decode(point)


def run(start: tuple[float, float], prefill: Any, decode: Any = lambda p: p.decode) -> Any:
    sizing = ByHand(prefill, decode)
    return iterate(cast(Any, sizing), sizing.point(*start))


def test_an_oscillation_is_averaged() -> None:
    """Wanted: 5 above 10 and 20 below. Steps 10 %, 9 %, 8.1 %: down, up, down, then the mean."""
    path, ended = run((10.5, 4.0), lambda p: 5.0 if p.prefill > 10.0 else 20.0)
    one = 10.5 * 0.90
    two, three = one * 1.09, one * 1.09 * (1.0 - 0.081)
    expected = [10.5, one, two, three, 0.5 * (two + three)]
    assert [p.prefill for p in path] == pytest.approx(expected)
    assert ended == "averaged an oscillation"
    assert [p.keeps for p in path] == [True, False, True, False, False]


def test_steps_shrink_from_ten_to_two_percent_and_end_after_twenty_rounds() -> None:
    path, ended = run((1e6, 1e6), lambda p: 1.0, lambda p: 1.0)
    moves = [1.0 - b.prefill / a.prefill for a, b in itertools.pairwise(path)]
    assert len(moves) == MOST_ROUNDS and ended == "stopped short"
    assert moves[0] == pytest.approx(FIRST_STEP) and moves[-1] == pytest.approx(0.02)
    assert all(later <= before + 1e-12 for before, later in itertools.pairwise(moves))


def test_a_target_within_the_step_is_reached_at_once() -> None:
    path, ended = run((10.0, 4.0), lambda p: 9.5)
    assert [p.prefill for p in path] == [10.0, 9.5, 9.5] and ended == "converged"


def test_without_room_beside_decode_it_buys_more_decode() -> None:
    path, _ = run((10.0, 4.0), None)
    assert path[1].prefill == 10.0 and path[1].decode == pytest.approx(4.4)


def test_rounds_and_failures_of_a_coupled_problem_are_told(small) -> None:
    """Under an E2E budget decode at its own limit leaves prefill nothing: some rounds fail."""
    ended = set()
    for seed in range(6):
        problem = small.problem_on(small.two_type_system(seed), {"e2e": 6.0})
        found = solve("fixed_point", problem)
        assert 1 <= found.details["rounds"] <= MOST_ROUNDS + 1
        assert 0 <= found.details["failures"] <= found.details["rounds"]
        assert str(found.details["path"]).endswith(found.fleet.xpyd)
        assert (found.status == "feasible") == certify(problem, found.fleet).certified
        ended.add(found.details["ended"])
    assert ended <= {"converged", "averaged an oscillation", "stopped short"}


def test_its_docstring_states_the_step() -> None:
    text = fixed_point.__doc__ or ""
    assert "10 %" in text and "2 %" in text


# All of them.


@pytest.mark.parametrize("name", SIMPLE)
def test_a_type_that_admits_nothing_is_infeasible_in_words(small, name: str) -> None:
    rows = [("prefill", "a", "g", 1, 1.0, 0.0, 0, ANY), DECODER]
    found = solve(name, small.problem_of(rows, 10.0, {}))
    assert found.status == "infeasible" and found.reason and not found.fleet.pools


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("bounds", [{"ttft": 1.0, "tpot": 0.05}, {"e2e": 6.0}])
def test_no_certified_baseline_is_cheaper_than_the_optimum(small, name: str, bounds) -> None:
    for seed in range(5):
        problem = small.problem_on(small.two_type_system(seed), bounds)
        found, exact = solve(name, problem), solve("exact", problem)
        check = certify(problem, found.fleet)
        assert (found.status == "feasible") == check.certified
        assert found.reason == "; ".join(check.broken)
        assert not check.certified or found.cost >= exact.cost - 1e-9
