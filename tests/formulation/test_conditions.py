"""Headroom, redundancy and compatible types against enumeration."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from pdalloc.allocation.certify import certify, resource_violations
from pdalloc.allocation.conditions import remainders
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet

MILP = ("cvxpy", "cvxpy_scip", "pyomo", "pyomo_scip")


def enumerated(small: Any, p: AllocationProblem) -> float:
    """Least cost over every fleet that passes the plain checks, each written out here."""
    best = math.inf
    need = p.demand * (1.0 + p.headroom) * (1.0 - 1e-12)
    tops = {
        role: [
            int(min(o.most, math.ceil(need / p.rate(o)) + p.redundancy)) if p.rate(o) > 0 else 0
            for o in p.in_role(role)
        ]
        for role in ROLES
    }
    sides = {role: list(product(*(range(t + 1) for t in tops[role]))) for role in ROLES}

    def covers(role: str, counts: tuple[int, ...]) -> bool:
        rates = [p.rate(o) for o in p.in_role(role)]
        whole = sum(r * n for r, n in zip(rates, counts, strict=True))
        lost = max(
            (r * min(n, p.redundancy) for r, n in zip(rates, counts, strict=True)), default=0.0
        )
        return whole - lost >= need

    good = {role: [c for c in sides[role] if covers(role, c)] for role in ROLES}
    for left, right in product(good[PREFILL], good[DECODE]):
        fleet = small.fleet_of(p, left, right)
        if p.cost(fleet) >= best:
            continue
        if any(used > p.stock.get(g, used) for g, used in p.gpus(fleet).items()):
            continue
        pairs = product(fleet.in_role(PREFILL), fleet.in_role(DECODE))
        if p.compatible is not None and any(
            (a.replica_type, b.replica_type) not in p.compatible for a, b in pairs
        ):
            continue
        best = p.cost(fleet)
    return best


def random_problem(small: Any, seed: int) -> AllocationProblem:
    """3 types per role, small demands, stock half of the time."""
    rng = random.Random(seed)
    rows = [
        (
            role,
            f"t{i}",
            f"g{rng.randrange(2)}",
            rng.choice([1, 2]),
            rng.uniform(1.0, 9.0),
            rng.uniform(0.7, 3.0),
            rng.choice([0, 0, 1]),
            rng.choice([math.inf, 4.0]),
        )
        for role in ROLES
        for i in range(2 if role == PREFILL else 3)
    ]
    stock = {f"g{i}": rng.randint(6, 16) for i in range(2) if rng.random() < 0.5}
    problem: AllocationProblem = small.problem_of(rows, rng.uniform(1.0, 4.0), stock)
    return problem


@pytest.mark.parametrize("redundancy", [1, 2])
@pytest.mark.parametrize("seed", range(15))
def test_redundancy(small: Any, seed: int, redundancy: int) -> None:
    p = replace(random_problem(small, seed), redundancy=redundancy)
    check(p, enumerated(small, p))


@pytest.mark.parametrize("seed", range(15))
def test_compatible_types(small: Any, seed: int) -> None:
    rng = random.Random(100 + seed)
    p = random_problem(small, seed)
    every = product(p.in_role(PREFILL), p.in_role(DECODE))
    pairs = frozenset((a.replica_type, b.replica_type) for a, b in every if rng.random() < 0.5)
    p = replace(p, compatible=pairs)
    check(p, enumerated(small, p))


@pytest.mark.parametrize("seed", range(10))
def test_all_conditions_at_once(small: Any, seed: int) -> None:
    pairs = frozenset({("t0", "t0"), ("t1", "t1"), ("t1", "t2")})
    p = replace(random_problem(small, seed), redundancy=1, compatible=pairs, headroom=0.15)
    check(p, enumerated(small, p))


def check(p: AllocationProblem, best: float) -> None:
    for name in ("exact", *MILP):
        answer = solver_named(name).solve(p)
        if math.isinf(best):
            assert answer.status == "infeasible" and answer.cost is None
            plain = solver_named("exact").solve(replace(p, redundancy=0, compatible=None))
            assert ("without these conditions" in answer.reason) == (plain.cost is not None)
            continue
        assert answer.status == "optimal" and answer.bound is not None and answer.cost is not None
        assert answer.bound == pytest.approx(best, abs=1e-6) and answer.bound <= answer.cost
        assert answer.cost == pytest.approx(best, abs=1e-9)
        assert certify(p, answer.fleet).certified


@pytest.mark.parametrize("name", ["exact", "cvxpy", "pyomo_scip"])
def test_headroom_is_a_larger_demand(small: Any, name: str) -> None:
    for seed in (0, 1, 2, 3):
        p = small.random_linear(seed)
        answers = [
            solver_named(name).solve(q)
            for q in (replace(p, headroom=0.3), replace(p, demand=p.demand * 1.3))
        ]
        assert answers[0].status == answers[1].status and answers[0].cost == answers[1].cost


def test_each_missed_condition_is_named(small: Any) -> None:
    rows = [
        (PREFILL, "p", "a", 1, 2.0, 1.0, 0, math.inf),
        (DECODE, "d", "a", 1, 2.0, 1.0, 0, math.inf),
    ]
    plain = small.problem_of(rows, 2.0, {})
    fleet = Fleet.of({(PREFILL, "p"): 2, (DECODE, "d"): 3})
    assert resource_violations(plain, fleet) == []
    words = resource_violations(
        replace(plain, redundancy=1, headroom=0.1, compatible=frozenset({("p", "e")})), fleet
    )
    assert len(words) == 4  # decode keeps two replicas, which do not carry the headroom
    assert "do not fit" in words[0] and "headroom of 10%" in words[1]
    assert "1 of prefill/p" in words[2] and "1 of decode/d" in words[3]
    assert resource_violations(replace(plain, redundancy=1), fleet) == words[2:3]


def test_what_is_left_of_a_fleet() -> None:
    fleet = Fleet.of({(PREFILL, "p"): 1, (DECODE, "d"): 3})
    left = remainders(fleet, 2)
    assert left[PREFILL, "p"] == Fleet.of({(DECODE, "d"): 3})
    assert left[DECODE, "d"] == Fleet.of({(PREFILL, "p"): 1, (DECODE, "d"): 1})


@pytest.mark.parametrize("name", MILP)
def test_what_is_not_combined_is_refused_in_one_line(small: Any, name: str) -> None:
    coupled = small.problem_on(small.two_type_system(1), {"ttft": 1.0, "tpot": 1.0})
    with pytest.raises(UnsupportedError, match="leave one of them out") as caught:
        solver_named(name).solve(replace(coupled, redundancy=1))
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_two_lost_of_a_pool_of_one_are_one(small: Any) -> None:
    """min(f, n): a pool of one loses one, so three pools of one bear the loss of "two" of any."""
    rows = [(PREFILL, f"p{i}", f"g{i}", 1, 1.0, 1.0, 0, 1.0) for i in range(3)]
    rows.append((DECODE, "d", "d", 1, 1.0, 1.0, 0, math.inf))
    p = replace(small.problem_of(rows, 2.0, {}), redundancy=2)
    for name in ("exact", *MILP):
        answer = solver_named(name).solve(p)
        assert answer.cost == 3.0 + 4.0 and answer.fleet.count(DECODE, "d") == 4


def test_the_exact_search_says_what_it_does_not_combine(small: Any) -> None:
    system = small.two_type_system(1)
    coupled = replace(small.problem_on(system, {"ttft": 1.0, "tpot": 1.0}), redundancy=1)
    with pytest.raises(UnsupportedError, match="leave one of them out"):
        solver_named("exact").solve(coupled)


@pytest.mark.parametrize("field", [{"headroom": -0.1}, {"redundancy": -1}, {"headroom": math.nan}])
def test_bad_conditions_are_refused(small: Any, field: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must not be negative"):
        replace(small.random_linear(1), **field)
