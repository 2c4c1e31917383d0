"""Points that carry the spread of a request's decode time, and laws of a known mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from pdalloc.laws import Array, Law
from pdalloc.prediction.states import DecodeState
from pdalloc.workload.traffic import RequestMix

SPREAD_CELLS = (24, 200)
"""Cells of probability, least and most, that carry the spread of a request's decode time."""
NOISY_CELLS = 6
"""The least under exponential prefill noise, which blurs them."""
SPREAD_POINTS = 1000
"""Cells over all kinds of requests, where these are few."""
LEAST_LEFT = 0.25
"""Share of the variance of decode times that the wait never explains."""
SPREAD_END = 3.3
"""Standard deviations from the mean at which the outermost cells begin."""


@cache
def spread_cells(kinds: int, least: int = SPREAD_CELLS[0]) -> Array:
    """Edges of cells of probability, 0 to 1, evenly apart on a normal law's axis."""
    cells = min(max(SPREAD_POINTS // kinds, least), SPREAD_CELLS[1])
    inner = ndtr(np.linspace(-SPREAD_END, SPREAD_END, cells - 1))
    edges: Array = np.concatenate([[0.0], inner, [1.0]])
    return edges


@cache
def spread_nodes(kinds: int, least: int = SPREAD_CELLS[0]) -> tuple[Array, Array]:
    """Means of a standard normal law in each cell and their weights; mean 0, variance 1."""
    edges = spread_cells(kinds, least)
    weights = np.diff(edges)
    density = np.exp(-0.5 * ndtri(edges) ** 2) / np.sqrt(2.0 * np.pi)
    nodes = -np.diff(density) / weights  # E[Z | cell]
    return nodes / np.sqrt(weights @ nodes**2), weights


def left_over(variance: Array, explained: Array) -> Array:
    """``variance`` without what is ``explained`` of it, LEAST_LEFT at least; (n,)."""
    return np.maximum(variance - explained, LEAST_LEFT * variance)


def spread(
    mix: RequestMix, mean: Array, steps: Array, d: DecodeState, cells: int, explained: Array
) -> tuple[RequestMix, Array]:
    """Each request of ``mix`` at points of its decode time: (the points' mix, seconds); (n m,).

    ``mean`` seconds and ``steps`` per request, (n,); ``cells`` of them at least. ``explained`` of
    the variance of a step's mean, s^2 (n,), is the wait's doing and left out. Normal points with
    the third cumulant of their law (Cornish and Fisher 1938).
    """
    variance, scale = d.requests.spread(steps)
    deviation = np.sqrt(left_over(variance, explained))
    skew = 2.0 * scale / np.maximum(deviation, 1e-300)
    nodes, weights = spread_nodes(len(steps), cells)
    off = nodes + skew[:, None] / 6.0 * (nodes**2 - 1.0)
    seconds = np.maximum(mean[:, None] + (steps * deviation)[:, None] * off, 0.0)
    many = mix.repeated(len(nodes))
    return replace(many, weight=np.outer(mix.weight, weights).ravel()), seconds.ravel()


@dataclass(frozen=True)
class KnownMean(Law):
    """``law`` with its mean known better than its points give it, seconds."""

    law: Law
    known: float

    @property
    def mean(self) -> float:
        return self.known

    def _horizon_guess(self) -> float:
        return self.law._horizon_guess()

    def lattice(self, step: float, points: int) -> Array:
        return self.law.lattice(step, points)
