"""Square-root staffing against exact Erlang C."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from pdalloc.closed_forms import (
    erlang_count,
    erlang_count_wait,
    square_root_count,
    square_root_count_wait,
    wait_probability,
)
from pdalloc.errors import InputError
from pdalloc.queueing.erlang import erlang_c

LOADS = 10.0 ** np.arange(0.0, 4.01, 0.1)


@pytest.mark.parametrize("margin", [1e-6, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_halfin_whitts_formula(margin: float) -> None:
    expected = 1.0 / (1.0 + margin * norm.cdf(margin) / norm.pdf(margin))
    assert wait_probability(margin) == pytest.approx(expected, rel=1e-12)


def test_its_ends() -> None:
    assert wait_probability(0.0) == 1.0
    assert wait_probability(1e3) == 0.0


@pytest.mark.parametrize("margin", [0.2, 1.0, 2.0])
def test_erlang_c_tends_to_it(margin: float) -> None:
    """Real servers a + beta sqrt(a): the error falls as 1/sqrt(a)."""
    errors = [
        abs(erlang_c(a + margin * math.sqrt(a), a) / wait_probability(margin) - 1)
        for a in (1e2, 1e4, 1e6)
    ]
    assert errors[1] < 0.2 * errors[0] and errors[2] < 0.2 * errors[1]


@pytest.mark.parametrize(("p_wait", "short"), [(0.01, 2), (0.05, 1), (0.2, 1), (0.5, 1), (0.8, 1)])
def test_within_two_servers_of_erlang_c(p_wait: float, short: int) -> None:
    for load in LOADS:
        exact, rule = erlang_count(load, p_wait), math.ceil(square_root_count(load, p_wait))
        assert 0 <= exact - rule <= short


@pytest.mark.parametrize("wait", [0.01, 0.1, 1.0, 3.0])
def test_within_one_server_for_a_mean_wait(wait: float) -> None:
    for load in LOADS:
        exact = erlang_count_wait(load, wait)
        assert 0 <= exact - math.ceil(square_root_count_wait(load, wait)) <= 1


@given(st.floats(0.05, 3000.0), st.floats(0.001, 0.99))
def test_the_exact_count_is_the_least(load: float, p_wait: float) -> None:
    n = erlang_count(load, p_wait)
    assert n > load and erlang_c(n, load) <= p_wait
    assert n - 1 <= load or erlang_c(n - 1, load) > p_wait


@given(st.floats(0.05, 3000.0), st.floats(0.001, 20.0))
def test_the_exact_count_for_a_wait_is_the_least(load: float, wait: float) -> None:
    n = erlang_count_wait(load, wait)
    assert n > load and erlang_c(n, load) / (n - load) <= wait * (1 + 1e-12)
    assert n - 1 <= load or erlang_c(n - 1, load) / (n - 1 - load) > wait


def test_spare_servers_grow_as_the_square_root_of_load() -> None:
    """Pooling pays: a hundred times the load needs ten times the spare servers."""
    spare = [square_root_count(a, 0.1) - a for a in (10.0, 1000.0)]
    assert spare[1] == pytest.approx(10.0 * spare[0], rel=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: square_root_count(0.0, 0.5), "load"),
        (lambda: square_root_count(1.0, 1.0), "p_wait"),
        (lambda: square_root_count_wait(1.0, -1.0), "wait"),
        (lambda: erlang_count(math.inf, 0.5), "load"),
        (lambda: erlang_count(1.0, math.nan), "p_wait"),
        (lambda: erlang_count_wait(1.0, 0.0), "wait"),
        (lambda: wait_probability(-0.1), "margin"),
    ],
)
def test_bad_numbers_are_refused(make, words) -> None:
    with pytest.raises(InputError, match=words):
        make()
