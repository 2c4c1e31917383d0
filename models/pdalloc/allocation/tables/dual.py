r"""The Lagrangian bound: prices on demand leave one small knapsack per GPU type.

With prices u, v (USD/hour per unit of demand) on the two demand rows,

.. math:: L(u, v) = (u + v) + \sum_{blocks} \min_{k^T m \le stock}
                    \sum_i \left[c_i(m_i) - w_{role(i)} C_i(m_i)\right], \qquad w = (u, v),

never exceeds the cost of a fleet, for any nonnegative prices; what solves the knapsacks need
not be integer-feasible, so weights may be rounded down to a grid of GPUs. L is concave and
piecewise linear in two variables: Kelley's cutting planes (1960) find its maximum, the best
prices, in about ten steps. The knapsacks are dynamic programmes over the GPUs that the least
counts leave.

:func:`narrowed` turns the bound round: a count whose least fleet, priced, exceeds a goal is in
no fleet below it (reduced-cost fixing), so ranges of counts shrink from both ends.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pdalloc.allocation.tables.compiled import compiled
from pdalloc.allocation.tables.data import Array, Arrays, Ints

TOUCH = 1e-12
"""Slopes, heights and relative lengths that count as nothing beside rounding."""
KELLEY_STEPS, KELLEY_GAP = 40, 1e-7
LOOSE, FIRST_GAP = 0.01, 1e-3
"""The best prices may miss LOOSE of what the bound lacks to its goal, at most FIRST_GAP of it."""
WIDEST, WIDER = 12, 30.0
"""Times that the box of prices is made WIDER before demand is called out of reach."""
FINEST, COARSEST = 8192, 1024
"""Weights of a block's knapsack at most, COARSEST with curved tables; more GPUs are counted
several at a time."""


class Box(NamedTuple):
    """Ranges of counts, ``low`` to ``high`` (n,), and how the GPUs beyond ``low`` are counted.

    ``top`` (G,) weights of ``grid`` (G,) GPUs each are left, -1 where ``low`` exceeds the stock;
    where it cannot bind no GPU weighs anything.
    """

    low: Ints
    high: Ints
    grid: Ints
    top: Ints


@compiled
def boxed(t: Arrays, low: Ints, high: Ints, finest: int, coarsest: int) -> Box:
    """The box of these ranges, with at most so many weights."""
    grid, top = np.empty(len(t.stock), np.int64), np.empty(len(t.stock), np.int64)
    for g in range(len(t.stock)):
        members = slice(t.start[g], t.start[g + 1])
        left = t.stock[g] - (t.gpus[members] * low[members]).sum()
        reach = (t.gpus[members] * (high[members] - low[members])).sum()
        most = finest if np.all(t.affine[members]) else coarsest
        if 0 <= left < reach:
            grid[g] = max(-(-left // most), 1)
            top[g] = left // grid[g]
        else:  # no weight is ever reached, or none is left
            grid[g], top[g] = reach + 1, 0 if left >= 0 else -1
    return Box(low, high, grid, top)


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
        w = gpus * (m - low) // grid
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
    after: Array, first: float, slope: float, gpus: int, span: int, best: Array
) -> None:
    """:func:`_stage` for reduced costs ``first`` + ``slope`` m, m at most ``span``, in O(S).

    Along weights a replica apart the minimum runs over a window of span + 1 values: a queue of
    rising keys holds its candidates.
    """
    top = len(after) - 1
    steps, keys = np.empty(top + 1, np.int64), np.empty(top + 1)
    for rest in range(min(gpus, top + 1)):
        head, tail = 0, 0
        for t in range((top - rest) // gpus + 1):
            key = after[rest + gpus * t] - slope * t
            while tail > head and keys[tail - 1] >= key:
                tail -= 1
            steps[tail], keys[tail] = t, key
            tail += 1
            if steps[head] < t - span:
                head += 1
            best[rest + gpus * t] = first + slope * t + keys[head]


@compiled
def _option(
    t: Arrays, box: Box, i: int, grid: int, price: float, after: Array, best: Array
) -> None:
    """Option ``i``'s step, by the shorter way."""
    m, span = box.low[i], box.high[i] - box.low[i]
    if t.affine[i] and grid == 1 and span > 1:
        first = t.usd[i, m] - price * t.admits[i, m]
        slope = t.usd[i, m + 1] - price * t.admits[i, m + 1] - first
        _affine_stage(after, first, slope, t.gpus[i], span, best)
    else:
        _stage(after, t.admits[i], t.usd[i], t.gpus[i], m, box.high[i], grid, price, best)


@compiled
def knapsacks(t: Arrays, box: Box, prices: Array, suffix: Array, least: Array) -> None:
    """Solve every block at ``prices`` (2,).

    Fills ``suffix`` (n, S + 1): least reduced cost of an option and those after it in its
    block within w weights; ``least`` (G,) per block, inf where the least counts do not fit.
    """
    nothing = np.zeros(suffix.shape[1])
    for g in range(len(t.stock)):
        size = box.top[g] + 1
        if size == 0:
            least[g] = math.inf
            continue
        after = nothing[:size]
        for i in range(t.start[g + 1] - 1, t.start[g] - 1, -1):
            _option(t, box, i, box.grid[g], prices[t.role[i]], after, suffix[i, :size])
            after = suffix[i, :size]
        least[g] = after[box.top[g]]


@compiled
def many_knapsacks(t: Arrays, box: Box, prices: Array) -> tuple[Array, Array]:
    """:func:`knapsacks` at each of ``prices`` (K, 2): suffix (n, S + 1, K) and least (K, G)."""
    n, width = len(t.role), box.top.max() + 1
    suffix, least = np.empty((n, width, len(prices))), np.empty((len(prices), len(t.stock)))
    one = np.zeros((n, width))
    for k in range(len(prices)):
        knapsacks(t, box, prices[k], one, least[k])
        suffix[:, :, k] = one
    return suffix, least


@compiled
def attained(t: Arrays, box: Box, prices: Array, suffix: Array, counts: Ints) -> None:
    """``counts`` (n,) that attain what :func:`knapsacks` left in ``suffix``."""
    for g in range(len(t.stock)):
        w = box.top[g]
        for i in range(t.start[g], t.start[g + 1]):
            least, low = math.inf, box.low[i]
            for m in range(low, box.high[i] + 1):
                left = w - t.gpus[i] * (m - low) // box.grid[g]
                if left < 0:
                    break
                value = t.usd[i, m] - prices[t.role[i]] * t.admits[i, m]
                if i + 1 < t.start[g + 1]:
                    value += suffix[i + 1, left]
                if value < least:
                    least, counts[i] = value, m
            w -= t.gpus[i] * (counts[i] - low) // box.grid[g]


@compiled
def _fits(before: Array, after: Array, w: int, spare: float) -> bool:
    """Whether the others of a block, within ``w`` weights, have reduced cost ``spare`` or less."""
    if before[w] + after[w] > spare:  # neither rises with its weights
        return False
    least = math.inf
    for one in range(w + 1):
        least = min(least, before[one] + after[w - one])
    return least <= spare


@compiled
def narrowed(t: Arrays, box: Box, need: Array, prices: Array, ceiling: float) -> tuple[Ints, Ints]:
    """Ranges (n,), (n,) without the ends with which the bound at ``prices`` exceeds ``ceiling``.

    A range that vanishes has its low above its high.
    """
    low, high = box.low.copy(), box.high.copy()
    rows = np.zeros((2, box.top.max() + 1))
    suffix, least = np.zeros((len(t.role), rows.shape[1])), np.empty(len(t.stock))
    knapsacks(t, box, prices, suffix, least)
    spare = least + (ceiling - (prices * need).sum() - least.sum())
    for g in range(len(t.stock)):
        top, grid = box.top[g], box.grid[g]
        nothing = np.zeros(top + 1)
        before = nothing
        for i in range(t.start[g], t.start[g + 1]):
            price, gpus, first = prices[t.role[i]], t.gpus[i], box.low[i]
            after = suffix[i + 1, : top + 1] if i + 1 < t.start[g + 1] else nothing
            for end in (1, -1):
                m = low[i] if end == 1 else high[i]
                while low[i] <= m <= high[i]:
                    left = top - gpus * (m - first) // grid
                    value = t.usd[i, m] - price * t.admits[i, m]
                    if left >= 0 and _fits(before, after, left, spare[g] - value):
                        break
                    m += end
                if end == 1:
                    low[i] = m
                else:
                    high[i] = m
            _option(t, box, i, grid, price, before, rows[i % 2, : top + 1])
            before = rows[i % 2, : top + 1]
    return low, high


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


class Cuts(NamedTuple):
    """What the knapsacks answered at each pair of prices tried: planes ``value`` + ``slope`` . x
    (N,), (N, 2) above the bound, and the ``counts`` (N, n) they are of."""

    value: Array
    slope: Array
    counts: Ints


@compiled
def best_prices(
    t: Arrays, box: Box, need: Array, start: Array, goal: float, hopeless: float
) -> tuple[float, Array, Cuts]:
    """(bound, best prices, cuts) by cutting planes from ``start`` (2,); inf without a fleet.

    Ends early where the bound reaches ``goal``, or exceeds ``hopeless``: no fleet costs that.
    """
    n, room, found = len(t.role), KELLEY_STEPS * WIDEST, 0
    cuts = Cuts(np.empty(room), np.empty((room, 2)), np.empty((room, n), np.int64))
    suffix, least = np.empty((n, box.top.max() + 1)), np.empty(len(t.stock))
    best, prices, at = -math.inf, start.copy(), start.copy()
    low, high = np.zeros(2), 4.0 * start
    for _ in range(WIDEST):
        for _ in range(KELLEY_STEPS):
            knapsacks(t, box, at, suffix, least)
            value = least.sum() + (at * need).sum()
            if math.isinf(value):
                return math.inf, prices, Cuts(cuts.value[:0], cuts.slope[:0], cuts.counts[:0])
            attained(t, box, at, suffix, cuts.counts[found])
            cuts.slope[found] = need
            for i in range(n):
                cuts.slope[found, t.role[i]] -= t.admits[i, cuts.counts[found, i]]
            cuts.value[found] = value - (cuts.slope[found] * at).sum()
            found += 1
            if value > best:
                best = value
                prices[:] = at
            ceiling = highest(cuts.value, cuts.slope, found, low, high, at)
            lacks = min(goal - best, FIRST_GAP * abs(best))
            if ceiling - best <= max(KELLEY_GAP * abs(best), LOOSE * lacks):
                break
        if np.all(prices < 0.99 * high) or best > hopeless or best >= goal:
            break
        high = np.where(prices < 0.99 * high, high, WIDER * high)
        highest(cuts.value, cuts.slope, found, low, high, at)
    return best, prices, Cuts(cuts.value[:found], cuts.slope[:found], cuts.counts[:found])
