"""The relaxation against closed forms: cost within 1e-6, and its duals are the prices there."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.conic import ConicData
from pdalloc.allocation.linear import linear_data
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import cvxpy_relaxation, pyomo_ipopt, pyomo_misocp, solver_named
from pdalloc.capacity import Capacity
from pdalloc.closed_forms import Merit, Stage, merit_order, population_mix, shared_budget
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile

COST, PRICE = 1e-6, 1e-5
"""Relative accuracy asked of costs and of prices of latency."""


def by_stages(
    small: Any,
    stages: Mapping[str, Sequence[Stage]],
    demand: float,
    bound: float,
    stock: Mapping[str, int] | None = None,
) -> ConicData:
    """One SLO on the mean delay of all ``demand`` requests/s over the stages, types g0, g1, ..."""
    pairs = [(role, i, s) for role in ROLES for i, s in enumerate(stages[role])]
    rows = [(r, f"t{i}", f"g{i}", 1, s.price, 1.0 / s.work, 0, math.inf) for r, i, s in pairs]
    linear = linear_data(small.problem_of(rows, demand, stock or {}))
    full = np.array([1.0 / s.work for _, _, s in pairs])
    budget = demand * bound
    return ConicData(
        linear,
        ("all/e2e.mean",),
        full,
        np.ones(len(pairs)),
        np.array([[s.floor / s.work / budget for _, _, s in pairs]]),
        np.array([[s.congestion / s.work**2 / budget for _, _, s in pairs]]),
        np.zeros((1, len(pairs)), bool),
        linear.ceiling,
    )


FREE = Stage(1e-9, 1e-6, 1e-12, 0.0)
"""A stage that costs nothing to speak of."""


def random_stage(rng: random.Random, kind: str) -> Stage:
    price, speed = rng.uniform(1.0, 9.0), rng.uniform(0.5, 4.0)
    if kind == "batch":
        return Stage.batch(price, 200.0, 0.01 / speed, rng.uniform(2e-4, 9e-4) / speed)
    return Stage.mg1(price, speed, {"mm1": 1.0, "md1": 0.0}.get(kind, rng.uniform(0.0, 3.0)))


@pytest.mark.parametrize("first", ["mm1", "md1", "mg1", "batch"])
@pytest.mark.parametrize("seed", range(4))
def test_a_shared_budget(small: Any, first: str, seed: int) -> None:
    """Counts, cost and d cost/d tau = -lambda (sum sqrt beta)^2/(tau - sum f)^2."""
    rng = random.Random(seed)
    stages = {PREFILL: [random_stage(rng, first)], DECODE: [random_stage(rng, "batch")]}
    both = [stages[role][0] for role in ROLES]
    demand = rng.uniform(1.0, 50.0)
    tau = sum(s.floor for s in both) * rng.uniform(1.1, 4.0)
    known = shared_budget(demand, both, tau)
    found = cvxpy_relaxation.minimise(by_stages(small, stages, demand, tau))
    assert found is not None
    assert found.bound == pytest.approx(known.cost, rel=COST)
    assert found.bound <= known.cost * (1.0 + 1e-12)
    assert found.counts == pytest.approx(known.counts, rel=1e-3)
    price = found.duals["slo[all/e2e.mean]"] / tau
    assert price == pytest.approx(known.price_of_latency, rel=PRICE)


@pytest.mark.parametrize("kind", ["mm1", "mg1", "batch"])
@pytest.mark.parametrize("seed", range(6))
def test_several_types_under_one_mean(small: Any, kind: str, seed: int) -> None:
    """Theorem two_types: at most two carry traffic, and nu is the dual."""
    rng = random.Random(seed)
    types = [random_stage(rng, kind) for _ in range(3)]
    demand = rng.uniform(2.0, 30.0)
    tau = min(s.floor for s in types) * rng.uniform(1.2, 5.0)
    known = population_mix(demand, types, tau)
    data = by_stages(small, {PREFILL: types, DECODE: [FREE]}, demand, tau)
    found = cvxpy_relaxation.minimise(data)
    assert found is not None
    assert found.bound == pytest.approx(known.cost, rel=COST)
    price = found.duals["slo[all/e2e.mean]"] / tau
    assert price == pytest.approx(known.price_of_latency, rel=PRICE)
    assert sum(n > 1e-4 * sum(found.counts) for n in found.counts[:3]) <= 2


def test_stock_that_binds_has_a_price(small: Any) -> None:
    """Two M/M/1 types, the better one short of stock: the dual is the cost's derivative."""
    types = [Stage.mm1(1.0, 1.0), Stage.mm1(3.0, 2.0)]

    def at(held: float) -> tuple[float, float]:
        data = by_stages(small, {PREFILL: types, DECODE: [FREE]}, 10.0, 2.0, {"g1": 1})
        data = replace(data, linear=replace(data.linear, stock={"g1": held}))  # type: ignore[dict-item]
        found = cvxpy_relaxation.minimise(data)
        assert found is not None
        return found.bound, found.duals["stock[g1]"]

    free = population_mix(10.0, types, 2.0)
    assert at(free.counts[1] + 1.0) == pytest.approx((free.cost, 0.0), rel=COST, abs=1e-6)
    tight = 0.7 * free.counts[1]
    (low, _), (cost, price), (high, _) = at(tight - 1e-3), at(tight), at(tight + 1e-3)
    assert cost > free.cost * 1.0001 and price > 0.01
    assert price == pytest.approx((low - high) / 2e-3, rel=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_merit_order(small: Any, seed: int) -> None:
    """SLOs of each pool, limits: the cheapest per request first, the margin is the price."""
    rng = random.Random(seed)
    rows = [
        (role, f"t{i}", f"{role}{i}", 1, rng.uniform(1, 9), rng.uniform(1, 4), 0, limit)
        for role in ROLES
        for i, limit in enumerate((2.0, 3.0, math.inf))
    ]
    p = small.problem_of(rows, rng.uniform(2.0, 20.0), {})
    answer = solver_named("cvxpy_relaxation").solve(p)
    details = {k: float(v) for k, v in answer.details.items()}
    total = 0.0
    for role in ROLES:
        types = [Merit(o.usd_per_hour, p.rate(o), o.most) for o in p.in_role(role)]
        known = merit_order(p.demand, types)
        total += known.cost
        assert details[f"d_cost/d_demand[{role}]"] == pytest.approx(known.price, rel=1e-6)
        counts = [details[f"count[{role}/{o.replica_type}]"] for o in p.in_role(role)]
        assert counts == pytest.approx(known.counts, rel=1e-5, abs=1e-5)
    assert answer.bound == pytest.approx(total, rel=COST)
    assert answer.bound is not None and answer.bound <= total * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_it_bounds_the_integer_optimum(small: Any, seed: int) -> None:
    """Stock, limits, owned replicas: below enumeration; its own fleet above, and certified."""
    p = small.random_linear(seed)
    best = small.brute_force(p)
    answer = solver_named("cvxpy_relaxation").solve(p)
    if answer.bound is not None and best is not None:
        assert answer.bound <= best + 1e-9
    if answer.status == "feasible":
        assert best is not None and answer.cost is not None and answer.cost >= best - 1e-9
        assert certify(p, answer.fleet).certified
    else:
        assert answer.reason and answer.bound is None
    if best is not None:
        assert "relaxation_usd_per_hour" in answer.details


def laws(small: Any, slos: tuple[Slo, ...], scope: str) -> AllocationProblem:
    system = small.two_type_system(2, "transfer")
    problem: AllocationProblem = small.problem_on(system, {})
    return replace(problem, capacity=Capacity(system, slos), slo_scope=scope)  # type: ignore[arg-type]


def prefill_stages(p: AllocationProblem, transfer: float = 0.02) -> list[Stage]:
    """Fixed prompts: M/D/1 with the transfer on the floor."""
    types = p.capacity.system.replica_types
    stages = []
    for o in p.in_role(PREFILL):
        latency = types[o.replica_type].latency
        service = float(latency.prefill_seconds(np.array([1500.0]), np.zeros(1))[0])
        one = Stage.mg1(o.usd_per_hour, 1.0 / service, 0.0)
        stages.append(replace(one, floor=one.floor + transfer))
    return stages


@pytest.mark.parametrize("room", [1.3, 1.8, 3.0])
def test_on_the_laws_over_all_requests(small: Any, room: float) -> None:
    """The predictor's M/D/1 prefill is the closed form's; decode is at its stability limit."""
    plain = laws(small, (), "population")
    stages = prefill_stages(plain)
    tau = room * min(s.floor for s in stages)
    p = laws(small, (Slo("all", "ttft", Mean(), tau),), "population")
    answer = solver_named("cvxpy_relaxation").solve(p)
    known = population_mix(p.demand, stages, tau)
    types, limit = p.capacity.system.replica_types, p.capacity.stability_limit
    decode = min(
        o.usd_per_hour * p.demand / (0.999 * limit(DECODE, types[o.replica_type]))
        for o in p.in_role(DECODE)
    )
    assert answer.bound == pytest.approx(known.cost + decode, rel=COST)
    price = float(answer.details["d_cost/d_bound[all/ttft.mean]"])
    assert -price == pytest.approx(known.price_of_latency, rel=PRICE)
    # without stock and limits the cost is proportional to the demand
    slope = float(answer.details["d_cost/d_demand"])
    assert slope * p.demand == pytest.approx(answer.bound, rel=1e-5)


@pytest.mark.parametrize("room", [1.3, 2.5])
def test_the_price_of_a_bound_that_each_pool_keeps(small: Any, room: float) -> None:
    """One type: -d cost/d tau = lambda beta/(tau - f)^2 (theorem price_of_latency)."""
    stages = prefill_stages(laws(small, (), "pool"))
    stage = min(stages, key=lambda s: s.floor)
    tau = room * stage.floor
    p = laws(small, (Slo("all", "ttft", Mean(), tau), Slo("all", "tpot", Mean(), 0.06)), "pool")
    kept = tuple(o for o in p.options if o.replica_type == ("big", "small")[stages.index(stage)])
    p = replace(p, options=kept)
    answer = solver_named("cvxpy_relaxation").solve(p)
    found = -float(answer.details["d_cost/d_bound[all/ttft.mean]"])
    assert found == pytest.approx(p.demand * stage.delay_cost / (tau - stage.floor) ** 2, rel=PRICE)

    # the price of the other bound is the finite difference of the cost
    def cost(bound: float) -> float:
        slos = (p.capacity.slos[0], Slo("all", "tpot", Mean(), bound))
        moved = replace(p, capacity=Capacity(p.capacity.system, slos))
        return sum(o.usd_per_hour * p.demand / moved.rate(o) for o in moved.options)

    assert answer.bound == pytest.approx(cost(0.06), rel=COST)
    slope = (cost(0.06 * 1.001) - cost(0.06 * 0.999)) / (0.06 * 0.002)
    assert float(answer.details["d_cost/d_bound[all/tpot.mean]"]) == pytest.approx(slope, rel=1e-3)


def test_a_percentile_over_all_requests_has_tangents_and_a_price(small: Any) -> None:
    """No closed form: the price is the difference of two relaxations."""

    def at(tau: float) -> Any:
        p = laws(small, (Slo("all", "ttft", Percentile(90.0), tau),), "population")
        return solver_named("cvxpy_relaxation").solve(p)

    tau = 1.2
    low, here, high = (at(tau * x) for x in (0.99, 1.0, 1.01))
    slope = (high.bound - low.bound) / (0.02 * tau)
    found = float(here.details["d_cost/d_bound[all/ttft.p90]"])
    assert found < 0.0 and found == pytest.approx(slope, rel=0.02)


@pytest.mark.parametrize("scope", ["population", "pool"])
def test_an_end_to_end_mean_couples_the_stages(small: Any, scope: str) -> None:
    """Below the cheapest whole fleet, also where every pool keeps it by itself."""
    p = laws(small, (Slo("all", "e2e", Mean(), 7.0),), scope)
    exact, answer = (solver_named(n).solve(p) for n in ("exact", "cvxpy_relaxation"))
    assert exact.cost is not None and answer.bound is not None
    assert 0.3 * exact.cost < answer.bound <= exact.cost
    assert float(answer.details["d_cost/d_bound[all/e2e.mean]"]) < 0.0


def test_out_of_reach_is_said_in_words(small: Any) -> None:
    for scope in ("population", "pool"):
        p = laws(small, (Slo("all", "ttft", Mean(), 0.05),), scope)
        answer = solver_named("cvxpy_relaxation").solve(p)
        assert answer.status == "infeasible" and "cannot be" in answer.reason


@pytest.mark.parametrize("name", ["cvxpy_relaxation", "pyomo_ipopt"])
def test_a_missing_package_is_named_in_one_line(
    small: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"cvxpy_relaxation": "clarabel", "pyomo_ipopt": "pyomo"}[name]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError, match=f"{name}.*package {package}: pip install") as caught:
        solver_named(name).solve(small.random_linear(0))
    assert "\n" not in str(caught.value)


def test_a_missing_program_is_named_in_one_line(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(UnsupportedError, match="programs ipopt, pounce: pip install") as caught:
        solver_named("pyomo_ipopt").solve(small.random_linear(0))
    assert "\n" not in str(caught.value)


class Elsewhere:
    """Stands in for ipopt: Clarabel's optimum of the same arrays, or no optimum at all."""

    def __init__(self, data: ConicData, end: str) -> None:
        self.data, self.end = data, end

    def solve(self, m: Any, **_: Any) -> Any:
        from pyomo.opt import SolverResults, SolverStatus, TerminationCondition

        found = cvxpy_relaxation.minimise(self.data)
        assert found is not None
        for i, x in enumerate(self.data.linear.labels):
            m.bought[x].value, m.busy_count[x].value = found.counts[i], found.busy[i]
        for c in m.slo.values():
            m.dual[c] = -found.duals["slo[all/e2e.mean]"]
        results = SolverResults()
        results.solver.status = SolverStatus.ok
        results.solver.termination_condition = TerminationCondition(self.end)
        return results


def test_what_a_nonlinear_program_says_is_read(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, bound and prices of an optimum; None of infeasibility; a word of the rest."""
    stages = {PREFILL: [Stage.mm1(1.0, 1.0)], DECODE: [Stage.mm1(3.0, 2.0)]}
    data = by_stages(small, stages, 10.0, 4.0)
    known = shared_budget(10.0, [stages[role][0] for role in ROLES], 4.0)

    def minimise(end: str) -> Any:
        monkeypatch.setattr("pyomo.environ.SolverFactory", lambda *_, **__: Elsewhere(data, end))
        return pyomo_ipopt.minimise(data)

    found = minimise("optimal")
    assert found.counts == pytest.approx(known.counts, rel=1e-5)
    assert found.bound <= known.cost and found.bound == pytest.approx(known.cost, rel=2e-6)
    price = found.duals["slo[all/e2e.mean]"] / 4.0
    assert price == pytest.approx(known.price_of_latency, rel=PRICE)
    assert minimise("infeasible") is None
    with pytest.raises(UnsupportedError, match="ended with 'maxIterations'") as caught:
        minimise("maxIterations")
    assert "\n" not in str(caught.value)


def test_the_nonlinear_model_holds_at_the_conic_optimum(small: Any) -> None:
    """What ipopt is given: every row holds at Clarabel's optimum, at the same cost; the SLO
    and both cones bind there."""
    from pyomo.environ import Constraint, value

    types = [Stage.mm1(1.0, 1.0), Stage.mm1(3.0, 2.0)]
    decode = Stage.batch(2.0, 200.0, 0.01, 5e-4)
    data = by_stages(small, {PREFILL: types, DECODE: [decode]}, 10.0, 6.0)
    found = cvxpy_relaxation.minimise(data)
    assert found is not None
    m = pyomo_ipopt.as_ratios(pyomo_misocp.model(data, integer=False), data)
    for i, x in enumerate(data.linear.labels):
        n, a = float(found.counts[i]), float(found.busy[i])
        m.owned[x].value, m.bought[x].value, m.busy_count[x].value = 0.0, n, a
        m.idle_count[x].value = n - a
        m.wait[x].value = a * a / (n - a)
    for c in m.component_data_objects(Constraint):
        body = value(c.body)
        assert c.lower is None or body >= value(c.lower) - 1e-6, c.name
        assert c.upper is None or body <= value(c.upper) + 1e-6, c.name
    assert value(m.cost) == pytest.approx(found.bound, rel=COST)
    (slo,) = m.slo.values()
    assert value(slo.body) == pytest.approx(1.0, abs=1e-6)
