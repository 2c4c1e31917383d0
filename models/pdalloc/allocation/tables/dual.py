r"""The Lagrangian bound: prices on demand leave one small knapsack per GPU type.

With prices u, v (USD/hour per unit of demand) on the two demand rows,

.. math:: L(u, v) = (u + v) + \sum_{blocks} \min_{k^T m \le stock}
                    \sum_i \left[c_i(m_i) - w_{role(i)} C_i(m_i)\right], \qquad w = (u, v),

never exceeds the cost of a fleet, for any nonnegative prices; what solves the knapsacks need
not be integer-feasible, so weights may be rounded down to a grid of GPUs. L is concave and
piecewise linear in two variables: Kelley's cutting planes (1960) find its maximum, the best
prices, in about ten steps. The knapsacks are dynamic programmes over GPUs.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.allocation.tables.compiled import compiled
from pdalloc.allocation.tables.data import Array, Flags, Ints

TOUCH = 1e-12
"""Slopes, heights and relative lengths that count as nothing beside rounding."""


@compiled
def _stage(
    after: Array, admits: Array, usd: Array, gpus: int, low: int, high: int, grid: int,
    price: float, best: Array,
) -> None:  # fmt: skip
    """One option's step: best[w] = min over m of its reduced cost + after[w - weight].

    ``after`` (S + 1,) does not rise with w, so m must cost less, priced, than every smaller m.
    """
    top = len(after) - 1
    weight, reduced = np.empty(high - low + 1, np.int64), np.empty(high - low + 1)
    kept, least = 0, math.inf
    for m in range(low, high + 1):
        w = gpus * m // grid
        if w > top:
            break
        r = usd[m] - price * admits[m]
        if r < least:
            if kept > 0 and weight[kept - 1] == w:
                kept -= 1
            weight[kept], reduced[kept] = w, r
            kept, least = kept + 1, r
    best[:] = math.inf
    for c in range(kept):
        w0, r = weight[c], reduced[c]
        for w in range(top + 1 - w0):
            value = r + after[w]
            best[w + w0] = value if value < best[w + w0] else best[w + w0]


@compiled
def _affine_stage(
    after: Array, first: float, slope: float, gpus: int, low: int, high: int, best: Array
) -> None:
    """:func:`_stage` for reduced costs ``first`` + ``slope`` (m - ``low``), in O(S).

    Along weights a replica apart the minimum runs over a window of high - low + 1 values: a
    queue of rising keys holds its candidates.
    """
    top, span = len(after) - 1, high - low
    best[:] = math.inf
    steps, keys = np.empty(top + 1, np.int64), np.empty(top + 1)
    for rest in range(min(gpus, top + 1)):
        head, tail = 0, 0
        for t in range((top - rest - gpus * low) // gpus + 1):
            key = after[rest + gpus * t] - slope * t
            while tail > head and keys[tail - 1] >= key:
                tail -= 1
            steps[tail], keys[tail] = t, key
            tail += 1
            if steps[head] < t - span:
                head += 1
            best[rest + gpus * (t + low)] = first + slope * t + keys[head]


@compiled
def knapsacks(
    prices: Array, role: Ints, gpus: Ints, admits: Array, usd: Array, affine: Flags,
    start: Ints, low: Ints, high: Ints, grid: Ints, top: Ints, suffix: Array, least: Array,
) -> None:  # fmt: skip
    """Solve every block at ``prices`` (2,).

    Fills ``suffix`` (n, S + 1): least reduced cost of an option and those after it in its
    block within w grid weights; ``least`` (G,) per block. ``grid`` (G,) GPUs per weight,
    ``top`` (G,) weights.
    """
    nothing = np.zeros(suffix.shape[1])
    for g in range(len(start) - 1):
        size = top[g] + 1
        after = nothing[:size]
        for i in range(start[g + 1] - 1, start[g] - 1, -1):
            if affine[i] and grid[g] == 1 and high[i] > low[i]:
                price, m = prices[role[i]], low[i]
                reduced = usd[i, m : m + 2] - price * admits[i, m : m + 2]
                slope = reduced[1] - reduced[0]
                _affine_stage(
                    after, reduced[0], slope, gpus[i], m, high[i], suffix[i, :size]
                )  # fmt: skip
                after = suffix[i, :size]
                continue
            _stage(
                after, admits[i], usd[i], gpus[i], low[i], high[i], grid[g],
                prices[role[i]], suffix[i, :size],
            )  # fmt: skip
            after = suffix[i, :size]
        least[g] = after[top[g]]


@compiled
def attained(
    prices: Array, role: Ints, gpus: Ints, admits: Array, usd: Array, start: Ints,
    low: Ints, high: Ints, grid: Ints, top: Ints, suffix: Array, counts: Ints,
) -> None:  # fmt: skip
    """``counts`` (n,) that attain what :func:`knapsacks` left in ``suffix``."""
    for g in range(len(start) - 1):
        w = top[g]
        for i in range(start[g], start[g + 1]):
            least = math.inf
            for m in range(low[i], high[i] + 1):
                left = w - gpus[i] * m // grid[g]
                if left < 0:
                    break
                value = usd[i, m] - prices[role[i]] * admits[i, m]
                if i + 1 < start[g + 1]:
                    value += suffix[i + 1, left]
                if value < least:
                    least, counts[i] = value, m
            w -= gpus[i] * counts[i] // grid[g]


@compiled
def highest(value: Array, slope: Array, n: int, low: Array, high: Array, at: Array) -> float:
    """Maximum over a box of the least of ``n`` planes value + slope . x; its place in ``at``.

    The maximum of a concave function of two variables lies where two planes meet (searched
    along each such line) or in a corner of the box.
    """
    best = -math.inf
    for i in range(n):
        for j in range(i):
            a, b = slope[i, 0] - slope[j, 0], slope[i, 1] - slope[j, 1]
            norm = math.hypot(a, b)
            if norm <= TOUCH:
                continue
            a, b, c = a / norm, b / norm, (value[j] - value[i]) / norm
            first, last, empty = -math.inf, math.inf, False
            for axis in range(2):
                x, step = (a * c, -b) if axis == 0 else (b * c, a)
                if step == 0.0:
                    empty = empty or not low[axis] <= x <= high[axis]
                    continue
                one, other = (low[axis] - x) / step, (high[axis] - x) / step
                first, last = max(first, min(one, other)), min(last, max(one, other))
            start = value[i] + slope[i, 0] * a * c + slope[i, 1] * b * c
            rise = -slope[i, 0] * b + slope[i, 1] * a
            for k in range(n):
                if k in (i, j):
                    continue
                gap = value[k] + slope[k, 0] * a * c + slope[k, 1] * b * c - start
                faster = -slope[k, 0] * b + slope[k, 1] * a - rise
                if faster > TOUCH:
                    first = max(first, -gap / faster)
                elif faster < -TOUCH:
                    last = min(last, -gap / faster)
                elif gap < -TOUCH * (1.0 + abs(start)):
                    empty = True
            if empty or first > last + 1e3 * TOUCH * (abs(first) + abs(last)):
                continue
            t = last if rise > 0.0 else first
            if start + rise * t > best:
                best = start + rise * t
                at[0], at[1] = a * c - b * t, b * c + a * t
    for corner in range(4):
        x = low[0] if corner < 2 else high[0]
        y = low[1] if corner % 2 == 0 else high[1]
        least = math.inf
        for k in range(n):
            least = min(least, value[k] + slope[k, 0] * x + slope[k, 1] * y)
        if least > best:
            best = least
            at[0], at[1] = x, y
    return best
