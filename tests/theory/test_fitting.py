"""The fits of latency/fitting.py against known coefficients and against definitions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.latency.fitting import Fit, fit_decode, fit_prefill, isotonic

Array = NDArray[np.float64]
PROMPTS = np.array([128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768], float)
BATCH, CONTEXT = (
    grid.ravel()
    for grid in np.meshgrid([1.0, 4.0, 16.0, 64.0, 256.0], [256.0, 1024.0, 4096.0, 16384.0])
)


def prefill(coefficients: tuple[float, float, float], n: Array) -> Array:
    a, b, c = coefficients
    return a + b * n + c * n**2


def decode(coefficients: tuple[float, float, float], batch: Array, total: Array) -> Array:
    a, b, c = coefficients
    return a + b * batch + c * total


def test_prefill_recovers_known_coefficients() -> None:
    truth = (0.02, 1.5e-4, 2e-9)
    fit = fit_prefill(PROMPTS, prefill(truth, PROMPTS))
    assert fit.coefficients == pytest.approx(truth, rel=1e-9)
    assert fit.worst_relative_error < 1e-12


def test_decode_recovers_known_coefficients() -> None:
    truth = (0.03, 1.8e-4, 2.4e-7)
    fit = fit_decode(BATCH, BATCH * CONTEXT, decode(truth, BATCH, BATCH * CONTEXT))
    assert fit.coefficients == pytest.approx(truth, rel=1e-9)
    assert fit.median_relative_error <= fit.worst_relative_error < 1e-12


def test_a_lone_zero_coefficient_is_found() -> None:
    """Points on t = b n: the intercept and the curvature are zero, not small and negative."""
    a, b, c = fit_prefill(PROMPTS, 2e-4 * PROMPTS).coefficients
    assert (a, c) == pytest.approx((0.0, 0.0), abs=1e-15)
    assert b == pytest.approx(2e-4)


def test_concave_points_give_no_negative_curvature() -> None:
    """Plain least squares gives c < 0 on a concave curve; the fit here gives c = 0."""
    seconds = 0.01 + 1e-3 * np.sqrt(PROMPTS)
    assert np.polyfit(PROMPTS, seconds, 2)[0] < 0
    assert fit_prefill(PROMPTS, seconds).coefficients[2] == 0.0


def test_relative_weights_keep_short_prompts() -> None:
    """With +-4 % noise plain least squares is 48 % off at 128 tokens; this stays within 5 %."""
    exact = prefill((0.02, 1.5e-4, 2e-9), PROMPTS)
    noisy = exact * (1 + 0.04 * (-1.0) ** np.arange(len(PROMPTS)))
    plain = np.polyval(np.polyfit(PROMPTS, noisy, 2), PROMPTS)
    assert np.max(np.abs(plain / exact - 1)) > 0.4
    fitted = prefill(fit_prefill(PROMPTS, noisy).coefficients, PROMPTS)
    assert np.max(np.abs(fitted / exact - 1)) < 0.05


def test_reported_errors_are_those_of_the_points() -> None:
    seconds = np.array([0.05, 0.06, 0.09, 0.13])
    n = np.array([128.0, 256.0, 512.0, 1024.0])
    fit = fit_prefill(n, seconds)
    error = np.abs(prefill(fit.coefficients, n) / seconds - 1)
    assert fit.worst_relative_error == pytest.approx(error.max())
    assert fit.median_relative_error == pytest.approx(np.median(error))


def squared_error(coefficients: tuple[float, float, float], n: Array, t: Array) -> float:
    return float(np.sum((prefill(coefficients, n) / t - 1) ** 2))


@given(
    noise=st.lists(st.floats(0.7, 1.3), min_size=len(PROMPTS), max_size=len(PROMPTS)),
    rival=st.tuples(st.floats(0, 0.1), st.floats(0, 1e-3), st.floats(0, 1e-8)),
)
def test_no_other_nonnegative_coefficients_do_better(
    noise: list[float], rival: tuple[float, float, float]
) -> None:
    t = prefill((0.02, 1.5e-4, 2e-9), PROMPTS) * np.array(noise)
    fit = fit_prefill(PROMPTS, t)
    assert min(fit.coefficients) >= 0
    assert squared_error(fit.coefficients, PROMPTS, t) <= squared_error(rival, PROMPTS, t) + 1e-12


@given(st.floats(1e-4, 1.0), st.floats(1e-6, 1e-2), st.floats(1e-9, 1e-4))
def test_decode_predictions_are_exact_on_affine_data(a: float, b: float, c: float) -> None:
    t = decode((a, b, c), BATCH, BATCH * CONTEXT)
    fit = fit_decode(BATCH, BATCH * CONTEXT, t)
    assert decode(fit.coefficients, BATCH, BATCH * CONTEXT) == pytest.approx(t, rel=1e-9)


def pooled(values: Array, weights: Array) -> Array:
    """Isotonic regression by its min-max formula: max over j <= i of min over k >= i of mean."""
    n = len(values)

    def mean(j: int, k: int) -> float:
        return float(np.average(values[j : k + 1], weights=weights[j : k + 1]))

    return np.array(
        [max(min(mean(j, k) for k in range(i, n)) for j in range(i + 1)) for i in range(n)]
    )


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(0.1, 10)), min_size=1, max_size=9))
def test_isotonic_is_the_min_max_formula(pairs: list[tuple[float, float]]) -> None:
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    got = isotonic(values, weights)
    assert np.all(np.diff(got) >= 0)
    assert got == pytest.approx(pooled(values, weights), abs=1e-9)
    assert np.average(got, weights=weights) == pytest.approx(
        np.average(values, weights=weights), abs=1e-9
    )
    assert isotonic(got, weights) == pytest.approx(got, abs=1e-12)


def test_isotonic_pools_only_violators() -> None:
    """The H100 case: 128 tokens measured slower than 256."""
    assert isotonic([58.0, 52.0, 53.0, 78.0]) == pytest.approx([163 / 3] * 3 + [78.0])
    assert isotonic([1.0, 2.0, 2.0]) == pytest.approx([1.0, 2.0, 2.0])


BAD: list[tuple[Callable[[], Fit | Array], str]] = [
    (lambda: fit_prefill([], []), "at least one"),
    (lambda: fit_prefill([1, 2, 3], [1, 2]), "3 points but 2 times"),
    (lambda: fit_prefill([1, 2, math.nan], [1, 2, 3]), "prompt_tokens"),
    (lambda: fit_prefill([1, 2, -3], [1, 2, 3]), "negative"),
    (lambda: fit_prefill([1, 2, 3], [1, 2, math.inf]), "seconds"),
    (lambda: fit_prefill([1, 2, 3], [1, 0, 3]), "positive"),
    (lambda: fit_prefill([1, 1, 2, 2], [1, 1, 2, 2]), "3 different"),
    (lambda: fit_decode([1, 2, 4], [9, 9], [1, 2, 3]), "context totals"),
    (lambda: fit_decode([1, 2, 4], [9, -9, 9], [1, 2, 3]), "negative"),
    (lambda: fit_decode([1, 2, 4, 8], [512, 1024, 2048, 4096], [1, 2, 3, 4]), "tell"),
    (lambda: fit_decode([8, 8, 8], [512, 1024, 2048], [1, 2, 3]), "tell"),
    (lambda: isotonic([]), "at least one"),
    (lambda: isotonic([1.0, math.nan]), "NaN"),
    (lambda: isotonic([1.0, 2.0], [1.0]), "weights"),
    (lambda: isotonic([1.0, 2.0], [1.0, 0.0]), "positive"),
    (lambda: isotonic([[1.0, 2.0]]), "list"),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_bad_input_is_refused_in_one_line(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
