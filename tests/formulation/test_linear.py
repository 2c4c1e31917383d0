"""The problem as arrays, and HiGHS on them, against enumeration."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.covers import MOST_REPLICAS
from pdalloc.allocation.linear import LEEWAY, linear_data, solve_by_highs, useful
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES

SEEDS = range(1000, 1060)
"""Not those of the tests of the solvers."""


def scarce(small: Any, seed: int) -> AllocationProblem:
    """A random problem in which both roles draw on the same, scarce stock.

    Every GPU is stocked; a fifth to all of what the cheapest covers would take.
    """
    problem: AllocationProblem = small.random_linear(seed)
    free = solver_named("exact").solve(replace(problem, stock={}))
    rng = np.random.default_rng(seed)
    wanted = problem.gpus(free.fleet)
    gpus = dict.fromkeys(o.gpu for o in problem.options)
    stock = {g: int(rng.uniform(0.2, 1.0) * wanted.get(g, 0) + rng.integers(0, 7)) for g in gpus}
    return replace(problem, stock=stock)


@pytest.fixture(scope="module")
def best(small: SimpleNamespace) -> dict[int, float | None]:
    """The least cost of each problem by enumeration; None when infeasible."""
    return {seed: small.brute_force(scarce(small, seed)) for seed in SEEDS}


@pytest.mark.parametrize("seed", SEEDS)
def test_highs_and_exact_find_the_least_cost(small: Any, best: Any, seed: int) -> None:
    problem, wanted = scarce(small, seed), best[seed]
    fleet = solve_by_highs(problem)
    answer = solver_named("exact").solve(problem)
    if wanted is None:
        assert fleet is None and answer.status == "infeasible" and answer.reason
        return
    assert fleet is not None and answer.status == "optimal"
    assert problem.cost(fleet) == pytest.approx(wanted, abs=1e-7)
    assert answer.cost == pytest.approx(wanted, abs=1e-7)
    assert certify(problem, fleet).certified and certify(problem, answer.fleet).certified


def test_the_problems_are_of_every_kind(small: Any, best: Any) -> None:
    """Feasible and not, and often dearer than without the stock: there it is shared."""
    found = [best[seed] for seed in SEEDS]
    free = [
        solver_named("exact").solve(replace(scarce(small, seed), stock={})).cost for seed in SEEDS
    ]
    feasible = [(c, f) for c, f in zip(found, free, strict=True) if c is not None]
    dearer = [c for c, f in feasible if f is not None and c > f + 1e-9]
    assert len(SEEDS) - len(feasible) >= 5 and len(feasible) >= 15 and len(dearer) >= 5
    owned = [any(o.owned for o in scarce(small, seed).options) for seed in SEEDS]
    limited = [any(o.most < math.inf for o in scarce(small, seed).options) for seed in SEEDS]
    assert sum(owned) >= 15 and sum(limited) >= 15


def pair(small: Any, owned: int = 0, limit: float = math.inf) -> AllocationProblem:
    """Cheap GPUs for both roles, 5 in stock, where 6 would be best; the dear ones differ."""
    rows = [
        (PREFILL, "p", "cheap", 1, 2.0, 1.0, owned, limit),
        (PREFILL, "q", "dear", 1, 5.0, 1.0, 0, math.inf),
        (DECODE, "d", "cheap", 1, 2.0, 1.0, 0, math.inf),
        (DECODE, "e", "dear", 1, 9.0, 1.0, 0, math.inf),
    ]
    problem: AllocationProblem = small.problem_of(rows, 3.0, {"cheap": 5})
    return problem


@pytest.mark.parametrize(
    ("owned", "limit", "cost", "fleet"),
    [
        (0, math.inf, 5 * 2.0 + 5.0, "prefill/p=2,prefill/q=1,decode/d=3"),
        (0, 1.0, 4 * 2.0 + 2 * 5.0, "prefill/p=1,prefill/q=2,decode/d=3"),
        (2, math.inf, 3 * 2.0 + 5.0, "prefill/p=2,prefill/q=1,decode/d=3"),
        (3, math.inf, 3 * 2.0 + 5.0, "prefill/p=2,prefill/q=1,decode/d=3"),
    ],
)
def test_shared_stock_by_hand(
    small: Any, owned: int, limit: float, cost: float, fleet: str
) -> None:
    """The stock goes where the dear GPU would cost most; owned replicas take of it too."""
    problem = pair(small, owned, limit)
    found = solve_by_highs(problem)
    assert found is not None and str(found) == fleet
    assert problem.cost(found) == cost == solver_named("exact").solve(problem).cost


def test_arrays_by_hand(small: Any) -> None:
    data = linear_data(pair(small, owned=2, limit=4.0))
    assert data.labels == ["prefill/p", "prefill/q", "decode/d", "decode/e"]
    assert list(data.share) == pytest.approx([1 / 3] * 4)
    assert list(data.usd) == [2.0, 5.0, 2.0, 9.0] and list(data.owned) == [2, 0, 0, 0]
    assert list(data.ceiling) == [3.0] * 4  # three replicas alone cover the demand
    assert data.limited == [0] and data.on_gpu("cheap") == [0, 2]
    assert [data.members(role) for role in ROLES] == [[0, 1], [2, 3]]
    assert list(data.only(DECODE, data.usd)) == [0.0, 0.0, 2.0, 9.0]
    assert data.cost(np.array([3.0, 1.0, 2.0, 0.0])) == 1 * 2.0 + 5.0 + 2 * 2.0
    assert str(data.fleet(np.array([3.0, 0.0, 2.0, 1.0]))) == ("prefill/p=3,decode/d=2,decode/e=1")
    # 11 USD buy 5 (2 left by the limit), 2, 5 and 1 replicas
    assert list(data.reach(11.0)) == [2.0, 2.0, 5.0, 1.0]


@pytest.mark.parametrize("seed", [1000, 1001, 1002, 1003])
def test_arrays_cost_and_reach_agree_with_the_problem(small: Any, seed: int) -> None:
    """No fleet of at most that cost buys more of an option than ``reach`` says."""
    problem = scarce(small, seed)
    data = linear_data(problem)
    rng = np.random.default_rng(seed)
    for _ in range(50):
        counts = rng.integers(0, 5, len(data.options)).astype(float)
        fleet = data.fleet(counts)
        cost = problem.cost(fleet)
        assert data.cost(counts) == pytest.approx(cost, abs=1e-8)
        used = problem.gpus(fleet)
        fits = all(used.get(g, 0) <= n for g, n in problem.stock.items())
        if fits and np.all(counts <= data.most):
            bought = np.where(data.share > 0, np.maximum(counts - data.owned, 0.0), 0.0)
            assert np.all(bought <= data.reach(cost + 1e-9))


@pytest.mark.parametrize("demand", [0.0, -1.0, math.inf, math.nan])
def test_demand_must_be_positive(small: Any, demand: float) -> None:
    with pytest.raises(InputError, match="demand"):
        linear_data(replace(pair(small), demand=demand))


def test_replicas_that_would_be_needed_in_absurd_numbers_are_useless() -> None:
    share = np.array([0.5, 1.0 / MOST_REPLICAS, 0.5 / MOST_REPLICAS, 0.0])
    assert list(useful(share)) == [0.5, 1.0 / MOST_REPLICAS, 0.0, 0.0]


def test_no_replica_of_a_role_admits_anything(small: Any) -> None:
    rows = [
        (PREFILL, "p", "a", 1, 2.0, 0.0, 3, math.inf),
        (DECODE, "d", "a", 1, 2.0, 1.0, 0, math.inf),
    ]
    assert solve_by_highs(small.problem_of(rows, 1.0, {"a": 9})) is None


@pytest.mark.parametrize("excess", [1e-4, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11])
def test_demand_just_above_what_three_replicas_carry(small: Any, excess: float) -> None:
    """A solver's tolerance must not leave the demand uncovered: four of each are needed."""
    problem = replace(pair(small), demand=3.0 * (1 + excess))
    found, wanted = solve_by_highs(problem, -LEEWAY), small.brute_force(problem)
    assert found is not None and certify(problem, found).certified
    assert problem.cost(found) == wanted == 5 * 2.0 + 3 * 5.0
    assert solver_named("exact").solve(problem).cost == wanted


def conditions(small: Any, **asked: Any) -> AllocationProblem:
    """Two prefill and two decode types of one and two requests/s; 4 requests/s to serve."""
    rows = [
        (role, f"{role[0]}{i}", f"g{i}", 1, 2.0, 1.0 + i, 3 * i, math.inf)
        for role in ROLES
        for i in range(2)
    ]
    problem: AllocationProblem = small.problem_of(rows, 4.0, {})
    return replace(problem, **asked)


def test_types_that_do_not_fit_are_pairs_of_indices(small: Any) -> None:
    fitting = frozenset({("p0", "d0"), ("p1", "d0"), ("p1", "d1")})
    data = linear_data(conditions(small, compatible=fitting))
    assert data.misfits == ((0, 3),) and data.picky == [0, 3]
    assert linear_data(conditions(small)).misfits == ()
    nothing = linear_data(conditions(small, compatible=frozenset()))
    assert nothing.misfits == ((0, 2), (0, 3), (1, 2), (1, 3)) and nothing.picky == [0, 1, 2, 3]


def test_replicas_that_may_be_lost_are_looked_at_beyond_the_demand(small: Any) -> None:
    """4 or 2 of a type serve the demand; with two lost, 6 and 4, and the owned ones."""
    plain, risky = (linear_data(conditions(small, redundancy=f)) for f in (0, 2))
    assert plain.at_risk == [] and risky.at_risk == [0, 1, 2, 3]
    assert plain.top.tolist() == [4.0, 5.0] * 2 and risky.top.tolist() == [6.0, 7.0] * 2


def test_the_surplus_is_what_the_worst_loss_leaves(small: Any) -> None:
    """Shares 1/4 and 1/2: 2 and 2 replicas cover 3/2; a loss of one takes 1/2, of three all."""
    counts = np.array([2.0, 2.0, 0.0, 3.0])
    for lost, prefill, decode in ((0, 1.5, 1.5), (1, 1.0, 1.0), (2, 0.5, 0.5), (3, 0.5, 0.0)):
        data = linear_data(conditions(small, redundancy=lost))
        assert data.surplus(PREFILL, counts) == pytest.approx(prefill - 1.0)
        assert data.surplus(DECODE, counts) == pytest.approx(decode - 1.0)


@pytest.mark.parametrize("name", ["cvxpy", "cvxpy_scip", "pyomo", "pyomo_scip"])
def test_no_owned_replica_is_idle_when_some_may_be_lost(small: Any, name: str) -> None:
    """Three fast ones are owned in each role and free; two serve, and one may be lost."""
    problem = conditions(small, redundancy=1, demand=2.0)
    answer = solver_named(name).solve(problem)
    assert answer.cost == 0.0 and certify(problem, answer.fleet).certified
    assert {pool.replicas for pool in answer.fleet.pools} == {2}
    assert len(answer.fleet.pools) == len(ROLES)
