"""Erlang's B and C against their sums, textbook values and large systems."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.queueing.erlang import erlang_b, erlang_c, log_poisson


def lost_by_recursion(servers: int, load: float) -> float:
    """B(0) = 1, B(c) = a B(c-1) / (c + a B(c-1)) (Gross and Harris 1998, eq. 2.44)."""
    lost = 1.0
    for c in range(1, servers + 1):
        lost = load * lost / (c + load * lost)
    return lost


@pytest.mark.parametrize("servers", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("rho", [0.01, 0.5, 0.95, 1.0, 2.5])
def test_erlang_b_is_the_recursion(servers: int, rho: float) -> None:
    load = rho * servers
    assert erlang_b(servers, load) == pytest.approx(lost_by_recursion(servers, load), rel=1e-11)


@pytest.mark.parametrize(
    ("servers", "load", "waits"),
    [
        (10, 8.0, 0.40918015),
        (1000, 990.0, 0.65908042188),
        (10_000, 9_900.0, 0.222776928864),
        (1, 0.7, 0.7),  # M/M/1: P(W > 0) = rho
        (2, 1.0, 1 / 3),  # a^2/2 / (1-rho) / (1 + a + a^2/2/(1-rho))
    ],
)
def test_erlang_c_known_values(servers: int, load: float, waits: float) -> None:
    assert erlang_c(servers, load) == pytest.approx(waits, rel=2e-10 if servers > 10 else 1e-8)


@pytest.mark.parametrize("servers", [1, 10, 1000, 10_000])
def test_erlang_c_is_stable_up_to_full_load(servers: int) -> None:
    """Between 0 and 1, growing with the load, for c to 10 000 and rho to .999."""
    values = [erlang_c(servers, rho * servers) for rho in (0.5, 0.9, 0.99, 0.995, 0.999)]
    assert all(0.0 <= v < 1.0 for v in values)
    assert all(b >= a for a, b in pairwise(values))


def test_halfin_whitt_limit() -> None:
    """With (1-rho) sqrt(c) = b, C -> 1/(1 + b Phi(b)/phi(b)) (Halfin and Whitt 1981, eq. 2.2)."""
    b, c = 1.0, 10_000
    phi = math.exp(-b * b / 2) / math.sqrt(2 * math.pi)
    limit = 1 / (1 + b * 0.5 * (1 + math.erf(b / math.sqrt(2))) / phi)
    assert erlang_c(c, c - b * math.sqrt(c)) == pytest.approx(limit, rel=1e-2)


@settings(max_examples=50, deadline=None)
@given(st.floats(1.0, 500.0), st.floats(0.05, 0.99))
def test_real_servers_keep_the_recursion(servers: float, rho: float) -> None:
    """B(c+1) = a B(c) / (c + 1 + a B(c)) holds for real c (Jagerman 1974, eq. 7)."""
    load = rho * servers
    lost = erlang_b(servers, load)
    following = load * lost / (servers + 1.0 + load * lost)
    assert erlang_b(servers + 1.0, load) == pytest.approx(following, rel=1e-9)


def test_no_load_no_loss() -> None:
    assert (erlang_b(3, 0.0), erlang_c(3, 0.0)) == (0.0, 0.0)


def test_poisson_terms_sum_to_one() -> None:
    """sum_k a^k e^-a / k! = 1, with and without Stirling's series."""
    for load in (0.3, 15.0, 2000.0):
        k = np.arange(1.0, 4.0 * load + 60.0)
        total = math.exp(-load) + np.exp(log_poisson(k, np.full_like(k, load))).sum()
        assert total == pytest.approx(1.0, rel=1e-12)
