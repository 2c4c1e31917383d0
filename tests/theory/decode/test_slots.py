"""Factors on the wait for a slot against M/G/1, M/M/c and M/D/c."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pdalloc.queueing.decode import decode_work
from pdalloc.queueing.decode.slots import least_residual, slot_factors
from pdalloc.queueing.deterministic import mdc
from pdalloc.queueing.erlang import erlang_c


def exponential_steps() -> Any:
    """Fine quantiles of an exponential law."""
    level = (np.arange(4000) + 0.5) / 4000
    n = -1e4 * np.log1p(-level)
    return decode_work(np.zeros(4000), np.maximum(n, 1.0), np.full(4000, 1.0 / 4000))


@pytest.mark.parametrize("servers", [1.0, 2.0, 7.5, 64.0])
def test_least_residual_of_fixed_lengths(servers: float, pools: Any) -> None:
    """Reference notes 1: g1 = int (1 - F_e)^c = 1/(c + 1) for constant, 1/c for exponential."""
    assert least_residual(pools.work("fixed"), servers) == pytest.approx(1 / (servers + 1))
    assert least_residual(exponential_steps(), servers) == pytest.approx(1 / servers, rel=0.01)


@pytest.mark.parametrize("law", ["fixed", "geometric", "two"])
@pytest.mark.parametrize("load", [0.2, 0.9])
def test_one_slot_is_pollaczek_khinchine(law: str, load: float, pools: Any) -> None:
    """P(W > 0) = rho whatever the lengths; E[W] = (1 + SCV)/2 times M/M/1's."""
    work = pools.work(law)
    assert slot_factors(work, 1.0, load) == pytest.approx((1.0, 0.5 * (1.0 + work.scv)))


@pytest.mark.parametrize("servers", [2.0, 32.0, 128.0])
@pytest.mark.parametrize("load", [0.5, 0.9, 0.98])
def test_exponential_lengths_need_no_factor(servers: float, load: float) -> None:
    assert slot_factors(exponential_steps(), servers, load) == pytest.approx((1.0, 1.0), rel=0.02)


@pytest.mark.parametrize("servers", [2, 32, 128])
@pytest.mark.parametrize("load", [0.7, 0.9, 0.98])
def test_fixed_lengths_are_mdc(servers: int, load: float, pools: Any) -> None:
    """alpha = 0 at s = 0: both are M/D/c over M/M/c, exactly."""
    wait, probability = mdc(servers, load)
    c = erlang_c(servers, load * servers)
    plain = c / (servers * (1.0 - load))
    found = slot_factors(pools.work("fixed"), servers, load)
    assert found == pytest.approx((probability / c, wait / plain), rel=1e-6)


@pytest.mark.parametrize("law", ["fixed", "two", "geometric"])
def test_heavy_traffic(law: str, pools: Any) -> None:
    """load -> 1: E[W] has the factor (1 + SCV)/2 whatever K (Kingman), P(W > 0) none."""
    work = pools.work(law)
    probability, wait = slot_factors(work, 16.0, 0.9999)
    assert probability == pytest.approx(1.0, abs=0.01)
    assert wait == pytest.approx(0.5 * (1.0 + work.scv), rel=0.01)


def test_nobody_waits_at_all(pools: Any) -> None:
    assert slot_factors(pools.work(), 4000.0, 0.05) == (1.0, 1.0)
