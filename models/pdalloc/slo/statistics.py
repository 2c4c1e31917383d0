"""What an SLO bounds: the mean, or a percentile, of a latency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from pdalloc.errors import InputError
from pdalloc.laws import Law
from pdalloc.records import Sample


class Statistic(Protocol):
    """A number read off a delay law or off a sample of latencies."""

    @property
    def name(self) -> str:
        """As users write it: ``mean``, ``p99``."""
        ...

    @property
    def title(self) -> str:
        """As tables print it."""
        ...

    def of_law(self, law: Law) -> float:
        """Seconds, predicted."""
        ...

    def of_sample(self, sample: Sample) -> float:
        """Seconds, measured; NaN of an empty sample."""
        ...


@dataclass(frozen=True)
class Mean:
    """The average over requests."""

    name: str = "mean"
    title: str = "mean"

    def of_law(self, law: Law) -> float:
        """E[T] in seconds."""
        return law.mean

    def of_sample(self, sample: Sample) -> float:
        """Sample mean in seconds."""
        return sample.mean


@dataclass(frozen=True)
class Percentile:
    """The value that ``percent`` of the requests do not exceed; 0 < percent < 100."""

    percent: float

    def __post_init__(self) -> None:
        if not 0.0 < self.percent < 100.0:
            raise InputError(f"a percentile must lie between p0 and p100, got p{self.percent:g}")

    @property
    def name(self) -> str:
        """``p99``."""
        return f"p{self.percent:g}"

    @property
    def title(self) -> str:
        """``P99``."""
        return f"P{self.percent:g}"

    def of_law(self, law: Law) -> float:
        """Quantile in seconds."""
        return law.quantile(self.percent / 100.0)

    def of_sample(self, sample: Sample) -> float:
        """Sample quantile in seconds."""
        return sample.percentiles([self.percent])[0]


def parse_statistic(text: str) -> Statistic:
    """Read ``mean``, ``p90`` or ``p99.9``; raises InputError for anything else.

    >>> parse_statistic("p90").title
    'P90'
    """
    if text == "mean":
        return Mean()
    match = re.fullmatch(r"[pP](\d+(?:\.\d+)?)", text)
    if match:
        return Percentile(float(match.group(1)))
    raise InputError(f"SLO statistic {text!r} is not one of mean, p50, p90, p99, p99.9, ...")
