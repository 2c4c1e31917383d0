"""M/H2/c by matrix-analytic numerics against M/M/c, M/G/1 and balance."""

from __future__ import annotations

import math

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
    found = mh2c_wait(servers, rho * servers, (0.4, 1.0 + 1e-6, 1.0 - 2e-6 / 3))
    waits = erlang_c(servers, rho * servers)
    assert found.p_wait == pytest.approx(waits, rel=1e-4)
    assert found.mean == pytest.approx(waits / (servers * (1 - rho)), rel=1e-4)
    for t in (0.5, 1.0, 3.0):
        t /= servers * (1 - rho)
        tail = math.exp(-servers * (1 - rho) * t)
        assert found.given_wait.tail(t) == pytest.approx(tail, rel=1e-3)


@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_one_server_is_mg1(rho: float) -> None:
    """P(W > 0) = rho, E[W] = lambda E[S^2]/(2 (1-rho)), E[W^2] by Takacs."""
    found = mh2c_wait(1, rho, hyperexponential_fit(1.0, 5.0, 60.0))
    second, third = 5.0, 60.0
    mean = rho * second / (2 * (1 - rho))
    assert found.p_wait == pytest.approx(rho, rel=1e-9)
    assert found.mean == pytest.approx(mean, rel=1e-9)
    assert found.given_wait.mean == pytest.approx(mean / rho, rel=2e-3)
    # E[W^2] = 2 E[W]^2 + lambda E[S^3] / (3 (1-rho)) (Kleinrock 1975, eq. 5.114)
    square = 2 * mean**2 + rho * third / (3 * (1 - rho))
    assert rho * found.given_wait.second_moment == pytest.approx(square, rel=5e-3)


def test_time_unit_does_not_matter() -> None:
    phases = hyperexponential_fit(1.0, 3.0, 20.0)
    found = mh2c_wait(6, 5.0, phases)
    p, one, two = phases
    fast = mh2c_wait(6, 50.0, (p, one / 10, two / 10))
    assert fast.p_wait == pytest.approx(found.p_wait, rel=1e-9)
    assert fast.mean == pytest.approx(found.mean / 10, rel=1e-9)
    assert fast.given_wait.quantile(0.9) == pytest.approx(found.given_wait.quantile(0.9) / 10)


@pytest.mark.parametrize("servers", [4, 64])
def test_a_rare_and_very_long_kind_keeps_its_digits(servers: int) -> None:
    """The law of W | W > 0 has the mean that Little's law gives without it."""
    found = mh2c_wait(servers, 0.8 * servers, hyperexponential_fit(1.0, 5.0, 125.0))
    assert found.given_wait.mean == pytest.approx(found.mean / found.p_wait, rel=2e-2)


@pytest.mark.parametrize(("servers", "rho"), [(64, 0.8), (200, 0.98)])
def test_many_servers_and_a_rare_kind_keep_the_traffic_equation(servers: int, rho: float) -> None:
    """Heavy traffic and few digits: P(W > 0) near Erlang's C, E[W] near (1+s)/2 W_M at most."""
    found = mh2c_wait(servers, rho * servers, hyperexponential_fit(1.0, 5.0, 125.0))
    erlang = erlang_c(servers, rho * servers)
    assert found.p_wait == pytest.approx(erlang, rel=6e-2)
    most = 2.5 * erlang / (servers * (1 - rho))
    assert 0.3 * most < found.mean < most
