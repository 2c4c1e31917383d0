"""Several types under one mean: brute force, the switch, and at most two types."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from pdalloc.closed_forms import Stage, index, mm1_count, population_mix, switch_price
from pdalloc.errors import InfeasibleError, InputError

positive = st.floats(0.2, 20.0)
stages = st.one_of(
    st.builds(Stage.mm1, positive, positive),
    st.builds(Stage.mg1, positive, positive, st.floats(0.0, 4.0)),
    st.builds(
        Stage.batch, positive, st.floats(20, 900), st.floats(0.001, 0.05), st.floats(1e-5, 2e-3)
    ),
)


@given(st.lists(stages, min_size=1, max_size=5), st.floats(0.05, 20.0))
def test_the_mix_keeps_the_bound_and_its_cost_adds_up(several: list[Stage], room: float) -> None:
    bound = min(s.floor for s in several) * (1.0 + room)
    mix = population_mix(4.0, several, bound)
    used = [i for i, share in enumerate(mix.shares) if share > 0]
    assert 1 <= len(used) <= 2
    assert sum(mix.shares) == pytest.approx(1.0)
    assert sum(mix.shares[i] * mix.delays[i] for i in used) == pytest.approx(bound, rel=1e-6)
    cost = sum(s.price * n for s, n in zip(several, mix.counts, strict=True))
    assert cost == pytest.approx(mix.cost, rel=1e-6)


@given(st.lists(stages, min_size=1, max_size=4), st.floats(0.05, 20.0))
def test_no_type_alone_is_cheaper(several: list[Stage], room: float) -> None:
    bound = min(s.floor for s in several) * (1.0 + room)
    mix = population_mix(1.0, several, bound)
    for stage in several:
        if bound > stage.floor * (1 + 1e-9):
            assert stage.price * stage.replicas(1.0, bound) >= mix.cost * (1 - 1e-9)


@given(stages, positive, positive)
def test_the_index_is_the_least_of_cost_plus_priced_delay(
    stage: Stage, nu: float, away: float
) -> None:
    """phi(nu) = min over T of k(T) + nu T, reached at floor + sqrt(beta/nu)."""
    best = stage.floor + math.sqrt(stage.delay_cost / nu)
    other = stage.floor + away * math.sqrt(stage.delay_cost / nu)
    value = index(stage, nu)
    assert stage.price * stage.replicas(1.0, best) + nu * best == pytest.approx(value, rel=1e-9)
    assert stage.price * stage.replicas(1.0, other) + nu * other >= value * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_against_a_linear_program_over_delays(seed: int) -> None:
    """Shares of traffic at gridded delays: an upper bound, and within the grid's width."""
    rng = Random(seed)
    several = [Stage.mm1(rng.uniform(1, 9), rng.uniform(0.5, 5)) for _ in range(4)]
    bound = min(s.floor for s in several) * rng.uniform(1.2, 5.0)
    grid = [(s, s.floor + y) for s in several for y in np.geomspace(1e-2, 30.0, 4000)]
    solve: Any = linprog
    lp = solve(
        [s.price * s.replicas(1.0, t) for s, t in grid],
        A_ub=[[t for _, t in grid]],
        b_ub=[bound],
        A_eq=[[1.0] * len(grid)],
        b_eq=[1.0],
    )
    mix = population_mix(1.0, several, bound)
    assert mix.cost <= lp.fun * (1 + 1e-9)
    assert lp.fun <= mix.cost * (1 + 1e-5)


def two_types(rng: Random) -> tuple[Stage, Stage, float, float, float, float]:
    """A slow type cheap per request and a fast one that is not."""
    mu1, c1 = rng.uniform(0.5, 3.0), rng.uniform(1.0, 5.0)
    mu2 = mu1 * rng.uniform(1.2, 4.0)
    c2 = c1 * mu2 / mu1 * rng.uniform(1.1, 3.0)
    return Stage.mm1(c1, mu1), Stage.mm1(c2, mu2), c1, mu1, c2, mu2


@pytest.mark.parametrize("seed", range(20))
def test_slow_alone_mix_or_fast_alone(seed: int) -> None:
    """The regimes of theorem two_types, at its own T_1* and T_2*."""
    slow, fast, c1, mu1, c2, mu2 = two_types(Random(seed))
    nu = switch_price(c1, mu1, c2, mu2)
    top, bottom = ((1 + math.sqrt(c / nu)) / mu for c, mu in ((c1, mu1), (c2, mu2)))
    assert bottom < top
    assert population_mix(1.0, [slow, fast], 1.01 * top).shares == (1.0, 0.0)
    if 0.99 * bottom > fast.floor:
        assert population_mix(1.0, [slow, fast], 0.99 * bottom).shares == (0.0, 1.0)
    for where in (0.1, 0.5, 0.9):
        tau = bottom + where * (top - bottom)
        mix = population_mix(1.0, [slow, fast], tau)
        assert mix.shares[0] == pytest.approx(where, rel=1e-6)
        assert mix.price_of_latency == pytest.approx(nu, rel=1e-9)
        assert mix.delays == pytest.approx((top, bottom), rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_a_fast_type_that_is_cheaper_per_request_is_used_alone(seed: int) -> None:
    rng = Random(seed)
    slow = Stage.mm1(rng.uniform(1, 5), 1.0)
    fast = Stage.mm1(slow.price * 2.0 * rng.uniform(0.3, 1.0), 2.0)
    assert switch_price(slow.price, 1.0, fast.price, 2.0) == 0.0
    for tau in (0.6, 1.5, 40.0):
        assert population_mix(1.0, [slow, fast], tau).shares == (0.0, 1.0)


def test_one_type_is_the_single_count() -> None:
    mix = population_mix(12.0, [Stage.mm1(3.0, 4.6)], 1.9)
    assert mix.counts[0] == pytest.approx(mm1_count(12.0, 4.6, 1.9))
    assert mix.delays == (1.9,)


def test_equal_types_are_no_mix() -> None:
    same = Stage.mm1(3.0, 4.0)
    mix = population_mix(5.0, [same, same, same], 0.7)
    assert sorted(mix.shares) == [0.0, 0.0, 1.0]
    assert mix.cost == pytest.approx(3.0 * same.replicas(5.0, 0.7))


def test_bad_questions() -> None:
    one = Stage.mm1(1.0, 4.0)
    with pytest.raises(InfeasibleError, match=r"0\.25 s of the fastest type, idle"):
        population_mix(1.0, [one, Stage.mm1(1.0, 2.0)], 0.25)
    with pytest.raises(InputError, match="at least one type"):
        population_mix(1.0, [], 1.0)
    with pytest.raises(InputError, match="rate"):
        population_mix(math.nan, [one], 1.0)
    with pytest.raises(InputError, match="latency_price"):
        index(one, -1.0)
    with pytest.raises(InputError, match="faster"):
        switch_price(1.0, 2.0, 1.0, 2.0)
