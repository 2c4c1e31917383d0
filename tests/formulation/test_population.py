"""SLOs over all requests: closed-form conjugates, enumeration, a conic program, the laws."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.linear import COVERED, Array, linear_data
from pdalloc.allocation.population import (
    Burdens,
    below,
    best_split,
    burdens,
    cheapest_counts,
)
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import Capacity
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile, Statistic

POINTS = 201


def burden(kind: str, mu: float, extra: float, y: Array) -> Array:
    """y D(y): mean sojourn of M/M/1 or M/G/1 (kappa = extra), batch law (s = extra)."""
    if kind == "mm1":
        return y / (mu - y)
    if kind == "mg1":  # Pollaczek-Khinchine: 1/mu + kappa rho / (mu - y)
        return y / mu + extra * y * y / (mu * (mu - y))
    return extra * y / (mu - y)  # L (a + b) / (1 - y L b), mu = 1 / (L b), s = 1 + a / b


def conjugate(kind: str, mu: float, extra: float, nu: float) -> float:
    """h(nu) = max_y nu y - f(y) in closed form."""
    if kind == "mm1":
        return max(math.sqrt(mu * nu) - 1.0, 0.0) ** 2
    if kind == "mg1":
        shifted = max(nu - (1.0 - extra) / mu, 0.0)
        return extra * max(math.sqrt(mu * shifted / extra) - 1.0, 0.0) ** 2
    return extra * max(math.sqrt(mu * nu / extra) - 1.0, 0.0) ** 2


def by_hand(small: Any, kind: str, seed: int) -> tuple[AllocationProblem, Burdens, Any]:
    """Three prefill types of one kind, a decode type that is never short; budget, parameters."""
    rng = np.random.default_rng(seed)
    mu, extra = rng.uniform(1.0, 5.0, 3), rng.uniform(1.05, 3.0, 3)
    if kind == "mg1":
        extra = rng.uniform(0.5, 2.0, 3)
    usd = mu**0.8 * rng.uniform(0.8, 1.2, 3)
    rows = [(PREFILL, f"p{i}", f"p{i}", 1, usd[i], mu[i], 0, math.inf) for i in range(3)]
    rows.append((DECODE, "d", "d", 1, 1.0, 1e3, 0, math.inf))
    demand = float(rng.uniform(5.0, 12.0))
    problem: AllocationProblem = small.problem_of(rows, demand, {})
    grid = 1.0 - (1.0 - np.linspace(0.0, 1.0, POINTS)) ** 2
    rates = np.vstack([0.9999 * m * grid for m in [*mu, 1e3]])
    values = np.zeros((1, 4, POINTS))
    for i in range(3):
        values[0, i] = burden(kind, mu[i], extra[i], rates[i])
    floor = min(float(values[0, i, 1] / rates[i, 1]) for i in range(3))
    tau = floor * float(rng.uniform(1.2, 3.0))
    b = Burdens(problem.options, rates, values, np.array([tau]), demand)
    return problem, b, (kind, mu, extra, usd, tau)


def kept(counts: Any, demand: float, law: Any) -> Any:
    """sum n h(nu) >= lambda (nu - tau) for every nu; ``counts`` (N, 3) or (3,).

    nu up to a multiple of mu_max tau^2 (reference: an infeasible n breaks a cut below that).
    """
    kind, mu, extra, _, tau = law
    grid = np.geomspace(tau * 1e-3, 4.0 * max(mu) * tau**2 * max(1.0, *extra), 3000)
    pairs = list(zip(mu, extra, strict=True))
    table = np.array([[conjugate(kind, m, e, float(nu)) for nu in grid] for m, e in pairs])
    right = demand * (grid - tau) * (1 - 1e-9)
    return np.all(np.asarray(counts, float) @ table >= right, axis=-1)


@pytest.mark.parametrize("kind", ["mm1", "mg1", "batch"])
@pytest.mark.parametrize("seed", range(6))
def test_the_split_is_the_closed_form_dual(small: Any, kind: str, seed: int) -> None:
    """t*(n) <= 0 just when the conjugates' condition holds for every nu."""
    _, b, law = by_hand(small, kind, seed)
    answers = []
    for n in product((0, 6, 12, 24), repeat=3):
        split = best_split(b, np.array([*n, 1.0]))
        excess = math.inf if split is None else split.excess
        if abs(excess) > 3e-3:  # nearer the edge the grid decides
            assert (excess <= 0) == kept(n, b.demand, law), (n, excess)
            answers.append(excess <= 0)
    assert any(answers) and not all(answers)


@pytest.mark.parametrize("kind", ["mm1", "mg1", "batch"])
@pytest.mark.parametrize("seed", range(3))
def test_the_curve_lies_between_its_tables(small: Any, kind: str, seed: int) -> None:
    """A convex f is below its chords and above the neighbouring ones drawn on, and both close."""
    _, b, (_, mu, extra, _, _) = by_hand(small, kind, seed)
    low = below(b)
    gaps = []
    for i in range(3):
        top = b.rates[i, -1]
        loads = np.linspace(0.02, 0.98, 500) * top
        true = burden(kind, mu[i], extra[i], loads)
        above = np.interp(loads, b.rates[i], b.values[0, i])
        under = np.interp(loads, *np.unique(np.stack([low.rates[i], low.values[0, i]]), axis=1))
        assert np.all(under <= true * (1 + 1e-9)) and np.all(true <= above * (1 + 1e-9))
        gaps.append(np.median(above / under) - 1.0)
    assert 0.0 < max(gaps) < 0.02
    for n in product((6, 12), repeat=3):  # so is the excess of any fleet
        safe, hopeful = (best_split(x, np.array([*n, 1.0])) for x in (b, low))
        if safe is not None and hopeful is not None:
            assert hopeful.excess <= safe.excess + 1e-9


@pytest.mark.parametrize("kind", ["mm1", "mg1", "batch"])
@pytest.mark.parametrize("seed", range(3))
def test_every_cut_holds_for_every_fleet(small: Any, kind: str, seed: int) -> None:
    """t* is convex in n: the plane at one fleet is below t* at any other."""
    _, b, _ = by_hand(small, kind, seed)
    rng = np.random.default_rng(seed)
    fleets = [np.array([*rng.integers(2, 12, 3), 1.0]) for _ in range(8)]
    splits = [(n, s) for n in fleets if (s := best_split(b, n)) is not None]
    for n, s in splits:
        for m, other in splits:
            assert s.excess + s.slope @ (m - n) <= other.excess + 1e-6 * (1 + abs(other.excess))


@pytest.mark.parametrize("kind", ["mm1", "mg1", "batch"])
@pytest.mark.parametrize("seed", range(5))
def test_no_cheaper_counts_keep_the_closed_form(small: Any, kind: str, seed: int) -> None:
    problem, b, law = by_hand(small, kind, seed)
    usd = law[3]
    found = cheapest_counts(b, linear_data(problem, b.rates[:, -1] / b.demand))
    assert found is not None
    counts, split, _ = found
    cost = float(usd @ counts[:3])
    assert kept(counts[:3], b.demand * (1 - 2e-3), law)
    assert split.rates[:3].sum() == pytest.approx(b.demand)
    tops = [int(cost / c) for c in usd]
    fleets = np.array(list(product(*(range(top + 1) for top in tops))), float)
    cheaper = fleets[fleets @ usd < cost * (1 - 1e-9)]
    assert not np.any(kept(cheaper, b.demand * (1 + 2e-3), law))


def conic(b: Burdens, law: Any) -> float:
    """The integer optimum for M/M/1 by SCIP: a = x/mu, quad_over_lin(n, n - a) - n per type."""
    import importlib

    cp: Any = importlib.import_module("cvxpy")
    _, mu, _, usd, tau = law
    n, a = cp.Variable(3, integer=True), cp.Variable(3, nonneg=True)
    terms = [cp.quad_over_lin(n[i], n[i] - a[i]) - n[i] for i in range(3)]
    rows = [cp.sum(cp.multiply(mu, a)) == b.demand, sum(terms) <= b.demand * tau, n >= 0]
    problem = cp.Problem(cp.Minimize(usd @ n), rows)
    params = {"limits/gap": 0.0, "numerics/feastol": 1e-9, "limits/time": 120.0}
    problem.solve(solver="SCIP", scip_params=params)
    return float(problem.value)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_conic_program_agrees(small: Any, seed: int) -> None:
    """The MISOCP rival, from the perspective form of x/(mu - x/n), has the same optimum."""
    problem, b, law = by_hand(small, "mm1", seed)
    found = cheapest_counts(b, linear_data(problem, b.rates[:, -1] / b.demand))
    assert found is not None
    assert float(law[3] @ found[0][:3]) == pytest.approx(conic(b, law), rel=1e-6)


def on_laws(
    small: Any, seed: int, first: str, room: dict[str, float], statistic: Statistic
) -> AllocationProblem:
    """Two types per role; each SLO at ``room`` times the least of an unloaded path."""
    system = small.two_type_system(seed, first)
    predictor = Capacity(system, ()).predictor
    prefills = [predictor.prefill(r, 0.0) for r in system.types_for(PREFILL)]
    decodes = [predictor.decode(r, 0.0) for r in system.types_for(DECODE)]

    def floor(metric: str) -> float:
        paths = product(prefills, decodes)
        return min(statistic.of_law(predictor.law(metric, 0, p, d)) for p, d in paths)

    slos = tuple(Slo("all", m, statistic, r * floor(m)) for m, r in room.items())
    problem: AllocationProblem = small.problem_on(system, {m: 1.0 for m in room})
    return replace(problem, capacity=Capacity(system, slos), slo_scope="population")


CASES = [
    (1, "transfer", {"ttft": 2.4, "tpot": 2.2}, Mean()),
    (2, "transfer", {"ttft": 1.8, "tpot": 1.7}, Mean()),
    (3, "decode", {"ttft": 2.0, "tpot": 1.9}, Mean()),
    (4, "decode", {"e2e": 1.8}, Mean()),
    (1, "transfer", {"ttft": 2.5}, Percentile(90.0)),
]


@pytest.mark.parametrize(("seed", "first", "room", "statistic"), CASES)
def test_on_the_laws_no_cheaper_fleet_keeps_the_slos(
    small: Any, seed: int, first: str, room: dict[str, float], statistic: Statistic
) -> None:
    """Certified over all requests; every cheaper fleet is broken under its best split."""
    problem = on_laws(small, seed, first, room, statistic)
    answer = solver_named("exact").solve(problem)
    assert answer.status == "optimal" and answer.cost is not None
    check = certify(problem, answer.fleet)
    assert check.certified and len(check.slos) == len(room)
    alone = solver_named("exact").solve(replace(problem, slo_scope="pool"))
    if alone.cost is not None:  # what keeps SLOs in every pool keeps them over all requests
        assert answer.cost <= alone.cost * (1 + 1e-9)
    b = burdens(problem)
    prices = np.array([o.usd_per_hour for o in b.options])
    tops = [int(answer.cost / c) for c in prices]
    for n in product(*(range(top + 1) for top in tops)):
        if prices @ n < answer.cost - 1e-6:
            split = best_split(b, np.array(n, float))
            assert split is None or split.excess > 0.0, n


def test_a_slow_pool_may_serve_some(small: Any) -> None:
    """Per pool the slow type cannot keep the bound; over all requests it may carry a share."""
    for seed in range(1, 12):
        problem = on_laws(small, seed, "transfer", {"ttft": 1.9, "tpot": 1.8}, Mean())
        both = solver_named("exact").solve(problem)
        alone = solver_named("exact").solve(replace(problem, slo_scope="pool"))
        assert both.cost is not None and alone.cost is not None and both.cost <= alone.cost + 1e-9
        if both.cost < alone.cost - 1e-6:
            assert not certify(replace(problem, slo_scope="pool"), both.fleet).certified
            return
    raise AssertionError("the scope never mattered")


def test_a_bound_below_the_floor_is_explained(small: Any) -> None:
    problem = on_laws(small, 1, "transfer", {"ttft": 0.9}, Mean())
    answer = solver_named("exact").solve(problem)
    assert answer.status == "infeasible" and "cannot be kept" in answer.reason


def test_too_little_stock_is_explained(small: Any) -> None:
    problem = on_laws(small, 1, "transfer", {"ttft": 1.5}, Mean())
    answer = solver_named("exact").solve(replace(problem, stock={"big": 1, "small": 1}))
    assert answer.status == "infeasible" and "stock" in answer.reason


@pytest.mark.parametrize("name", ["cvxpy", "pyomo"])
def test_other_backends_refuse_in_one_line(small: Any, name: str) -> None:
    with pytest.raises(UnsupportedError, match="--solver exact"):
        solver_named(name).solve(on_laws(small, 1, "transfer", {"ttft": 1.5}, Mean()))


def test_what_is_not_known_is_refused(small: Any) -> None:
    """Percentiles over both stages, pools that share a queue, alternatives."""
    solve = solver_named("exact").solve
    with pytest.raises(UnsupportedError, match="adds up means"):
        solve(on_laws(small, 1, "decode", {"ttft": 2.0}, Percentile(90.0)))
    problem = on_laws(small, 1, "transfer", {"ttft": 2.0}, Mean())
    with pytest.raises(UnsupportedError, match="alternatives"):
        solve(problem, alternatives=1)
    system = replace(problem.capacity.system, dispatch=dict.fromkeys(ROLES, "central_queue"))
    with pytest.raises(UnsupportedError, match="dispatch: random"):
        solve(replace(problem, capacity=Capacity(system, problem.capacity.slos)))


def test_a_fleet_without_a_steady_state_is_not_certified(small: Any) -> None:
    problem = on_laws(small, 1, "transfer", {"ttft": 2.0}, Mean())
    problem = replace(problem, demand=problem.demand * 50)
    check = certify(problem, Fleet.of({(PREFILL, "big"): 1, (DECODE, "big"): 1}))
    assert not check.certified and "no steady state" in check.broken[-1]
    assert COVERED < 1.0
