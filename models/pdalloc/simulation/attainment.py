"""Which requests keep every bound at once: what attainment and goodput count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdalloc.errors import InputError
from pdalloc.simulation.statistics import Mask, Run

PER_REQUEST = ("ttft", "tpot", "e2e")
"""Latencies that a request has one of."""


@dataclass(frozen=True)
class Bound:
    """``metric`` of a request must be at most ``seconds``.

    A request has many token gaps: of those (``itl``) a ``share`` must keep the bound.
    ``traffic_class`` is the index of the class it is put on; None: all of them.
    """

    metric: str
    seconds: float
    traffic_class: int | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.metric not in (*PER_REQUEST, "itl"):
            raise InputError(f"no bound on {self.metric!r}; known: {', '.join(PER_REQUEST)}, itl")
        if not math.isfinite(self.seconds) or self.seconds <= 0:
            raise InputError(f"a bound on {self.metric} must be positive, got {self.seconds:g} s")
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"a share of gaps lies in (0, 1], got {self.share:g}")


def attained(run: Run, bounds: Sequence[Bound]) -> Mask:
    """Which requests finish and keep every bound on their class, shape (n,).

    A request of one token has no gap and keeps bounds on TPOT and ITL.
    """
    log = run.log
    met = log.finished
    for bound in bounds:
        if bound.metric == "itl":
            allowed = (1.0 - bound.share) * (log.output_tokens - 1)
            kept = run.gaps_over(bound.seconds) <= allowed + 1e-9  # rounding of 1 - share
        else:
            values = getattr(log, bound.metric)
            kept = (values <= bound.seconds) | (np.isnan(values) & (bound.metric == "tpot"))
        if bound.traffic_class is not None:
            kept = kept | (log.traffic_class != bound.traffic_class)
        met = met & kept
    return met
