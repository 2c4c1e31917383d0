"""M/H2/c by matrix-analytic numerics against M/M/c, M/G/1 and balance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.queueing.erlang import erlang_c
from pdalloc.queueing.phase_type import hyperexponential_fit, mh2c_wait


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 10.0), st.floats(1.05, 20.0), st.floats(1.05, 5.0))
def test_fit_has_its_three_moments(mean: float, scv: float, skew: float) -> None:
    """E[S^k] = k! (p m_1^k + (1-p) m_2^k) for k = 1, 2, 3."""
    second = (1 + scv) * mean**2
    third = skew * 1.5 * second**2 / mean
    p, one, two = hyperexponential_fit(mean, second, third)
    assert 0.0 <= p <= 1.0 and one > 0.0 and two > 0.0
    moments = [math.factorial(k) * (p * one**k + (1 - p) * two**k) for k in (1, 2, 3)]
    assert moments == pytest.approx([mean, second, third], rel=1e-6)


def test_too_small_a_third_moment_is_raised() -> None:
    p, one, two = hyperexponential_fit(1.0, 3.0, 5.0)
    assert p * one + (1 - p) * two == pytest.approx(1.0)
    assert 2 * (p * one**2 + (1 - p) * two**2) == pytest.approx(3.0)
    assert 6 * (p * one**3 + (1 - p) * two**3) == pytest.approx(13.5, rel=1e-6)


@pytest.mark.parametrize("servers", [1, 2, 8, 40])
def test_nearly_equal_phases_are_mmc(servers: int) -> None:
    """Two kinds of almost one mean: P(W > t) = C exp(-c (1-rho) t)."""
    rho = 0.8
    weights, means = mh2c_wait(servers, rho * servers, (0.4, 1.0 + 1e-6, 1.0 - 2e-6 / 3))
    waits = erlang_c(servers, rho * servers)
    assert weights.sum() == pytest.approx(waits, rel=1e-4)
    assert weights @ means == pytest.approx(waits / (servers * (1 - rho)), rel=1e-4)
    for t in (0.1, 1.0):
        tail = float((weights * np.exp(-t / means)).sum())
        assert tail == pytest.approx(waits * math.exp(-servers * (1 - rho) * t), rel=1e-4)


@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_one_server_is_mg1(rho: float) -> None:
    """P(W > 0) = rho, E[W] = lambda E[S^2]/(2 (1-rho)), E[W^2] by Takacs."""
    p, one, two = hyperexponential_fit(1.0, 5.0, 60.0)
    weights, means = mh2c_wait(1, rho, (p, one, two))
    second, third = 5.0, 60.0
    mean = rho * second / (2 * (1 - rho))
    assert weights.sum() == pytest.approx(rho, rel=1e-9)
    assert weights @ means == pytest.approx(mean, rel=1e-9)
    # E[W^2] = 2 E[W]^2 + lambda E[S^3] / (3 (1-rho)) (Kleinrock 1975, eq. 5.114)
    square = 2 * mean**2 + rho * third / (3 * (1 - rho))
    assert 2 * float(weights @ means**2) == pytest.approx(square, rel=1e-9)


def test_time_unit_does_not_matter() -> None:
    phases = hyperexponential_fit(1.0, 3.0, 20.0)
    weights, means = mh2c_wait(6, 5.0, phases)
    p, one, two = phases
    fast_weights, fast_means = mh2c_wait(6, 50.0, (p, one / 10, two / 10))
    assert fast_weights.sum() == pytest.approx(weights.sum(), rel=1e-9)
    assert fast_weights @ fast_means == pytest.approx(float(weights @ means) / 10, rel=1e-9)
