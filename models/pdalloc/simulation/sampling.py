"""Drawing from a finite law in constant time per draw, however many points it has."""

from __future__ import annotations

import numpy as np

from pdalloc.records import Array, Ints

SLOTS_PER_POINT = 4
"""Entries of the guide table per point of the law: about one draw in eight is looked up twice."""
PORTION = 1 << 14
"""Draws looked up at a time, so that what is read again is still in the cache."""


def choose_points(rng: np.random.Generator, weight: Array, count: int) -> Ints:
    """``count`` indices drawn with probabilities ``weight`` (n,): what ``rng.choice`` gives.

    Inversion of the cumulative law with a guide table (Chen and Asau 1974, "On generating
    random variates from an empirical distribution"): slot k holds the first point that a
    uniform number in [k / slots, (k + 1) / slots) can mean, and the search goes on from there.
    """
    uniform = rng.random(count)
    if len(weight) == 1:
        return np.zeros(count, np.int64)
    cumulative = np.cumsum(weight)
    cumulative /= cumulative[-1]
    slots = SLOTS_PER_POINT * len(weight)
    # A hair below each slot's edge: u * slots may be rounded up into the next slot.
    edge = np.arange(slots) / slots * (1.0 - 1e-15)
    guide = np.searchsorted(cumulative, edge, side="right")
    point = np.empty(count, np.int64)
    for begin in range(0, count, PORTION):
        u = uniform[begin : begin + PORTION]
        found = guide[(u * slots).astype(np.int64)]
        below = np.flatnonzero(cumulative[found] <= u)
        while len(below):
            found[below] += 1
            below = below[cumulative[found[below]] <= u[below]]
        point[begin : begin + PORTION] = found
    return point
