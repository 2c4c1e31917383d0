"""An SLO on one latency: metric x statistic x bound.

The statistics are found by name in ``pdalloc.slo.statistics``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdalloc.errors import InputError
from pdalloc.slo.interface import LEAST_BEYOND, LEAST_REQUESTS, LessIsBetter, Measured, Predicted
from pdalloc.slo.statistics import Percentile, Statistic

METRICS: dict[str, str] = {
    "ttft": "time to first token",
    "tpot": "time per output token of a request, after the first",
    "itl": "one gap between output tokens",
    "e2e": "arrival to last token",
}
LOST_TOLERANCE = 1e-3
"""Share of requests without an answer beyond which a mean is infinite."""
WORTH_A_WORD = 0.01
"""Relative errors of a prediction below this are not spelt out."""
MEAN_GAPS = 0.5
"""Share of a request's token gaps that is asked to keep a bound on their mean."""


@dataclass(frozen=True)
class Slo(LessIsBetter):
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
    def limits(self) -> dict[str, float]:
        """The bound, by its metric."""
        return {self.metric: self.bound}

    @property
    def name(self) -> str:
        """``ttft.p90``, as users write it."""
        return f"{self.metric}.{self.statistic.name}"

    @property
    def title(self) -> str:
        """``TTFT P90``, as tables print it."""
        return f"{self.metric.upper()} {self.statistic.title}"

    @property
    def level(self) -> float:
        """Level of the percentile; 0 of a mean."""
        return self.statistic.percent / 100.0 if isinstance(self.statistic, Percentile) else 0.0

    @property
    def gap_share(self) -> float:
        """The percentile's share of gaps; half of them of a mean."""
        return self.level or MEAN_GAPS

    def predict(self, predicted: Predicted) -> float:
        """Seconds, by the law of the metric."""
        return self.statistic.of_law(predicted.law(self.metric))

    def measure(self, measured: Measured) -> float:
        """Seconds over the answered requests.

        Those that got no answer never see a token: a percentile counts them as later than any,
        and a mean is infinite where they are more than LOST_TOLERANCE. NaN where fewer than
        LEAST_REQUESTS, or LEAST_BEYOND beyond the percentile, are there: the small-sample bias of
        a quantile is in no interval.
        """
        sample, lost = measured.sample(self.metric), measured.lost
        if measured.answered < LEAST_REQUESTS:
            return math.inf if lost > 0.5 else math.nan
        if not sample.size:
            return 0.0  # one-token answers have no gap
        if not isinstance(self.statistic, Percentile):
            return math.inf if lost > LOST_TOLERANCE else self.statistic.of_sample(sample)
        share = self.level
        if self.metric != "itl":
            share /= 1.0 - lost
            if share >= 1.0:
                return math.inf
        if sample.size * (1.0 - share) < LEAST_BEYOND:
            return math.nan
        return Percentile(100.0 * share).of_sample(sample)

    def text(self, value: float, digits: int = 4) -> str:
        """``2.5 s``."""
        return f"{value:.{digits}g} s"

    def interval_text(self, value: float, half_width: float) -> str:
        """``2.5 s +- 0.1 s``."""
        return f"{self.text(value)} +- {half_width:.2g} s"

    def broken_text(self, value: float) -> str:
        """``TTFT P90 2.1 s is above 2 s``."""
        return f"{self.title} {self.text(value)} is above {self.text(self.bound)}"

    def unreachable_text(self, floor: float, where: str) -> str:
        """The bound beside what an unloaded request takes."""
        asked, least = _apart(self.bound, floor)
        return (
            f"{self.title} of {self.traffic_class!r} cannot be {asked} with any number of "
            f"replicas: on the best types an unloaded request already takes {least}{where}; "
            f"set a bound above {least}"
        )

    def error_text(self, predicted: float, measured: float) -> str:
        """``4.0% optimistic``; "" below WORTH_A_WORD."""
        gap = predicted / measured - 1.0 if measured else math.copysign(math.inf, predicted)
        if predicted == measured or abs(gap) < WORTH_A_WORD:
            return ""
        return f"{abs(gap):.1%} {'optimistic' if gap < 0.0 else 'pessimistic'}"


def _apart(bound: float, floor: float) -> tuple[str, str]:
    """Both in words with as many digits as tell them apart."""
    for digits in (4, 6, 8, 10):
        texts = milliseconds(bound, digits), milliseconds(floor, digits)
        if texts[0] != texts[1]:
            break
    return texts


def milliseconds(seconds: float, digits: int = 4) -> str:
    """``250 ms``; ``12 s`` from 10 s on."""
    if seconds < 10:
        return f"{seconds * 1e3:.{digits}g} ms"
    return f"{seconds:.{digits}g} s"
