"""Mixed-integer conic programs: closed forms and enumeration, dual cuts, the exact search."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.conic import ConicData, conic_data
from pdalloc.allocation.conic_rounds import whole_optimum
from pdalloc.allocation.linear import linear_data
from pdalloc.allocation.population import Burdens, cheapest_counts
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import cvxpy_misocp, cvxpy_relaxation, pyomo_misocp, solver_named
from pdalloc.capacity import Capacity
from pdalloc.closed_forms import Stage, population_delay
from pdalloc.errors import UnstableError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean

BACKENDS = {"cvxpy_misocp": cvxpy_misocp, "pyomo_misocp": pyomo_misocp}
POINTS = 201


class Instance:
    """Stages of one or both roles under one mean delay; prices near mu^0.8, so that types mix."""

    def __init__(self, small: Any, seed: int, kind: str, shared: bool) -> None:
        rng = random.Random(seed)
        self.prefill = [self._stage(rng, kind) for _ in range(2 if shared else 3)]
        self.decode = [self._stage(rng, "batch") for _ in range(2 if shared else 0)]
        self.demand = rng.uniform(3.0, 7.0) if shared else rng.uniform(5.0, 12.0)
        floor = sum(min(s.floor for s in of) for of in (self.prefill, self.decode) if of)
        self.tau = floor * rng.uniform(1.3, 3.0)
        stages = [(PREFILL, s) for s in self.prefill] + [(DECODE, s) for s in self.decode]
        if not shared:
            stages.append((DECODE, Stage(1.0, 1e-3, 1e-12, 0.0)))  # never short
        rows = [
            (role, f"t{i}", f"g{i}", 1, s.price, 1.0 / s.work, 0, math.inf)
            for i, (role, s) in enumerate(stages)
        ]
        self.problem: AllocationProblem = small.problem_of(rows, self.demand, {})
        self.stages = [s for _, s in stages]

    @staticmethod
    def _stage(rng: random.Random, kind: str) -> Stage:
        mu = rng.uniform(1.0, 5.0)
        price = mu**0.8 * rng.uniform(0.8, 1.2)
        if kind == "batch":
            return Stage.batch(price, 100.0, rng.uniform(0.5, 2.0) / (100.0 * mu), 0.01 / mu)
        return Stage.mg1(price, mu, 1.0 if kind == "mm1" else rng.uniform(0.0, 3.0))

    @property
    def data(self) -> ConicData:
        n, budget = len(self.stages), self.demand * self.tau
        linear = linear_data(self.problem)
        return ConicData(
            linear,
            ("all/e2e.mean",),
            np.array([1.0 / s.work for s in self.stages]),
            np.ones(n),
            np.array([[s.floor / s.work / budget for s in self.stages]]),
            np.array([[s.congestion / s.work**2 / budget for s in self.stages]]),
            np.zeros((1, n), bool),
            linear.ceiling,
        )

    @property
    def burdens(self) -> Burdens:
        """The same curves as tables, for dual cuts."""
        grid = 0.9999 * (1.0 - (1.0 - np.linspace(0.0, 1.0, POINTS)) ** 2)
        rates = np.array([grid / s.work for s in self.stages])
        delays = [
            s.floor + s.congestion * y / (1.0 - s.work * y)
            for s, y in zip(self.stages, rates, strict=True)
        ]
        return Burdens(
            self.problem.options, rates, (rates * delays)[None], np.array([self.tau]), self.demand
        )

    def delay(self, counts: Sequence[float]) -> float:
        """Mean delay under the best split of each role, s; inf without a steady state."""
        split, total = len(self.prefill), 0.0
        end = split + len(self.decode)
        for stages, n in ((self.prefill, counts[:split]), (self.decode, counts[split:end])):
            if stages:
                try:
                    total += population_delay(self.demand, stages, [int(k) for k in n])
                except UnstableError:
                    return math.inf
        return total

    def largest_below(self, cost: float) -> Iterator[tuple[int, ...]]:
        """Counts that cost less, to which no replica can be added: more never delay more."""
        prices = [s.price for s in (*self.prefill, *self.decode)]
        tops = [range(int(cost / c) + 1) for c in prices[1:]]
        for rest in product(*tops):
            left = cost - 1e-9 - sum(c * k for c, k in zip(prices[1:], rest, strict=True))
            if left > 0.0:
                first = int(left / prices[0])
                if left - first * prices[0] < min(prices):
                    yield (first, *rest)


CASES = [(kind, shared, seed) for kind in ("mm1", "mg1", "batch") for shared in (False, True)
         for seed in range(3)]  # fmt: skip


@pytest.mark.parametrize(("kind", "shared", "seed"), CASES)
def test_no_cheaper_counts_keep_the_closed_form(
    small: Any, kind: str, shared: bool, seed: int
) -> None:
    """Whole counts within the mean delay of the best split (theorem dual_cut), and no fewer.

    Dual cuts agree: their chords lie on the safe side, dearer only at the bound's edge.
    """
    at = Instance(small, seed, kind, shared)
    found, other = (whole_optimum(at.data, b.minimise) for b in BACKENDS.values())
    cuts = cheapest_counts(at.burdens, linear_data(at.problem))
    relaxed = cvxpy_relaxation.minimise(at.data)
    assert found is not None and other is not None and cuts is not None and relaxed is not None
    prices = np.array([s.price for s in at.stages])
    for point in (found, other):
        assert at.delay(list(point.counts)) <= at.tau * (1.0 + 1e-8)
        assert point.bound == pytest.approx(prices @ point.counts, abs=1e-6)
    assert other.bound == pytest.approx(found.bound, abs=1e-6)
    cost = float(prices @ found.counts) - (0.0 if shared else 1.0)
    assert all(at.delay(n) > at.tau for n in at.largest_below(cost))
    more = float(prices @ cuts[0] - prices @ found.counts)
    assert more >= -1e-9 and (more < 1e-9 or at.delay(list(found.counts)) > 0.998 * at.tau)
    assert relaxed.bound <= found.bound + 1e-9


def on_laws(small: Any, seed: int, bounds: dict[str, float], first: str) -> AllocationProblem:
    """Two types per role; mean SLOs so many times the least of an unloaded path."""
    system = small.two_type_system(seed, first)
    predictor = Capacity(system, ()).predictor
    prefills = [predictor.prefill(r, 0.0) for r in system.types_for(PREFILL)]
    decodes = [predictor.decode(r, 0.0) for r in system.types_for(DECODE)]
    slos = tuple(
        Slo("all", m, Mean(), room * min(
            predictor.law(m, 0, p, d).mean for p, d in product(prefills, decodes)
        ))
        for m, room in bounds.items()
    )  # fmt: skip
    problem: AllocationProblem = small.problem_on(system, {})
    return replace(problem, capacity=Capacity(system, slos), slo_scope="population")


LAWS = [
    (1, {"ttft": 2.4, "tpot": 2.2}, "transfer"),
    (4, {"e2e": 1.8}, "decode"),
    (5, {"ttft": 1.5}, "prefill"),
]


@pytest.mark.parametrize(("seed", "bounds", "first"), LAWS)
def test_on_the_laws_the_exact_search_agrees(
    small: Any, seed: int, bounds: dict[str, float], first: str
) -> None:
    """Tangents of decode laws that are of no family, added where the answers are."""
    problem = on_laws(small, seed, bounds, first)
    exact = solver_named("exact").solve(problem)
    for name in BACKENDS:
        answer = solver_named(name).solve(problem)
        assert answer.status == "optimal" and answer.cost == pytest.approx(exact.cost)
        assert answer.bound is not None and answer.cost is not None
        assert answer.cost - 1e-6 <= answer.bound <= answer.cost
        assert certify(problem, answer.fleet).certified


def test_stock_limits_and_owned_replicas(small: Any) -> None:
    """A limit on the small type, a big replica owned in each role, three big GPUs in stock."""
    problem = on_laws(small, 1, {"ttft": 2.4}, "transfer")
    free = solver_named("exact").solve(problem)
    options = tuple(
        replace(o, owned=1) if o.replica_type == "big" else replace(o, most=0.0)
        for o in problem.options
    )
    limited = replace(problem, options=options, stock={"big": 3})
    exact = solver_named("exact").solve(limited)
    assert exact.cost is not None and exact.fleet != free.fleet
    nothing = replace(problem, stock={"big": 0, "small": 0})
    for name in BACKENDS:
        answer = solver_named(name).solve(limited)
        assert answer.cost == pytest.approx(exact.cost)
        assert certify(limited, answer.fleet).certified
        answer = solver_named(name).solve(nothing)
        assert answer.status == "infeasible" and "stock" in answer.reason


def test_a_shared_mean_that_each_pool_keeps(small: Any) -> None:
    """With one type per role a pool's requests are all requests."""
    problem = on_laws(small, 4, {"e2e": 1.5, "tpot": 2.0}, "transfer")
    one = replace(
        problem, slo_scope="pool", options=tuple(o for o in problem.options if o.gpu == "big")
    )
    assert not conic_data(one, "x")[0].relaxed
    exact = solver_named("exact").solve(one)
    for name in BACKENDS:
        answer = solver_named(name).solve(one)
        assert answer.status == "optimal" and answer.cost == pytest.approx(exact.cost)


@pytest.mark.parametrize("name", BACKENDS)
def test_what_it_does_not_solve_is_refused_in_one_line(small: Any, name: str) -> None:
    problem = on_laws(small, 4, {"e2e": 1.5}, "transfer")
    with pytest.raises(UnsupportedError, match=f"{name}.*one type per role") as caught:
        solver_named(name).solve(replace(problem, slo_scope="pool"))
    assert "\n" not in str(caught.value)
    with pytest.raises(UnsupportedError, match=f"{name}.*no cone.*cvxpy_scip") as caught:
        solver_named(name).solve(small.random_linear(1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_missing_package_is_named_in_one_line(
    small: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    with pytest.raises(UnsupportedError, match=f"{name}.*package pyscipopt: pip install") as caught:
        solver_named(name).solve(small.random_linear(0))
    assert "\n" not in str(caught.value)


def test_both_roles_are_asked(small: Any) -> None:
    """A shared budget is a sum over the roles: dearer than either stage alone would be."""
    at = Instance(small, 0, "mm1", True)
    both = whole_optimum(at.data, cvxpy_misocp.minimise)
    split = len(at.prefill)
    assert both is not None and set(ROLES) == {o.role for o in at.problem.options}
    for members in (slice(0, split), slice(split, None)):
        data = at.data
        work, queue = np.zeros_like(data.work), np.zeros_like(data.queue)
        work[:, members], queue[:, members] = data.work[:, members], data.queue[:, members]
        alone = whole_optimum(replace(data, work=work, queue=queue), cvxpy_misocp.minimise)
        assert alone is not None and alone.bound < both.bound
