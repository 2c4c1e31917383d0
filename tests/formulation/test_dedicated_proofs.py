"""How dedicated pools are proven: the joint program at its tolerance, prices and lists."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.dedicated import DedicatedProblem, solve_dedicated
from pdalloc.allocation.dedicated.joint import METHOD, solve_jointly
from pdalloc.allocation.dedicated.prices import Priced, best_prices, priced
from pdalloc.allocation.dedicated.problem import NOTHING
from pdalloc.allocation.dedicated.search import APART, PRICES, _Best, _by_prices, _dearest, _in_turn
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers.exact import SOLVER
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet

CHEAP, DEAR = 1.0, 4.0
Alone = list[Allocation]


def parts_of(
    small: Any,
    stock: dict[str, int],
    demands: tuple[float, ...] = (1.0, 1.0),
    rate: float = 1.0,
    owned: int = 0,
    most: float = math.inf,
) -> DedicatedProblem:
    """A cheap and a dear type of one GPU each for both roles, alike for all parts."""
    rows = [
        (role, name, name, 1, usd, rate, owned if name == "cheap" else 0, most)
        for role in ROLES
        for name, usd in (("cheap", CHEAP), ("dear", DEAR))
    ]
    problems = {f"p{i}": small.problem_of(rows, d, stock) for i, d in enumerate(demands)}
    return DedicatedProblem.of(problems["p0"], problems)


def alone(problem: DedicatedProblem) -> Alone:
    return [SOLVER.solve(part.problem) for part in problem.parts]


# The joint program


@pytest.mark.parametrize("stock", [0, 1, 2, 3, 4, 7])
def test_the_dear_type_serves_what_the_stock_of_the_cheap_one_does_not(small, stock: int) -> None:
    """Four replicas are needed, one per part and role."""
    found = solve_jointly(parts_of(small, {"cheap": stock}))
    assert found is not None and found.method == METHOD
    used = min(stock, 4)
    assert (found.status, found.cost) == ("optimal", CHEAP * used + DEAR * (4 - used))


@pytest.mark.parametrize("shift", [1e-5, 1e-6, 1e-7, 2e-8])
def test_a_demand_above_a_rate_by_less_than_a_solver_sees_takes_a_replica_more(
    small, shift: float
) -> None:
    """The trap of tolerances: a row short by 1e-7 counts as kept in HiGHS, not in arithmetic."""
    problem = parts_of(small, {"cheap": 3}, demands=(1.0 + shift, 1.0))
    found = solve_dedicated(problem)
    # part 0 takes two replicas per role: six in all, of which three are cheap
    assert (found.status, found.cost) == ("optimal", 3 * CHEAP + 3 * DEAR)


@pytest.mark.parametrize(("rate", "count"), [(0.1, 3), (1.0 / 3.0, 3), (0.7, 7), (1e-3, 11)])
def test_a_demand_equal_to_a_whole_number_of_rates_takes_no_more(small, rate, count) -> None:
    """3 x 0.1 is not 0.3 in doubles; the shortfall of rounding counts as covered."""
    problem = parts_of(small, {"cheap": 2 * count}, (count * rate, count * rate), rate)
    found = solve_dedicated(problem)
    assert (found.status, found.cost) == ("optimal", 2 * count * (CHEAP + DEAR))


def test_a_sliver_that_tolerances_cannot_tell_is_still_settled(small) -> None:
    """Within LEEWAY of the demand the two programs differ; then prices and lists decide."""
    problem = parts_of(small, {"cheap": 3}, demands=(1.0 + 5e-9, 1.0))
    assert solve_jointly(problem) is None
    found = solve_dedicated(problem)
    assert (found.status, found.cost, found.method) == ("optimal", 3 * CHEAP + 3 * DEAR, PRICES)


def test_no_division_is_infeasible_and_owned_ones_are_bought_last(small) -> None:
    none = solve_jointly(parts_of(small, {"cheap": 3, "dear": 0}))
    assert none is not None and (none.status, none.fleets) == ("infeasible", ())
    owned = solve_jointly(parts_of(small, {"cheap": 4}, owned=1))
    assert owned is not None and owned.cost == 2 * CHEAP  # one owned in each role
    limited = solve_jointly(parts_of(small, {}, most=1.0))
    assert limited is not None and limited.cost == 2 * (CHEAP + DEAR)


def test_parts_with_fewer_options_are_aligned_with_the_whole(small) -> None:
    problem = parts_of(small, {"cheap": 3})
    first = problem.parts[0].problem
    only = tuple(o for o in first.options if o.replica_type == "dear")
    found = solve_jointly(problem.changed([replace(first, options=only), first]))
    assert found is not None and found.cost == 2 * CHEAP + 2 * DEAR
    assert {pool.replica_type for pool in found.fleets[0].pools} == {"dear"}


# Prices


def test_the_price_of_a_short_stock_is_what_the_next_type_costs_more(small) -> None:
    """max over pi of 4 min(1 + pi, 4) - 3 pi is at pi = 3, and is the optimum: 7."""
    problem = parts_of(small, {"cheap": 3})
    best = best_prices(problem, lambda fleets: None, lambda: math.inf)
    assert best.bound == pytest.approx(3 * CHEAP + DEAR, abs=1e-5)
    unit = {o.replica_type: u for o, u in zip(problem.options, best.unit, strict=True)}
    assert unit["cheap"] == pytest.approx(DEAR, abs=1e-4)
    assert best.exact


def test_owned_replicas_are_worth_what_they_save(small) -> None:
    """One owned per role serves one of two parts: the other buys, so its price is the list's."""
    problem = parts_of(small, {}, owned=1)
    best = best_prices(problem, lambda fleets: None, lambda: math.inf)
    assert best.bound == pytest.approx(2 * CHEAP, abs=1e-5)


def test_limits_have_prices_too(small) -> None:
    problem = parts_of(small, {}, most=1.0)
    best = best_prices(problem, lambda fleets: None, lambda: math.inf)
    assert best.bound == pytest.approx(2 * (CHEAP + DEAR), abs=1e-5)


def test_without_anything_shared_there_is_nothing_to_price(small) -> None:
    problem = parts_of(small, {})
    seen: list[tuple[Fleet, ...]] = []
    best = best_prices(problem, seen.append, lambda: math.inf)
    assert len(seen) == 1 and best.fixed == 0.0
    assert best.bound == pytest.approx(4 * CHEAP, abs=1e-6)


def test_priced_problems_cost_the_prices_and_own_nothing(small) -> None:
    problem = parts_of(small, {"cheap": 3}, owned=1)
    unit = np.array([1.5, 2.5, 3.5, 4.5])
    asked = priced(problem.parts[1].problem, problem, unit)
    assert [o.usd_per_hour for o in asked.options] == unit.tolist()
    assert {o.owned for o in asked.options} == {0}
    assert asked.stock == {"cheap": 3}


def test_rounding_is_taken_off_a_bound() -> None:
    assert Priced(np.zeros(1), np.array([2.0, 3.0]), 1.0, True).bound == pytest.approx(4.0)
    assert Priced(np.zeros(1), np.array([2.0, 3.0]), 1.0, True).bound < 4.0


# Divisions and lists


def test_greedy_divisions_go_part_by_part(small) -> None:
    """The first part in turn takes the cheap replicas."""
    problem = parts_of(small, {"cheap": 2})
    for order in ((0, 1), (1, 0)):
        fleets = _in_turn(problem, order)
        kinds = [{pool.replica_type for pool in fleet.pools} for fleet in fleets]
        assert kinds[order[0]] == {"cheap"} and kinds[order[1]] == {"dear"}


def test_a_greedy_division_that_ends_early_is_none(small) -> None:
    problem = parts_of(small, {"cheap": 2, "dear": 0})
    assert _in_turn(problem, (0, 1))[1] == NOTHING


def test_only_whole_and_cheaper_divisions_are_kept(small) -> None:
    problem = parts_of(small, {"cheap": 3})
    best = _Best(problem)
    one = Fleet.of({(PREFILL, "cheap"): 1, (DECODE, "cheap"): 1})
    other = Fleet.of({(PREFILL, "cheap"): 1, (DECODE, "dear"): 1})
    best.offer((one, NOTHING))
    best.offer((one, one))  # four cheap ones against three in stock
    assert not best.fleets and math.isinf(best.goal())
    best.offer((other, other))
    best.offer((one, other))
    best.offer((other, other))
    assert (best.fleets, best.cost) == ((one, other), 3 * CHEAP + DEAR)


def test_no_division_costs_more_than_all_the_stock(small) -> None:
    assert _dearest(parts_of(small, {"cheap": 3, "dear": 2})) == pytest.approx(3 + 2 * DEAR)
    assert math.isinf(_dearest(parts_of(small, {"cheap": 3})))


@pytest.mark.parametrize("stock", [0, 1, 2, 3])
def test_prices_and_lists_give_what_the_joint_program_gives(small, stock: int) -> None:
    problem = parts_of(small, {"cheap": stock, "dear": 4}, demands=(1.0, 0.4, 0.9)[: 2 + stock % 2])
    found = _by_prices(problem, alone(problem), 0.0)
    jointly = solve_jointly(problem)
    assert jointly is not None
    assert (found.status, found.cost) == (jointly.status, jointly.cost)
    assert found.method == PRICES


def test_listing_ends_where_the_solver_lists_nothing(small, monkeypatch) -> None:
    """Then the bound of the prices stands; the answer is feasible, or it says what is missing."""

    def unlisted(problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        if alternatives:
            raise UnsupportedError("no alternatives here")
        return solve(problem, 0)

    solve = SOLVER.solve
    problem = parts_of(small, {"cheap": 3}, demands=(1.5, 1.0))
    before = alone(problem)
    monkeypatch.setattr(SOLVER, "solve", unlisted, raising=False)
    found = _by_prices(problem, before, 0.0)
    assert found.bound is not None and found.cost is not None
    assert found.bound <= 3 * CHEAP + 3 * DEAR + 1e-6 <= found.cost + 2e-6


def test_parts_that_fit_together_are_never_put_together(small) -> None:
    assert solve_dedicated(parts_of(small, {"cheap": 4})).method == APART
    assert solve_dedicated(parts_of(small, {"cheap": 3})).method == METHOD


def test_redundancy_leaves_the_joint_program_for_prices(small) -> None:
    """Each part keeps its SLOs with a replica lost: two per pool, eight in all, six of them cheap.

    The exact solver lists no fleets of such parts, so the proof may be left open; the bound holds.
    """
    problem = parts_of(small, {"cheap": 6})
    asked = problem.changed([replace(part.problem, redundancy=1) for part in problem.parts])
    found = solve_dedicated(asked)
    assert found.method == PRICES
    assert found.cost is not None and found.bound is not None
    assert found.bound <= 6 * CHEAP + 2 * DEAR + 1e-6 <= found.cost + 2e-6
