"""Gamma mixtures by three cumulants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, stats

from pdalloc.errors import InputError
from pdalloc.laws import Atoms, Exponentials
from pdalloc.queueing.decode.contexts import seen
from pdalloc.queueing.decode.skewed import SkewedLaw, blurred, cumulants

Array = NDArray[np.float64]


def one(mean: float, variance: float, scale: float) -> SkewedLaw:
    return SkewedLaw(*(np.array([x]) for x in (mean, variance, scale, 1.0)))


@pytest.mark.parametrize("scale", [0.3, 1.0, -0.5])
@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.99, 0.999])
def test_one_component_is_pearson_three(scale: float, p: float) -> None:
    """m - v/theta + theta Gamma(v/theta^2): scipy's Pearson III of skew 2 theta/sd."""
    sd = 2.0
    exact = stats.pearson3(2.0 * scale / sd, loc=30.0, scale=sd)
    law = one(30.0, sd**2, scale)
    assert law.quantile(p) == pytest.approx(float(exact.ppf(p)), rel=1e-5)
    assert law.tail(31.0) == pytest.approx(float(exact.sf(31.0)), rel=1e-8)


def test_no_skew_is_normal() -> None:
    law = one(30.0, 4.0, 0.0)
    assert law.quantile(0.975) == pytest.approx(30.0 + 2 * 1.95996, rel=1e-3)


@pytest.mark.parametrize("scale", [0.8, -0.8])
def test_support_ends(scale: float) -> None:
    """Nothing below m - v/theta (theta > 0) or above m + v/|theta| (theta < 0)."""
    law, end = one(30.0, 4.0, scale), 30.0 - 4.0 / scale
    outside = end - 1e-6 if scale > 0 else end + 1e-6
    assert law.tail(outside) == pytest.approx(1.0 if scale > 0 else 0.0, abs=1e-12)


mixtures = st.lists(
    st.tuples(
        st.floats(5.0, 100.0), st.floats(0.01, 30.0), st.floats(-2.0, 3.0), st.floats(0.05, 1.0)
    ),
    min_size=1,
    max_size=6,
)


def mixture(parts: list[tuple[float, float, float, float]]) -> SkewedLaw:
    means, variances, scales, weights = (np.array(x) for x in zip(*parts, strict=True))
    return SkewedLaw(means, variances, scales, weights / weights.sum())


@settings(max_examples=60, deadline=None)
@given(mixtures, st.floats(0.001, 0.999))
def test_quantile_inverts_the_tail(
    parts: list[tuple[float, float, float, float]], p: float
) -> None:
    law = mixture(parts)
    q = law.quantile(p)
    assert law.tail(q * (1 + 1e-5) + 1e-9) <= 1.0 - p + 1e-6
    if q > 1e-6 * law.mean:  # below, the atom of who takes no time
        assert law.tail(q * (1 - 1e-5) - 1e-9) >= 1.0 - p - 1e-4


@settings(max_examples=40, deadline=None)
@given(mixtures)
def test_points_keep_mean_and_order(parts: list[tuple[float, float, float, float]]) -> None:
    law = mixture(parts)
    assert law.points.mean == pytest.approx(law.mean, rel=1e-9)
    assert np.all(law.points.values >= 0.0)
    levels = [law.quantile(p) for p in (0.1, 0.5, 0.9)]
    assert np.all(np.diff(levels) >= -1e-6 * law.mean)


def test_cumulants_of_a_mixture() -> None:
    """Against sampling by quantiles of each component."""
    law = mixture([(10.0, 4.0, 1.0, 0.3), (30.0, 9.0, -0.5, 0.7)])
    level = (np.arange(40_000) + 0.5) / 40_000
    values = np.concatenate(
        [
            stats.pearson3(2 * s / np.sqrt(v), loc=m, scale=np.sqrt(v)).ppf(level)
            for m, v, s in zip(law.means, law.variances, law.scales, strict=True)
        ]
    )
    weights = np.repeat(law.weights / 40_000, 40_000)
    mean = float(weights @ values)
    exact = (mean, *(float(weights @ (values - mean) ** i) for i in (2, 3)))
    assert cumulants(law) == pytest.approx(exact, rel=1e-3)


def test_cumulants_of_point_masses() -> None:
    """0 or 1 evenly: 1/2, 1/4, 0."""
    law = Atoms(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    assert cumulants(law) == pytest.approx((0.5, 0.25, 0.0))
    with pytest.raises(TypeError, match="Exponentials"):
        cumulants(Exponentials(np.ones(1), np.ones(1), np.zeros(1)))


@pytest.mark.parametrize("spread", [0.0, 0.5, 4.0])
def test_blocks_keep_mean_and_variance(spread: float) -> None:
    k = np.arange(1.0, 400.0)
    weights = stats.nbinom.pmf(k, 20, 0.1)
    weights /= weights.sum()
    law = blurred(10.0 + k, spread * k, np.full_like(k, 0.5), weights)
    mean = 10.0 + float(weights @ k)
    variance = float(weights @ (spread * k + (10.0 + k - mean) ** 2))
    assert cumulants(law)[:2] == pytest.approx((mean, variance), rel=1e-9)
    assert isinstance(law, Atoms) == (spread == 0.0)


def test_blocks_keep_percentiles() -> None:
    """Merging batches that contexts blur moves P50, P90, P99 by next to nothing."""
    k = np.arange(1.0, 400.0)
    weights = stats.nbinom.pmf(k, 20, 0.1)
    weights /= weights.sum()
    whole = SkewedLaw(10.0 + k, 2.0 * k, np.full_like(k, 1.0), weights)
    merged = blurred(10.0 + k, 2.0 * k, np.full_like(k, 1.0), weights)
    for p in (0.5, 0.9, 0.99, 0.999):
        assert merged.quantile(p) == pytest.approx(whole.quantile(p), rel=3e-3)


def test_nothing_beyond_the_slowest_step() -> None:
    law = replace(one(30.0, 4.0, 1.0), most=np.array([31.0]))
    assert law.tail(31.0) == 0.0
    assert law.quantile(0.999) == pytest.approx(31.0, rel=1e-5)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, float("nan")])
def test_impossible_levels(p: float) -> None:
    with pytest.raises(InputError, match="percentile level"):
        one(1.0, 1.0, 1.0).quantile(p)


@pytest.mark.parametrize("lift", [0.0, 0.4, 1.2])
@pytest.mark.parametrize("theta", [0.7, 2.0])
def test_what_gaps_see(theta: float, lift: float) -> None:
    """Density f(t)(1 + (lift/V)(t - mean)) of a gamma law, integrated numerically."""
    variance = 5.0
    law = stats.gamma(variance / theta**2, scale=theta)
    mean = float(law.mean())

    def moment(power: int, about: float) -> float:
        def integrand(t: float) -> float:
            tilt = 1.0 + lift / variance * (t - mean)
            return float(law.pdf(t) * tilt * (t - about) ** power)

        return float(integrate.quad(integrand, 0.0, mean + 60.0 * theta, limit=400)[0])

    centre = mean + lift
    assert moment(1, centre) == pytest.approx(0.0, abs=1e-5)
    assert seen(variance, theta, lift) == pytest.approx(
        (moment(2, centre), moment(3, centre)), rel=1e-4
    )
