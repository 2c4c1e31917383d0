r"""The service law of a station, and what delay laws read off it.

The residual life R of S has survival
:math:`\int_t^\infty P(S>u)\,du / E[S] = E[(S-t)^+]/E[S]`. It is kept at nodes and taken as
linear between them: exact for point masses, whose nodes are the points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.laws import Array, Atoms, StopLossLaw
from pdalloc.queueing.survival import SurvivalTable

NODES = 3000
"""Nodes of a law without point masses: as many in geometric as (a third) in even steps."""
FINEST = 1e-6
"""First geometric node, in mean services."""
NEGLIGIBLE = 1e-14
"""Survival of the residual life at which the nodes end."""
RATES = np.linspace(math.log(1e-5), math.log(1e5), 600)
"""Logarithms of theta at which the index of dispersion is tabulated."""


@dataclass(frozen=True, eq=False)
class Service:
    """A law of service seconds; keep it, since what it works out is cached.

    Raises InputError for a law without a positive, finite mean.
    """

    law: StopLossLaw
    _least: dict[float, Array] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.law.mean) and self.law.mean > 0):
            raise InputError("a service law must have a positive, finite mean")

    @cached_property
    def mean(self) -> float:
        """E[S], seconds."""
        return self.law.mean

    @cached_property
    def scv(self) -> float:
        """Var(S)/E[S]^2."""
        return max(self.law.scv, 0.0)

    @cached_property
    def residual(self) -> SurvivalTable:
        """Law of the residual life, seconds."""
        nodes = self._nodes()
        survival = np.minimum.accumulate(self.law.stop_loss(nodes) / self.mean)
        survival[0], survival[-1] = 1.0, 0.0
        return SurvivalTable(nodes, survival)

    def _nodes(self) -> Array:
        if isinstance(self.law, Atoms):
            return np.unique(np.append(0.0, self.law.values))
        end = self.mean
        while self.law.stop_loss(np.array([end]))[0] > NEGLIGIBLE * self.mean:
            end *= 1.5
        fine = np.geomspace(FINEST * self.mean, end, NODES)
        even = np.linspace(0.0, min(4.0 * self.mean, end), NODES // 3)
        return np.unique(np.concatenate([fine, even]))

    @cached_property
    def survival(self) -> Array:
        """P(S > t) between the residual's nodes, shape (n-1,)."""
        return self.mean * self.residual.slopes

    def moment(self, power: float) -> float:
        """E[S^power] in s^power, real ``power`` > 0: sum P(S > t) (t_{k+1}^p - t_k^p)."""
        return float(self.survival @ np.diff(self.residual.nodes**power))

    @cached_property
    def third_moment(self) -> float:
        """E[S^3], s^3."""
        return self.moment(3.0)

    @cached_property
    def overlap(self) -> float:
        """int P(S > t)^2 dt / E[S]: 1 for constant, 1/2 for exponential service."""
        return float(self.survival**2 @ np.diff(self.residual.nodes)) / self.mean

    def least_assigned(self, servers: float) -> SurvivalTable:
        """Law of the time left at the busy server that was given least, c servers busy; seconds.

        Services under way are length-biased, P(B > t) = E[S; S > t]/E[S], and what is left of
        the least of c is uniform on it.
        """
        r = self.residual
        biased = np.minimum(r.nodes[:-1] * r.slopes + r.survival[:-1], 1.0)
        mass = -np.diff(np.append(biased**servers, 0.0))
        slopes = np.cumsum((mass / r.nodes[1:])[::-1])[::-1]
        falls = np.append(0.0, np.cumsum(slopes * np.diff(r.nodes)))
        return SurvivalTable(r.nodes, np.maximum(1.0 - falls / falls[-1], 0.0))

    def dispersion(self, theta: float) -> float:
        r"""Index of dispersion of the departures of a server that is always busy.

        Laplace-averaged over times of about 1/theta mean services, theta >= 0:

        .. math:: I(\theta) = \frac{\theta^2}{\mu} \int_0^\infty e^{-\theta t} Var N(t)\,dt
                  = \frac{2 J}{E[S] (1 - \theta J)} - 1, \quad
                  J = \int_0^\infty e^{-\theta t} P(R > t)\,dt

        (t in mean services; N a stationary renewal process, Cox 1962, section 4.5). The SCV at
        theta = 0, 1 as theta grows; coth(theta/2) - 2/theta for constant service.
        """
        return float(self.dispersions(np.asarray(theta)))

    def dispersions(self, theta: Array) -> Array:
        """:meth:`dispersion` at each ``theta``, any shape."""
        with np.errstate(divide="ignore"):
            at = np.log(theta)
        return np.interp(at, RATES, self._tabulated, left=self.scv, right=1.0)

    @cached_property
    def _tabulated(self) -> Array:
        r = self.residual
        start, width = r.nodes[:-1] / self.mean, np.diff(r.nodes) / self.mean
        slope = r.slopes * self.mean
        found = np.empty(len(RATES))
        for i, theta in enumerate(np.exp(RATES)):
            z = theta * width
            gone = -np.expm1(-z)
            # int over the cell of exp(-theta u) and of u exp(-theta u)
            first = np.where(z < 1e-3, width * (1.0 - z / 2.0), gone / theta)
            second = np.where(
                z < 1e-3, width**2 * (0.5 - z / 3.0), (gone - z * np.exp(-z)) / theta**2
            )
            cells = np.exp(-theta * start) * (r.survival[:-1] * first - slope * second)
            j = float(cells.sum())
            found[i] = 2.0 * j / (1.0 - theta * j) - 1.0
        return found

    def least_residual_mean(self, servers: float) -> float:
        """E[min of c residual lives] = int P(R > t)^c dt in seconds, ``servers`` = c real > 0."""
        return float(self._least_integral(servers)[-1])

    def least_residual_integral(self, t: Array, servers: float) -> Array:
        """int_0^t P(R > u)^c du in seconds for ``t`` in seconds, same shape."""
        k, into = self.residual.cell(t)
        found: Array = self._least_integral(servers)[k] + self._least_cell(k, into, servers)
        return found

    def _least_cell(self, k: NDArray[np.intp], into: Array, servers: float) -> Array:
        """int of (y - slope u)^c over the first ``into`` seconds of cell k."""
        y, slope = self.residual.survival[k], self.residual.slopes[k]
        part = np.minimum(slope * into / np.maximum(y, 1e-300), 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shrink = -np.expm1((servers + 1.0) * np.log1p(-part)) / ((servers + 1.0) * part)
        value: Array = into * y**servers * np.where(part > 0.0, shrink, 1.0)
        return value

    def _least_integral(self, servers: float) -> Array:
        if servers not in self._least:
            nodes = self.residual.nodes
            cells = self._least_cell(np.arange(len(nodes) - 1), np.diff(nodes), servers)
            self._least[servers] = np.append(0.0, np.cumsum(cells))
        return self._least[servers]
