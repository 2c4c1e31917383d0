"""Mixtures of gamma laws: smooth service times of several kinds of requests."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pdalloc.laws import Array, StopLossLaw, check_level

NO_SPREAD = 1e-12
"""A squared coefficient of variation below this is a point mass."""


@dataclass(frozen=True)
class GammaMixture(StopLossLaw):
    """Gamma laws with ``means`` (s), ``variances`` (s^2) and ``weights``; arrays (n,).

    No delay exceeds ``most`` (s; a full batch's step, inf without a batch limit); the mean is
    kept as given, the mass beyond moved to the limit.
    """

    means: Array
    variances: Array
    weights: Array
    most: Array | None = None

    @property
    def mean(self) -> float:
        """E[T] in seconds."""
        return float(self.weights @ self.means)

    def _horizon_guess(self) -> float:
        return float(np.max(self.means + 6.0 * np.sqrt(self.variances)))

    def tail(self, t: float) -> float:
        """P(T > t): the weighted upper gamma functions, 0 from ``most`` on; ``t`` in seconds."""
        from scipy.special import gammaincc

        means, variances, weights, most = self._parts
        spread = np.maximum(variances, NO_SPREAD * means**2)
        beyond = gammaincc(means**2 / spread, max(t, 0.0) * means / spread)
        return float(weights @ np.where(t < most, beyond, 0.0))

    def quantile(self, p: float) -> float:
        """Least t with P(T <= t) >= p in seconds, by bisection; InputError unless 0 < p < 1."""
        check_level(p)
        low, high = 0.0, self._horizon_guess()
        while self.tail(high) > 1.0 - p:
            high *= 2.0
        while high - low > 1e-10 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.tail(middle) > 1.0 - p else (low, middle)
        return high

    def stop_loss(self, x: Array) -> Array:
        """E[(min(T, most) - x)+] = G(x) - G(most), with G of :func:`_gamma_stop_loss`."""
        total = np.zeros_like(x)
        for m, v, w, most in zip(*self._parts, strict=True):
            beyond = _gamma_stop_loss(np.array([most]), m, v)[0] if most < math.inf else 0.0
            total += w * np.where(x < most, _gamma_stop_loss(x, m, v) - beyond, 0.0)
        return np.maximum(total, 0.0)

    def excess_square(self, x: Array) -> Array:
        """E[((T - x)+)^2] from the first three incomplete moments, ``most`` left out."""
        total = np.zeros_like(x)
        for m, v, w, _ in zip(*self._parts, strict=True):
            if v <= NO_SPREAD * m**2:
                total += w * np.maximum(m - x, 0.0) ** 2
                continue
            shape, scale = m**2 / v, v / m
            from scipy.special import gammaincc

            q0, q1, q2 = (gammaincc(shape + i, x / scale) for i in range(3))
            total += w * ((v + m**2) * q2 - 2 * x * m * q1 + x**2 * q0)
        return total

    @property
    def _parts(self) -> tuple[Array, Array, Array, Array]:
        most = np.full_like(self.means, math.inf) if self.most is None else self.most
        return self.means, self.variances, self.weights, most


def _gamma_stop_loss(x: Array, m: float, v: float) -> Array:
    """m Q(k+1, x/s) - x Q(k, x/s), Q the regularised upper gamma function, k = m^2/v, s = v/m."""
    if v <= NO_SPREAD * m**2:
        return np.maximum(m - x, 0.0)
    from scipy.special import gammaincc

    shape, scale = m**2 / v, v / m
    values: Array = m * gammaincc(shape + 1, x / scale) - x * gammaincc(shape, x / scale)
    return values
