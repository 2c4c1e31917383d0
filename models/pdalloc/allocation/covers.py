"""All ways to cover a demand with integer replicas of one role, cheapest first.

A best-first search over count vectors. A node fixes the counts of the first types; its key
is their cost plus the fractional bound on the rest (remaining demand at the best unit cost
still available, owned capacity free), which never overestimates, so vectors leave the queue
in order of cost - each is proven to be the cheapest of those not yet seen. Nodes that the
open types cannot complete within stock and limits are dropped.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from pdalloc.allocation.problem import Option

MOST_REPLICAS = 100_000
"""A type of which more than this many would be needed admits nothing to speak of."""
SHORTFALL = 1e-12
"""Relative shortfall that still counts as covered: rounding of the rates."""
Counts = tuple[int, ...]


def covers(
    options: Sequence[Option],
    rates: Sequence[float],
    demand: float,
    stock: Mapping[str, int],
    cutoff: Callable[[], float] = lambda: math.inf,
) -> Iterator[tuple[float, Counts]]:
    """Yield (USD/hour, replicas per option) with sum(rate n) >= demand, in order of cost.

    The search ends when nothing cheaper than ``cutoff()`` (USD/hour) is left.
    ``rates`` requests/s per replica, aligned with ``options``; ``stock`` GPUs by name.
    Ties go to fewer GPUs, then to the earlier option. Endless unless stock or limits end it.
    """
    search = _Search(options, rates, demand, stock)
    search.push((), closed=True)
    while search.queue:
        cost, _, counts, closed = heapq.heappop(search.queue)
        if cost >= cutoff():
            return
        if closed and len(counts) == len(options):
            yield cost, counts
        elif closed:
            search.open_next(counts)
        else:
            search.push(counts, closed=True)
            search.push((*counts[:-1], counts[-1] + 1), closed=False)


class _Search:
    """The queue of nodes: (bound, GPUs, counts, whether the last count is final)."""

    def __init__(
        self,
        options: Sequence[Option],
        rates: Sequence[float],
        demand: float,
        stock: Mapping[str, int],
    ) -> None:
        self.options, self.stock = options, stock
        self.rates = [rate if rate * MOST_REPLICAS >= demand else 0.0 for rate in rates]
        self.needed = demand * (1.0 - SHORTFALL)
        self.last_useful = max((i for i, rate in enumerate(self.rates) if rate > 0), default=-1)
        self.queue: list[tuple[float, int, Counts, bool]] = []

    def open_next(self, counts: Counts) -> None:
        """Let the next type take none, or at once enough where nothing after it can help."""
        first = 0
        if len(counts) == self.last_useful:
            rate = self.rates[self.last_useful]
            first = max(math.ceil((self.needed - self.covered(counts)) / rate), 0)
        self.push((*counts, first), closed=False)

    def covered(self, counts: Counts) -> float:
        """Requests/s that ``counts`` admit."""
        return sum(r * n for r, n in zip(self.rates, counts, strict=False))

    def push(self, counts: Counts, closed: bool) -> None:
        """Queue a node unless stock, limits or the demand rule it out."""
        if counts:
            last = len(counts) - 1
            useless = counts[last] > 0 and self.rates[last] <= 0
            if useless or counts[last] > self.room(last, counts[:last]):
                return
        spent = sum(o.cost(n) for o, n in zip(self.options, counts, strict=False))
        rest = self.fractional(counts, closed, self.needed - self.covered(counts))
        if math.isfinite(rest):
            gpus = sum(o.gpus * n for o, n in zip(self.options, counts, strict=False))
            heapq.heappush(self.queue, (spent + rest, gpus, counts, closed))

    def room(self, i: int, before: Counts) -> float:
        """Most replicas of option ``i`` beside the counts ``before`` it."""
        option = self.options[i]
        pairs = zip(self.options, before, strict=False)
        used = sum(o.gpus * n for o, n in pairs if o.gpu == option.gpu)
        left = self.stock.get(option.gpu, math.inf) - used
        return min(option.most, left // option.gpus)

    def fractional(self, counts: Counts, closed: bool, remaining: float) -> float:
        """Least USD/hour to cover ``remaining`` requests/s with fractions of the open types."""
        if remaining <= 0:
            return 0.0
        unit, reach = math.inf, 0.0
        first_open = len(counts) if closed else len(counts) - 1
        fixed = counts[:first_open]
        owned = 0.0
        for i in range(first_open, len(self.options)):
            if self.rates[i] <= 0:
                continue
            placed = counts[i] if i < len(counts) else 0
            more = self.room(i, fixed) - placed
            if more <= 0:
                continue
            reach += self.rates[i] * more
            owned += self.rates[i] * max(min(self.options[i].owned - placed, more), 0)
            unit = min(unit, self.options[i].usd_per_hour / self.rates[i])
        if reach < remaining:
            return math.inf
        return max(remaining - owned, 0.0) * unit
