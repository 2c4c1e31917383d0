r"""Waiting time of one FCFS server: M/G/1 exactly.

A pool under random dispatch is as many such stations as it has replicas, each fed by a
Poisson stream when the arrivals are Poisson.

Mean (Pollaczek-Khinchine, eq. 5.62 of Kleinrock 1975, vol. 1):

.. math:: E[W] = \frac{\lambda E[S^2]}{2 (1 - \rho)}, \qquad \rho = \lambda E[S].

Law (Beneš 1957): W is a geometric sum of residual service times,
:math:`P(W \in \cdot) = (1-\rho) \sum_j \rho^j R^{*j}` with
:math:`P(R > x) = \int_x^\infty P(S > u) du / E[S]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.errors import InputError, UnstableError
from pdalloc.laws import Array, Law, StopLossLaw, grid, masses_of

ALIASING = 24.0
"""Wrap-around of the FFT below is damped by exp(-ALIASING)."""


@dataclass(frozen=True)
class SingleServerWait(Law):
    """Law of the wait before service.

    ``rate`` in requests/s, Poisson; ``service`` the law of service seconds. Raises UnstableError
    at utilisation >= 1.
    """

    rate: float
    service: StopLossLaw

    def __post_init__(self) -> None:
        if not np.isfinite(self.rate) or self.rate < 0:
            raise InputError(f"a rate must be finite and not negative, got {self.rate:g} req/s")
        if not self.service.mean > 0:
            raise InputError("a service law must have a positive, finite mean")
        if self.utilisation >= 1.0:
            raise UnstableError(
                f"one server is offered {self.rate:.4g} req/s of {self.service.mean:.4g} s each: "
                f"utilisation {self.utilisation:.3f}; it takes more than "
                f"{max(int(self.utilisation), 1)} servers"
            )

    @property
    def utilisation(self) -> float:
        """rho = rate * E[S]."""
        return self.rate * self.service.mean

    @cached_property
    def mean(self) -> float:
        """E[W] in seconds."""
        return self.rate * self.service.second_moment / (2.0 * (1.0 - self.utilisation))

    def _horizon_guess(self) -> float:
        return 16.0 * max(self.mean, 0.25 * self.service.mean)

    def lattice(self, step: float, points: int) -> Array:
        """Geometric sum of residual service times on a lattice, by a tilted FFT."""
        return geometric_sum(self._residual_lattice(step, points), self.utilisation)

    def _residual_lattice(self, step: float, points: int) -> Array:
        """Mean-preserving masses of the residual service time, from E[((S-x)+)^2]/(2E[S])."""
        square = self.service.excess_square(grid(step, points + 1))
        return masses_of(square / (2.0 * self.service.mean), step)


def geometric_sum(terms: Array, rho: float, first: Array | None = None) -> Array:
    """Masses of ``first`` plus a geometric number, P(N = j) = (1-rho) rho^j, of ``terms``.

    Lattice masses, all of one length; ``first`` is 0 if left out.
    """
    size = 2 * len(terms)
    tilt = np.exp(-ALIASING / size * np.arange(len(terms)))
    transform = (1 - rho) / (1 - rho * np.fft.rfft(terms * tilt, size))
    if first is not None:
        transform *= np.fft.rfft(first * tilt, size)
    wait = np.fft.irfft(transform, size)[: len(terms)] / tilt
    masses: Array = np.clip(wait, 0.0, None)
    return masses
