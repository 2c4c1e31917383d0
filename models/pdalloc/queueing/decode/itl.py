"""The law of a step time: what the batch leaves open, the contexts' sum, is a gamma law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaincc, ndtri

from pdalloc.laws import Array, Atoms, StopLossLaw, check_level

POINTS = 8
"""Equally likely points that carry each gamma law where laws are added up."""
BLOCKS = 40
"""Batches are merged into about this many blocks where contexts blur them anyway."""
ACCURACY = 1e-7
"""Relative accuracy of a percentile."""


@dataclass(frozen=True, eq=False)
class BlurredSteps(StopLossLaw):
    """``floors`` + gamma laws of ``means`` and ``variances`` (s, s^2), ``weights``; arrays (n,).

    The mean is kept through :attr:`points`, which stand for the law in sums.
    """

    floors: Array
    means: Array
    variances: Array
    weights: Array

    @property
    def mean(self) -> float:
        """E[T] in seconds."""
        return float(self.weights @ (self.floors + self.means))

    @cached_property
    def deviation(self) -> float:
        """Standard deviation, s."""
        centre = self.floors + self.means
        return float(np.sqrt(self.weights @ (self.variances + (centre - self.mean) ** 2)))

    def tail(self, t: float) -> float:
        """P(T > t); ``t`` in seconds."""
        above = np.maximum(t - self.floors, 0.0)
        beyond = gammaincc(self.means**2 / self.variances, above * self.means / self.variances)
        return float(self.weights @ beyond)

    def quantile(self, p: float) -> float:
        """Least t with P(T <= t) >= p in seconds; InputError unless 0 < p < 1."""
        check_level(p)
        low, high = 0.0, self.mean + (float(ndtri(p)) + 4.0) * self.deviation
        while self.tail(high) > 1.0 - p:
            low, high = high, 2.0 * high
        at = min(max(self.mean + float(ndtri(p)) * self.deviation, low), high)
        for _ in range(100):
            excess = self.tail(at) - (1.0 - p)
            low, high = (at, high) if excess > 0.0 else (low, at)
            if high - low <= ACCURACY * high:
                break
            width = 1e-4 * self.deviation
            fall = (excess + (1.0 - p) - self.tail(at + width)) / width
            step = at + excess / fall if fall > 0.0 else low
            at = step if low < step < high else 0.5 * (low + high)
            if abs(excess) <= ACCURACY * (1.0 - p):
                break
        return at

    @cached_property
    def points(self) -> Atoms:
        """Point masses of the same mean and, per gamma law, of the same variance."""
        z = ndtri((np.arange(POINTS) + 0.5) / POINTS)
        shape = np.maximum(self.means**2 / self.variances, 0.05)[:, None]
        third = 1.0 / (9.0 * shape)  # Wilson and Hilferty 1931: a gamma's cube root is normal
        raw = np.maximum(1.0 - third + z * np.sqrt(third), 0.0) ** 3
        centred = raw - raw.mean(axis=1, keepdims=True)
        scale = np.sqrt(self.variances / np.maximum((centred**2).mean(axis=1), 1e-300))
        values = self.floors[:, None] + np.maximum(self.means[:, None] + scale[:, None] * centred, 0.0)
        values += (self.floors + self.means - values.mean(axis=1))[:, None]
        return Atoms(values.ravel(), np.repeat(self.weights / POINTS, POINTS))

    def _horizon_guess(self) -> float:
        return self.mean + 10.0 * self.deviation

    def stop_loss(self, x: Array) -> Array:
        """That of :attr:`points`."""
        return self.points.stop_loss(x)

    def excess_square(self, x: Array) -> Array:
        """That of :attr:`points`."""
        return self.points.excess_square(x)


def blurred(floors: Array, means: Array, variances: Array, weights: Array) -> StopLossLaw:
    """Step times at batches in order, merged into blocks; point masses where nothing blurs."""
    if not np.any(variances > 1e-18 * (floors + means) ** 2):
        return Atoms(floors + means, weights)
    block = np.minimum((np.cumsum(weights) - 0.5 * weights) * BLOCKS, BLOCKS - 1)
    tail = np.cumsum(weights[::-1])[::-1] - 0.5 * weights
    with np.errstate(divide="ignore"):
        far = np.maximum(-np.log10(np.maximum(tail, 1e-12)) - 1.5, 0.0) * 8.0
    block = (block + np.floor(far) * BLOCKS).astype(np.intp)  # the upper tail in finer blocks
    mass = np.bincount(block, weights)
    used = mass > 0
    mass = mass[used]

    def mean_of(values: Array) -> Array:
        found: Array = np.bincount(block, weights * values)[used] / mass
        return found

    floor, centre = mean_of(floors), mean_of(floors + means)
    variance = mean_of(variances + (floors + means) ** 2) - centre**2
    mean = np.maximum(centre - floor, 1e-12 * centre)
    return BlurredSteps(floor, mean, np.maximum(variance, 1e-12 * mean**2), mass / mass.sum())
