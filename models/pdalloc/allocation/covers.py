"""All ways to cover a demand with integer replicas of one role, cheapest first.

A best-first search over count vectors. A node fixes the counts of the first types; its key
is their cost plus the fractional bound on the rest (remaining demand at the best unit cost
still available, owned capacity free), which never overestimates, so vectors leave the queue
in order of cost - each is proven to be the cheapest of those not yet seen.
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


def covers(
    options: Sequence[Option],
    rates: Sequence[float],
    demand: float,
    stock: Mapping[str, int],
    cutoff: Callable[[], float] = lambda: math.inf,
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield (USD/hour, replicas per option) with sum(rate n) >= demand, in order of cost.

    The search ends when nothing cheaper than ``cutoff()`` (USD/hour) is left.

    ``rates`` requests/s per replica, aligned with ``options``; ``stock`` GPUs by name.
    Ties go to fewer GPUs, then to the earlier option. Endless unless stock or limits end it.
    """
    needed = demand * (1.0 - SHORTFALL)
    rates = [rate if rate * MOST_REPLICAS >= demand else 0.0 for rate in rates]
    last_useful = max((i for i, rate in enumerate(rates) if rate > 0), default=-1)
    start: tuple[int, ...] = ()
    queue: list[tuple[float, int, tuple[int, ...], bool]] = []

    def push(counts: tuple[int, ...], closed: bool) -> None:
        """Queue a node whose last count is final (``closed``) or may still grow."""
        covered = sum(r * n for r, n in zip(rates, counts, strict=False))
        spent = sum(o.cost(n) for o, n in zip(options, counts, strict=False))
        rest = _fractional(options, rates, counts, closed, needed - covered)
        if math.isfinite(rest):
            gpus = sum(o.gpus * n for o, n in zip(options, counts, strict=False))
            heapq.heappush(queue, (spent + rest, gpus, counts, closed))

    push(start, True)
    while queue:
        cost, _, counts, closed = heapq.heappop(queue)
        if cost >= cutoff():
            return
        if closed and len(counts) == len(options):
            yield cost, counts
        elif closed:
            first = 0
            if len(counts) == last_useful:  # nothing after it can help: start at enough
                covered = sum(r * n for r, n in zip(rates, counts, strict=False))
                first = max(math.ceil((needed - covered) / rates[last_useful]), 0)
            if first == 0 or _allowed(options, (*counts, first), stock):
                push((*counts, first), False)
        else:
            push(counts, True)
            more = (*counts[:-1], counts[-1] + 1)
            if rates[len(counts) - 1] > 0 and _allowed(options, more, stock):
                push(more, False)


def _allowed(options: Sequence[Option], counts: Sequence[int], stock: Mapping[str, int]) -> bool:
    last = options[len(counts) - 1]
    if counts[-1] > last.most:
        return False
    pairs = zip(options, counts, strict=False)
    used = sum(o.gpus * n for o, n in pairs if o.gpu == last.gpu)
    return used <= stock.get(last.gpu, math.inf)


def _fractional(
    options: Sequence[Option],
    rates: Sequence[float],
    counts: tuple[int, ...],
    closed: bool,
    remaining: float,
) -> float:
    """Least USD/hour to cover ``remaining`` requests/s with fractions of the open types."""
    if remaining <= 0:
        return 0.0
    unit = math.inf
    first_open = len(counts) if closed else len(counts) - 1
    for i in range(first_open, len(options)):
        if rates[i] <= 0:
            continue
        placed = counts[i] if i < len(counts) else 0
        remaining -= rates[i] * max(options[i].owned - placed, 0)
        unit = min(unit, options[i].usd_per_hour / rates[i])
    if remaining <= 0:
        return 0.0
    return remaining * unit if math.isfinite(unit) else math.inf
