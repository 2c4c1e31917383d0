"""TTFT, TPOT and E2E means at once: against Clarabel, search, and the cases with one kind."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.closed_forms import Stage, bounded_budget, separate_ratio, shared_budget
from pdalloc.errors import InfeasibleError, InputError
from pdalloc.theory import theorems

cp: Any = cvxpy  # typed in part only

positive = st.floats(0.2, 20.0)
stages = st.one_of(
    st.builds(Stage.mg1, positive, positive, st.floats(0.0, 4.0)),
    st.builds(
        Stage.batch, positive, st.floats(20, 900), st.floats(0.001, 0.05), st.floats(1e-5, 2e-3)
    ),
)


def random_case(seed: int) -> tuple[list[Stage], list[float], float]:
    rng = Random(seed)
    several = [
        Stage.mg1(rng.uniform(1, 5), rng.uniform(0.5, 3), rng.uniform(0, 4))
        for _ in range(rng.randint(1, 4))
    ]
    bounds = [s.floor * rng.choice([rng.uniform(1.1, 4), math.inf]) for s in several]
    return several, bounds, sum(s.floor for s in several) * rng.uniform(1.2, 4)


@pytest.mark.parametrize("seed", range(25))
def test_cost_is_the_relaxations(seed: int) -> None:
    several, bounds, budget = random_case(seed)
    found = bounded_budget(1.0, several, bounds, budget)
    y = cp.Variable(len(several))
    rooms = [b - s.floor for b, s in zip(bounds, several, strict=True)]
    own = [y[i] <= u for i, u in enumerate(rooms) if math.isfinite(u)]
    betas = [s.delay_cost for s in several]
    cost = sum(cp.quad_over_lin(math.sqrt(beta), y[i]) for i, beta in enumerate(betas))
    problem = cp.Problem(
        cp.Minimize(cost), [cp.sum(y) <= budget - sum(s.floor for s in several), *own]
    )
    problem.solve(solver=cp.CLARABEL)
    relaxed = float(problem.value) + sum(s.load_cost for s in several)
    assert found.cost == pytest.approx(relaxed, rel=1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_prices_are_the_slopes_of_cost(seed: int) -> None:
    several, bounds, budget = random_case(seed)
    found = bounded_budget(2.0, several, bounds, budget)

    def slope(cost_at: Any, scale: float) -> float:
        return float(cost_at(-1e-6 * scale) - cost_at(1e-6 * scale)) / (2e-6 * scale)

    common = slope(lambda e: bounded_budget(2.0, several, bounds, budget + e).cost, budget)
    assert found.budget_price == pytest.approx(common, rel=1e-4, abs=1e-7 * found.cost)
    for i, bound in enumerate(bounds):
        if math.isfinite(bound):
            own = slope(
                lambda e, i=i: (
                    bounded_budget(
                        2.0, several, [b + e * (j == i) for j, b in enumerate(bounds)], budget
                    ).cost
                ),
                bound,
            )
            assert found.bound_prices[i] == pytest.approx(own, rel=1e-4, abs=1e-7 * found.cost)


@given(st.lists(stages, min_size=1, max_size=5), st.floats(0.05, 20.0), st.floats(0.05, 20.0))
def test_all_bounds_are_kept_and_something_binds(
    several: list[Stage], room: float, common: float
) -> None:
    bounds = [s.floor * (1 + room) for s in several]
    budget = sum(s.floor for s in several) * (1 + common)
    found = bounded_budget(3.0, several, bounds, budget)
    assert sum(found.delays) <= budget * (1 + 1e-9)
    assert all(t <= b * (1 + 1e-12) for t, b in zip(found.delays, bounds, strict=True))
    assert found.budget_price > 0 or found.delays == pytest.approx(bounds)
    for stage, t, n in zip(several, found.delays, found.counts, strict=True):
        assert n == pytest.approx(stage.replicas(3.0, t), rel=1e-6)


@given(st.lists(stages, min_size=1, max_size=5), st.floats(0.05, 20.0))
def test_without_own_bounds_it_is_the_shared_budget(several: list[Stage], room: float) -> None:
    budget = sum(s.floor for s in several) * (1 + room)
    found = bounded_budget(3.0, several, [math.inf] * len(several), budget)
    shared = shared_budget(3.0, several, budget)
    assert found.cost == pytest.approx(shared.cost, rel=1e-9)
    assert found.budget_price == pytest.approx(shared.price_of_latency, rel=1e-9)
    assert found.bound_prices == (0.0,) * len(several)


def test_without_a_budget_every_stage_is_at_its_bound() -> None:
    prefill, decode = Stage.mm1(4.0, 4.0), Stage.batch(2.0, 100, 0.02, 1e-3)
    found = bounded_budget(10.0, [prefill, decode], [0.5, 3.0])
    assert found.delays == pytest.approx((0.5, 3.0))
    assert found.counts[0] / found.counts[1] == pytest.approx(
        separate_ratio(prefill, decode, 0.5, 3.0)
    )
    assert found.budget_price == 0.0 and min(found.bound_prices) > 0.0


@pytest.mark.parametrize("dear", [0.1, 1.0, 10.0])
def test_price_moves_the_ratio_only_where_e2e_alone_binds(dear: float) -> None:
    prefill, decode = Stage.mm1(4.0, 4.0), Stage.batch(2.0, 100, 0.02, 1e-3)
    dearer = Stage(dear * 4.0, prefill.work, prefill.congestion, prefill.floor)
    plain = [bounded_budget(1.0, [prefill, decode], [t, math.inf], 3.0) for t in (0.27, 9.0)]
    other = [bounded_budget(1.0, [dearer, decode], [t, math.inf], 3.0) for t in (0.27, 9.0)]
    assert plain[0].bound_prices[0] > 0 and plain[1].bound_prices[0] == 0
    assert other[0].counts == pytest.approx(plain[0].counts)
    assert (other[1].counts == pytest.approx(plain[1].counts)) == (dear == 1.0)


def test_the_theorems_formulas() -> None:
    prefill, decode = Stage.mm1(4.0, 4.0), Stage.batch(2.0, 100, 0.02, 1e-3)
    rate, ttft, budget = 7.0, 0.27, 3.0
    found = bounded_budget(rate, [prefill, decode], [ttft, math.inf], budget)
    numbers = {
        "lambda": rate,
        "r_2": math.sqrt(decode.delay_cost),
        "sigma": budget - prefill.floor - decode.floor,
        "u": ttft - prefill.floor,
        "w_p": prefill.work,
        "w_d": decode.work,
        "g_p": prefill.congestion,
        "g_d": decode.congestion,
    }
    price, ratio = (
        float(f.value.subs({s: numbers[str(s)] for s in f.value.free_symbols}))
        for f in theorems()["three_bounds"].formulas
    )
    assert price == pytest.approx(found.budget_price, rel=1e-9)
    assert ratio == pytest.approx(found.counts[0] / found.counts[1], rel=1e-9)


def test_impossible_questions_name_the_bound() -> None:
    one = Stage.mm1(1.0, 4.0)
    with pytest.raises(InfeasibleError, match=r"bound of 0\.25 s .* idle replica"):
        bounded_budget(1.0, [one, one], [0.25, 1.0], 3.0)
    with pytest.raises(InfeasibleError, match=r"0\.5 s of an unloaded request"):
        bounded_budget(1.0, [one, one], [1.0, 1.0], 0.5)
    with pytest.raises(InfeasibleError):
        bounded_budget(1.0, [one], [math.nan], 1.0)
    with pytest.raises(InputError, match="2 stages need as many bounds, got 1"):
        bounded_budget(1.0, [one, one], [1.0], 3.0)
    with pytest.raises(InputError, match="a finite budget"):
        bounded_budget(1.0, [one, one], [1.0, math.inf])
    with pytest.raises(InputError, match="rate"):
        bounded_budget(np.nan, [one], [1.0])
