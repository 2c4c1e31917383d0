"""Fit the service-time forms of design 3.1 to measured points.

Prefill of a prompt of n tokens: t = a + b n + c n^2. Decode step of B requests holding S
context tokens in all: t = a + b B + c S. Both are fitted with weights 1/t, so the *relative*
error is what is least, and with coefficients that are not negative: ordinary least squares is
ruled by the longest prompt and misses the short ones severalfold, and c < 0 breaks convexity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdalloc.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Coefficients (a, b, c) and how far the fitted form is from the points it was given.

    Errors are |fitted / measured - 1| over those points: the greatest and the median.
    """

    coefficients: tuple[float, float, float]
    worst_relative_error: float
    median_relative_error: float


def fit_prefill(prompt_tokens: ArrayLike, seconds: ArrayLike) -> Fit:
    """Fit t = a + b n + c n^2 to prompts of ``prompt_tokens`` (n,) taking ``seconds`` (n,).

    Coefficients in s, s/token, s/token^2, none negative. Raises InputError for empty or
    mismatched arrays, NaN, negative tokens, times that are not positive, or fewer than three
    different prompt lengths.
    """
    n = _column("prompt_tokens", prompt_tokens)
    t = _times(seconds, len(n))
    if len(np.unique(n)) < 3:
        raise InputError("a prefill fit needs at least 3 different prompt lengths")
    return _relative_nonnegative(np.column_stack([np.ones_like(n), n, n**2]), t)


def fit_decode(batch: ArrayLike, context_total: ArrayLike, seconds: ArrayLike) -> Fit:
    """Fit t = a + b B + c S to steps of ``batch`` requests with ``context_total`` tokens in all.

    Arrays (n,); coefficients in s, s/request, s/token, none negative. Raises InputError for
    empty or mismatched arrays, NaN, negative values, times that are not positive, or points
    that cannot tell b from c (context per request never varied) or a from b (batch never
    varied).
    """
    b = _column("batch", batch)
    s = _column("context_total", context_total)
    if len(s) != len(b):
        raise InputError(f"{len(b)} batch sizes but {len(s)} context totals; give as many")
    t = _times(seconds, len(b))
    design = np.column_stack([np.ones_like(b), b, s])
    if np.linalg.matrix_rank(_scaled(design)[0]) < 3:
        raise InputError(
            "a decode fit needs points with different batch sizes and different context tokens"
            " per request; these cannot tell the two apart"
        )
    return _relative_nonnegative(design, t)


def isotonic(values: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """Nondecreasing sequence nearest ``values`` in (weighted) least squares; shape (n,).

    Pool-adjacent-violators; the weighted mean is kept. Raises InputError for empty or
    mismatched arrays, NaN, or weights that are not positive.
    """
    y = _column("values", values, negative=True)
    if weights is None:
        w = np.ones_like(y)
    else:
        w = _column("weights", weights)
        if len(w) != len(y):
            raise InputError(f"{len(y)} values but {len(w)} weights; give as many")
        if np.any(w <= 0):
            raise InputError("weights must be positive")
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(y, weights=w).x, dtype=np.float64)


def _column(name: str, values: ArrayLike, *, negative: bool = False) -> Array:
    """``values`` as a finite float array (n,), n >= 1, refused below zero unless ``negative``."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be a list with at least one number")
    if not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite numbers, without NaN")
    if not negative and np.any(array < 0):
        raise InputError(f"{name} must not be negative, got {array.min():g}")
    return array


def _times(seconds: ArrayLike, points: int) -> Array:
    """``seconds`` as a positive array of ``points`` entries."""
    t = _column("seconds", seconds)
    if len(t) != points:
        raise InputError(f"{points} points but {len(t)} times; give as many")
    if np.any(t <= 0):
        raise InputError("every time must be positive")
    return t


def _scaled(design: Array) -> tuple[Array, Array]:
    """Columns of ``design`` (n, k) brought to length 1, and the lengths (k,) they had."""
    length = np.linalg.norm(design, axis=0)
    length[length == 0.0] = 1.0
    return design / length, length


def _relative_nonnegative(design: Array, t: Array) -> Fit:
    """Least sum of (design @ x / t - 1)^2 over x >= 0; ``design`` (n, 3), ``t`` (n,)."""
    from scipy.optimize import nnls

    scaled, length = _scaled(design / t[:, None])
    solution, _ = nnls(scaled, np.ones_like(t))
    x = solution / length
    error = np.abs(design @ x / t - 1.0)
    return Fit((float(x[0]), float(x[1]), float(x[2])), float(error.max()), float(np.median(error)))
