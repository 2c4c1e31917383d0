r"""The service law of a station, and what delay laws read off it: moments and residual lives.

The residual life R of S has survival
:math:`\bar F_e(t) = \int_t^\infty P(S>u)\,du / E[S] = E[(S-t)^+]/E[S]`. It is kept at nodes
and taken as linear between them: exact for point masses, whose nodes are the points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pdalloc.errors import InputError
from pdalloc.laws import Array, Atoms, StopLossLaw

NODES = 3000
"""Nodes of a law without point masses: as many in geometric as (a third) in even steps."""
FINEST = 1e-6
"""First geometric node, in mean services."""
NEGLIGIBLE = 1e-14
"""Survival of the residual life at which the nodes end."""


@dataclass(frozen=True, eq=False)
class Service:
    """A law of service seconds with its moments; keep it, since what it works out is cached."""

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
    def nodes(self) -> Array:
        """Times in seconds between which P(R > t) is taken as linear, from 0; shape (n,)."""
        if isinstance(self.law, Atoms):
            return np.unique(np.append(0.0, self.law.values))
        end = self.mean
        while self.law.stop_loss(np.array([end]))[0] > NEGLIGIBLE * self.mean:
            end *= 1.5
        fine = np.geomspace(FINEST * self.mean, end, NODES)
        even = np.linspace(0.0, min(4.0 * self.mean, end), NODES // 3)
        return np.unique(np.concatenate([fine, even]))

    @cached_property
    def residual_survival(self) -> Array:
        """P(R > t) at the nodes, 1 at the first, 0 at the last; shape (n,)."""
        values = np.minimum.accumulate(self.law.stop_loss(self.nodes) / self.mean)
        values[0], values[-1] = 1.0, 0.0
        return values

    @cached_property
    def survival(self) -> Array:
        """P(S > t) between the nodes: minus E[S] times the slope of P(R > t); shape (n-1,)."""
        slopes: Array = -self.mean * np.diff(self.residual_survival) / np.diff(self.nodes)
        return slopes

    def moment(self, power: float) -> float:
        """E[S^power] in s^power, real ``power`` > 0: sum P(S > t) (t_{k+1}^p - t_k^p)."""
        return float(self.survival @ np.diff(self.nodes**power))

    @cached_property
    def third_moment(self) -> float:
        """E[S^3], s^3."""
        return self.moment(3.0)

    @cached_property
    def overlap(self) -> float:
        """int P(S > t)^2 dt / E[S]: 1 for constant, 1/2 for exponential service."""
        return float(self.survival**2 @ np.diff(self.nodes)) / self.mean

    @cached_property
    def _residual_integral(self) -> Array:
        """E[(R - t)+] at the nodes, seconds."""
        y = self.residual_survival
        cells = 0.5 * (y[1:] + y[:-1]) * np.diff(self.nodes)
        return np.append(np.cumsum(cells[::-1])[::-1], 0.0)

    def residual_stop_loss(self, t: Array) -> Array:
        """E[(R - t)+] in seconds for ``t`` >= 0 in seconds, same shape."""
        k, into = self._cell(t)
        y, slope = self.residual_survival[k], self.survival[k] / self.mean
        rest = self._residual_integral[k] - into * (y - 0.5 * slope * into)
        return np.where(t < self.nodes[-1], np.maximum(rest, 0.0), 0.0)

    def least_residual_mean(self, servers: float) -> float:
        """E[min of c residual lives] = int P(R > t)^c dt in seconds, ``servers`` = c real > 0."""
        return float(self._least_integral(servers)[-1])

    def least_residual_integral(self, t: Array, servers: float) -> Array:
        """int_0^t P(R > u)^c du in seconds for ``t`` in seconds, same shape."""
        k, into = self._cell(t)
        below = self._least_integral(servers)[k]
        return below + self._least_cell(k, into, servers)

    def _cell(self, t: Array) -> tuple[Array, Array]:
        """Index of the cell that holds t, and seconds from its left node."""
        k = np.clip(np.searchsorted(self.nodes, t, side="right") - 1, 0, len(self.nodes) - 2)
        return k, np.minimum(t, self.nodes[-1]) - self.nodes[k]

    def _least_cell(self, k: Array, into: Array, servers: float) -> Array:
        """int of (y - slope u)^c over the first ``into`` seconds of cell k."""
        y, slope = self.residual_survival[k], self.survival[k] / self.mean
        part = np.minimum(slope * into / np.maximum(y, 1e-300), 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shrink = -np.expm1((servers + 1.0) * np.log1p(-part)) / ((servers + 1.0) * part)
        value: Array = into * y**servers * np.where(part > 0.0, shrink, 1.0)
        return value

    def _least_integral(self, servers: float) -> Array:
        if servers not in self._least:
            k = np.arange(len(self.nodes) - 1)
            cells = self._least_cell(k, np.diff(self.nodes), servers)
            self._least[servers] = np.append(0.0, np.cumsum(cells))
        return self._least[servers]
