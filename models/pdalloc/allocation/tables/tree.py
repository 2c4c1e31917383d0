"""Branch and bound over ranges of counts, each node closed by listing what is left.

The bound of a node is :mod:`.dual` at its best prices. Between it and a ceiling just above,
:mod:`.points` lists every fleet that is left; the ceiling rises until the cheapest of them is
below it (proven) or the lists grow long. Then the node splits: convexity is what the bound
lacks, so the range of the option that is farthest below its table's convex hull is cut.

Plain arithmetic throughout: no solver, no tolerance but that of sums of doubles (SUM_ERROR).
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from pdalloc.allocation.tables.data import Array, Ints, Tables
from pdalloc.allocation.tables.dual import attained, highest, knapsacks
from pdalloc.allocation.tables.points import best_pair, block_points, joined, undominated

SUM_ERROR = 1e-10
"""Relative error of a sum of doubles, allowed on the safe side of every bound."""
GRID, COARSE = 8192, 1024
"""Weights of a block's knapsack at most, COARSE with curved tables; a larger stock is counted in
several GPUs."""
KELLEY_STEPS, KELLEY_GAP = 40, 1e-7
WIDEST, WIDER = 12, 30.0
"""Times that the box of prices is made WIDER before demand is called out of reach."""
AROUND = np.array([1.0, 0.97, 1.03, 0.99, 1.01, 0.9, 1.1])
"""Each pair of these factors on the best prices gives one more bound."""
FIRST_CEILING, HIGHER = 5e-5, 1.8
"""First height of the ceiling over the bound, relative, and its factor from then on."""
FIRST_STEP = 0.4
"""At most this share of the cheapest replica at first: costs of fleets lie that close."""
MOST_SEEN, MOST_SUMS = 500_000, 8_000
"""Counts looked at in a block, and sums kept, before a node is split instead."""
FLAT, PATIENCE = 1e-5, 200.0
"""Where convexity costs less than FLAT, splitting helps little: lists may be PATIENCE longer."""
NEAR = 2e-3
"""Relative gap above which a node is split without listing."""
MOST_NODES = 5_000


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


@dataclass
class _Cuts:
    """What the knapsacks answered at each pair of prices tried."""

    value: Array
    slope: Array
    counts: Ints
    n: int = 0


def cheapest(t: Tables, need: Array, most_nodes: int = MOST_NODES) -> Proof:
    """The cheapest counts that admit ``need`` (2,), shares of the demand per role, proven."""
    return _Tree(t, need).grow(most_nodes)


class _Tree:
    def __init__(self, t: Tables, need: Array) -> None:
        self.t, self.need = t, need
        grid = GRID if t.affine.all() else COARSE
        self.grid = np.maximum(-(-t.stock // grid), 1)
        self.top = t.stock // self.grid
        self.width = int(self.top.max(initial=0)) + 1
        self.best = math.inf
        self.counts: Ints | None = None
        self.dearest = float(t.usd.max(axis=1, initial=0.0).sum())
        last = t.usd[np.arange(len(t.most)), t.most]
        unit = last[last > 0.0] / t.most[last > 0.0]
        self.step = FIRST_STEP * float(unit.min(initial=math.inf))
        self.ties = itertools.count()

    def grow(self, most_nodes: int) -> Proof:
        """Best-first until the least bound meets the best cost."""
        t = self.t
        root = _Node(0.0, next(self.ties), np.zeros_like(t.most), t.most.copy(), self._guess())
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
        if np.array_equal(node.low, node.high):
            self._offer(node.low)
            return []
        bound, prices, cuts = self._dual(node)
        node.bound, node.prices = max(node.bound, bound), prices
        if node.bound >= self._goal() or node.bound > self.dearest * (1.0 + SUM_ERROR):
            return []
        option, at, lack = self._branch(node, cuts)
        share = 1.0 if lack > FLAT * node.bound else PATIENCE
        near = self.best - node.bound <= NEAR * node.bound or node.tie == 0
        if (near or share > 1.0) and self._listed(node, bound, share):
            return []
        below, above = node.high.copy(), node.low.copy()
        below[option], above[option] = at, at + 1
        return [
            _Node(node.bound, next(self.ties), node.low, below, node.prices),
            _Node(node.bound, next(self.ties), above, node.high, node.prices),
        ]

    def _dual(self, node: _Node) -> tuple[float, Array, _Cuts]:
        """(bound, best prices, cuts) by cutting planes; inf where ``node`` holds no fleet."""
        t, n = self.t, len(self.t.role)
        room = KELLEY_STEPS * (WIDEST + 1)
        cuts = _Cuts(np.empty(room), np.empty((room, 2)), np.empty((room, n), np.int64))
        suffix, least = np.empty((n, self.width)), np.empty(t.blocks)
        best, prices, at = -math.inf, node.prices.copy(), node.prices.copy()
        low, high = np.zeros(2), 4.0 * node.prices
        for _ in range(WIDEST):
            for _ in range(KELLEY_STEPS):
                counts = cuts.counts[cuts.n]
                self._knapsacks(node, at, suffix, least)
                attained(
                    at, t.role, t.gpus, t.admits, t.usd, t.start, node.low, node.high,
                    self.grid, self.top, suffix, counts,
                )  # fmt: skip
                value = float(least.sum() + at @ self.need)
                if math.isinf(value):
                    return math.inf, prices, cuts
                slope = self.need - t.covered(counts)
                cuts.value[cuts.n], cuts.slope[cuts.n] = value - slope @ at, slope
                cuts.n += 1
                self._offer(counts)
                if value > best:
                    best, prices = value, at.copy()
                ceiling = highest(cuts.value, cuts.slope, cuts.n, low, high, at)
                if ceiling - best <= KELLEY_GAP * abs(best):
                    break
            if np.all(prices < 0.99 * high) or best > self.dearest * (1.0 + 1e-6) + 1e-6:
                break
            high = np.where(prices < 0.99 * high, high, WIDER * high)
            highest(cuts.value, cuts.slope, cuts.n, low, high, at)
        return best, prices, cuts

    def _knapsacks(self, node: _Node, prices: Array, suffix: Array, least: Array) -> None:
        t = self.t
        knapsacks(
            prices, t.role, t.gpus, t.admits, t.usd, t.affine, t.start, node.low, node.high,
            self.grid, self.top, suffix, least,
        )  # fmt: skip

    def _offer(self, counts: Ints) -> None:
        """Keep ``counts``, trimmed, if they are feasible and cheaper than the best."""
        t, counts = self.t, self._fitted(counts)
        spare = t.covered(counts) - self.need
        if np.any(spare < 0.0):
            return
        n = np.arange(len(counts))
        unit = t.usd[n, counts] / np.maximum(t.admits[n, counts], 1e-300)
        for i in np.argsort(-unit):
            row, s = t.admits[i], t.role[i]
            enough = row[counts[i]] - spare[s]
            m = int(np.searchsorted(row[: counts[i] + 1], max(enough, 0.0)))
            spare[s] -= row[counts[i]] - row[m]
            counts[i] = m
        cost = t.cost(counts)
        fits = np.all(np.add.reduceat(t.gpus * counts, t.start[:-1]) <= t.stock)
        if fits and cost < self.best and np.all(t.covered(counts) >= self.need):
            self.best, self.counts = cost, counts

    def _fitted(self, counts: Ints) -> Ints:
        """``counts``, a copy, without the replicas beyond a stock that a coarse grid lets in."""
        t, counts = self.t, counts.copy()
        over = np.add.reduceat(t.gpus * counts, t.start[:-1]) - t.stock
        for g in np.flatnonzero(over > 0):
            i = t.start[g] + int(np.argmax((t.gpus * counts)[t.start[g] : t.start[g + 1]]))
            counts[i] = max(counts[i] - -(-over[g] // t.gpus[i]), 0)
        return counts

    def _listed(self, node: _Node, bound: float, share: float) -> bool:
        """Whether listing every fleet under a rising ceiling settles ``node``."""
        t, n = self.t, len(self.t.role)
        prices = node.prices * np.array([(a, b) for a in AROUND for b in AROUND])
        suffix, least = np.empty((len(prices), n, self.width)), np.empty((len(prices), t.blocks))
        for k, pair in enumerate(prices):
            self._knapsacks(node, pair, suffix[k], least[k])
        height = max(min(FIRST_CEILING * bound, self.step), SUM_ERROR * (1.0 + self.dearest))
        while True:
            height = min(height, self.best - bound)
            ceiling = bound + height
            if not self._list(node, prices, suffix, least, ceiling, share):
                return False
            node.bound = max(node.bound, ceiling)
            if node.bound >= self._goal() or node.bound > self.dearest * (1.0 + SUM_ERROR):
                return True
            height *= HIGHER

    def _list(
        self, node: _Node, prices: Array, suffix: Array, least: Array, ceiling: float, share: float
    ) -> bool:
        """Look at every fleet of ``node`` under ``ceiling``; False when they are too many."""
        t = self.t
        room = ceiling + SUM_ERROR * (1.0 + abs(ceiling)) - prices @ self.need
        lists: list[_List] = []
        for g in range(t.blocks):
            first, last = t.start[g], t.start[g + 1]
            others = least.sum(axis=1) - least[:, g]
            points, counts, complete = block_points(
                first, last, prices, suffix, room - others, t.role, t.gpus, t.admits, t.usd,
                t.affine, node.low, node.high, self.grid[g], self.top[g], t.stock[g],
                int(share * MOST_SEEN),
            )  # fmt: skip
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
            self._offer(self._traced(lists, trail, row, last_row))
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

    def _branch(self, node: _Node, cuts: _Cuts) -> tuple[int, int, float]:
        """(option, greatest count of the lower half, USD/hour that convexity costs the bound)."""
        from scipy.optimize import nnls

        t = self.t
        values = cuts.value[: cuts.n] + cuts.slope[: cuts.n] @ node.prices
        active = np.flatnonzero(values <= values.min() + 1e-6 * abs(values.min()))
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
