"""The gaps between output tokens of a run, as a sample that need not be written out.

Percentiles need the steps twice: to count them by length in bins, and to look into the few
bins that hold the wanted ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdalloc.records import Array, Ints, Sample
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.plain.steps import Mask, Steps

BINS = 1 << 14
"""Bins of equal ratio around the first length seen; the outermost two are open."""
DIGITS = 10
"""Binary digits by which bins tell lengths with the same power of two apart."""
BIN = np.dtype([("count", np.int64), ("entries", np.int64), ("least", "f8"), ("most", "f8")])
"""Of a bin: gaps, how often one or several at once were met, and the range of their lengths."""
Bins = NDArray[Any]


class PlayedGaps(Sample):
    """The gaps of the requests ``keep``, (n,); ``values`` and ``counts`` are made if asked for."""

    def __init__(self, steps: Steps, keep: Mask) -> None:
        self.__dict__.update(_steps=steps, _keep=keep)

    def _portions(self) -> Iterator[tuple[Array, Ints]]:
        """(lengths in s, gaps of each length), to be read before the next."""
        steps: Steps = self.__dict__["_steps"]
        replicas = [steps.portions(r, self.__dict__["_keep"]) for r in range(len(steps.decodes))]
        # In turn: what they did at one time lies together in memory.
        for turn in zip_longest(*replicas):
            for portion in filter(None, turn):
                yield portion.seconds, portion.counts
                yield portion.own, np.ones(len(portion.own), np.int64)

    @cached_property
    def _written(self) -> tuple[Array, Ints]:
        parts = [(v[c > 0], c[c > 0]) for v, c in self._portions()]
        values, counts = ([part[i] for part in parts] for i in range(2))
        return np.concatenate([np.empty(0), *values]), np.concatenate(
            [np.empty(0, np.int64), *counts]
        )

    @property
    def values(self) -> Array:
        """As :class:`Sample`."""
        return self._written[0]

    @property
    def counts(self) -> Ints:
        """As :class:`Sample`."""
        return self._written[1]

    @cached_property
    def _binned(self) -> tuple[Bins, int, float]:
        """(bins, the offset of their numbers, the sum of all gaps in s)."""
        bins, total = np.zeros(BINS, BIN), 0.0
        bins["least"] = np.inf
        offset = -1
        for lengths, counts in self._portions():
            if offset < 0 and len(lengths):
                offset = max(int(bits(lengths[:1])[0] >> (52 - DIGITS)) - BINS // 2, 0)
            total += fill(bins, lengths, bits(lengths), counts, offset)
        return bins, offset, total

    @property
    def size(self) -> int:
        """How many gaps there are."""
        return int(self._binned[0]["count"].sum())

    @property
    def mean(self) -> float:
        """Their mean, s; NaN when there is none."""
        return self._binned[2] / self.size if self.size else float("nan")

    def _ranked(self, ranks: Ints) -> Array:
        bins, offset, _ = self._binned
        up_to = np.cumsum(bins["count"])
        inside = np.searchsorted(up_to, ranks, side="right")
        found: Array = bins["least"][inside]
        open_ = np.zeros(BINS, np.bool_)
        open_[inside] = True
        open_ &= bins["least"] < bins["most"]
        if not open_.any():
            return found
        lengths, counts = self._gathered(open_, int(bins["entries"][open_].sum()), offset)
        reached = np.cumsum(counts)
        left_out = np.cumsum(np.where(open_, 0, bins["count"]))[inside]
        place = np.searchsorted(reached, ranks - left_out, side="right")
        return np.where(open_[inside], lengths[np.minimum(place, len(lengths) - 1)], found)

    def _gathered(self, wanted: Mask, entries: int, offset: int) -> tuple[Array, Ints]:
        """Lengths in increasing order, s, and counts of what lies in the bins ``wanted``."""
        lengths, counts, n = np.empty(entries), np.empty(entries, np.int64), 0
        for some, of_them in self._portions():
            n = gather(wanted, some, bits(some), of_them, offset, lengths, counts, n)
        order = np.argsort(lengths[:n])
        return lengths[order], counts[order]


def bits(lengths: Array) -> Ints:
    """The binary digits of numbers >= 0 as integers, which are in the same order."""
    return lengths.view(np.int64)


@kernel
def fill(bins: Bins, lengths: Array, digits: Ints, counts: Ints, offset: int) -> float:
    """Put gaps in their bins; returns their sum, s."""
    total = 0.0
    for i in range(len(lengths)):
        if counts[i] > 0:
            total += lengths[i] * counts[i]
            b = bins[min(max((digits[i] >> (52 - DIGITS)) - offset, 0), BINS - 1)]
            b.count += counts[i]
            b.entries += 1
            b.least, b.most = min(b.least, lengths[i]), max(b.most, lengths[i])
    return total


@kernel
def gather(
    wanted: Mask,
    lengths: Array,
    digits: Ints,
    counts: Ints,
    offset: int,
    found: Array,
    found_counts: Ints,
    n: int,
) -> int:
    """Append those in the bins ``wanted`` to the ``n`` found before; returns how many now."""
    for i in range(len(lengths)):
        if counts[i] > 0:
            b = min(max((digits[i] >> (52 - DIGITS)) - offset, 0), BINS - 1)
            if not wanted[b]:
                continue
            if n > 0 and found[n - 1] == lengths[i]:
                found_counts[n - 1] += counts[i]
                continue
            found[n], found_counts[n] = lengths[i], counts[i]
            n += 1
    return n
