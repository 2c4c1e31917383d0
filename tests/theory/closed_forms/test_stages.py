"""The delay family, the shared budget and its price, against laws, formulas and search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.closed_forms import Stage, decode_count, mm1_count, shared_budget
from pdalloc.errors import InfeasibleError, InputError, UnstableError
from pdalloc.laws import Atoms, Exponentials
from pdalloc.queueing.batch import BatchLaw
from pdalloc.queueing.single_server import SingleServerWait

prices = st.floats(0.5, 50.0)
rates = st.floats(0.05, 50.0)
stages = st.one_of(
    st.builds(Stage.mm1, prices, rates),
    st.builds(Stage.mg1, prices, rates, st.floats(0.0, 5.0)),
    st.builds(Stage.batch, prices, st.floats(10, 900), st.floats(0, 0.05), st.floats(1e-5, 2e-3)),
)


def test_mm1_is_the_papers_count() -> None:
    assert Stage.mm1(1.0, 4.6).replicas(12.5, 1.9) == pytest.approx(mm1_count(12.5, 4.6, 1.9))


def test_decode_is_the_count_under_mean_tpot() -> None:
    stage = Stage.batch(1.0, 400.0, 0.011, 4e-4)
    assert stage.replicas(10.0, 400 * 0.02) == pytest.approx(
        decode_count(10.0, 400.0, 0.011, 4e-4, 0.02), rel=1e-12
    )


def test_the_batch_laws_own_mean() -> None:
    law = BatchLaw(2.0, 300.0, lambda k: 0.02 + 5e-4 * k)
    delay = Stage.batch(1.0, 300.0, 0.02, 5e-4).delay(2.0, 1)
    assert delay == pytest.approx(300.0 * law.mean_step, rel=1e-9)


def test_mg1_is_pollaczek_khinchine() -> None:
    """Constant and hyperexponential service against the exact M/G/1 law."""
    constant = Atoms(np.array([0.25]), np.ones(1))
    wait = SingleServerWait(3.0, constant).mean
    assert Stage.mg1(1.0, 4.0, 0.0).delay(3.0, 1) == pytest.approx(wait + 0.25, rel=1e-12)
    service = Exponentials(np.array([0.1, 0.6]), np.array([0.7, 0.3]), np.zeros(2))
    mean, second = 0.7 * 0.1 + 0.3 * 0.6, 2 * (0.7 * 0.1**2 + 0.3 * 0.6**2)
    wait = SingleServerWait(3.0, service).mean
    stage = Stage.mg1(1.0, 1 / mean, second / mean**2 - 1)
    assert stage.delay(3.0, 1) == pytest.approx(wait + mean, rel=1e-12)


@given(stages, st.floats(0.1, 100.0), st.floats(1e-3, 100.0))
def test_delay_and_replicas_are_inverse(stage: Stage, rate: float, room: float) -> None:
    delay = stage.floor * (1.0 + room)
    n = stage.replicas(rate, delay)
    assert n > rate * stage.work
    assert stage.delay(rate, n) == pytest.approx(delay, rel=1e-6)


@given(st.lists(stages, min_size=1, max_size=5), st.floats(0.1, 100.0), st.floats(0.02, 50.0))
def test_shared_budget_spends_the_budget_and_adds_up(
    several: list[Stage], rate: float, room: float
) -> None:
    budget = sum(s.floor for s in several) * (1.0 + room)
    found = shared_budget(rate, several, budget)
    assert sum(found.delays) == pytest.approx(budget, rel=1e-9)
    for stage, delay, count in zip(several, found.delays, found.counts, strict=True):
        assert count == pytest.approx(stage.replicas(rate, delay), rel=1e-6)
    cost = sum(s.price * n for s, n in zip(several, found.counts, strict=True))
    assert cost == pytest.approx(found.cost, rel=1e-9)


@given(st.lists(stages, min_size=2, max_size=4), st.floats(0.05, 20.0), st.floats(-0.9, 0.9))
def test_no_other_split_of_the_budget_is_cheaper(
    several: list[Stage], room: float, moved: float
) -> None:
    budget = sum(s.floor for s in several) * (1.0 + room)
    found = shared_budget(1.0, several, budget)
    first = found.delays[0] - several[0].floor
    second = found.delays[1] - several[1].floor
    step = moved * (first if moved < 0 else second)
    delays = [found.delays[0] + step, found.delays[1] - step, *found.delays[2:]]
    cost = sum(s.price * s.replicas(1.0, t) for s, t in zip(several, delays, strict=True))
    assert cost >= found.cost * (1.0 - 1e-9)


@given(st.lists(stages, min_size=1, max_size=4), st.floats(0.05, 20.0))
def test_price_of_latency_is_the_slope_of_cost(several: list[Stage], room: float) -> None:
    floor = sum(s.floor for s in several)
    budget, step = floor * (1.0 + room), 1e-4 * floor * room
    low, high = (shared_budget(7.0, several, budget + x).cost for x in (-step, step))
    found = shared_budget(7.0, several, budget).price_of_latency
    assert (low - high) / (2 * step) == pytest.approx(found, rel=1e-4, abs=1e-9 * low / step)


@given(st.lists(stages, min_size=2, max_size=4), st.floats(0.05, 20.0))
def test_a_second_costs_the_same_at_every_stage(several: list[Stage], room: float) -> None:
    """c_i dn_i/dT_i = -lambda beta_i/y_i^2 (theorem price_of_latency)."""
    budget = sum(s.floor for s in several) * (1.0 + room)
    found = shared_budget(3.0, several, budget)
    total = sum(math.sqrt(s.delay_cost) for s in several)
    slack = budget - sum(s.floor for s in several)
    for stage in several:
        y = slack * math.sqrt(stage.delay_cost) / total
        assert 3.0 * stage.delay_cost / y**2 == pytest.approx(found.price_of_latency, rel=1e-9)


def test_whole_fleets_are_never_cheaper_than_the_real_one() -> None:
    """Enumeration of 3 stages; the best whole fleet is within the rounding bound."""
    several = [Stage.mm1(4.0, 3.0), Stage.batch(9.0, 50, 0.01, 2e-3), Stage.mg1(2.0, 8.0, 0.3)]
    rate, budget = 20.0, 2.0
    found = shared_budget(rate, several, budget)
    best = math.inf
    for counts in itertools.product(*(range(1, 30) for _ in several)):
        cost = sum(s.price * n for s, n in zip(several, counts, strict=True))
        if cost >= best or any(n <= rate * s.work for s, n in zip(several, counts, strict=True)):
            continue
        if sum(s.delay(rate, n) for s, n in zip(several, counts, strict=True)) <= budget:
            best = cost
    rounded = sum(s.price * math.ceil(n) for s, n in zip(several, found.counts, strict=True))
    assert found.cost <= best <= rounded < found.cost + sum(s.price for s in several)


def test_a_floor_is_named_and_no_count_helps() -> None:
    with pytest.raises(InfeasibleError, match=r"0\.25 s of an idle replica"):
        Stage.mm1(1.0, 4.0).replicas(1.0, 0.25)
    with pytest.raises(InfeasibleError, match=r"2 stages.*0\.5 s of an unloaded request"):
        shared_budget(1.0, [Stage.mm1(1.0, 4.0)] * 2, 0.5)


def test_too_few_replicas_say_how_many_it_takes() -> None:
    with pytest.raises(UnstableError, match="more than 3"):
        Stage.mm1(1.0, 4.0).delay(12.0, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Stage.mm1(0.0, 1.0), "price"),
        (lambda: Stage.mm1(1.0, math.nan), "service_rate"),
        (lambda: Stage.mg1(1.0, 1.0, -0.1), "scv"),
        (lambda: Stage.batch(1.0, 10, 0.01, 0.0), "per_request"),
        (lambda: Stage.batch(1.0, 10, -0.01, 0.1), "base"),
        (lambda: Stage(1.0, 1.0, 1.0, -1.0), "floor"),
        (lambda: Stage.mm1(1.0, 1.0).replicas(math.inf, 2.0), "rate"),
        (lambda: Stage.mm1(1.0, 1.0).delay(0.5, 0), "count"),
        (lambda: shared_budget(1.0, [], 1.0), "at least one stage"),
        (lambda: shared_budget(-1.0, [Stage.mm1(1.0, 1.0)], 3.0), "rate"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(make, words) -> None:
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)
