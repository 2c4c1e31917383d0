r"""Where a decode replica runs without fluctuations, and the step time's line about that point.

The fluid batch solves :math:`m = \lambda E[n]\, t(m)`, capped by the slots: a/(1 - rho) seconds a
step for t = a + s k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.queueing.decode.fluctuations import transforms
from pdalloc.queueing.decode.station import DecodeStation

MOST_FEEDBACK = 0.995
"""Share of its own cause that a step time may feed back, where a table is steeper than linear."""


@dataclass(frozen=True, eq=False)
class OperatingPoint:
    """Of one replica of ``station``."""

    station: DecodeStation

    @cached_property
    def batch(self) -> float:
        """m, requests."""
        station, work = self.station, self._work
        if station.affine is not None:
            feedback = self._feedback(station.affine[1:])
            alone = work * station.affine[0]
            if feedback < 1.0 and alone / (1.0 - feedback) <= station.slots:
                return alone / (1.0 - feedback)
        low, high = 0.0, min(station.slots, 2.0)
        while high < station.slots and work * self.seconds(high) > high:
            low, high = high, min(2.0 * high, station.slots)
        while high - low > 1e-9 * high + 1e-12:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if work * self.seconds(middle) > middle else (low, middle)
        return high

    @cached_property
    def step(self) -> float:
        """t(m), seconds."""
        return self.seconds(self.batch)

    def seconds(self, batch: float) -> float:
        """Step seconds at the mean context; on the line through 1 and 2 below 1."""
        if batch >= 1.0:
            return float(self.station.seconds(np.array([batch]))[0])
        one, two = self.station.seconds(np.array([1.0, 2.0]))
        return max(float(one - (1.0 - batch) * (two - one)), 0.5 * float(one))

    @cached_property
    def slopes(self) -> tuple[float, float]:
        """(b, c): s/request and s/token of the step time about m."""
        if self.station.affine is not None:
            return self.station.affine[1:]
        b, c = self._secants()
        feedback = self._feedback((b, c))
        shrink = min(1.0, MOST_FEEDBACK / feedback) if feedback > 0.0 else 1.0
        return b * shrink, c * shrink

    @cached_property
    def feedback(self) -> float:
        """rho of the line: seconds of later steps that a second of step time brings about."""
        return self._feedback(self.slopes)

    @property
    def _work(self) -> float:
        return self.station.replica_rate * self.station.work.mean_steps

    def _feedback(self, slopes: tuple[float, float]) -> float:
        return self.station.replica_rate * transforms(self.station.work).load(slopes)

    def _secants(self) -> tuple[float, float]:
        """Slopes across m +- sqrt(m) requests, as tables have kinks."""
        m, held = max(self.batch, 1.0), self.station.work.mean_context
        low, high = max(m - math.sqrt(m), 1.0), min(m + math.sqrt(m) + 1.0, self.station.slots)
        high = max(high, low + 1.0)
        t = self.station.step_time(np.array([low, high, m, m]), np.array([m, m, low, high]) * held)
        b = float(t[1] - t[0]) / (high - low)
        c = float(t[3] - t[2]) / ((high - low) * held) if held > 0 else 0.0
        return max(b, 0.0), max(c, 0.0)
