"""RequestLog: what happened to each request, from a simulator or from a real run.

Every array has shape (n,), one entry per request in order of arrival; times are seconds on
one clock. SLOs read latencies from here, so simulated and measured runs are judged alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FINISHED, REJECTED, TIMED_OUT = range(3)
STATUSES = ("finished", "rejected", "timed out")
"""What became of a request, by its ``status`` in a log."""


@dataclass(frozen=True)
class RequestLog:
    """Per-request times of one run.

    ``arrival``, ``prefill_start``, ``prefill_end``, ``transfer_end``, ``decode_start`` (the
    first step begins), ``first_token`` and ``finish`` in seconds; ``prompt_tokens`` and
    ``output_tokens`` per request; ``traffic_class``, ``prefill_replica`` and
    ``decode_replica`` are indices.

    Only logs of runs with simulation options have the rest. ``status`` indexes STATUSES; who
    did not finish has NaN times and replica -1 from the stage that it never reached.
    ``retries`` counts arrivals after the first (``arrival`` is the first, the other times are
    of the last), ``recomputes`` how often its decode-side KV cache was lost. ``left`` is when
    it left the system either way, and ``transfer_start`` when its KV cache began to move,
    seconds.
    """

    arrival: Array
    prefill_start: Array
    prefill_end: Array
    transfer_end: Array
    decode_start: Array
    first_token: Array
    finish: Array
    prompt_tokens: Ints
    output_tokens: Ints
    traffic_class: Ints
    prefill_replica: Ints
    decode_replica: Ints
    status: Ints | None = None
    retries: Ints | None = None
    recomputes: Ints | None = None
    left: Array | None = None
    transfer_start: Array | None = None

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests got their whole answer, shape (n,)."""
        if self.status is None:
            return np.ones(len(self), bool)
        return np.asarray(self.status == FINISHED)

    @property
    def ttft(self) -> Array:
        """Time to first token in seconds, by the run's first-token rule."""
        return self.first_token - self.arrival

    @property
    def e2e(self) -> Array:
        """Arrival to last token in seconds."""
        return self.finish - self.arrival

    @property
    def tpot(self) -> Array:
        """Mean gap between output tokens after the first, seconds; NaN for one token."""
        gaps = self.output_tokens - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(gaps > 0, (self.finish - self.first_token) / gaps, np.nan)

    def select(self, keep: NDArray[np.bool_]) -> RequestLog:
        """The requests where ``keep`` (shape (n,)) is true."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in self.__annotations__}
        given = {name: values for name, values in columns.items() if values is not None}
        return RequestLog(**{name: values[keep] for name, values in given.items()})


@dataclass(frozen=True)
class Sample:
    """Latencies ``values[i]`` (s), each seen ``counts[i]`` >= 1 times; arrays (k,).

    A million requests have hundreds of millions of token gaps but few different ones: the
    steps. What is read off is that of the values written out, ``np.repeat(values, counts)``.
    """

    values: Array
    counts: Ints

    @property
    def size(self) -> int:
        """How many latencies there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Their mean, s; NaN when there is none."""
        if not self.size:
            return float("nan")
        # Not a dot product: BLAS would wake its threads for it, at many times the cost.
        return float((self.values * self.counts).sum() / self.size)

    def percentiles(self, percents: Sequence[float]) -> list[float]:
        """Linearly interpolated percentiles, s, as ``np.percentile`` gives; NaN of nothing."""
        if not self.size:
            return [float("nan")] * len(percents)
        place = (self.size - 1) * np.asarray(percents, float) / 100.0
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, self.size - 1)
        low, high = np.split(self._ranked(np.concatenate([below, above])), 2)
        return [float(x) for x in low + (place - below) * (high - low)]

    def _ranked(self, ranks: Ints) -> Array:
        """The values of these ranks, from 0 on: a histogram, then a sort of a few of its bins."""
        least, most = float(self.values.min()), float(self.values.max())
        if least == most:
            return np.full(len(ranks), least)
        # Rounding is monotone, so the bins are in order whatever it does to their edges.
        bins = ((self.values - least) * ((BINS - 1) / (most - least))).astype(np.int32)
        up_to = np.cumsum(np.bincount(bins, self.counts, BINS))
        looked_at = np.zeros(BINS, bool)
        looked_at[np.searchsorted(up_to, ranks, side="right")] = True
        left_out = np.where(looked_at, 0.0, np.diff(up_to, prepend=0.0))
        inside = np.flatnonzero(looked_at[bins])
        inside = inside[np.argsort(self.values[inside])]
        before = np.cumsum(left_out)[bins[inside]]
        reached = np.cumsum(self.counts[inside]) + before
        found: Array = self.values[inside[np.searchsorted(reached, ranks, side="right")]]
        return found


BINS = 1 << 12
"""Bins among which a percentile is looked for."""


def sample_of(values: Array) -> Sample:
    """The finite ones of ``values`` (n,), seconds, each seen once."""
    finite = values[np.isfinite(values)]
    return Sample(finite, np.ones(len(finite), np.int64))
