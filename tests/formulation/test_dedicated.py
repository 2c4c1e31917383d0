"""Dedicated pools: parts under one stock, against enumeration of every division."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.dedicated import DedicatedAllocation, DedicatedProblem, solve_dedicated
from pdalloc.allocation.dedicated.prices import best_prices, priced
from pdalloc.allocation.dedicated.search import APART, PRICES, _by_prices
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers.exact import SOLVER
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet

STEP = 1e-6
Key = tuple[str, str]


def serving(p: AllocationProblem, top: int) -> list[tuple[int, ...]]:
    """Counts, by option, that serve ``p``; those that hold another one as a part left out."""
    found: list[tuple[int, ...]] = []
    ranges = [range(int(min(o.most, top)) + 1) for o in p.options]
    for counts in sorted(product(*ranges), key=sum):
        if any(all(a <= b for a, b in zip(less, counts, strict=True)) for less in found):
            continue
        keys = [(o.role, o.replica_type) for o in p.options]
        fleet = Fleet.of(dict(zip(keys, counts, strict=True)))
        if not all(fleet.in_role(role) for role in ROLES):
            continue
        if p.capacity.route(fleet, p.demand * (1.0 + p.headroom)) is not None:
            found.append(counts)
    return found


def cheapest_division(problem: DedicatedProblem, top: int = 5) -> float | None:
    """Least cost over every division of what there is, by enumeration; None for none.

    More than ``top`` replicas of an option are never needed.
    """
    best = math.inf
    for division in product(*(serving(part.problem, top) for part in problem.parts)):
        fleets = [
            Fleet.of(
                {
                    (o.role, o.replica_type): m
                    for o, m in zip(part.problem.options, counts, strict=True)
                }
            )
            for part, counts in zip(problem.parts, division, strict=True)
        ]
        if problem.cost(fleets) < best and not problem.violations(fleets):
            best = problem.cost(fleets)
    return best if math.isfinite(best) else None


def random_parts(small: Any, seed: int, parts: int = 2, types: int = 2) -> DedicatedProblem:
    """Linear parts with rates of their own on the same options; tight stock, owned, limits."""
    rng = random.Random(seed)
    options = []
    for role, i in product(ROLES, range(types)):
        price = rng.choice([float(rng.randint(1, 6)), rng.uniform(1.0, 6.0)])
        owned, most = rng.choice([0, 0, 1, 2]), rng.choice([math.inf, math.inf, 3.0])
        options.append((role, f"t{i}", f"g{i}", rng.choice([1, 1, 2]), price, owned, most))
    stock = {f"g{i}": rng.randint(3, 9) for i in range(types) if rng.random() < 0.8}
    problems = {}
    for k in range(parts):
        rows = [(*o[:5], rng.choice([0.5, 1.0, rng.uniform(0.4, 2.0)]), *o[5:]) for o in options]
        problems[f"class{k}"] = small.problem_of(rows, rng.uniform(0.5, 1.9), stock)
    return DedicatedProblem.of(problems["class0"], problems)


def check(problem: DedicatedProblem, found: DedicatedAllocation, expected: float | None) -> None:
    """``found`` is proven at the cost of enumeration, and keeps what it must keep."""
    if expected is None:
        assert found.status == "infeasible"
        assert found.reason and found.cost is None
        return
    assert found.status == "optimal"
    assert found.cost == pytest.approx(expected, abs=STEP)
    assert found.bound == found.cost == problem.cost(found.fleets)
    assert problem.violations(found.fleets) == []
    for part, fleet in zip(problem.parts, found.fleets, strict=True):
        assert part.problem.capacity.route(fleet, part.problem.demand) is not None


def between(found: DedicatedAllocation, expected: float) -> None:
    """The least cost lies between the proven bound and the cost found."""
    assert found.bound is not None and found.cost is not None
    assert found.bound <= expected + STEP <= found.cost + 2 * STEP


@pytest.mark.parametrize("seed", range(40))
def test_linear_parts_are_solved_as_by_enumeration(small, seed: int) -> None:
    problem = random_parts(small, seed)
    check(problem, solve_dedicated(problem), cheapest_division(problem))


@pytest.mark.parametrize("seed", range(12))
def test_prices_and_lists_prove_the_same_without_an_integer_program(small, seed: int) -> None:
    problem = random_parts(small, 100 + seed)
    alone = [SOLVER.solve(part.problem) for part in problem.parts]
    if any(a.cost is None for a in alone):
        assert solve_dedicated(problem).status == "infeasible"
        return
    check(problem, _by_prices(problem, alone, 0.0), cheapest_division(problem))


@pytest.mark.parametrize("seed", range(8))
def test_no_price_gives_a_bound_above_the_cheapest_division(small, seed: int) -> None:
    """Weak duality: at any prices within their bounds, and at the best ones found."""
    problem = random_parts(small, 200 + seed)
    expected = cheapest_division(problem)
    if expected is None:
        return
    rng = np.random.default_rng(seed)
    usd = np.array([o.usd_per_hour for o in problem.options])
    for _ in range(5):
        gpu = {g: rng.uniform(0.0, 3.0) for g in problem.stock}
        stock = np.array([o.gpus * gpu.get(o.gpu, 0.0) for o in problem.options])
        limit = np.array([rng.uniform(0.0, 2.0) * math.isfinite(o.most) for o in problem.options])
        own = usd * [rng.uniform(0.2, 1.0) if o.owned else 1.0 for o in problem.options]
        alone = [
            SOLVER.solve(priced(part.problem, problem, own + stock + limit)).cost
            for part in problem.parts
        ]
        taken = sum(price * problem.stock[g] for g, price in gpu.items())
        taken += sum(x * o.owned for x, o in zip(own, problem.options, strict=True))
        taken += sum(x * o.most for x, o in zip(limit, problem.options, strict=True) if x)
        assert sum(x for x in alone if x is not None) - taken <= expected + STEP
    best = best_prices(problem, lambda fleets: None, lambda: math.inf)
    assert best.bound <= expected + STEP


# Parts that do not meet


def on_system(small: Any, seed: int, rates: Mapping[str, float], **keys: Any) -> DedicatedProblem:
    """Parts on real laws, one fast and one slow type; ``bounds``, ``stock`` and dispatch by key."""
    system = small.two_type_system(seed, keys.get("first_token", "prefill"))
    rule = keys.get("dispatch", "random")
    system = replace(system, dispatch={PREFILL: rule, DECODE: rule})
    problems = {}
    for name, rate in rates.items():
        now = system.workload
        at = system.with_workload(now.scaled(rate / now.rate))
        problems[name] = small.problem_on(at, keys["bounds"], keys.get("stock"))
    return DedicatedProblem.of(next(iter(problems.values())), problems)


UNCOUPLED = {"ttft": 0.6, "tpot": 0.05}


def test_without_binding_stock_the_total_is_the_sum_of_the_parts(small) -> None:
    problem = on_system(small, 1, {"a": 3.0, "b": 5.0}, bounds=UNCOUPLED, stock={"big": 40})
    found = solve_dedicated(problem)
    alone = [SOLVER.solve(part.problem) for part in problem.parts]
    assert found.method == APART
    assert found.cost == pytest.approx(sum(a.cost or math.nan for a in alone), abs=STEP)
    assert list(found.fleets) == [a.fleet for a in alone]


def test_one_part_alone_is_the_ordinary_problem(small) -> None:
    problem = small.problem_on(small.two_type_system(2, "prefill"), UNCOUPLED, {"big": 3})
    found = solve_dedicated(DedicatedProblem.of(problem, {"all": problem}))
    assert (found.cost, *found.fleets) == (SOLVER.solve(problem).cost, SOLVER.solve(problem).fleet)


# Against shared pools


@pytest.mark.parametrize("seed", range(12))
def test_identical_classes_never_cost_less_apart_and_at_most_the_rounding_more(
    small, seed: int
) -> None:
    """Linear rates kappa, no stock: parts' covers add up to a cover of all, so dedicated >= shared.

    Rounding up the best fractional fleet of each part costs at most one replica of the cheapest
    kind per role and part, and the fractional fleets add up to that of shared pools.
    """
    rng = random.Random(seed)
    rows = [
        (role, f"t{i}", f"g{i}", 1, rng.uniform(1.0, 6.0), rng.uniform(0.4, 2.0), 0, math.inf)
        for role, i in product(ROLES, range(3))
    ]
    demands = {name: rng.uniform(0.5, 6.0) for name in "abc"}
    shared = small.problem_of(rows, sum(demands.values()), {})
    parts = {name: small.problem_of(rows, demand, {}) for name, demand in demands.items()}
    apart, pooled = solve_dedicated(DedicatedProblem.of(shared, parts)), SOLVER.solve(shared)
    merit = [min((row[4] / row[5], row[4]) for row in rows if row[0] == role)[1] for role in ROLES]
    assert apart.cost is not None and pooled.cost is not None
    assert pooled.cost - STEP <= apart.cost <= pooled.cost + len(parts) * sum(merit) + STEP


@pytest.mark.parametrize("dispatch", ["random", "round_robin"])
def test_the_same_on_real_laws(small, dispatch: str) -> None:
    """Random replicas admit the same under any Poisson demand; pools that share a queue more."""
    rates = {"a": 2.0, "b": 3.5}
    problem = on_system(small, 3, rates, bounds=UNCOUPLED, dispatch=dispatch)
    shared = on_system(small, 3, {"all": 5.5}, bounds=UNCOUPLED, dispatch=dispatch)
    apart, together = solve_dedicated(problem).cost, SOLVER.solve(shared.parts[0].problem).cost
    assert apart is not None and together is not None
    assert apart >= together - STEP


# Parts whose stages are coupled, and pools that share a queue


COUPLED = {"bounds": {"ttft": 0.5, "tpot": 0.05}, "first_token": "decode"}
POOLED = {"bounds": {"ttft": 0.35, "tpot": 0.05}, "dispatch": "round_robin"}


@pytest.mark.parametrize(
    ("keys", "big"), [(COUPLED, 1), (COUPLED, 2), (POOLED, 1)], ids=["tight", "loose", "pooled"]
)
def test_parts_of_any_law_are_solved_as_by_enumeration(small, keys, big: int) -> None:
    problem = on_system(small, 4, {"a": 3.0, "b": 4.0}, stock={"big": big}, **keys)
    found = solve_dedicated(problem)
    check(problem, found, cheapest_division(problem, 3))
    assert found.method == (PRICES if big == 1 else APART)


@pytest.mark.parametrize(("keys", "stock"), [(COUPLED, 1), (POOLED, 1)])
def test_that_no_division_exists_is_proven_and_said(small, keys, stock: int) -> None:
    """Each part alone needs one replica per role at least; two GPUs cannot hold four."""
    held = {"big": stock, "small": stock}
    problem = on_system(small, 4, {"a": 1.0, "b": 1.2}, stock=held, **keys)
    assert all(SOLVER.solve(part.problem).cost is not None for part in problem.parts)
    found = solve_dedicated(problem)
    assert (found.status, found.fleets, found.cost) == ("infeasible", (), None)
    assert "each part can be served alone, but not all together" in found.reason
    assert "GPUs against 1 in stock" in found.reason


# Shapes and words


def test_a_part_that_cannot_be_served_alone_is_named(small) -> None:
    problem = random_parts(small, 0)
    hopeless = replace(problem.parts[1].problem, demand=1e6)
    found = solve_dedicated(problem.changed([problem.parts[0].problem, hopeless]))
    assert found.status == "infeasible"
    assert found.reason.startswith("class1: ")


def two_parts(small: Any, owned: int, most: float = math.inf) -> DedicatedProblem:
    """Two parts that each need one replica per role of the only type, at 3 USD/hour."""
    rows = [(role, "t", "g", 2, 3.0, 1.0, owned, most) for role in ROLES]
    problems = {name: small.problem_of(rows, 1.0, {"g": 8}) for name in ("a", "b")}
    return DedicatedProblem.of(problems["a"], problems)


@pytest.mark.parametrize(("owned", "cost"), [(0, 12.0), (1, 6.0), (2, 0.0), (3, 0.0)])
def test_owned_replicas_are_free_once_whatever_part_uses_them(small, owned, cost) -> None:
    found = solve_dedicated(two_parts(small, owned))
    assert (found.status, found.cost) == ("optimal", cost)


def test_limits_hold_over_all_parts(small) -> None:
    assert solve_dedicated(two_parts(small, 0, 2.0)).status == "optimal"
    found = solve_dedicated(two_parts(small, 0, 1.0))
    assert found.status == "infeasible"
    assert "2 replicas of prefill/t against a limit of 1" in found.reason


def test_headroom_is_served_in_every_part(small) -> None:
    """1 req/s needs one replica of 1 req/s per role; with 20 % more it needs two: 8 in all."""
    problem = two_parts(small, 0)
    more = problem.changed([replace(part.problem, headroom=0.2) for part in problem.parts])
    short = solve_dedicated(more)
    assert short.status == "infeasible"  # 8 replicas of 2 GPUs against 8 GPUs
    enough = replace(more, stock={"g": 16})
    enough = enough.changed([replace(p.problem, stock={"g": 16}) for p in enough.parts])
    assert solve_dedicated(enough).cost == 24.0


def test_what_is_left_to_a_part(small) -> None:
    problem = two_parts(small, 3, 5.0)
    one = Fleet.of({(PREFILL, "t"): 2, (DECODE, "t"): 1})
    rest = problem.rest(1, [one, one])
    assert rest.stock == {"g": 2}  # 8 less 3 replicas of 2 GPUs
    left = {o.role: (o.owned, o.most) for o in rest.options}
    assert left == {PREFILL: (1, 3.0), DECODE: (2, 4.0)}
    first = problem.rest(0, [one, one])
    assert {o.owned for o in first.options} == {3}
    costs = [problem.rest(i, [one, one]).cost(one) for i in (0, 1)]
    assert sum(costs) == problem.cost([one, one])


def test_violations_and_gpus_add_up_over_parts(small) -> None:
    problem = two_parts(small, 0, 3.0)
    one = Fleet.of({(PREFILL, "t"): 2, (DECODE, "t"): 1})
    assert problem.gpus([one, one]) == {"g": 12}
    assert problem.violations([one, one]) == [
        "12 g GPUs against 8 in stock",
        "4 replicas of prefill/t against a limit of 3",
    ]
    assert problem.violations([one, Fleet(())]) == []


def test_parts_need_names_and_options_of_the_whole(small) -> None:
    problem = two_parts(small, 0)
    with pytest.raises(InputError, match="names that differ, got a, a"):
        replace(problem, parts=(problem.parts[0], problem.parts[0]))
    with pytest.raises(InputError, match="no part"):
        replace(problem, parts=())
    with pytest.raises(InputError, match="part a: no option decode/t"):
        replace(problem, options=problem.options[:1])


def test_a_program_stopped_by_the_clock_is_feasible_at_best(small, monkeypatch) -> None:
    """Without time HiGHS finds nothing or proves nothing; then prices answer, or a bound stands."""
    monkeypatch.setattr("pdalloc.allocation.dedicated.joint.SECONDS", 0.0)
    for seed in range(6):
        problem = random_parts(small, seed)
        found, expected = solve_dedicated(problem), cheapest_division(problem)
        if expected is None:
            assert found.status == "infeasible"
        else:
            between(found, expected)


def test_lists_that_are_cut_off_leave_a_proven_bound(small, monkeypatch) -> None:
    monkeypatch.setattr("pdalloc.allocation.dedicated.search.LENGTHS", (1,))
    for seed in range(100, 112):
        problem = random_parts(small, seed)
        alone = [SOLVER.solve(part.problem) for part in problem.parts]
        if any(a.cost is None for a in alone):
            continue
        try:
            found = _by_prices(problem, alone, 0.0)
        except UnsupportedError as error:
            assert "nor a proof that there is none" in str(error)
            continue
        expected = cheapest_division(problem)
        assert (expected is None) == (found.cost is None)
        if expected is not None:
            between(found, expected)
            assert found.gap >= 0.0
