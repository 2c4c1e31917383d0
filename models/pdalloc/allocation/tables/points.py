r"""Every fleet that might still be optimal, block by block.

A bound on a fleet's cost is at hand for each of K pairs of prices (:mod:`.dual`): what is
chosen so far at its cost less its priced demand, plus the least reduced cost of all the rest.
:func:`block_points` lists the counts of one block that pass every pair within a ceiling,
:func:`joined` adds the next block to the sums so far, and :func:`best_pair` closes the last
block by a sweep. Sums that another one beats in both roles and in cost are dropped
(:func:`undominated`). If nothing is left, no fleet costs less than the ceiling.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.allocation.tables.compiled import compiled
from pdalloc.allocation.tables.data import Array, Arrays, Ints
from pdalloc.allocation.tables.dual import Box

FIRST_ROOM = 1024
"""Rows at first; doubled as needed."""


@compiled
def block_points(
    t: Arrays, box: Box, g: int, prices: Array, suffix: Array, room: Array, most: int
) -> tuple[Array, Ints, bool]:
    """(P, D, USD/hour) and counts of block ``g`` that may be in a cheap fleet.

    ``prices`` (K, 2); ``suffix`` (n, S + 1, K) of :func:`many_knapsacks`; ``room`` (K,): what
    the block's reduced cost may be. False when more than ``most`` counts were looked at.
    """
    first, last = t.start[g], t.start[g + 1]
    width, grid, low = last - first, box.grid[g], box.low
    points, found = np.empty((FIRST_ROOM, 3)), 0
    counts = np.empty((FIRST_ROOM, width), np.int64)
    m = low[first:last] - 1
    sums, nothing = np.zeros((width + 1, 3)), np.zeros(len(prices))
    left = np.empty((width + 1, 2), np.int64)  # GPUs, and weights of the grid
    left[0, 0], left[0, 1] = t.stock[g] - (t.gpus[first:last] * low[first:last]).sum(), box.top[g]
    depth, seen = 0, 0
    while depth >= 0:
        m[depth] += 1
        i, x = first + depth, m[depth]
        used = (x - low[i]) * t.gpus[i]
        if x > box.high[i] or used > left[depth, 0]:
            m[depth] = low[i] - 1
            depth -= 1
            continue
        seen += 1
        if seen > most:
            return points[:found], counts[:found], False
        here = sums[depth + 1]
        here[:] = sums[depth]
        here[t.role[i]] += t.admits[i, x]
        here[2] += t.usd[i, x]
        weight = left[depth, 1] - used // grid
        rest = suffix[i + 1, weight] if depth + 1 < width else nothing
        p, d, usd = here
        over = -1
        for k in range(len(prices)):
            if usd - prices[k, 0] * p - prices[k, 1] * d + rest[k] > room[k]:
                over = k
                break
        if over >= 0:
            step = t.usd[i, 1] - t.usd[i, 0]
            step -= prices[over, t.role[i]] * (t.admits[i, 1] - t.admits[i, 0])
            if t.affine[i] and step >= 0.0:
                m[depth] = box.high[i]  # more replicas only cost more
        elif depth + 1 < width:
            depth += 1
            left[depth, 0], left[depth, 1] = left[depth - 1, 0] - used, weight
        else:
            if found == len(points):
                points = np.concatenate((points, np.empty_like(points)))
                counts = np.concatenate((counts, np.empty_like(counts)))
            points[found] = here
            counts[found] = m
            found += 1
    return points[:found], counts[:found], True


@compiled
def undominated(points: Array) -> Ints:
    """Indices of ``points`` (N, 3) of (P, D, cost): no other has as much P and D for less.

    A sweep by falling P; a Fenwick tree over D holds the least cost so far.
    """
    order = np.argsort(points[:, 2], kind="mergesort")
    order = order[np.argsort(-points[order, 1], kind="mergesort")]
    order = order[np.argsort(-points[order, 0], kind="mergesort")]
    levels = np.unique(points[:, 1])
    tree = np.full(len(levels) + 1, math.inf)
    kept, found = np.empty(len(points), np.int64), 0
    for i in order:
        place = len(levels) - np.searchsorted(levels, points[i, 1])
        least, at = math.inf, place
        while at > 0:
            least = min(least, tree[at])
            at -= at & -at
        if least <= points[i, 2]:
            continue
        kept[found] = i
        found += 1
        at = place
        while at <= len(levels):
            tree[at] = min(tree[at], points[i, 2])
            at += at & -at
    return kept[:found]


@compiled
def joined(
    sums: Array, points: Array, prices: Array, room: Array, most: int
) -> tuple[Array, Ints, bool]:
    """Sums of a row of ``sums`` and one of ``points`` within ``room`` (K,), and their rows.

    False when there are more than ``most``.
    """
    u, v = prices[0]
    one = sums[:, 2] - u * sums[:, 0] - v * sums[:, 1]
    other = points[:, 2] - u * points[:, 0] - v * points[:, 1]
    order = np.argsort(other)
    out, found = np.empty((FIRST_ROOM, 3)), 0
    rows = np.empty((FIRST_ROOM, 2), np.int64)
    here = np.empty(3)
    for i in range(len(sums)):
        for j in order:
            if one[i] + other[j] > room[0]:
                break
            here[:] = sums[i] + points[j]
            fits = True
            for t in range(1, len(prices)):
                if here[2] - prices[t, 0] * here[0] - prices[t, 1] * here[1] > room[t]:
                    fits = False
                    break
            if not fits:
                continue
            if found == most:
                return out[:found], rows[:found], False
            if found == len(out):
                out = np.concatenate((out, np.empty_like(out)))
                rows = np.concatenate((rows, np.empty_like(rows)))
            out[found] = here
            rows[found, 0], rows[found, 1] = i, j
            found += 1
    return out[:found], rows[:found], True


@compiled
def best_pair(sums: Array, points: Array, need: Array) -> tuple[float, int, int]:
    """The cheapest pair of rows that together admit ``need`` (2,): USD/hour and the rows."""
    rising, falling = np.argsort(sums[:, 0]), np.argsort(-points[:, 0])
    levels = np.unique(points[:, 1])
    tree = np.full(len(levels) + 1, math.inf)
    row = np.full(len(levels) + 1, -1)
    best, left, right, entered = math.inf, -1, -1, 0
    for i in rising:
        while entered < len(points) and points[falling[entered], 0] + sums[i, 0] >= need[0]:
            j = falling[entered]
            at = len(levels) - np.searchsorted(levels, points[j, 1])
            while at <= len(levels):
                if points[j, 2] < tree[at]:
                    tree[at], row[at] = points[j, 2], j
                at += at & -at
            entered += 1
        at = len(levels) - np.searchsorted(levels, need[1] - sums[i, 1])
        while at > 0:
            if sums[i, 2] + tree[at] < best:
                best, left, right = sums[i, 2] + tree[at], i, row[at]
            at -= at & -at
    return best, left, right
