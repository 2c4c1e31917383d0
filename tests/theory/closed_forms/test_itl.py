"""ITL percentiles: exact count against the negative binomial, and how kind the normal one is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nbinom

from pdalloc.closed_forms import decode_count, itl_count, itl_count_normal
from pdalloc.errors import InfeasibleError, InputError
from pdalloc.queueing.batch import BatchLaw

bases, shares = st.floats(0.002, 0.05), st.floats(2e-5, 2e-3)


def itl_of(count: float, rate: float, steps: float, base: float, b: float, p: float) -> float:
    """a + b (1 + NB.ppf(p)) at load lambda L b / n."""
    return base + b * (1.0 + float(nbinom.ppf(p, 1 + base / b, 1 - rate * steps * b / count)))


@given(st.floats(0.5, 40), bases, shares, st.floats(1.0, 6.0), st.floats(0.5, 0.999))
def test_the_count_is_the_least_that_keeps_the_percentile(
    rate: float, base: float, b: float, room: float, p: float
) -> None:
    tau = room * (base + b)
    n = itl_count(rate, 300.0, base, b, tau, p)
    most = math.floor((tau - base) / b * (1 + 1e-9)) - 1
    load = rate * 300.0 * b / n
    assert 0.0 < load < 1.0
    assert nbinom.cdf(most, 1 + base / b, 1 - load) == pytest.approx(p, rel=1e-7)
    assert itl_of(n * (1 + 1e-6), rate, 300.0, base, b, p) <= tau * (1 + 1e-9)
    assert (
        itl_of(n * (1 - 1e-3), rate, 300.0, base, b, p) > tau
        or nbinom.cdf(most, 1 + base / b, 1 - load / (1 - 1e-3)) > p - 1e-6
    )


def test_the_planners_batch_law_agrees() -> None:
    base, b, tau, p = 0.011, 4e-4, 0.020, 0.99
    n = itl_count(10.0, 400.0, base, b, tau, p)
    kept, broken = (
        BatchLaw(10.0 / (n * k), 400.0, lambda x: base + b * x).itl.quantile(p)
        for k in (1.001, 0.999)
    )
    assert kept <= tau < broken + b * 1e-6


def test_a_bound_at_the_step_of_one_request_asks_for_an_idle_replica() -> None:
    """P(N = 0) = (1 - rho)^(1 + a/b) = p."""
    n = itl_count(2.0, 100.0, 0.01, 0.001, 0.011, 0.9)
    assert (1 - 2.0 * 100.0 * 0.001 / n) ** 11 == pytest.approx(0.9, rel=1e-12)


@given(bases, shares, st.floats(1.05, 6.0), st.floats(0.5, 0.99), st.floats(1.0, 1.5))
def test_tighter_bounds_and_higher_percentiles_need_more(
    base: float, b: float, room: float, p: float, grow: float
) -> None:
    tau = room * (base + b)
    higher = 1 - (1 - p) / grow
    for count in (itl_count, itl_count_normal):
        n = count(5.0, 200.0, base, b, tau, p)
        assert count(5.0, 200.0, base, b, tau, higher) >= n * (1 - 1e-9)
        assert count(5.0, 200.0, base, b, tau * grow, p) <= n * (1 + 1e-9)


def test_the_normals_median_is_the_mean_tpot() -> None:
    """z = 0: theorem itl_percentile's last step."""
    assert itl_count_normal(10, 400, 0.011, 4e-4, 0.020, 0.5) == pytest.approx(
        decode_count(10, 400, 0.011, 4e-4, 0.020), rel=1e-12
    )


@pytest.mark.parametrize(("ratio", "over"), [(5.0, 0.111), (10.0, 0.075), (40.0, 0.025)])
def test_how_far_the_normal_count_breaks_its_bound(ratio: float, over: float) -> None:
    """Its fleet's true P99, a step of b at a time, from 1.1 to 5 times the floor."""
    b = 1e-3
    errors = []
    for room in (1.1, 1.2, 1.5, 2.0, 3.0, 5.0):
        tau = room * b * (1 + ratio)
        n = itl_count_normal(1.0, 100.0, ratio * b, b, tau, 0.99)
        errors.append(itl_of(n, 1.0, 100.0, ratio * b, b, 0.99) / tau - 1)
    assert min(errors) > 0.0
    assert 0.9 * over < max(errors) < 1.01 * over


def test_what_certifying_costs() -> None:
    """The exact count is above the normal one where the bound is tight."""
    for tau in (0.014, 0.016, 0.02, 0.03):
        exact = itl_count(10.0, 400.0, 0.011, 4e-4, tau, 0.99)
        assert exact > itl_count_normal(10.0, 400.0, 0.011, 4e-4, tau, 0.99)


def test_impossible_bounds_and_bad_numbers() -> None:
    with pytest.raises(InfeasibleError, match=r"0\.0114 s step of one request"):
        itl_count(10, 400, 0.011, 4e-4, 0.0113, 0.99)
    with pytest.raises(InfeasibleError, match="leaves no room"):
        itl_count_normal(10, 400, 0.011, 4e-4, 0.011 + 4e-4, 0.99)
    for p in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="strictly between"):
            itl_count(10, 400, 0.011, 4e-4, 0.02, p)
    with pytest.raises(InputError, match="steps"):
        itl_count_normal(10, -400, 0.011, 4e-4, 0.02, 0.9)
