"""Joint SLOs, and best-effort ones: both count the requests that keep several limits at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pdalloc.errors import InputError, located
from pdalloc.slo.interface import LEAST_BEYOND, LEAST_REQUESTS, LessIsBetter, Measured, Predicted
from pdalloc.slo.objective import METRICS, milliseconds

POINT_WORTH_A_WORD = 1e-3
"""Errors of a predicted share below this, a tenth of a point, are not spelt out."""
SECONDS_PER_HOUR = 3600.0
Within = tuple[tuple[str, float], ...]
"""Limits as (metric, seconds), in the order of METRICS."""


def within(limits: Mapping[str, float]) -> Within:
    """``limits`` (seconds by metric) in order; InputError for one that cannot be."""
    if not limits:
        raise InputError("give at least one latency with its seconds, e.g. {ttft: 2 s}")
    for metric, seconds in limits.items():
        if metric not in METRICS:
            raise InputError(f"{metric!r} is not one of {', '.join(METRICS)}")
        if not math.isfinite(seconds) or seconds <= 0:
            raise InputError(f"{metric}: the bound must be positive and finite, got {seconds:g} s")
    return tuple((metric, limits[metric]) for metric in METRICS if metric in limits)


def within_text(limits: Within, sign: str = "<=") -> str:
    """``TTFT <= 2000 ms and TPOT <= 50 ms``."""
    return " and ".join(f"{m.upper()} {sign} {milliseconds(x)}" for m, x in limits)


@dataclass(frozen=True)
class JointSlo(LessIsBetter):
    """At least ``share`` of the requests of ``traffic_class`` must keep all of ``within``.

    Its number is the share that does not: the requests that are late.
    """

    traffic_class: str
    share: float
    within: Within

    def __post_init__(self) -> None:
        within(dict(self.within))
        if not 0.0 < self.share < 1.0:
            raise InputError(
                f"a share of requests must lie between 0 and 1, e.g. 0.99, got {self.share:g}"
            )

    @property
    def limits(self) -> dict[str, float]:
        """Seconds by metric."""
        return dict(self.within)

    @property
    def metric(self) -> str:
        """``ttft+tpot``."""
        return "+".join(metric for metric, _ in self.within)

    @property
    def name(self) -> str:
        """``attainment(ttft 2 s, tpot 0.05 s)``."""
        return f"attainment({', '.join(f'{m} {x:.12g} s' for m, x in self.within)})"

    @property
    def title(self) -> str:
        """``TTFT <= 2000 ms and TPOT <= 50 ms``."""
        return within_text(self.within)

    @property
    def level(self) -> float:
        """The share."""
        return self.share

    @property
    def gap_share(self) -> float:
        """All gaps of a request must keep a limit on them."""
        return 1.0

    @property
    def bound(self) -> float:
        """Share of requests that may be late."""
        return 1.0 - self.share

    def predict(self, predicted: Predicted) -> float:
        """Share late, by laws; UnsupportedError for a limit on token gaps."""
        with located(f"attainment of traffic class {self.traffic_class!r}, {self.title}"):
            return predicted.late_share(self.limits)

    def measure(self, measured: Measured) -> float:
        """Share late; NaN where too few requests are there to see those that may be."""
        if measured.answered < LEAST_REQUESTS:
            return 1.0 if measured.lost > 0.5 else math.nan
        if measured.answered * self.bound < LEAST_BEYOND:
            return math.nan
        return measured.late_share(self.limits)

    def text(self, value: float, digits: int = 4) -> str:
        """The share that is in time: ``99.2 %``; what is missing from it to ``digits`` - 1."""
        missing = 100.0 * value
        decimals = digits - 2 - math.floor(math.log10(missing)) if missing > 0.0 else 0
        found = f"{100.0 - missing:.{min(max(decimals, 0), 12)}f}"
        return f"{found.rstrip('0').rstrip('.') if '.' in found else found} %"

    def interval_text(self, value: float, half_width: float) -> str:
        """``99.2 % +- 0.1 %``."""
        return f"{self.text(value)} +- {100.0 * half_width:.2g} %"

    def broken_text(self, value: float) -> str:
        """``only 98.2 % keep TTFT <= 2000 ms and TPOT <= 50 ms, 99 % should``."""
        asked, found = self._apart(value)
        return f"only {found} keep {self.title}, {asked} should"

    def unreachable_text(self, floor: float, where: str) -> str:
        """The share beside that of unloaded requests."""
        asked, found = self._apart(floor)
        return (
            f"{asked} of {self.traffic_class!r} cannot keep {self.title} with any number of "
            f"replicas: on the best types {found} of unloaded requests do{where}; "
            f"ask for less, or widen a limit"
        )

    def error_text(self, predicted: float, measured: float) -> str:
        """``0.4 points optimistic``; "" below POINT_WORTH_A_WORD."""
        gap = predicted - measured
        if abs(gap) < POINT_WORTH_A_WORD:
            return ""
        return f"{abs(100.0 * gap):.2g} points {'optimistic' if gap < 0.0 else 'pessimistic'}"

    def _apart(self, value: float) -> tuple[str, str]:
        """The share and that in time, with as many digits as tell them apart."""
        for digits in (4, 6, 8, 10):
            texts = self.text(self.bound, digits), self.text(value, digits)
            if texts[0] != texts[1]:
                break
        return texts


@dataclass(frozen=True)
class BestEffort:
    """A request of ``traffic_class`` that breaks some of ``within`` costs ``price`` USD.

    It binds no fleet: it is paid for.
    """

    traffic_class: str
    within: Within
    price: float

    def __post_init__(self) -> None:
        within(dict(self.within))
        if not math.isfinite(self.price) or self.price <= 0:
            raise InputError(f"the price must be positive and finite, got {self.price:g}")

    @property
    def limits(self) -> dict[str, float]:
        """Seconds by metric."""
        return dict(self.within)

    def usd_per_hour(self, rate: float, late: float) -> float:
        """Price of lateness at ``rate`` requests/s of the class, a share ``late`` of them late."""
        return rate * SECONDS_PER_HOUR * late * self.price
