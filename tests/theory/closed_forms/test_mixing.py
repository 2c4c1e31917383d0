"""The bound on what mixing saves: tight, never exceeded, and what it says about real GPUs."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.closed_forms import (
    Merit,
    Stage,
    greatest_gain,
    merit_order,
    mixing_gain,
    population_delay,
    population_mix,
    price_only_gain,
    single_type_cost,
)
from pdalloc.errors import InfeasibleError, InputError, UnstableError

REPLICAS = [f"{gpu}-tp{n}" for gpu in ("a100", "h100") for n in (2, 4, 8)]


@given(st.floats(1.01, 8.0), st.floats(1.01, 6.0), st.floats(0.05, 50.0))
def test_no_bound_on_the_mean_makes_mixing_save_more(speed: float, dear: float, room: float):
    slow, fast = Stage.mm1(1.0, 1.0), Stage.mm1(dear * speed, speed)
    tau = fast.floor * (1.0 + room)
    ratio = single_type_cost(1.0, [slow, fast], tau) / population_mix(1.0, [slow, fast], tau).cost
    assert 1.0 - 1e-9 <= ratio <= mixing_gain(dear * speed, speed) * (1 + 1e-9)


@given(st.floats(1.01, 8.0), st.floats(1.01, 6.0), st.floats(0.1, 10.0))
def test_it_is_reached_where_the_two_types_tie(speed: float, dear: float, mu: float):
    """tau = (c2 - c1)/(c2 mu1 - c1 mu2)."""
    c2 = dear * speed
    slow, fast = Stage.mm1(1.0, mu), Stage.mm1(c2, mu * speed)
    tau = (c2 - 1.0) / (mu * (c2 - speed))
    mix = population_mix(1.0, [slow, fast], tau).cost
    assert single_type_cost(1.0, [slow, fast], tau) == pytest.approx((c2 - 1) / (mu * (speed - 1)))
    assert single_type_cost(1.0, [slow, fast], tau) / mix == pytest.approx(
        mixing_gain(c2, speed), rel=1e-6
    )


@pytest.mark.parametrize("seed", range(20))
def test_more_types_do_not_break_the_bound_of_the_worst_pair(seed: int) -> None:
    rng = Random(seed)
    types = [Stage.mm1(rng.uniform(1, 20), rng.uniform(0.3, 5)) for _ in range(5)]
    worst = max(
        mixing_gain(b.price / a.price, a.work / b.work)
        for a, b in itertools.permutations(types, 2)
        if a.work >= b.work
    )
    for tau in min(s.floor for s in types) * np.geomspace(1.02, 30.0, 40):
        mix = population_mix(1.0, types, float(tau))
        assert single_type_cost(1.0, types, float(tau)) <= worst * mix.cost * (1 + 1e-9)


@given(st.floats(1.0, 50.0), st.floats(1.0, 50.0))
def test_the_price_alone_bounds_it(price_ratio: float, speed: float) -> None:
    assert 1.0 <= mixing_gain(price_ratio, speed) <= price_only_gain(price_ratio) * (1 + 1e-12)


def test_known_values() -> None:
    assert price_only_gain(1.0) == 1.0
    assert mixing_gain(4.0, 4.0) == 1.0
    assert mixing_gain(4.0, 1.0) == 1.0  # the cheap type is alone best, as nobody is faster
    assert mixing_gain(2.0, 3.0) == 1.0  # the fast type is cheaper per request
    # Twice the GPUs of one kind: at most 3.04 % dearer alone, whatever they gain in speed.
    assert price_only_gain(2.0) == pytest.approx((math.sqrt(2) + 1) ** 2 / (4 * math.sqrt(2)))
    assert 1.030 < price_only_gain(2.0) < 1.031


@given(st.floats(1.01, 8.0), st.floats(1.01, 6.0), st.floats(1.0, 300.0), st.floats(0.05, 50.0))
def test_decode_with_one_a_over_b_has_the_same_bound(speed, dear, shape, room) -> None:
    """kappa = 1 + a/b scales all delays (theorem mixing_gain, last step but one)."""
    b = 1e-3
    slow = Stage.batch(1.0, 100.0, shape * b, b)
    fast = Stage.batch(dear * speed, 100.0, shape * b / speed, b / speed)
    tau = fast.floor * (1.0 + room)
    ratio = single_type_cost(1.0, [slow, fast], tau) / population_mix(1.0, [slow, fast], tau).cost
    assert 1.0 - 1e-9 <= ratio <= mixing_gain(dear * speed, speed) * (1 + 1e-9)


families = st.one_of(
    st.builds(Stage.mm1, st.floats(1, 20), st.floats(0.5, 5)),
    st.builds(Stage.mg1, st.floats(1, 20), st.floats(0.5, 5), st.floats(0, 5)),
    st.builds(
        Stage.batch, st.floats(1, 20), st.just(200.0), st.floats(0.002, 0.02), st.floats(1e-4, 2e-3)
    ),
)


@given(st.lists(families, min_size=1, max_size=4), st.floats(0.01, 50.0))
def test_the_greatest_gain_is_never_exceeded(types: list[Stage], room: float) -> None:
    """Any stages, any number of types, any bound."""
    tau = min(s.floor for s in types) * (1.0 + room)
    ratio = single_type_cost(1.0, types, tau) / population_mix(1.0, types, tau).cost
    assert ratio <= greatest_gain(types) * (1 + 1e-9)


@given(st.floats(1.01, 8.0), st.floats(1.01, 6.0))
def test_for_two_mm1_types_it_is_the_formula(speed: float, dear: float) -> None:
    types = [Stage.mm1(1.0, 2.0), Stage.mm1(dear * speed, 2.0 * speed)]
    assert greatest_gain(types) == pytest.approx(mixing_gain(dear * speed, speed), rel=1e-6)


def test_one_type_or_a_type_that_is_best_throughout_gains_nothing() -> None:
    assert greatest_gain([Stage.mm1(1.0, 1.0)]) == 1.0
    assert greatest_gain([Stage.mm1(1.0, 1.0), Stage.mm1(1.5, 2.0)]) == 1.0


@pytest.mark.parametrize(("price", "speed"), [(4.0, 2.0), (2.15, 1.73), (9.0, 2.0), (2.0, 1.2)])
def test_varied_service_gains_less_and_constant_service_more(price: float, speed: float) -> None:
    """Falling in the SCV: so the M/M/1 formula is safe from SCV 1 on, and only there."""
    gains = [
        greatest_gain([Stage.mg1(1.0, 1.0, scv), Stage.mg1(price, speed, scv)])
        for scv in (0.0, 0.5, 1.0, 2.0, 5.0, 50.0)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[2] == pytest.approx(mixing_gain(price, speed), rel=1e-9)


def test_measured_llama_hardly_gains_from_mixing(prefill_of, decode_of) -> None:
    """Six replica types, any bound on the mean: one type alone is within 3 % of every mix."""
    assert 1.01 < greatest_gain([prefill_of(name) for name in REPLICAS]) < 1.014
    assert 1.02 < greatest_gain([decode_of(name) for name in REPLICAS]) < 1.03


def whole(stage: Stage, rate: float, tau: float) -> int:
    return math.ceil(stage.replicas(rate, tau) - 1e-9)


def keeps(rate: float, stages: list[Stage], counts: list[int], tau: float) -> bool:
    try:
        return population_delay(rate, stages, counts) <= tau * (1 + 1e-12)
    except UnstableError:
        return False


def best_pair(rate: float, slow: Stage, fast: Stage, tau: float) -> tuple[float, int, int]:
    """The cheapest whole fleet of two types, by enumeration: (USD/h, slow, fast)."""
    found = (math.inf, 0, 0)
    for n_fast in range(whole(fast, rate, tau) + 1):
        for n_slow in range(400):
            cost = n_slow * slow.price + n_fast * fast.price
            if cost >= found[0]:
                break
            if n_slow + n_fast and keeps(rate, [slow, fast], [n_slow, n_fast], tau):
                found = (cost, n_slow, n_fast)
    return found


def test_mixing_changes_the_fleet_and_by_no_more_than_the_bound(prefill_of) -> None:
    """Prompts of 2048 tokens, 40 requests/s, the bound where A100x4 and H100x8 cost the same.

    One type alone costs over 3 % more than the mix in real counts, as the bound says, and a
    whole fleet of one type at most that and one replica more.
    """
    slow, fast, rate = prefill_of("a100-tp4"), prefill_of("h100-tp8"), 40.0
    gain = mixing_gain(fast.price / slow.price, slow.work / fast.work)
    tau = (fast.price - slow.price) / (fast.price / slow.work - slow.price / fast.work)
    alone = min(s.price * whole(s, rate, tau) for s in (slow, fast))
    cost, n_slow, n_fast = best_pair(rate, slow, fast, tau)
    mix = population_mix(rate, [slow, fast], tau)
    assert 1.03 < gain < 1.04
    assert single_type_cost(rate, [slow, fast], tau) == pytest.approx(gain * mix.cost, rel=1e-9)
    assert n_slow > 0 and n_fast > 0
    assert mix.cost <= cost < alone < gain * mix.cost + fast.price
    assert cost < 0.985 * alone


def test_small_gains_are_settled_without_a_search(prefill_of) -> None:
    """A100x8 and H100x8: alone is within 1 % and a replica of any mix, and it is."""
    slow, fast, rate, tau = prefill_of("a100-tp8"), prefill_of("h100-tp8"), 15.0, 1.0
    gain = mixing_gain(fast.price / slow.price, slow.work / fast.work)
    alone = min(s.price * whole(s, rate, tau) for s in (slow, fast))
    assert gain < 1.01
    cost, _, _ = best_pair(rate, slow, fast, tau)
    assert cost <= alone <= gain * cost + fast.price


@pytest.mark.parametrize("tau", [0.7, 1.0, 3.0])
def test_asking_every_pool_is_asking_one_type(tau: float) -> None:
    """Each pool within the bound: a replica admits mu - 1/tau, and merit order takes one type."""
    rates, prices = (2.0, 3.0, 5.0), (1.0, 1.9, 4.5)
    admitted = [Merit(c, mu - 1 / tau) for c, mu in zip(prices, rates, strict=True)]
    types = [Stage.mm1(c, mu) for c, mu in zip(prices, rates, strict=True)]
    assert merit_order(9.0, admitted).cost == pytest.approx(single_type_cost(9.0, types, tau))


def test_bad_questions() -> None:
    with pytest.raises(InputError, match="speed_ratio must be at least 1"):
        mixing_gain(2.0, 0.9)
    with pytest.raises(InputError, match="price_ratio must be at least 1"):
        price_only_gain(0.9)
    with pytest.raises(InputError, match="price_ratio"):
        mixing_gain(math.nan, 2.0)
    with pytest.raises(InfeasibleError, match="fastest type"):
        single_type_cost(1.0, [Stage.mm1(1.0, 4.0)], 0.2)
