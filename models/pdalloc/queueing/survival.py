"""A law known by its survival function at nodes, linear between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pdalloc.laws import Array, StopLossLaw, check_level


@dataclass(frozen=True, eq=False)
class SurvivalTable(StopLossLaw):
    """P(T > t) = ``survival`` at ``nodes`` (s, from 0, increasing), 0 at the last; shape (n,)."""

    nodes: Array
    survival: Array

    @property
    def mean(self) -> float:
        """E[T], seconds."""
        return float(self._integrals[0][0])

    def _horizon_guess(self) -> float:
        return min(8.0 * self.mean, float(self.nodes[-1]))

    def tail(self, t: float) -> float:
        """P(T > t); ``t`` in seconds."""
        return 1.0 if t < 0 else float(np.interp(t, self.nodes, self.survival, right=0.0))

    def quantile(self, p: float) -> float:
        """Between nodes as in an exponential tail, seconds; InputError unless 0 < p < 1."""
        check_level(p)
        depth = -np.log(np.maximum(self.survival, 1e-300))
        return float(np.interp(-np.log1p(-p), depth, self.nodes))

    @cached_property
    def slopes(self) -> Array:
        """Density between the nodes, 1/s; shape (n-1,)."""
        found: Array = -np.diff(self.survival) / np.diff(self.nodes)
        return found

    def cell(self, t: Array) -> tuple[NDArray[np.intp], Array]:
        """Index of the cell that holds t, and seconds from its left node."""
        k = np.clip(np.searchsorted(self.nodes, t, side="right") - 1, 0, len(self.nodes) - 2)
        return k, np.minimum(t, self.nodes[-1]) - self.nodes[k]

    @cached_property
    def _integrals(self) -> tuple[Array, Array]:
        """E[(T - t)+] and E[((T - t)+)^2] at the nodes."""
        width, y, slope = np.diff(self.nodes), self.survival, self.slopes
        first = _backwards(0.5 * (y[1:] + y[:-1]) * width)
        second = _backwards(2.0 * width * (first[:-1] - width * (y[:-1] / 2 - slope * width / 6)))
        return first, second

    def stop_loss(self, x: Array) -> Array:
        """The survival's integral from ``x`` on: quadratic in each cell."""
        k, u = self.cell(x)
        rest = self._integrals[0][k] - u * (self.survival[k] - 0.5 * self.slopes[k] * u)
        return np.where(x < self.nodes[-1], np.maximum(rest, 0.0), 0.0)

    def excess_square(self, x: Array) -> Array:
        """Twice the stop-loss transform's integral from ``x`` on: cubic in each cell."""
        k, u = self.cell(x)
        part = u * (self._integrals[0][k] - u * (self.survival[k] / 2 - self.slopes[k] * u / 6))
        rest = self._integrals[1][k] - 2.0 * part
        return np.where(x < self.nodes[-1], np.maximum(rest, 0.0), 0.0)


def _backwards(cells: Array) -> Array:
    """Sums of ``cells`` from each node to the end."""
    total: Array = np.append(np.cumsum(cells[::-1])[::-1], 0.0)
    return total
