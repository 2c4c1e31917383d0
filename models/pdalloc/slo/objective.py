"""A latency objective: metric x statistic x bound.

An SLO reads a delay law or a sample of measured latencies through the same statistic, so
prediction, simulation and real runs are judged alike. The statistics are found by name in
``pdalloc.slo.statistics``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdalloc.errors import InputError
from pdalloc.slo.statistics import Statistic

METRICS: dict[str, str] = {
    "ttft": "time to first token",
    "tpot": "time per output token of a request, after the first",
    "itl": "one gap between output tokens",
    "e2e": "arrival to last token",
}


@dataclass(frozen=True)
class Slo:
    """``statistic`` of ``metric`` over ``traffic_class`` must be at most ``bound`` seconds."""

    traffic_class: str
    metric: str
    statistic: Statistic
    bound: float

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InputError(f"SLO metric {self.metric!r} is not one of {', '.join(METRICS)}")
        if not math.isfinite(self.bound) or self.bound <= 0:
            raise InputError(f"SLO {self.name}: the bound must be positive and finite")

    @property
    def name(self) -> str:
        """``ttft.p90``, as users write it."""
        return f"{self.metric}.{self.statistic.name}"

    @property
    def title(self) -> str:
        """``TTFT P90``, as tables print it."""
        return f"{self.metric.upper()} {self.statistic.title}"

    def keeps(self, predicted: float, tolerance: float = 1e-9) -> bool:
        """Whether ``predicted`` seconds keep the bound, up to a relative ``tolerance``."""
        return predicted <= self.bound * (1.0 + tolerance)
