r"""Mixtures of gamma laws known by three cumulants: step times, and their means over a stay.

A component of mean m, variance v and third cumulant :math:`2 \theta v` is

.. math:: m - v/\theta + \theta\, \Gamma(v/\theta^2),

bounded below for theta > 0 and above for theta < 0 (Pearson's type III).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, ndtri

from pdalloc.laws import Array, Atoms, StopLossLaw, check_level

POINTS = 8
"""Equally likely points that carry each component where laws are added up."""
BLOCKS = 40
"""Batches below P90 are merged into about this many blocks where contexts blur them anyway."""
ACCURACY = 1e-7
"""Relative accuracy of a percentile."""
NO_TAIL = 1e-300
LEAST_SKEW = 0.02
"""Skews of less count as this much: a normal law, in effect."""


@dataclass(frozen=True, eq=False)
class SkewedLaw(StopLossLaw):
    """Components of ``means`` (s), ``variances`` (s^2), ``scales`` theta (s), ``weights``; (n,).

    No delay exceeds ``most`` (s; a full batch's step): the mass beyond is moved there. Sums and
    :meth:`stop_loss` use :attr:`points`, which keep the mean and each component's variance.
    """

    means: Array
    variances: Array
    scales: Array
    weights: Array
    most: Array | None = None

    @cached_property
    def _parts(self) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        """(shape, |theta|, end of the support, whether it is the lower end)."""
        deviation = np.sqrt(np.maximum(self.variances, 1e-24 * self.means**2 + 1e-300))
        sign = np.where(self.scales < 0.0, -1.0, 1.0)
        size = np.maximum(np.abs(self.scales), 0.5 * LEAST_SKEW * deviation)
        shape = (deviation / size) ** 2
        return shape, size, self.means - sign * shape * size, sign > 0.0

    @property
    def mean(self) -> float:
        """E[T] in seconds."""
        return float(self.weights @ self.means)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation, s."""
        return float(np.sqrt(self.weights @ (self.variances + (self.means - self.mean) ** 2)))

    def tail(self, t: float) -> float:
        """P(T > t); ``t`` in seconds."""
        shape, size, end, below = self._parts
        x = np.maximum(np.where(below, t - end, end - t) / size, 0.0)
        beyond = np.where(below, gammaincc(shape, x), gammainc(shape, x))
        if self.most is not None:
            beyond = np.where(t < self.most, beyond, 0.0)
        return float(self.weights @ beyond)

    def quantile(self, p: float) -> float:
        """Least t with P(T <= t) >= p in seconds; InputError unless 0 < p < 1."""
        check_level(p)
        width = self.deviation + 1e-12 * self.mean
        normal = float(ndtri(p))

        def above(t: float) -> float:
            """Falls through 0 at the answer; nearly a line, as tails are nearly exponential."""
            tail = self.tail(t)
            if p >= 0.5:
                return math.log(max(tail, NO_TAIL) / (1.0 - p))
            return -math.log(max(1.0 - tail, NO_TAIL) / p)

        low, high = 0.0, self.mean + (abs(normal) + 4.0) * width
        while (beyond := above(high)) > 0.0:
            low, high = high, 2.0 * high
        left, right = above(low), beyond
        at = min(max(self.mean + normal * width, low), high)
        side = 0
        for i in range(100):  # regula falsi, Illinois variant (Dowell and Jarratt 1971)
            value = above(at)
            if value > 0.0:
                low, left, right = at, value, 0.5 * right if side > 0 else right
            else:
                high, right, left = at, value, 0.5 * left if side < 0 else left
            side = 1 if value > 0.0 else -1
            if high - low <= ACCURACY * high or abs(value) <= ACCURACY:
                break
            at = low + (high - low) * left / (left - right)
            if i % 8 == 7 or not low < at < high:
                at = 0.5 * (low + high)
        return at

    @cached_property
    def points(self) -> Atoms:
        """Point masses of the same mean and, per component, of the same variance."""
        shape, _, _, below = self._parts
        z = ndtri((np.arange(POINTS) + 0.5) / POINTS)
        third = 1.0 / (9.0 * np.maximum(shape, 0.05))[:, None]
        # Wilson and Hilferty 1931: a gamma's cube root is normal
        raw = np.maximum(1.0 - third + z * np.sqrt(third), 0.0) ** 3
        raw = np.where(below[:, None], raw, -raw)
        centred = raw - raw.mean(axis=1, keepdims=True)
        scale = np.sqrt(self.variances / np.maximum((centred**2).mean(axis=1), 1e-300))
        values = np.maximum(self.means[:, None] + scale[:, None] * centred, 0.0)
        values *= (self.means / np.maximum(values.mean(axis=1), 1e-300))[:, None]
        return Atoms(values.ravel(), np.repeat(self.weights / POINTS, POINTS))

    def _horizon_guess(self) -> float:
        return self.mean + 10.0 * self.deviation

    def stop_loss(self, x: Array) -> Array:
        """That of :attr:`points`."""
        return self.points.stop_loss(x)

    def excess_square(self, x: Array) -> Array:
        """That of :attr:`points`."""
        return self.points.excess_square(x)


def cumulants(law: StopLossLaw) -> tuple[float, float, float]:
    """(mean, variance, third cumulant) of point masses or a :class:`SkewedLaw`, in s."""
    if isinstance(law, SkewedLaw):
        values, weights = law.means, law.weights
        inner, third = law.variances, 2.0 * law.scales * law.variances
    elif isinstance(law, Atoms):
        values, weights = law.values, law.weights
        inner = third = np.zeros_like(values)
    else:
        raise TypeError(f"no cumulants of a {type(law).__name__}")
    mean = float(weights @ values)
    off = values - mean
    variance = float(weights @ (inner + off**2))
    return mean, variance, float(weights @ (third + 3.0 * inner * off + off**3))


def blurred(means: Array, variances: Array, scales: Array, weights: Array) -> StopLossLaw:
    """Step times at batches in order, merged into blocks; point masses where nothing blurs."""
    if not np.any(variances > 1e-18 * means**2):
        return Atoms(means, weights)
    below = np.cumsum(weights) - 0.5 * weights
    above = np.maximum(1.0 - below, 1e-6)
    # even in mass below P90, then ten to each decade of the upper tail
    cut = np.where(
        above > 0.1, np.floor(below * BLOCKS), -np.floor(10.0 * np.log10(above)) + BLOCKS
    )
    block = np.cumsum(np.append(0, np.diff(cut) != 0))
    mass = np.bincount(block, weights)
    used = mass > 0
    kept = mass[used]

    def mean_of(values: Array) -> Array:
        found: Array = np.bincount(block, weights * values)[used] / kept
        return found

    centre = mean_of(means)
    variance = np.maximum(mean_of(variances + means**2) - centre**2, 1e-24 * centre**2)
    scale = mean_of(scales * variances) / np.maximum(mean_of(variances), 1e-300)
    return SkewedLaw(centre, variance, scale, kept / kept.sum())
