r"""What a delay law offers: mean, tail, quantile - and how independent delays add up.

A law is known here by its mean and its *stop-loss transform*

.. math:: \pi_T(x) = E[(T - x)^+],

whose second differences on a grid of step :math:`h` give the mean-preserving lattice law
(each point mass is split between its two neighbours so that its mean stays). Sums of
independent delays are convolutions of such lattices; means always add exactly and never
pass through the lattice. All times are seconds.

Source: Gerber (1982), "On the numerical evaluation of the distribution of aggregate
claims", eq. (12) - the method of local moment matching with one moment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError

Array = NDArray[np.float64]

LATTICE_POINTS = 8192
"""Grid points of a lattice law."""
MOST_GRIDS = 24
"""Horizons that are tried; a quantile still in the first point of the last one is 0."""
UNHELD = 1e-6
"""Probability beyond the lattice of a variance."""
SMALLEST = 1e-5
"""Quantiles below about this share of the first horizon are 0: an atom."""


class Law(ABC):
    """A non-negative random delay in seconds."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[T] in seconds."""

    @abstractmethod
    def lattice(self, step: float, points: int) -> Array:
        """Probability masses at 0, step, ..., (points-1)*step (seconds); shape (points,)."""

    def _horizon_guess(self) -> float:
        """A first horizon in seconds; :meth:`_grid` doubles it until the tail fits."""
        return 8.0 * self.mean

    @cached_property
    def variance(self) -> float:
        """Var(T) in s^2, on a lattice that holds all but UNHELD of the law."""
        horizon = max(self._horizon_guess(), 1e-12)
        while True:
            step = horizon / (LATTICE_POINTS - 1)
            masses = self.lattice(step, LATTICE_POINTS)
            if 1.0 - masses.sum() < UNHELD:
                break
            horizon *= 2.0
        square = float(masses @ grid(step, LATTICE_POINTS) ** 2)
        return max(square - self.mean**2, 0.0)

    def tail(self, t: float) -> float:
        """P(T > t); ``t`` in seconds.

        The grid ends half a step below ``t``: what lies beyond costs it no resolution.
        """
        if t < 0:
            return 1.0
        horizon = max(t, SMALLEST**2 * self._horizon_guess(), 1e-15)
        # A lattice mass stands for the mass around its point: half a step on either side.
        masses = self.lattice(horizon / (LATTICE_POINTS - 0.5), LATTICE_POINTS)
        return min(max(1.0 - float(masses.sum()), 0.0), 1.0)

    def probability(self, t: float) -> float:
        """P(T <= t); ``t`` in seconds."""
        return 1.0 - self.tail(t)

    def quantile(self, p: float) -> float:
        """Least t in seconds with P(T <= t) >= p; 0 inside an atom at zero.

        The grid is fitted to the answer: cutting a lattice leaves what lies below the cut
        exact, so a slow tail costs a fast part no resolution.
        Raises InputError when ``p`` is not strictly between 0 and 1.
        """
        check_level(p)
        horizon = max(self._horizon_guess(), 1e-12)
        finest = SMALLEST * horizon
        for _ in range(MOST_GRIDS):
            step = horizon / (LATTICE_POINTS - 1)
            cdf = np.cumsum(self.lattice(step, LATTICE_POINTS))
            i = int(np.searchsorted(cdf, p))
            if i >= LATTICE_POINTS:  # the answer lies beyond the horizon
                horizon *= 2.0
            elif (
                i < LATTICE_POINTS // 16 and horizon > finest
            ):  # or where this grid is too coarse to see it
                horizon *= 2.0 * max(i, 16) / LATTICE_POINTS
            else:
                break
        if i == 0:
            return 0.0
        i = min(i, LATTICE_POINTS - 1)
        below, here = cdf[i - 1], cdf[i]
        share = 1.0 if here <= below else (p - below) / (here - below)
        return float((i - 0.5 + share) * step)


class StopLossLaw(Law):
    """A law known by its stop-loss transform; the lattice follows from it."""

    @abstractmethod
    def stop_loss(self, x: Array) -> Array:
        """E[(T - x)+] in seconds for ``x`` >= 0 in seconds, same shape as ``x``."""

    @abstractmethod
    def excess_square(self, x: Array) -> Array:
        """E[((T - x)+)^2] in s^2 for ``x`` >= 0 in seconds, same shape as ``x``."""

    @property
    def second_moment(self) -> float:
        """E[T^2] in s^2."""
        return float(self.excess_square(np.zeros(1))[0])

    @property
    def scv(self) -> float:
        """Squared coefficient of variation, Var(T) / E[T]^2."""
        return self.second_moment / self.mean**2 - 1.0

    def lattice(self, step: float, points: int) -> Array:
        """Second differences of the stop-loss transform (module docstring)."""
        return masses_of(self.stop_loss(grid(step, points + 1)), step)


@dataclass(frozen=True)
class Atoms(StopLossLaw):
    """Point masses: ``values`` in seconds with ``weights`` summing to 1, shape (n,)."""

    values: Array
    weights: Array

    @property
    def mean(self) -> float:
        """E[T] in seconds."""
        return float(self.values @ self.weights)

    def _horizon_guess(self) -> float:
        return 1.001 * float(self.values.max()) + 1e-12

    def tail(self, t: float) -> float:
        """Weight of the values above ``t`` seconds, up to rounding of ``t``."""
        values, mass, _, _ = self._sorted
        i = int(np.searchsorted(values, t + 1e-12 * abs(t), side="right"))
        return min(float(mass[i]), 1.0)

    def quantile(self, p: float) -> float:
        """Least value with P(T <= value) >= p, exactly; InputError unless 0 < p < 1."""
        check_level(p)
        values, mass, _, _ = self._sorted
        below = mass[0] - mass[1:]  # P(T <= value) for each value in order
        i = int(np.searchsorted(below, p * (1.0 - 1e-12)))
        return float(values[min(i, len(values) - 1)])

    @cached_property
    def _sorted(self) -> tuple[Array, Array, Array, Array]:
        """Values in order, and the moments 0, 1, 2 of the mass at or above each."""
        order = np.argsort(self.values)
        values, weights = self.values[order], self.weights[order]
        powers = (weights, weights * values, weights * values**2)
        above = [np.append(np.cumsum(terms[::-1])[::-1], 0.0) for terms in powers]
        return values, above[0], above[1], above[2]

    def stop_loss(self, x: Array) -> Array:
        """Sum over values v above x of w (v - x)."""
        values, mass, moment, _ = self._sorted
        i = np.searchsorted(values, x)
        return np.maximum(moment[i] - x * mass[i], 0.0)

    def excess_square(self, x: Array) -> Array:
        """Sum over values v above x of w (v - x)^2."""
        values, mass, moment, square = self._sorted
        i = np.searchsorted(values, x)
        return np.maximum(square[i] - 2.0 * x * moment[i] + x**2 * mass[i], 0.0)


@dataclass(frozen=True)
class Exponentials(StopLossLaw):
    """A mixture of shifted exponentials: shift_i + Exp(mean_i); arrays in seconds, (n,).

    ``means`` may hold zeros (a point mass at the shift).
    """

    means: Array
    weights: Array
    shifts: Array

    @property
    def mean(self) -> float:
        """E[T] in seconds."""
        return float(self.weights @ (self.means + self.shifts))

    def tail(self, t: float) -> float:
        """sum w exp(-(t - s)/m) above the shift, w below it; ``t`` in seconds."""
        above = np.maximum(t - self.shifts, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(self.means > 0.0, np.exp(-above / self.means), 0.0)
        return float(self.weights @ np.where(t < self.shifts, 1.0, beyond))

    def stop_loss(self, x: Array) -> Array:
        """sum w (m + s - x) below the shift, sum w m exp(-(x - s)/m) above it."""
        total = np.zeros_like(x)
        for m, w, s in zip(self.means, self.weights, self.shifts, strict=True):
            above = np.maximum(x - s, 0.0)
            decayed = m * np.exp(-above / m) if m > 0 else np.zeros_like(x)
            total += w * np.where(x < s, m + s - x, decayed)
        return total

    def excess_square(self, x: Array) -> Array:
        """sum w ((s-x)^2 + 2m(s-x) + 2m^2) below the shift, sum w 2m^2 exp(-(x-s)/m) above."""
        total = np.zeros_like(x)
        for m, w, s in zip(self.means, self.weights, self.shifts, strict=True):
            below, above = np.maximum(s - x, 0.0), np.maximum(x - s, 0.0)
            decayed = 2.0 * m**2 * np.exp(-above / m) if m > 0 else np.zeros_like(x)
            total += w * (below**2 + 2.0 * m * below + decayed)
        return total


@dataclass(frozen=True)
class Sum(Law):
    """The sum of independent delays."""

    parts: tuple[Law, ...]

    @property
    def mean(self) -> float:
        """E[T] in seconds, exactly the sum of the parts' means."""
        return sum(part.mean for part in self.parts)

    def _horizon_guess(self) -> float:
        return sum(part._horizon_guess() for part in self.parts)

    def lattice(self, step: float, points: int) -> Array:
        """Linear convolution of the parts' lattices, cut at ``points``."""
        total = self.parts[0].lattice(step, points)
        for part in self.parts[1:]:
            total = convolve(total, part.lattice(step, points))[:points]
        return total


@dataclass(frozen=True)
class Mixture(Law):
    """A request meets ``laws[i]`` with probability ``weights[i]``."""

    laws: tuple[Law, ...]
    weights: tuple[float, ...]

    @property
    def mean(self) -> float:
        """E[T] in seconds."""
        return sum(w * law.mean for w, law in zip(self.weights, self.laws, strict=True))

    def _horizon_guess(self) -> float:
        return max(law._horizon_guess() for law in self.laws)

    def tail(self, t: float) -> float:
        """Weighted sum of the laws' tails; ``t`` in seconds."""
        return sum(w * law.tail(t) for w, law in zip(self.weights, self.laws, strict=True))

    def lattice(self, step: float, points: int) -> Array:
        """Weighted sum of the laws' lattices."""
        total = np.zeros(points)
        for w, law in zip(self.weights, self.laws, strict=True):
            total += w * law.lattice(step, points)
        return total


def grid(step: float, points: int) -> Array:
    """0, step, ..., (points - 1) * step."""
    return np.arange(points, dtype=np.float64) * step


def masses_of(stop_loss: Array, step: float) -> Array:
    """Mean-preserving masses from E[(T - x)+] on a grid of n + 1 points; shape (n,)."""
    masses = np.empty(len(stop_loss) - 1)
    masses[0] = 1.0 + (stop_loss[1] - stop_loss[0]) / step
    masses[1:] = (stop_loss[2:] - 2.0 * stop_loss[1:-1] + stop_loss[:-2]) / step
    return np.clip(masses, 0.0, None)


def check_level(p: float) -> None:
    """Raise InputError unless ``p`` lies strictly between 0 and 1."""
    if not 0.0 < p < 1.0:
        raise InputError(f"a percentile level must lie strictly between 0 and 1, got {p}")


def convolve(left: Array, right: Array) -> Array:
    """Linear convolution by FFT of two mass vectors; length is the sum minus one."""
    n = len(left) + len(right) - 1
    size = 1 << (n - 1).bit_length()
    product = np.fft.rfft(left, size) * np.fft.rfft(right, size)
    return np.clip(np.fft.irfft(product, size)[:n], 0.0, None)


def constant(seconds: float) -> Atoms:
    """A delay that is always ``seconds``."""
    return Atoms(np.array([seconds]), np.array([1.0]))


def total(parts: Sequence[Law]) -> Law:
    """The sum of independent ``parts``; a single part is returned as it is."""
    return parts[0] if len(parts) == 1 else Sum(tuple(parts))
