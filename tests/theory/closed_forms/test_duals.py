"""Closed form against the cone program: cost and dual of Clarabel's relaxation.

A stage at rate x on n replicas spends x floor + congestion x^2/(n - work x) seconds per second
on delay, jointly convex in x and the spare replicas n - work x: quad_over_lin. Per request/s
of demand, as demand cancels; spare replicas in units of congestion/tau, delays of tau.
"""

from __future__ import annotations

from random import Random
from typing import Any

import cvxpy
import numpy as np
import pytest

from pdalloc.closed_forms import Stage, population_mix, shared_budget

cp: Any = cvxpy  # typed in part only

# An interior point's dual is good to about the square root of its gap, hence so small a one. The
# solver then often stops a little short and says so ("inaccurate"): see `agree`.
TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


def random_stage(rng: Random) -> Stage:
    price = rng.uniform(1.0, 5.0)
    kind = rng.randrange(3)
    if kind == 0:
        return Stage.mm1(price, rng.uniform(0.5, 3.0))
    if kind == 1:
        return Stage.mg1(price, rng.uniform(0.5, 3.0), rng.uniform(0.0, 4.0))
    steps, b = rng.uniform(100, 600), rng.uniform(2e-4, 1e-3)
    return Stage.batch(price, steps, b * rng.uniform(2.0, 10.0), b)


class Relaxation:
    """Real replicas of ``stages`` at rates ``x`` (numbers or variables) under a mean ``tau``."""

    def __init__(self, stages: list[Stage], tau: float, x: Any, others: list[Any]) -> None:
        self.spare = cp.Variable(len(stages))
        delay = cost = 0.0
        for i, stage in enumerate(stages):
            delay += stage.floor / tau * x[i] + cp.quad_over_lin(x[i], self.spare[i])
            spare = stage.congestion / tau * self.spare[i]
            cost += stage.price * (stage.work * x[i] + spare)
        budget: Any = delay <= 1.0
        problem = cp.Problem(cp.Minimize(cost), [budget, *others])
        problem.solve(solver=cp.CLARABEL, **TIGHT)
        self.status = problem.status
        self.cost = float(problem.value)
        self.price = float(np.sum(budget.dual_value)) / tau


def agree(relaxed: Relaxation, price: float, tau: float, cost: float) -> None:
    """Cost to 1e-9; the price of the whole budget to 1e-6 of the cost where the gap was reached."""
    assert cost == pytest.approx(relaxed.cost, rel=1e-9)
    close = 1e-6 if relaxed.status == cp.OPTIMAL else 1e-4
    assert price * tau == pytest.approx(relaxed.price * tau, rel=1e-6, abs=close * cost)


def test_shared_budget_is_the_relaxations_optimum_and_dual() -> None:
    reached = 0
    for seed in range(50):
        rng = Random(f"budget {seed}")
        stages = [random_stage(rng) for _ in range(rng.randint(1, 5))]
        tau = sum(s.floor for s in stages) * rng.uniform(1.2, 4.0)
        found = shared_budget(1.0, stages, tau)
        relaxed = Relaxation(stages, tau, np.ones(len(stages)), [])
        agree(relaxed, found.price_of_latency, tau, found.cost)
        reached += relaxed.status == cp.OPTIMAL
    assert reached >= 3


def test_the_best_mix_is_the_relaxations_optimum_and_dual() -> None:
    reached = 0
    for seed in range(50):
        rng = Random(f"mix {seed}")
        stages = [random_stage(rng) for _ in range(rng.randint(1, 5))]
        tau = min(s.floor for s in stages) * rng.uniform(1.2, 4.0)
        found = population_mix(1.0, stages, tau)
        x = cp.Variable(len(stages), nonneg=True)
        relaxed = Relaxation(stages, tau, x, [cp.sum(x) == 1.0])
        agree(relaxed, found.price_of_latency, tau, found.cost)
        assert sum(share > 0 for share in found.shares) <= 2
        reached += relaxed.status == cp.OPTIMAL
    assert reached >= 3


@pytest.mark.parametrize("rate", [0.3, 7.0, 900.0])
def test_cost_and_price_are_linear_in_demand(rate: float) -> None:
    """What lets the program above be solved per request/s."""
    stages = [Stage.mm1(2.0, 1.0), Stage.mg1(5.0, 3.0, 0.2)]
    for solve, tau in ((shared_budget, 3.0), (population_mix, 0.9)):
        one, many = solve(1.0, stages, tau), solve(rate, stages, tau)
        assert many.cost == pytest.approx(rate * one.cost, rel=1e-12)
        assert many.price_of_latency == pytest.approx(rate * one.price_of_latency, rel=1e-12)
