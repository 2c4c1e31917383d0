r"""GI/G/1 exactly on a lattice: the wait as the maximum of a random walk.

With X = S - A (service minus gap) the stationary wait is the maximum of the walk with steps
X, and Spitzer's (1956) identity gives its transform,

.. math:: E z^W = \exp \sum_{k>0} a_k (z^k - 1), \qquad
          \sum_k a_k z^k = -\log\big(1 - E z^X\big).

The a_k come from one FFT: the zero of 1 - E z^X at z = 1 is divided out as 1 - 1/z, which adds
to negative k only. Round robin over c servers is this law with gaps that are sums of c arrival
gaps; with constant service it is also M/D/c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.laws import (
    Atoms,
    Exponentials,
    StopLossLaw,
    check_level,
    constant,
    grid,
    masses_of,
)
from pdalloc.queueing.station import Gaps

POINTS = 1 << 12
"""Least lattice points over the period: half of it for waits, half for the walk's way down."""
TAILS = 36.0
"""The period holds this many heavy-traffic mean waits on either side of 0."""
GAPS = 20.0
"""And this many mean gaps."""
FINENESS = 0.2
"""A step is at most this share of the standard deviation of S - A; that may take more points,"""
MOST_POINTS = 1 << 17
"""up to these."""
LEAST_SPREAD = 0.01
"""Standard deviation of S - A, in mean gaps, below which it is not resolved."""
NEVER = 1e-12
"""P(S > A) below which nobody ever waits: regular arrivals of equal work, or next to no load."""


@dataclass(frozen=True)
class LatticeLaw(Atoms):
    """Masses at even steps from 0 that stand for what lies around them."""

    def quantile(self, p: float) -> float:
        """Between half steps in seconds, not below 0; InputError unless 0 < p < 1."""
        check_level(p)
        cdf = np.cumsum(self.weights)
        i = int(np.searchsorted(cdf, p * (1.0 - 1e-12)))
        below = cdf[i - 1] if i else 0.0
        share = (p - below) / max(float(self.weights[min(i, len(cdf) - 1)]), 1e-300)
        return float(max((i - 0.5 + min(share, 1.0)) * self.values[1], 0.0)) if i else 0.0


def gap_law(mean: float, scv: float, gaps: Gaps = "gamma") -> StopLossLaw:
    """Law of a gap of ``mean`` seconds with squared coefficient of variation ``scv``."""
    from pdalloc.queueing.gamma_mixture import GammaMixture

    if scv <= 0.0:
        return constant(mean)
    if gaps == "hyperexponential":
        first = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
        shares = np.array([first, 1.0 - first])
        return Exponentials(0.5 * mean / shares, shares, np.zeros(2))
    return GammaMixture(np.array([mean]), np.array([scv * mean**2]), np.ones(1))


def walk_wait(
    service: StopLossLaw,
    gap: StopLossLaw,
    keep: float = 1.0,
    every: int = 1,
    points: int = POINTS,
) -> LatticeLaw:
    """Law of the wait in seconds of one server.

    ``gap`` is the law of one gap between arrivals. Each is kept with probability ``keep``
    (random splitting: a gap is a geometric sum), or one in ``every`` (turns: a plain sum).
    """
    mean_gap = gap.mean * every / keep
    gap_square = (gap.scv * keep + 1.0 - keep) / every  # SCV of the gaps at the server
    drift = mean_gap - service.mean
    variance = service.scv * service.mean**2 + gap_square * mean_gap**2
    reach = max(TAILS * variance / (2.0 * drift), GAPS * mean_gap, 2.0 * service.mean)
    spread = max(math.sqrt(variance), LEAST_SPREAD * mean_gap)
    reach = max(reach, 2.0 * drift**3 / spread**2)  # steps down must blur before they wrap
    finest = 2.0 * reach / (FINENESS * spread)
    points = max(points, min(1 << math.ceil(math.log2(finest)), MOST_POINTS))
    # a step that divides the mean service keeps constant service exact
    step = service.mean / max(math.ceil(service.mean * points / (2.0 * reach)), 1)
    steps = _transform(service, step, points) * np.conj(_gaps(gap, keep, every, step, points))
    if np.fft.irfft(steps, points)[1 : points // 2].sum() < NEVER:
        return LatticeLaw(np.array([0.0, mean_gap]), np.array([1.0, 0.0]))
    angle = 2.0 * np.pi * np.arange(points // 2 + 1) / points
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (1.0 - steps) / (1.0 - np.exp(1j * angle))
    ratio[0] = drift / step
    log = np.log(np.abs(ratio)) + 1j * np.unwrap(np.angle(ratio))
    coefficients = -np.fft.irfft(log, points)[: points // 2]
    coefficients[0] = 0.0
    climbs = np.clip(coefficients, 0.0, None)
    masses = np.fft.irfft(np.exp(np.fft.rfft(climbs, points) - climbs.sum()), points)
    waits = np.clip(masses[: points // 2], 0.0, None)
    return LatticeLaw(grid(step, points // 2), waits / waits.sum())


def _transform(law: StopLossLaw, step: float, points: int) -> NDArray[np.complex128]:
    """E z^T on the unit circle (numpy's sign) of the lattice law with T's mean and variance.

    The mean-preserving lattice law has too much variance; 1 + v (1 - cos w), v the excess in
    squared steps, takes it away again.
    """
    at = grid(step, points + 1)
    masses = masses_of(law.stop_loss(at), step)
    masses /= masses.sum()
    excess = max(float(masses @ at[:-1] ** 2) - law.second_moment, 0.0) / step**2
    angle = 2.0 * np.pi * np.arange(points // 2 + 1) / points
    return np.fft.rfft(masses) * (1.0 + excess * (1.0 - np.cos(angle)))


def _gaps(
    law: StopLossLaw, keep: float, every: int, step: float, points: int
) -> NDArray[np.complex128]:
    one = _transform(law, step, points)
    summed: NDArray[np.complex128] = keep * one / (1.0 - (1.0 - keep) * one)
    return summed**every


def p_positive(wait: LatticeLaw) -> float:
    """P(W > 0): a lattice law has half of the first cell's mass in its point at 0."""
    return float(1.0 - wait.weights[0] + 0.5 * wait.weights[1])


def given_wait(wait: LatticeLaw) -> LatticeLaw:
    """Law of W | W > 0 in seconds, with the share of the point at 0 that is not at 0."""
    weights = wait.weights.copy()
    weights[0] = 0.5 * weights[1]
    if not weights.any():  # too rare for the lattice: the least wait that it knows
        weights[1] = 1.0
    return LatticeLaw(wait.values, weights / weights.sum())
