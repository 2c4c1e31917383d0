r"""The law of a wait: nobody ahead with probability 1 - P(W > 0), else a law of W | W > 0.

Tijms, van Hoorn and Federgruen (1981, "Approximations for the steady-state probabilities in
the M/G/c queue", section 4; Tijms 2003, eq. 9.6.20): who must wait waits for the first of c
residual services and then as in one server of c times the speed,

.. math:: W \mid W>0 \;\approx\; \min(R_1, \dots, R_c) + W_{M/G/1}(S/c, \rho),

exact for exponential service and for c = 1. Rivals that know a mean and P(W > 0) scale it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.laws import Array, Law, check_level, grid, masses_of
from pdalloc.queueing.service import Service
from pdalloc.queueing.single_server import geometric_sum
from pdalloc.queueing.survival import SurvivalTable

FEW_POINTS = 1024
"""Lattice points for one quantile."""
TRIES = 40


@dataclass(frozen=True)
class LeastResidualWait(Law):
    """W | W > 0 above, seconds; ``servers`` may be real, ``utilisation`` in (0, 1)."""

    service: Service
    servers: float
    utilisation: float

    @cached_property
    def mean(self) -> float:
        """E[min R] + rho (1 + SCV) E[S] / (2 c (1 - rho)), seconds."""
        queue = self.utilisation * (1.0 + self.service.scv) * self.service.mean
        return self.service.least_residual_mean(self.servers) + queue / (
            2.0 * self.servers * (1.0 - self.utilisation)
        )

    def lattice(self, step: float, points: int) -> Array:
        """Masses of the least residual, then a geometric number of residuals of S/c."""
        at = grid(step, points + 1)
        cells = np.diff(self.service.least_residual_integral(at, self.servers)) / step
        first = -np.diff(cells, prepend=1.0)
        return geometric_sum(self._queue_lattice(step, points), self.utilisation, first)

    def _queue_lattice(self, step: float, points: int) -> Array:
        """Masses of a residual of S/c."""
        at = self.servers * grid(step, points + 1)
        return masses_of(self.service.residual.stop_loss(at) / self.servers, step)

    def quantile(self, p: float) -> float:
        """As :meth:`Law.quantile`, on a lattice of few points around the answer."""
        check_level(p)
        return quick_quantile(self, p)


@dataclass(frozen=True)
class LeastAssignedWait(LeastResidualWait):
    """The same where an arrival joins the server with least assigned work, running ones whole.

    What it waits for first is then what is left at that server.
    """

    @cached_property
    def first(self) -> SurvivalTable:
        """Law of what is left there, seconds."""
        return self.service.least_assigned(self.servers)

    @cached_property
    def mean(self) -> float:
        """Seconds."""
        least = self.service.least_residual_mean(self.servers)
        return super().mean - least + self.first.mean

    def lattice(self, step: float, points: int) -> Array:
        """As for the least residual."""
        more = self._queue_lattice(step, points)
        return geometric_sum(more, self.utilisation, self.first.lattice(step, points))


@dataclass(frozen=True)
class Exponential(Law):
    """An exponential delay of ``mean_seconds``."""

    mean_seconds: float

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.mean_seconds

    def lattice(self, step: float, points: int) -> Array:
        """Second differences of m exp(-x/m)."""
        at = grid(step, points + 1)
        return masses_of(self.mean_seconds * np.exp(-at / self.mean_seconds), step)

    def tail(self, t: float) -> float:
        """exp(-t/m)."""
        return math.exp(-max(t, 0.0) / self.mean_seconds)

    def quantile(self, p: float) -> float:
        """-m log(1 - p), seconds; InputError unless 0 < p < 1."""
        check_level(p)
        return -self.mean_seconds * math.log1p(-p)


@dataclass(frozen=True)
class DelayedWait(Law):
    """0 with probability 1 - ``p_wait``, else ``shape`` stretched so that the mean is ``mean``."""

    p_wait: float
    mean_seconds: float
    shape: Law

    @property
    def mean(self) -> float:
        """E[W], seconds."""
        return self.mean_seconds

    @property
    def stretch(self) -> float:
        """E[W | W > 0] over the mean of ``shape``."""
        return self.mean_seconds / (self.p_wait * self.shape.mean)

    @property
    def _nobody(self) -> bool:
        return self.p_wait <= 0.0 or self.mean_seconds <= 0.0

    def _horizon_guess(self) -> float:
        return 0.0 if self._nobody else self.stretch * self.shape._horizon_guess()

    def lattice(self, step: float, points: int) -> Array:
        """The stretched shape and the atom at 0."""
        if self._nobody:
            none: Array = np.eye(1, points)[0]
            return none
        masses = self.p_wait * self.shape.lattice(step / self.stretch, points)
        masses[0] += 1.0 - self.p_wait
        return masses

    def tail(self, t: float) -> float:
        """P(W > t), exactly P(W > 0) at 0; ``t`` in seconds."""
        if t < 0.0:
            return 1.0
        return 0.0 if self._nobody else self.p_wait * self.shape.tail(t / self.stretch)

    def quantile(self, p: float) -> float:
        """0 up to 1 - p_wait, else that of the shape at level 1 - (1 - p)/p_wait."""
        check_level(p)
        if self._nobody or self.p_wait <= 1.0 - p:
            return 0.0
        return self.stretch * self.shape.quantile(1.0 - (1.0 - p) / self.p_wait)


def quick_quantile(law: Law, p: float, points: int = FEW_POINTS) -> float:
    """Least t with P(T <= t) >= p for a law without an atom at 0, seconds.

    The horizon starts where an exponential law would put the answer's and is moved until the
    answer lies in its upper part.
    """
    horizon = 1.5 * law.mean * max(-math.log1p(-p), p)
    for _ in range(TRIES):
        step = horizon / (points - 1)
        cdf = np.cumsum(law.lattice(step, points))
        i = int(np.searchsorted(cdf, p))
        if i >= points:
            horizon *= 2.0
        elif i < points // 8:
            horizon *= 2.0 * max(i, points // 64) / points
        else:
            break
    i = min(max(i, 1), points - 1)
    below, here = cdf[i - 1], cdf[i]
    share = 1.0 if here <= below else float(np.clip((p - below) / (here - below), 0.0, 1.0))
    return float((i - 0.5 + share) * step)
