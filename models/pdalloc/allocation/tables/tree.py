"""Branch and bound over ranges of counts, each node closed by listing what is left.

The bound of a node is :mod:`.dual` at its best prices; the ranges then shrink to what a fleet
cheaper than the best one known may have, and the bound is taken again. Between it and a ceiling
just above, :mod:`.points` lists every fleet that is left; the ceiling rises until the cheapest of
them is below it (proven) or the lists grow long. Then the node splits: convexity is what the
bound lacks, so the range of the option that is farthest below its table's convex hull is cut.

Plain arithmetic throughout: no solver, no tolerance but that of sums of doubles (SUM_ERROR).
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from pdalloc.allocation.tables.data import Array, Ints, Tables
from pdalloc.allocation.tables.dominance import worth_having
from pdalloc.allocation.tables.dual import (
    COARSEST,
    FINEST,
    FIRST_GAP,
    KELLEY_GAP,
    LOOSE,
    Box,
    Cuts,
    best_prices,
    boxed,
    many_knapsacks,
    narrowed,
)
from pdalloc.allocation.tables.incumbents import cheapest_repaired
from pdalloc.allocation.tables.points import best_pair, block_points, joined, undominated

SUM_ERROR = 1e-10
"""Relative error of a sum of doubles, allowed on the safe side of every bound."""
AROUND = np.array([1.0, 0.95, 1.05])
"""Each pair of these factors on the best prices gives one more bound."""
FIRST_CEILING, HIGHER = 1e-4, 3.0
"""First height of the ceiling over the bound, relative, and its factor from then on."""
FIRST_STEP = 0.4
"""At most this share of the cheapest replica at first: costs of fleets lie that close."""
MOST_SEEN, MOST_SUMS = 20_000, 2_000
"""Counts looked at in a block, and sums kept, before a node is split instead."""
FLAT, PATIENCE = 0.1, 5000.0
"""Where convexity costs less than FLAT, splitting helps little: lists may be PATIENCE longer."""
NEAR = 5e-4
"""Relative gap above which a node is split without listing."""
MOST_NODES = 20_000
SHRUNK = 0.7
"""Ranges that shrank to this share in all are worth another bound."""


_List = tuple[int, Array, Ints]
"""A block, its points (N, 3) and their counts (N, options of the block)."""


@dataclass(frozen=True)
class Proof:
    """``counts`` (n,) of least ``usd``/hour, or None; ``bound`` proven; ``settled`` if equal."""

    counts: Ints | None
    usd: float
    bound: float
    nodes: int

    @property
    def settled(self) -> bool:
        """Whether the bound meets the cost (or no counts exist)."""
        return self.bound >= self.usd


@dataclass(order=True)
class _Node:
    bound: float
    tie: int
    low: Ints = field(compare=False)
    high: Ints = field(compare=False)
    prices: Array = field(compare=False)


def _safely_above(usd: float) -> float:
    """``usd`` and what sums of doubles may be wrong by."""
    return usd + SUM_ERROR * (1.0 + abs(usd))


def cheapest(t: Tables, need: Array, most_nodes: int = MOST_NODES) -> Proof:
    """The cheapest counts that admit ``need`` (2,), shares of the demand per role, proven."""
    return _Tree(t, need).grow(most_nodes)


class _Tree:
    def __init__(self, t: Tables, need: Array) -> None:
        self.t, self.need = t, need
        self.best = math.inf
        self.counts: Ints | None = None
        self.dearest = float(t.usd.max(axis=1, initial=0.0).sum())
        last = t.usd[np.arange(len(t.most)), t.most]
        unit = last[last > 0.0] / t.most[last > 0.0]
        self.step = FIRST_STEP * float(unit.min(initial=math.inf))
        self.ties = itertools.count()
        self.straight = bool(t.affine.all())

    def grow(self, most_nodes: int) -> Proof:
        """Best-first until the least bound meets the best cost."""
        t = self.t
        most = worth_having(t.arrays, self.need)
        root = _Node(0.0, next(self.ties), np.zeros_like(most), most, self._guess())
        queue, done = [root], 0
        while queue and queue[0].bound < self._goal():
            if done == most_nodes:
                return Proof(self.counts, self.best, queue[0].bound, done)
            done += 1
            for child in self._open(heapq.heappop(queue)):
                heapq.heappush(queue, child)
        return Proof(self.counts, self.best, self.best, done)

    def _goal(self) -> float:
        """A bound from here on proves the best cost."""
        if self.counts is None:
            return math.inf
        return self.best - SUM_ERROR * (1.0 + abs(self.best))

    def _guess(self) -> Array:
        """Merit-order prices: the least USD/hour per unit of demand in each role; (2,)."""
        t, n = self.t, np.arange(len(self.t.role))
        admits, usd = t.admits[n, t.most], t.usd[n, t.most]
        guess = np.ones(2)
        for s in range(2):
            unit = usd[(t.role == s) & (admits > 0)] / admits[(t.role == s) & (admits > 0)]
            if unit.any():
                guess[s] = unit[unit > 0].min()
        return guess

    def _open(self, node: _Node) -> list[_Node]:
        """Close ``node``, or split it."""
        while True:
            width = int((node.high - node.low).sum())
            box = boxed(self.t.arrays, node.low, node.high, FINEST, COARSEST)
            cuts = self._bound(node, box)
            if self._closed(node):
                return []
            self._narrow(node, box)
            left = int((node.high - node.low).sum())
            if np.any(node.low > node.high):
                return []
            if left == 0:
                self._offer(node.low[np.newaxis])
                return []
            if left > SHRUNK * width:
                break
        if self.straight and self._listed(node, PATIENCE):
            return []
        option, at, lack = self._branch(node, cuts)
        gap = self.best - node.bound
        flat = gap <= NEAR * node.bound or lack <= FLAT * gap
        if not self.straight and flat and self._listed(node, 1.0):
            return []
        below, above = node.high.copy(), node.low.copy()
        below[option], above[option] = at, at + 1
        return [
            _Node(node.bound, next(self.ties), node.low, below, node.prices),
            _Node(node.bound, next(self.ties), above, node.high, node.prices),
        ]

    def _closed(self, node: _Node) -> bool:
        """Whether no fleet of ``node`` is cheaper than the best known."""
        return node.bound >= self._goal() or node.bound > self.dearest * (1.0 + SUM_ERROR)

    def _bound(self, node: _Node, box: Box) -> Cuts:
        """Raise the bound of ``node`` by the best prices; offers what the knapsacks answered."""
        bound, prices, cuts = best_prices(
            self.t.arrays, box, self.need, node.prices, self._goal(),
            self.dearest * (1.0 + 1e-6) + 1e-6,
        )  # fmt: skip
        node.bound, node.prices = max(node.bound, bound), prices
        self._offer(cuts.counts)
        return cuts

    def _missed(self, bound: float) -> float:
        """USD/hour by which the best prices may miss the highest bound."""
        lacks = min(self._goal() - bound, FIRST_GAP * abs(bound))
        return max(10.0 * KELLEY_GAP * abs(bound), 2.0 * LOOSE * lacks)

    def _narrow(self, node: _Node, box: Box) -> None:
        """Leave counts out of ``node`` that are in no fleet cheaper than the best known."""
        if self.counts is not None:
            node.low, node.high = self._under(self.best, box, node.prices)

    def _under(self, ceiling: float, box: Box, prices: Array) -> tuple[Ints, Ints]:
        """The ranges of ``box`` that a fleet of at most ``ceiling`` may have."""
        return narrowed(self.t.arrays, box, self.need, prices, _safely_above(ceiling))

    def _offer(self, rows: Ints) -> None:
        """Keep the best fleet that ``rows`` (N, n) give, repaired, if it is the cheapest yet."""
        self._take(cheapest_repaired(self.t.arrays, rows, self.need)[1])

    def _take(self, counts: Ints) -> None:
        """Keep ``counts``, within stock, if they are feasible and cheaper than the best."""
        cost = self.t.cost(counts)
        if cost < self.best and np.all(self.t.covered(counts) >= self.need):
            self.best, self.counts = cost, counts

    def _listed(self, node: _Node, share: float) -> bool:
        """Whether listing every fleet under a rising ceiling settles ``node``."""
        prices = node.prices * np.array([(a, b) for a in AROUND for b in AROUND])
        bound, whole = node.bound, boxed(self.t.arrays, node.low, node.high, FINEST, COARSEST)
        height = max(min(FIRST_CEILING * bound, self.step), SUM_ERROR * (1.0 + self.dearest))
        while True:
            height = min(height, self.best - bound)
            low, high = self._under(bound + height, whole, node.prices)
            if np.all(low <= high):
                box = boxed(self.t.arrays, low, high, FINEST, COARSEST)
                if not self._list(box, prices, bound + height, share):
                    return False
            node.bound = max(node.bound, bound + height)
            if self._closed(node):
                return True
            height *= HIGHER

    def _list(self, box: Box, prices: Array, ceiling: float, share: float) -> bool:
        """Look at every fleet of ``box`` under ``ceiling``; False when they are too many."""
        t = self.t
        suffix, least = many_knapsacks(t.arrays, box, prices)
        if np.isinf(least).any():
            return True
        room = _safely_above(ceiling) - prices @ self.need
        lists: list[_List] = []
        for g in range(t.blocks):
            others = least.sum(axis=1) - least[:, g]
            points, counts, complete = block_points(
                t.arrays, box, g, prices, suffix, room - others, int(share * MOST_SEEN)
            )
            if not complete:
                return False
            if len(points) == 0:
                return True
            kept = undominated(points)
            lists.append((g, points[kept], counts[kept]))
        lists.sort(key=lambda item: len(item[1]))
        sums, trail = np.zeros((1, 3)), list[Ints]()
        rest = least.sum(axis=1)
        for g, points, _ in lists[:-1]:
            rest -= least[:, g]
            sums, rows, complete = joined(sums, points, prices, room - rest, int(share * MOST_SUMS))
            if not complete:
                return False
            if len(sums) == 0:
                return True
            kept = undominated(sums)
            sums = sums[kept]
            trail.append(rows[kept])
        _, row, last_row = best_pair(sums, lists[-1][1], self.need)
        if row >= 0:
            self._take(self._traced(lists, trail, row, last_row))
        return True

    def _traced(self, lists: list[_List], trail: list[Ints], row: int, last_row: int) -> Ints:
        """Counts (n,) of a sum, from the rows that made it."""
        counts = np.zeros(len(self.t.role), np.int64)
        picks = [last_row]
        for rows in reversed(trail):
            row, point = rows[row]
            picks.append(point)
        for (g, _, each), pick in zip(reversed(lists), picks, strict=True):
            counts[self.t.start[g] : self.t.start[g + 1]] = each[pick]
        return counts

    def _branch(self, node: _Node, cuts: Cuts) -> tuple[int, int, float]:
        """(option, greatest count of the lower half, USD/hour that convexity costs the bound)."""
        from scipy.optimize import nnls

        t = self.t
        values = cuts.value + cuts.slope @ node.prices
        active = np.flatnonzero(values <= values.min() + self._missed(values.min()))
        slope = cuts.slope[active] * node.prices
        scale = max(float(np.abs(slope).max()), 1e-300)
        rows = np.vstack([slope.T / scale, np.ones(len(active))])
        weight, _ = nnls(rows, np.array([0.0, 0.0, 1.0]))
        weight /= max(weight.sum(), 1e-300)
        counts = cuts.counts[active]
        mean = weight @ counts
        n = np.arange(len(t.role))
        price = node.prices[t.role]
        hull = weight @ (t.usd[n, counts] - price * t.admits[n, counts])
        low = np.clip(np.floor(mean + 1e-9).astype(np.int64), node.low, node.high)
        up = np.minimum(low + 1, node.high)
        true = np.minimum(
            t.usd[n, low] - price * t.admits[n, low], t.usd[n, up] - price * t.admits[n, up]
        )
        lack = np.where(node.low < node.high, true - hull, -math.inf)
        i = int(np.argmax(lack))
        if lack[i] <= 1e-9 * (1.0 + abs(node.bound)):
            i = int(np.argmax((node.high - node.low) * (1.0 + t.usd[n, t.most])))
            return i, int((node.low[i] + node.high[i]) // 2), 0.0
        return i, int(min(low[i], node.high[i] - 1)), float(lack[i])
