"""Capacity tables that are exact where asked and upper bounds elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.tables import solve_by_tables
from pdalloc.allocation.tables.rows import CapacityRow, capacity_rows, learn
from pdalloc.capacity import Capacity
from pdalloc.fleet import DECODE, PREFILL, Fleet


@dataclass(frozen=True)
class Staffed:
    """Stands in for a Capacity: m replicas admit mu a, m = a + b sqrt(a) (square-root staffing)."""

    limits: dict[tuple[str, str], tuple[float, float]]
    system: Any
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    coupled: bool = False

    def pooled(self, role: str) -> bool:
        return True

    def rate(self, role: str, name: str, m: int) -> float:
        mu, b = self.limits[role, name]
        return mu * (math.sqrt(m + b * b / 4) - b / 2) ** 2 / m

    def admissible_rate(self, role: str, r: Any, m: int) -> float:
        self.asked.append((role, r.name, m))
        return self.rate(role, r.name, m)

    def relaxed_rate(self, role: str, r: Any, demand: float) -> float:
        """The rate of the smallest pool that serves ``demand`` alone, as Capacity gives it."""
        m = 1
        while m * self.rate(role, r.name, m) < demand:
            m += 1
        return max(self.rate(role, r.name, m), demand / m)


@pytest.fixture
def problem(small: Any) -> AllocationProblem:
    rows = [
        (PREFILL, "p", "a", 1, 3.0, 1.0, 0, math.inf),
        (PREFILL, "q", "b", 2, 5.0, 1.8, 1, math.inf),
        (DECODE, "d", "a", 1, 2.0, 0.7, 0, 60.0),
        (DECODE, "e", "b", 4, 9.0, 2.6, 0, math.inf),
    ]
    plain: AllocationProblem = small.problem_of(rows, 40.0, {"a": 70, "b": 60})
    limits = {(row[0], row[1]): (row[5], 0.8) for row in rows}
    capacity = Staffed(limits, plain.capacity.system)
    return replace(plain, capacity=cast(Capacity, capacity))


def full_tables(problem: AllocationProblem) -> dict[tuple[str, str], np.ndarray]:
    capacity = cast(Staffed, problem.capacity)
    found = {}
    for o in problem.options:
        counts = np.arange(1, 101)
        rates = [capacity.rate(o.role, o.replica_type, int(m)) for m in counts]
        found[o.role, o.replica_type] = np.array([0.0, *(counts * rates)]) / problem.demand
    return found


def test_rows_bound_the_table_and_touch_it_where_asked(problem: AllocationProblem) -> None:
    rows, full = capacity_rows(problem), full_tables(problem)
    assert rows is not None
    for row in rows:
        exact = full[row.option.role, row.option.replica_type][: row.most + 1]
        assert np.all(row.upper() >= exact * (1 - 1e-12))
        m = row.most // 3
        assert row.learn(problem, m) and not row.learn(problem, m)
        assert row.upper()[m] == pytest.approx(exact[m]) and row.upper()[row.most] >= exact[-1]
        # the last count is the first that serves the demand alone, or what stock and limits leave
        held = min(row.option.most, problem.stock[row.option.gpu] // row.option.gpus)
        assert row.most == held or exact[-1] >= COVERED > exact[-2]


def test_learning_a_fleet_asks_for_its_pools_once(problem: AllocationProblem) -> None:
    rows = capacity_rows(problem)
    assert rows is not None
    fleet = Fleet.of({(PREFILL, "p"): 13, (DECODE, "d"): 29})
    assert learn(problem, rows, fleet) == 2 and learn(problem, rows, fleet) == 0


def test_the_lazy_search_finds_the_least_cost_of_the_full_tables(
    problem: AllocationProblem,
) -> None:
    """Enumeration over all counts, with few entries of the tables computed."""
    full = full_tables(problem)
    found = solve_by_tables(problem)
    assert found is not None and found[1].settled and found[1].counts is not None
    fleet = found[0].fleet(found[1].counts)
    pairs: dict[str, list[tuple[float, int, int]]] = {}
    for role in (PREFILL, DECODE):
        one, other = problem.in_role(role)
        pairs[role] = [
            (one.cost(m) + other.cost(n), m * one.gpus, n * other.gpus)
            for m in range(71)
            for n in range(31)
            if full[role, one.replica_type][m] + full[role, other.replica_type][n] >= COVERED
            and m <= one.most
        ]
    best = min(
        p[0] + d[0]
        for p in pairs[PREFILL]
        for d in pairs[DECODE]
        if p[1] + d[1] <= 70 and p[2] + d[2] <= 60
    )
    assert problem.cost(fleet) == pytest.approx(best, abs=1e-9) and found[1].usd == best
    asked = cast(Staffed, problem.capacity).asked
    assert len(asked) == len(set(asked)) < sum(len(full[key]) for key in full) / 3


def test_a_table_that_would_be_too_long_is_declined(small: Any) -> None:
    rows = [
        (PREFILL, "p", "a", 1, 3.0, 1e-4, 0, math.inf),
        (DECODE, "d", "a", 1, 2.0, 1.0, 0, math.inf),
    ]
    p = small.problem_of(rows, 5.0, {})
    assert CapacityRow.of(p, p.options[0]) is None
    assert capacity_rows(p) is None and solve_by_tables(p) is None
