"""Greatest rates: round trips, monotone in the bound, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.theory.decode.conftest import Pools

from pdalloc.errors import InfeasibleError, InputError
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, greatest_rate
from pdalloc.queueing.decode.inverse import (
    itl_percentile,
    mean_slot_wait,
    mean_tpot,
    tpot_percentile,
    wait_probability,
)

READS = [mean_tpot, itl_percentile(0.99), tpot_percentile(0.9)]


@pytest.mark.parametrize("rho", [0.2, 0.5, 0.9])
def test_mean_tpot_closed_form(rho: float, pools: Any) -> None:
    """(a + b)/(1 - rho) <= tau gives lambda = (1 - (a+b)/tau)/(L b) (design 3.7, item 5)."""
    bound = 11.0 / (1.0 - rho)
    assert greatest_rate(pools.station(0.1), bound) == pytest.approx(rho / 200.0, rel=2e-3)


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("rho", [0.3, 0.8])
@pytest.mark.parametrize("rule", ["random", "least_loaded"])
def test_round_trip(reads: Any, rho: float, rule: str, pools: Any) -> None:
    """The bound read at a rate admits that rate, and at most what keeps it."""
    work = pools.work("two", prompts=(100.0, 1000.0))
    station = pools.station(
        rho, b=0.4, c=0.6 / work.mean_context, work=work, replicas=4, dispatch=rule
    )
    bound = reads(DecodeLaw(station))
    found = greatest_rate(station, bound * (1.0 + 1e-7), reads)
    assert found >= station.rate * (1.0 - 1e-4)
    assert reads(DecodeLaw(station.at(found))) <= bound * (1.0 + 1e-6)
    assert found == pytest.approx(station.rate, rel=0.02)


@pytest.mark.parametrize("reads", [mean_slot_wait, wait_probability])
def test_slot_bounds(reads: Any, pools: Any) -> None:
    station = pools.station(0.9, a=20.0, slots=32)
    bound = reads(DecodeLaw(station))
    assert greatest_rate(station, bound, reads) == pytest.approx(station.rate, rel=1e-4)


@settings(max_examples=12, deadline=None)
@given(st.floats(11.5, 200.0), st.floats(1.0, 1.5), st.sampled_from(READS))
def test_looser_bounds_admit_more(bound: float, looser: float, reads: Any) -> None:
    station = Pools.station(0.1, slots=64)
    assert greatest_rate(station, bound * looser, reads) >= greatest_rate(station, bound, reads)


def test_a_bound_that_nothing_breaks(pools: Any) -> None:
    """With 4 slots no step exceeds 14 s: the pool may be as full as it can."""
    station = pools.station(0.1, slots=4)
    assert greatest_rate(station, 14.5) == pytest.approx(station.capacity, rel=1e-3)


@pytest.mark.parametrize("reads", READS)
def test_below_the_floor(reads: Any, pools: Any) -> None:
    """One request alone takes 11 s a step: infeasible, with the floor named."""
    with pytest.raises(InfeasibleError, match="already takes 11 s"):
        greatest_rate(pools.station(0.1), 10.9, reads)


@pytest.mark.parametrize("bound", [-1.0, math.nan])
def test_impossible_bounds(bound: float, pools: Any) -> None:
    with pytest.raises(InputError, match="negative"):
        greatest_rate(pools.station(0.1), bound)


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, math.nan])
def test_impossible_levels(level: float) -> None:
    for reads in (itl_percentile, tpot_percentile):
        with pytest.raises(InputError, match="percentile level"):
            reads(level)


def test_steps_that_no_batch_slows(pools: Any) -> None:
    """t(B) = a bounds no rate: refused, not infinite."""
    flat = DecodeStation(0.0, lambda batch, held: 10.0 + 0.0 * batch, pools.work())
    with pytest.raises(InputError, match="bounds no rate"):
        greatest_rate(flat, 20.0)
