"""The best split over whole replicas, and the dual cuts that certify it."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from pdalloc.closed_forms import (
    Stage,
    best_split,
    dual_horizon,
    population_delay,
    replica_dual,
    replica_rate,
)
from pdalloc.errors import InfeasibleError, InputError, UnstableError

positive = st.floats(0.2, 20.0)
stages = st.one_of(
    st.builds(Stage.mm1, positive, positive),
    st.builds(Stage.mg1, positive, positive, st.floats(0.0, 4.0)),
    st.builds(
        Stage.batch, positive, st.floats(20, 900), st.floats(0.001, 0.05), st.floats(1e-5, 2e-3)
    ),
)
fleets = st.lists(st.tuples(stages, st.integers(0, 20)), min_size=1, max_size=4)


@given(stages, st.floats(0.01, 30.0), st.floats(0.001, 0.999))
def test_the_dual_is_the_greatest_reward(stage: Stage, factor: float, share: float) -> None:
    """D*(nu) >= nu x - x T(x) for any x, with equality at replica_rate."""
    nu = factor * stage.floor
    x = replica_rate(stage, nu)
    value = replica_dual(stage, nu)
    if x > 1e-9 / stage.work:
        assert nu * x - x * stage.delay(x, 1) == pytest.approx(value, rel=1e-5)
    other = share / stage.work
    assert nu * other - other * stage.delay(other, 1) <= value * (1 + 1e-9) + 1e-12


@given(st.floats(0.1, 10.0), st.floats(0.01, 30.0))
def test_the_references_mm1_form(mu: float, nu: float) -> None:
    expected = max(np.sqrt(mu * nu) - 1.0, 0.0) ** 2
    assert replica_dual(Stage.mm1(1.0, mu), nu) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(fleets, st.floats(0.01, 0.99))
def test_the_split_carries_the_rate_with_equal_marginals(fleet, load: float) -> None:
    several, counts = [s for s, _ in fleet], [n for _, n in fleet]
    most = sum(n / s.work for s, n in fleet)
    if most == 0.0:
        return
    split = best_split(load * most, several, counts)
    assert sum(split) == pytest.approx(load * most, rel=1e-9)
    assert all(x == 0.0 for x, n in zip(split, counts, strict=True) if n == 0)
    slopes = []
    for stage, x, n in zip(several, split, counts, strict=True):
        if n and x * stage.work > 1e-6 * n:
            h = 1e-5 * min(x, n / stage.work - x)
            up, down = ((x + e) * stage.delay(x + e, n) for e in (h, -h))
            slopes.append((up - down) / (2 * h))
    assert slopes == pytest.approx([slopes[0]] * len(slopes), rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_no_split_found_by_descent_is_better(seed: int) -> None:
    rng = Random(seed)
    several = [Stage.mm1(1.0, rng.uniform(0.5, 4)) for _ in range(3)]
    counts = [rng.randint(1, 6) for _ in several]
    most = np.array([n / s.work for s, n in zip(several, counts, strict=True)])
    rate = rng.uniform(0.3, 0.9) * most.sum()

    def mean(x: Any) -> Any:
        parts = zip(several, x, counts, strict=True)
        return sum(v * s.delay(v, n) for s, v, n in parts if v > 0) / rate

    search: Any = minimize
    found = search(
        mean,
        most * rate / most.sum(),
        bounds=[(0, 0.9999 * m) for m in most],
        constraints={"type": "eq", "fun": lambda x: x.sum() - rate},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert population_delay(rate, several, counts) == pytest.approx(found.fun, rel=1e-6)


def cuts_hold(rate: float, several: list[Stage], counts: list[int], tau: float) -> bool:
    """Every cut up to the horizon, on a fine grid of nu."""
    for nu in np.linspace(0.0, dual_horizon(several, tau), 4_001)[1:]:
        reward = sum(n * replica_dual(s, float(nu)) for s, n in zip(several, counts, strict=True))
        if reward < rate * (nu - tau) * (1 - 1e-12):
            return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_cuts_up_to_the_horizon_tell_who_keeps_the_bound(seed: int) -> None:
    """Every whole fleet of three types, stable or not, M/M/1, M/G/1 and decode."""
    rng = Random(seed)
    several = [
        Stage.mm1(1.0, rng.uniform(0.8, 3)),
        Stage.mg1(1.0, rng.uniform(0.8, 3), rng.uniform(0, 3)),
        Stage.batch(1.0, 50.0, 0.02, rng.uniform(2e-3, 8e-3)),
    ]
    rate, tau = 5.0, min(s.floor for s in several) * rng.uniform(1.3, 2.5)
    told = 0
    for counts in itertools.product((0, 3, 12), repeat=3):
        try:
            delay = population_delay(rate, several, list(counts))
        except UnstableError:
            delay = np.inf
        if abs(delay / tau - 1) > 1e-3:
            assert cuts_hold(rate, several, list(counts), tau) == (delay < tau)
            told += delay < tau
    assert told > 0


def test_the_horizon_for_mm1_is_mu_tau_squared() -> None:
    types = [Stage.mm1(1.0, 3.0), Stage.mm1(9.0, 5.0)]
    assert dual_horizon(types, 0.7) == pytest.approx(5.0 * 0.7**2)
    with pytest.raises(InfeasibleError, match="even idle"):
        dual_horizon(types, 0.2)


def test_one_type_splits_evenly() -> None:
    stage = Stage.mg1(1.0, 4.0, 0.5)
    assert population_delay(6.0, [stage], [2]) == pytest.approx(stage.delay(6.0, 2), rel=1e-9)


def test_a_slow_type_is_left_idle_in_light_traffic() -> None:
    fast, slow = Stage.mm1(1.0, 10.0), Stage.mm1(1.0, 1.0)
    assert best_split(0.5, [fast, slow], [1, 5])[1] == 0.0
    assert best_split(9.9, [fast, slow], [1, 5])[1] > 0.0


def test_bad_questions() -> None:
    one = Stage.mm1(1.0, 4.0)
    with pytest.raises(UnstableError, match="at most 8 of 8 requests/s"):
        best_split(8.0, [one], [2])
    with pytest.raises(InputError, match="rate"):
        population_delay(-1.0, [one], [2])
    with pytest.raises(InputError, match="nu"):
        replica_dual(one, -1.0)
