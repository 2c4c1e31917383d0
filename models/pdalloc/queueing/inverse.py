"""Backwards: the greatest rate at which a station keeps a delay bound.

Waits grow with the rate, so one root is looked for between no load and full load.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pdalloc.errors import InfeasibleError, InputError
from pdalloc.laws import check_level
from pdalloc.queueing.delay_law import DelayLaw
from pdalloc.queueing.station import Station

FULLEST = 1.0 - 1e-6
"""Utilisation that is not exceeded."""
TOLERANCE = 1e-9
"""Of the utilisation found."""

Make = Callable[[Station], DelayLaw]


def greatest_rate(
    make: Make,
    station: Station,
    bound: float,
    level: float | None = None,
    of: Literal["wait", "sojourn"] = "wait",
) -> float:
    """Requests/s up to which mean or percentile stays within ``bound`` seconds.

    ``make`` gives the law of a station (a rival, or ``delay_law``); the rate of ``station`` is
    not read. ``level`` None bounds the mean, else the percentile of that level. Raises
    InfeasibleError when an empty station already exceeds the bound, InputError for a bound that
    is negative or NaN.
    """
    if math.isnan(bound) or bound < 0.0:
        raise InputError(f"a delay bound must not be negative, got {bound:g} s")
    if level is not None:
        check_level(level)
    full = FULLEST * station.servers / station.service.mean

    def excess(share: float) -> float:
        return _delay(make(station.at(share * full)), level, of) - bound

    floor = _floor(station, level, of)
    if floor > bound:
        raise InfeasibleError(
            f"an idle station already takes {floor:.4g} s, above the bound of {bound:.4g} s; "
            "set a bound above that, or speed the service up"
        )
    if excess(1.0) <= 0.0:
        return full
    return full * _last_within(excess)


def _last_within(excess: Callable[[float], float]) -> float:
    """Greatest share with excess <= 0, by bisection: percentiles jump at their atoms."""
    low, high = 0.0, 1.0
    while high - low > TOLERANCE * high:
        middle = 0.5 * (low + high)
        if excess(middle) <= 0.0:
            low = middle
        else:
            high = middle
    return low


def _delay(law: DelayLaw, level: float | None, of: str) -> float:
    if level is None:
        return law.mean_wait if of == "wait" else law.mean_sojourn
    return (law.wait if of == "wait" else law.sojourn).quantile(level)


def _floor(station: Station, level: float | None, of: str) -> float:
    """The same without any load, seconds."""
    if of == "wait":
        return 0.0
    return station.service.mean if level is None else station.service.law.quantile(level)
