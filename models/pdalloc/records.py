"""RequestLog: what happened to each request, from a simulator or from a real run.

Every array has shape (n,), one entry per request in order of arrival; times are seconds on
one clock. SLOs read latencies from here, so simulated and measured runs are judged alike.
"""

from __future__ import annotations

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
