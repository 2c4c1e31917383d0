"""Latency objectives: what must hold of a class, whatever gives the numbers.

An objective reads a number off a law's prediction or off measured requests, by the same rule, so
prediction, simulation and real runs are judged alike. Of every number less is better: of a
:class:`Slo` it is seconds, of a :class:`JointSlo` the share of requests that are late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pdalloc.laws import Law
from pdalloc.records import Sample

LEAST_REQUESTS = 100
"""Measured requests below which nothing is judged."""
LEAST_BEYOND = 10
"""And, for a percentile or a share, how many must be later than the bound at its level."""


class Predicted(Protocol):
    """What laws say of a class's requests on one path."""

    def law(self, metric: str) -> Law:
        """Law of ``metric``, seconds."""
        ...

    def late_share(self, limits: Mapping[str, float]) -> float:
        """Share of requests that break some of ``limits``, seconds by metric."""
        ...


class Measured(Protocol):
    """What was measured of a class's requests."""

    @property
    def answered(self) -> int:
        """How many got their whole answer."""
        ...

    @property
    def lost(self) -> float:
        """Share of requests that got no answer."""
        ...

    def sample(self, metric: str) -> Sample:
        """``metric`` of those answered, seconds."""
        ...

    def late_share(self, limits: Mapping[str, float]) -> float:
        """Share of all requests that break some of ``limits``; who got no answer is late."""
        ...


class Objective(Protocol):
    """What must hold of ``traffic_class``: a number that must be at most ``bound``.

    Objectives are told apart by all they hold, and may be keys.
    """

    @property
    def traffic_class(self) -> str:
        """Name of the class."""
        ...

    @property
    def limits(self) -> dict[str, float]:
        """Seconds that a request should keep, by metric."""
        ...

    @property
    def metric(self) -> str:
        """The metrics that it looks at, joined by ``+``."""
        ...

    @property
    def name(self) -> str:
        """Short, unlike every other of the class."""
        ...

    @property
    def title(self) -> str:
        """As tables print it."""
        ...

    @property
    def level(self) -> float:
        """Share of requests asked to keep the limits; 0 of a mean."""
        ...

    @property
    def gap_share(self) -> float:
        """Share of a request's token gaps that must keep a limit on them."""
        ...

    @property
    def bound(self) -> float:
        """The most that its number may be."""
        ...

    def predict(self, predicted: Predicted) -> float:
        """Its number on one path, by laws."""
        ...

    def measure(self, measured: Measured) -> float:
        """Its number of measured requests; NaN: too few, infinite: too many lost."""
        ...

    def text(self, value: float, digits: int = 4) -> str:
        """A value of its number in words."""
        ...

    def interval_text(self, value: float, half_width: float) -> str:
        """The same with an interval."""
        ...

    def broken_text(self, value: float) -> str:
        """That ``value`` breaks the bound, in words."""
        ...

    def unreachable_text(self, floor: float, where: str) -> str:
        """That no fleet gets below ``floor``; ``where`` that time goes, in words."""
        ...

    def error_text(self, predicted: float, measured: float) -> str:
        """By how much a prediction is off, in words; "" where it is not worth one."""
        ...

    def room(self, value: float) -> float:
        """Relative room 1 - value/bound; negative where it breaks."""
        ...

    def keeps(self, value: float, tolerance: float = 1e-9) -> bool:
        """Whether ``value`` keeps the bound, up to a relative ``tolerance``."""
        ...


class LessIsBetter:
    """Room under a bound from above."""

    def room(self: Objective, value: float) -> float:
        """Relative room 1 - value/bound; negative where it breaks."""
        return 1.0 - value / self.bound

    def keeps(self: Objective, value: float, tolerance: float = 1e-9) -> bool:
        """Whether ``value`` keeps the bound, up to a relative ``tolerance``."""
        return value <= self.bound * (1.0 + tolerance)
