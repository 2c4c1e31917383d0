"""Arrival times that were recorded, replayed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pdalloc.errors import InputError
from pdalloc.workload.arrivals.process import Array, check_positive


@dataclass(frozen=True)
class Trace:
    """The arrivals ``at`` (s, nondecreasing), moved to begin at 0 and made ``speed`` times
    as fast.

    When more are asked for than were recorded the trace repeats, a mean gap after its last
    arrival, so that its rate stays. Nothing is random.
    """

    at: tuple[float, ...]
    speed: float = 1.0

    def __post_init__(self) -> None:
        check_positive("the speed of a trace", self.speed, "")
        if len(self.at) < 2 or not all(map(math.isfinite, self.at)):
            raise InputError("a trace needs at least two finite arrival times")
        if np.any(np.diff(self.at) < 0) or self.at[-1] <= self.at[0]:
            raise InputError("the arrival times of a trace must not go back, nor all be the same")

    @property
    def rate(self) -> float:
        """(arrivals - 1) / span, times the speed."""
        return self.speed * (len(self.at) - 1) / (self.at[-1] - self.at[0])

    @property
    def dispersion(self) -> float:
        """SCV of the recorded gaps; formulas take them to be independent."""
        gaps = np.diff(self.at)
        return float(gaps.var() / gaps.mean() ** 2)

    @property
    def typical_seconds(self) -> float:
        """The whole trace once, s."""
        return len(self.at) / self.rate

    def times(self, count: int, rng: np.random.Generator) -> Array:
        """``count`` arrival times, s (:class:`ArrivalProcess`); ``rng`` is not used."""
        n, at = len(self.at), (np.array(self.at) - self.at[0]) / self.speed
        rounds, place = np.divmod(np.arange(count), n)
        replayed: Array = at[place] + rounds * (n / self.rate)
        return replayed

    def scaled(self, factor: float) -> Trace:
        """The same trace ``factor`` times as fast."""
        return replace(self, speed=self.speed * factor)
