"""Service times read from a measured table, by monotone interpolation.

Real tables go down in places, so values pass an isotonic fit first. Inside the table times
are interpolated linearly between points (which keeps them monotone). Outside it:

* below the least point the time stays at that point's - the table never claims to be faster
  than anything measured;
* above the greatest point the last slope goes on (the whole table's where it ends level),
  and the plan warns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A nondecreasing piecewise linear function through measured points; arrays (n,).

    ``x`` strictly increasing and positive, ``seconds`` positive. Raises InputError for an
    empty curve, one point only, NaN, repeated or unsorted ``x``, non-positive seconds.
    """

    what: str
    x: Array
    seconds: Array

    def __post_init__(self) -> None:
        if len(self.x) != len(self.seconds):
            raise InputError(
                f"{self.what}: {len(self.x)} points but {len(self.seconds)} times; give as many"
            )
        if len(self.x) < 2:
            raise InputError(f"{self.what}: a measured curve needs at least 2 points")
        if not (np.all(np.isfinite(self.x)) and np.all(np.isfinite(self.seconds))):
            raise InputError(f"{self.what}: every point must be a finite number")
        if np.any(np.diff(self.x) <= 0) or self.x[0] <= 0:
            raise InputError(f"{self.what}: points must be positive and strictly increasing")
        if np.any(self.seconds <= 0):
            raise InputError(f"{self.what}: every time must be positive")

    @cached_property
    def monotone(self) -> Array:
        """Least-squares nondecreasing fit of ``seconds``, shape (n,)."""
        if np.all(np.diff(self.seconds) >= 0):
            return self.seconds
        from scipy.optimize import isotonic_regression

        return np.asarray(isotonic_regression(self.seconds).x, float)

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest measured ``x``."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, x: Array) -> Array:
        """Seconds at ``x`` (array of any shape)."""
        y = self.monotone
        last = (y[-1] - y[-2]) / (self.x[-1] - self.x[-2])
        whole = (y[-1] - y[0]) / (self.x[-1] - self.x[0])
        slope = last if last > 0 else whole  # a level end must not promise free batches,
        slope = slope if slope > 0 else y[-1] / self.x[-1]  # nor a level table
        inside: Array = np.interp(x, self.x, y)
        extended: Array = inside + slope * np.maximum(x - self.x[-1], 0.0)
        return extended


@dataclass(frozen=True)
class MeasuredPrefill:
    """Prefill time by prompt length.

    Cached tokens are taken off the prompt: the table has no column for them, and the time of
    the uncached part alone is what it can say (attention over cached tokens is left out).
    """

    curve: Curve

    @property
    def range_tokens(self) -> tuple[float, float]:
        """Measured prompt lengths, tokens."""
        return self.curve.range

    def seconds(self, prompt: Array, cached: Array) -> Array:
        """Seconds per prompt; arrays (n,)."""
        return self.curve(prompt - cached)

    def pass_seconds(self, tokens: Array, squares: Array) -> Array:
        """Seconds of passes that compute ``tokens`` in all; ``squares`` is not used; (n,)."""
        return self.curve(tokens)


@dataclass(frozen=True)
class MeasuredDecode:
    """Decode step time by batch size, at the context the table was measured at."""

    curve: Curve

    @property
    def range_batch(self) -> tuple[float, float]:
        """Measured batch sizes."""
        return self.curve.range

    def seconds(self, batch: Array, context: Array) -> Array:
        """Seconds per step; ``context`` is not used; arrays (n,)."""
        return self.curve(batch)
