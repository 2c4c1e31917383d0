"""P:D ratios: golden against search, the two limits, monotone between, and what it costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.closed_forms import (
    Stage,
    golden_ratio,
    loose_ratio,
    separate_ratio,
    shared_budget,
    shared_ratio,
    tight_ratio,
)
from pdalloc.errors import InfeasibleError, InputError

positive = st.floats(0.05, 20.0)
prefills = st.builds(Stage.mg1, positive, positive, st.floats(0.0, 4.0))
decodes = st.builds(
    Stage.batch, positive, st.floats(20, 900), st.floats(0.001, 0.05), st.floats(1e-5, 2e-3)
)


@given(positive, positive, positive, positive)
def test_golden_ratio_is_cheapest_in_its_own_model(a: float, b: float, cp: float, cd: float):
    """Cost x delay of any ratio r: (r cp + cd)(a/r + b), by search over a grid of r."""
    r = np.geomspace(1e-3, 1e3, 4001) * golden_ratio(a, b, cp, cd)
    values = (r * cp + cd) * (a / r + b)
    assert values.argmin() == 2000


def test_speeds_stay_in_the_golden_ratio() -> None:
    """The printed form drops f_d/f_p: at speeds 3 and 1 it is off by sqrt(3)."""
    flops, bytes_moved = 6.0, 2.0
    right = golden_ratio(flops / 3.0, bytes_moved / 1.0, 1.0, 1.0)
    assert golden_ratio(flops, bytes_moved, 1.0, 1.0) == pytest.approx(math.sqrt(3.0) * right)


@given(prefills, decodes)
def test_the_shared_ratio_runs_from_golden_to_load_matching(prefill: Stage, decode: Stage):
    floor = prefill.floor + decode.floor
    # How far the limits are depends on sum sqrt(beta)/sqrt(c), seconds.
    total = math.sqrt(prefill.delay_cost) + math.sqrt(decode.delay_cost)
    scale = max(math.sqrt(s.congestion / s.price) / s.work * total for s in (prefill, decode))
    least = min(math.sqrt(s.congestion / s.price) / s.work * total for s in (prefill, decode))
    assert shared_ratio(prefill, decode, floor + 1e9 * scale) == pytest.approx(
        loose_ratio(prefill, decode), rel=1e-6
    )
    if 1e-7 * least > 1e-9 * floor:
        assert shared_ratio(prefill, decode, floor + 1e-7 * least) == pytest.approx(
            tight_ratio(prefill, decode), rel=1e-4
        )
    budgets = floor + np.geomspace(1e-3 * least, 1e3 * scale, 40)
    ratios = [shared_ratio(prefill, decode, float(b)) for b in budgets]
    way = np.sign(loose_ratio(prefill, decode) - tight_ratio(prefill, decode))
    assert (np.diff(ratios) * way >= -1e-9 * np.abs(ratios[:-1])).all()


@given(prefills, decodes, st.floats(0.1, 10.0))
def test_which_way_is_told_by_kappa_over_price(prefill: Stage, decode: Stage, room: float):
    """R rises with the budget iff kappa_d/c_d > kappa_p/c_p (theorem pd_ratio)."""
    kappa = [s.congestion / s.work**2 / s.price for s in (prefill, decode)]
    floor = prefill.floor + decode.floor
    tight, loose = (shared_ratio(prefill, decode, floor * (1 + x)) for x in (room, 1.5 * room))
    if not math.isclose(*kappa, rel_tol=1e-6):
        assert (loose >= tight * (1 - 1e-12)) == (kappa[1] > kappa[0]) or math.isclose(
            loose, tight, rel_tol=1e-9
        )


@given(prefills, decodes, st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_separate_bounds_make_price_drop_out(prefill: Stage, decode: Stage, dear: float, x: float):
    ttft, rest = prefill.floor * (1 + x), decode.floor * (1 + x)
    dearer = Stage(dear * prefill.price, prefill.work, prefill.congestion, prefill.floor)
    assert separate_ratio(dearer, decode, ttft, rest) == separate_ratio(prefill, decode, ttft, rest)


def test_the_references_example() -> None:
    """True ratio .130 -> .249 as tau/floor goes 1.05 -> 100 while the golden one stays .125."""
    prefill, decode = Stage.mm1(4.0, 4.0), Stage.mm1(1.0, 1.0)
    assert tight_ratio(prefill, decode) == 0.125
    assert round(shared_ratio(prefill, decode, 1.05 * 1.25), 3) == 0.130
    assert round(shared_ratio(prefill, decode, 100 * 1.25), 3) == 0.249


def test_golden_counts_never_keep_the_bound() -> None:
    """A/P + B/D = tau asks for less than lambda w + ... and, from some tau on, for no queue."""
    prefill, decode, rate = Stage.mm1(4.0, 4.0), Stage.batch(2.0, 100, 0.02, 1e-3), 10.0
    total = math.sqrt(prefill.delay_cost) + math.sqrt(decode.delay_cost)
    floor = prefill.floor + decode.floor
    for tau in (1.1 * floor, 2.0 * floor, 10.0 * floor):
        counts = shared_budget(rate, [prefill, decode], tau).counts
        for stage, n in zip((prefill, decode), counts, strict=True):
            golden = rate * stage.congestion * total / math.sqrt(stage.delay_cost) / tau
            assert golden < n - rate * stage.work
    unstable = math.sqrt(prefill.congestion / prefill.price) * total / prefill.work
    golden = rate * prefill.congestion * total / math.sqrt(prefill.delay_cost) / unstable
    assert golden == pytest.approx(rate * prefill.work)


RATE = 20.0


@pytest.fixture
def prefill(prefill_of: Callable[[str], Stage]) -> Stage:
    return prefill_of("h100-tp8")


@pytest.fixture
def decode(decode_of: Callable[[str], Stage]) -> Stage:
    return decode_of("a100-tp8")


def first_fleet(prefill: Stage, decode: Stage, ratio: float, tau: float) -> tuple[int, int]:
    """The smallest D, with P = ceil(ratio D), that keeps the mean E2E."""
    for d in itertools.count(math.floor(RATE * decode.work) + 1):
        p = math.ceil(ratio * d)
        if p > RATE * prefill.work and prefill.delay(RATE, p) + decode.delay(RATE, d) <= tau:
            return p, d
    raise AssertionError


def test_the_ratio_changes_the_fleet(prefill: Stage, decode: Stage) -> None:
    """2048 + 256 tokens, 20 requests/s, a mean E2E of twice the floor, whole fleets.

    The golden ratio costs 2.4 times the best, load matching 1.3 times, the closed form's ratio
    the best to within a replica.
    """
    tau = 2.0 * (prefill.floor + decode.floor)

    def cost(fleet: tuple[int, int]) -> float:
        return fleet[0] * prefill.price + fleet[1] * decode.price

    whole = [
        (p, d)
        for p, d in itertools.product(range(3, 40), range(7, 60))
        if prefill.delay(RATE, p) + decode.delay(RATE, d) <= tau
    ]
    best = min(whole, key=cost)
    fleets = {
        rule: first_fleet(prefill, decode, ratio, tau)
        for rule, ratio in {
            "golden": tight_ratio(prefill, decode),
            "load": loose_ratio(prefill, decode),
            "closed": shared_ratio(prefill, decode, tau),
        }.items()
    }
    assert best == (3, 12)
    assert fleets["golden"][1] > 3 * best[1] and cost(fleets["golden"]) > 2.4 * cost(best)
    assert fleets["load"][0] == 2 * best[0] and cost(fleets["load"]) > 1.29 * cost(best)
    assert cost(fleets["closed"]) <= cost(best) + prefill.price
    relaxed = shared_budget(RATE, [prefill, decode], tau)
    assert relaxed.cost <= cost(best) < relaxed.cost + prefill.price + decode.price


def test_a_decode_replica_queues_as_if_its_service_varied_wildly(
    prefill: Stage, decode: Stage
) -> None:
    """kappa = 1 + a/b: on A100 over forty, as an SCV of over eighty would have."""
    assert prefill.congestion / prefill.work**2 == pytest.approx(1.0)
    assert decode.congestion / decode.work**2 > 40.0
    assert tight_ratio(prefill, decode) < 0.12 * loose_ratio(prefill, decode)


def test_impossible_bounds_and_numbers() -> None:
    prefill, decode = Stage.mm1(4.0, 4.0), Stage.mm1(1.0, 1.0)
    with pytest.raises(InfeasibleError, match="idle"):
        separate_ratio(prefill, decode, 0.2, 3.0)
    with pytest.raises(InfeasibleError, match="unloaded"):
        shared_ratio(prefill, decode, 1.25)
    with pytest.raises(InputError, match="decode_price"):
        golden_ratio(1.0, 1.0, 1.0, 0.0)
