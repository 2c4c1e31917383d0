"""Requests that need not be served here: turned away, or sent elsewhere, at a price."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdalloc.errors import InputError
from pdalloc.slo.joint import SECONDS_PER_HOUR


@dataclass(frozen=True)
class Shed:
    """A request of ``traffic_class`` that is not served costs ``price`` USD.

    At most the share ``most`` of the class may be shed; what is served keeps every SLO.
    """

    traffic_class: str
    price: float
    most: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.price) or self.price < 0.0:
            raise InputError(f"price: must be finite and not negative, got {self.price:g}")
        if not 0.0 <= self.most <= 1.0:
            raise InputError(
                f"most: the share that may be shed lies between 0 and 1, e.g. 0.2, got "
                f"{self.most:g}"
            )

    def usd_per_hour(self, rate: float) -> float:
        """Price of shedding ``rate`` requests/s."""
        return rate * SECONDS_PER_HOUR * self.price
