"""exact, cvxpy and pyomo find the same least cost, and enumeration agrees with them."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.linear import LinearData, linear_data
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers import cvxpy_milp, pyomo_milp, solver_named, solvers
from pdalloc.capacity import Capacity
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.system import System

MILP = ("cvxpy", "cvxpy_scip", "pyomo", "pyomo_scip")
EXACT = ("exact", *MILP)
PACKAGES = dict(zip(MILP, ("highspy", "pyscipopt") * 2, strict=True))


def solve(name: str, problem: AllocationProblem) -> Allocation:
    return solver_named(name).solve(problem)


def check_answer(problem: AllocationProblem, answer: Allocation, best: float | None) -> None:
    """Status, cost, bound and certificate against the least cost ``best``."""
    if best is None:
        assert answer.status == "infeasible" and answer.reason and not answer.fleet.pools
        return
    assert answer.cost == pytest.approx(best, abs=1e-9)
    assert answer.cost is not None
    if answer.status == "feasible":  # the split between decode types was not searched
        assert problem.capacity.only_by_rule
        assert answer.bound is None or answer.bound < answer.cost
    else:
        assert answer.status == "optimal" and answer.bound is not None
        assert answer.cost - 1e-6 <= answer.bound <= answer.cost
    assert answer.cost == pytest.approx(problem.cost(answer.fleet), abs=1e-12)
    assert certify(problem, answer.fleet).certified


@pytest.mark.parametrize("seed", range(40))
def test_random_linear_problems(small: Any, seed: int) -> None:
    problem = small.random_linear(seed)
    best = small.brute_force(problem)
    for name in EXACT:
        check_answer(problem, solve(name, problem), best)


def test_the_random_problems_are_of_both_kinds(small: Any) -> None:
    feasible = [small.brute_force(small.random_linear(seed)) is not None for seed in range(40)]
    assert 10 <= sum(feasible) <= 30


@pytest.mark.parametrize("seed", [1, 2])
def test_large_problems_agree(small: Any, seed: int) -> None:
    """8 GPU types x 3 parallelism options x 2 roles; the relaxation is below, and near."""
    rng = random.Random(seed)
    rows = []
    for g, role in product(range(8), ROLES):
        speed, price = rng.uniform(1.0, 6.0), rng.uniform(0.9, 1.1)
        for k in (1, 2, 4):
            rate = speed * k ** rng.uniform(0.8, 1.05)
            rows.append((role, f"g{g}x{k}", f"g{g}", k, k * price * speed, rate, 0, math.inf))
    problem = small.problem_of(rows, 900.0, {f"g{g}": 64 for g in range(8)})
    best = solve("exact", problem).cost
    for name in EXACT:
        check_answer(problem, solve(name, problem), best)
    bound = solve("cvxpy_relaxation", problem).details["relaxation_usd_per_hour"]
    assert best is not None and 0.99 * best < float(bound) <= best


@pytest.mark.parametrize("name", EXACT)
def test_greedy_would_be_wrong(small: Any, name: str) -> None:
    """Need 100: A costs 10 and carries 200, B costs 6 and carries 100; the optimum is 6."""
    rows = [
        (PREFILL, "a", "a", 1, 10.0, 200.0, 0, math.inf),
        (PREFILL, "b", "b", 1, 6.0, 100.0, 0, math.inf),
        (DECODE, "d", "d", 1, 1.0, 100.0, 0, math.inf),
    ]
    check_answer(p := small.problem_of(rows, 100.0, {}), solve(name, p), 7.0)


@pytest.mark.parametrize("name", EXACT)
def test_demand_exactly_equal_to_capacity(small: Any, name: str) -> None:
    """A tolerance on the wrong side would buy one replica too few or too many."""
    rows = [
        (PREFILL, "p", "a", 1, 2.0, 1.1, 0, math.inf),
        (DECODE, "d", "d", 1, 3.0, 0.1, 0, math.inf),
    ]
    for demand, best in ((3.3, 3 * 2.0 + 33 * 3.0), (3.3 * (1 + 1e-7), 4 * 2.0 + 34 * 3.0)):
        check_answer(p := small.problem_of(rows, demand, {}), solve(name, p), best)


@pytest.mark.parametrize("name", EXACT)
def test_shared_stock_forces_a_dearer_pair(small: Any, name: str) -> None:
    """Both roles want the 4 cheap GPUs; the cheapest split gives them to decode."""
    rows = [
        (PREFILL, "p", "cheap", 2, 2.0, 1.0, 0, math.inf),
        (PREFILL, "q", "dear", 1, 5.0, 1.0, 0, math.inf),
        (DECODE, "d", "cheap", 2, 2.0, 1.0, 0, math.inf),
        (DECODE, "e", "dear", 1, 9.0, 1.0, 0, math.inf),
    ]
    p = small.problem_of(rows, 2.0, {"cheap": 4})
    answer = solve(name, p)
    check_answer(p, answer, 2 * 5.0 + 2 * 2.0)
    assert str(answer.fleet) == "prefill/q=2,decode/d=2"


@pytest.mark.parametrize("name", EXACT)
def test_owned_replicas_are_free_and_none_is_idle(small: Any, name: str) -> None:
    rows = [
        (PREFILL, "old", "a", 8, 9.0, 1.0, 6, math.inf),
        (PREFILL, "dead", "b", 1, 9.0, 0.0, 5, math.inf),
        (DECODE, "new", "c", 1, 3.0, 1.0, 1, math.inf),
    ]
    p = small.problem_of(rows, 3.0, {})
    answer = solve(name, p)
    check_answer(p, answer, 2 * 3.0)
    assert str(answer.fleet) == "prefill/old=3,decode/new=3"


@pytest.mark.parametrize("seed", range(20))
def test_merit_order(small: Any, seed: int) -> None:
    """The relaxation costs lambda min c/kappa per role; rounding up adds less than one price."""
    p = small.random_linear(seed)
    free = replace(
        p, stock={}, options=tuple(replace(o, owned=0, most=math.inf) for o in p.options)
    )
    if not all(any(free.rate(o) > 0 for o in free.in_role(role)) for role in ROLES):
        return
    relaxed, slack = 0.0, 0.0
    for role in ROLES:
        merit = [(o.usd_per_hour / free.rate(o), o) for o in free.in_role(role) if free.rate(o) > 0]
        unit, cheapest = min(merit, key=lambda pair: pair[0])
        relaxed += free.demand * unit
        slack += cheapest.usd_per_hour
    cost = solve("exact", free).cost
    assert cost is not None
    assert relaxed - 1e-9 <= cost < relaxed + slack


def tight(small: Any, seed: int, rule: str = "decode") -> AllocationProblem:
    """Coupled: mean TTFT 10 to 60 % above the unloaded one, mean TPOT, sometimes E2E."""
    system: System = small.two_type_system(seed, rule)
    predictor = Capacity(system, ()).predictor
    prefills = [predictor.prefill(r, 0.0) for r in system.types_for(PREFILL)]
    decodes = [predictor.decode(r, 0.0) for r in system.types_for(DECODE)]

    def floor(metric: str) -> float:
        return min(predictor.law(metric, 0, p, d).mean for p in prefills for d in decodes)

    room = 1.1 + 0.5 * (seed % 7) / 6
    bounds = {"ttft": room * floor("ttft"), "tpot": 3.0 * floor("tpot")}
    if seed % 2:
        bounds["e2e"] = 1.5 * floor("e2e")
    problem: AllocationProblem = small.problem_on(system, bounds)
    return problem


def cheaper_fleets(small: Any, problem: AllocationProblem, cost: float) -> list[Any]:
    """Every fleet that costs less than ``cost`` and has both roles."""
    prices = [o.usd_per_hour for o in problem.in_role(PREFILL) + problem.in_role(DECODE)]
    tops = [int(cost / price) for price in prices]
    split = len(problem.in_role(PREFILL))
    return [
        small.fleet_of(problem, n[:split], n[split:])
        for n in product(*(range(top + 1) for top in tops))
        if sum(c * k for c, k in zip(prices, n, strict=True)) < cost - 1e-9
        and any(n[:split])
        and any(n[split:])
    ]


COUPLED_SEEDS = (1, 2, 3, 4, 5, 8, 9, 10)


@pytest.mark.parametrize("seed", COUPLED_SEEDS)
def test_coupled_problems_agree(small: Any, seed: int) -> None:
    problem = tight(small, seed)
    assert problem.capacity.coupled
    best = solve("exact", problem)
    assert best.status == "optimal" or problem.capacity.only_by_rule
    assert problem.capacity.route(best.fleet, problem.demand) is not None
    for name in EXACT:
        check_answer(problem, solve(name, problem), best.cost)


def test_the_coupled_problems_need_cuts(small: Any) -> None:
    """On most of them the relaxation, idle partners, is not the answer."""
    cuts = [solve("pyomo", tight(small, seed)).details["cuts"] for seed in COUPLED_SEEDS]
    assert sum(int(c) > 0 for c in cuts) >= len(cuts) // 2


@pytest.mark.parametrize("seed", COUPLED_SEEDS)
def test_no_cheaper_coupled_fleet_can_be_routed(small: Any, seed: int) -> None:
    problem = tight(small, seed)
    best = solve("exact", problem)
    assert best.cost is not None
    fleets = cheaper_fleets(small, problem, best.cost)
    assert fleets
    assert all(problem.capacity.route(f, problem.demand) is None for f in fleets)


@pytest.mark.parametrize("name", EXACT)
def test_coupled_with_too_little_stock(small: Any, name: str) -> None:
    """The relaxed rates fit the stock; no fleet within it keeps the SLOs."""
    problem = replace(tight(small, 2), stock={"big": 2, "small": 3})
    assert cvxpy_milp.minimise(linear_data(problem)) is not None
    check_answer(problem, solve(name, problem), None)


@pytest.mark.parametrize("name", MILP)
def test_a_coupled_problem_that_rounds_do_not_settle_is_refused(
    small: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = tight(small, 2)
    assert int(solve(name, problem).details["cuts"]) > 0
    monkeypatch.setattr("pdalloc.allocation.rounds.MOST_ROUNDS", 1)
    with pytest.raises(UnsupportedError, match="after 1 rounds; use --solver exact"):
        solve(name, problem)


@pytest.mark.parametrize("name", MILP)
def test_a_missing_package_is_named_in_one_line(
    small: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    language = name.split("_")[0]
    for missing in (language, PACKAGES[name]):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(UnsupportedError, match=f"needs the package {missing}: ") as caught:
                solve(name, small.random_linear(0))
        assert str(caught.value).endswith(f"pip install {language} {PACKAGES[name]}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", EXACT)
def test_solvers_print_nothing(small: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    solve(name, small.random_linear(3))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", MILP)
def test_a_demand_that_is_not_positive_is_refused(small: Any, name: str) -> None:
    for demand in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="demand"):
            solve(name, replace(small.random_linear(1), demand=demand))


def names_in_pyomo(data: LinearData) -> list[str]:
    from pyomo.environ import Constraint

    found = pyomo_milp.model(data).component_data_objects(Constraint)
    return sorted(c.name for c in found)


def names_in_cvxpy(data: LinearData) -> list[str]:
    return sorted(str(c.label) for c in cvxpy_milp.model(data)[0].constraints)


@pytest.mark.parametrize("seed", range(10))
def test_both_languages_name_the_constraints_alike(small: Any, seed: int) -> None:
    problem = small.random_linear(seed)
    data = linear_data(problem)
    expected = [f"demand[{role}]" for role in ROLES]
    expected += [f"stock[{g}]" for g in problem.stock if any(o.gpu == g for o in data.options)]
    expected += [f"limit[{o.role}/{o.replica_type}]" for o in data.options if o.most < math.inf]
    assert names_in_pyomo(data) == names_in_cvxpy(data) == sorted(expected)


def test_every_solver_is_found_and_says_whether_it_is_exact() -> None:
    found = solvers()
    assert set(EXACT) <= set(found)
    assert all(found[name].exact and found[name].sentence for name in EXACT)
    assert not found["paper"].exact
    with pytest.raises(InputError, match=", ".join(sorted(found))):
        solver_named("gurobi")
