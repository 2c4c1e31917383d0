"""Steps of a request that gets several tokens a step, against convolution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.queueing.decode.multi_token import (
    EXACT_STEPS,
    FixedTokens,
    GeometricTokens,
    OneToken,
    TokensPerStep,
)

Array = NDArray[np.float64]


def step_law(tokens: int, pmf: Array) -> tuple[float, float]:
    """(mean, variance) of the steps until the sum of draws from pmf(1), pmf(2), ... >= tokens."""
    left: Array = np.zeros(tokens + 1)
    left[tokens] = 1.0  # P(still to make i tokens)
    above = []
    while left[1:].sum() > 1e-14:
        above.append(float(left[1:].sum()))
        after: Array = np.zeros(tokens + 1)
        for need in range(1, tokens + 1):
            for made, p in enumerate(pmf, start=1):
                after[max(need - made, 0)] += left[need] * p
        left = after
    s = np.arange(len(above))
    mean = float(np.sum(above))
    return mean, float((2 * s + 1) @ np.array(above)) - mean**2


def geometric_pmf(mean: float) -> Array:
    k = np.arange(0.0, 199.0)
    q = 1.0 - 1.0 / mean
    return np.asarray((1.0 - q) * q**k)


def fixed_pmf(mean: float) -> Array:
    whole = math.floor(mean)
    pmf = np.zeros(whole + 1)
    pmf[whole - 1], pmf[whole] = 1.0 - (mean - whole), mean - whole
    return pmf


@pytest.mark.parametrize("tokens", [1, 2, 7, 24])
@pytest.mark.parametrize("mean", [1.0, 1.3, 2.5, 4.0])
def test_geometric_steps_are_one_plus_binomial(mean: float, tokens: int) -> None:
    """Each token after the first begins a new step with probability 1/mean."""
    found = GeometricTokens(mean).moments(float(tokens))
    assert found == pytest.approx(step_law(tokens, geometric_pmf(mean)), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("tokens", [1, 2, 7, 24])
@pytest.mark.parametrize("mean", [1.0, 1.3, 2.5, 4.0])
def test_fixed_steps(mean: float, tokens: int) -> None:
    """P(n > s) = P(s floor(m) + Binomial(s, f) < L)."""
    found = FixedTokens(mean).moments(float(tokens))
    assert found == pytest.approx(step_law(tokens, fixed_pmf(mean)), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("mean", [1.25, 2.5])
def test_long_requests_follow_renewal_theory(mean: float) -> None:
    """Cox 1962, section 4.1: the exact sum runs into L/m + const, variance sigma^2 L/m^3."""
    law = FixedTokens(mean)
    below = float(math.floor(EXACT_STEPS * math.floor(mean)))
    exact, longer = law.moments(below), law.moments(below + 40.0)
    assert longer[0] - exact[0] == pytest.approx(40.0 / mean, abs=0.01)
    assert longer[1] == pytest.approx(exact[1], rel=0.02)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=8),
    st.floats(1.0, 6.0),
    st.sampled_from([FixedTokens, GeometricTokens]),
)
def test_points_keep_the_mean(tokens: list[int], mean: float, kind: type[TokensPerStep]) -> None:
    """Three points per request; at least one step if there is a token, at most one a token."""
    law = kind(mean)  # type: ignore[call-arg]
    point, steps, share = law.steps(np.array(tokens, float))
    assert np.bincount(point, share) == pytest.approx(np.ones(len(tokens)))
    exact = [law.moments(float(t))[0] if t else 0.0 for t in tokens]  # type: ignore[attr-defined]
    assert np.bincount(point, share * steps) == pytest.approx(exact, rel=1e-9, abs=1e-9)
    made = np.array(tokens, float)[point]
    assert np.all(steps[made > 0] >= 1.0 - 1e-9)


def test_one_token_a_step() -> None:
    """Mean 1 is one token a step under every law."""
    tokens = np.array([1.0, 5.0, 40.0])
    _, plain, _ = OneToken().steps(tokens)
    assert plain == pytest.approx(tokens)
    for law in (FixedTokens(1.0), GeometricTokens(1.0)):
        point, steps, share = law.steps(tokens)
        assert np.bincount(point, share * steps) == pytest.approx(tokens)


@pytest.mark.parametrize("mean", [0.5, math.nan, math.inf, -2.0])
def test_impossible_means(mean: float) -> None:
    for kind in (FixedTokens, GeometricTokens):
        with pytest.raises(InputError, match="at least 1"):
            kind(mean)
