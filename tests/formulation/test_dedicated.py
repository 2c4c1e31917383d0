"""Dedicated pools: parts under one stock, against enumeration of every division."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.dedicated import DedicatedProblem, solve_dedicated
from pdalloc.allocation.dedicated.prices import best_prices, priced
from pdalloc.allocation.dedicated.search import _by_prices
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers.exact import SOLVER
from pdalloc.fleet import ROLES, Fleet

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


def check(problem: DedicatedProblem, found: Any, expected: float | None) -> None:
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
