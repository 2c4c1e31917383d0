"""How accurate each delay law was found to be, per kind of station.

The table is ``accuracy.csv`` beside this file, made by ``experiments/delay_laws/accuracy.py``
from the reference grids; nothing in it is typed.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from pdalloc.queueing.station import Station

STEADY = 1.0
"""Service SCV up to which service counts as steady."""


def regime(station: Station) -> str:
    """The kind of a station: dispatch (or one server), arrivals, service.

    >>> from pdalloc.laws import constant
    >>> from pdalloc.queueing.station import station
    >>> regime(station(0.5, constant(1.0), servers=4, dispatch="random"))
    'random, Poisson, steady'
    """
    dispatch = station.dispatch if station.servers > 1 else "one server"
    arrivals = "Poisson" if station.arrival_scv == 1.0 else "other"
    service = "steady" if station.service.scv <= STEADY else "variable"
    return f"{dispatch}, {arrivals}, {service}"


@cache
def measured_errors() -> dict[tuple[str, str], float]:
    """95th percentiles of the relative error, mean wait plus P99 wait, by (law, regime)."""
    text = resources.files("pdalloc.queueing").joinpath("accuracy.csv").read_text("utf-8")
    errors: dict[tuple[str, str], float] = {}
    for row in csv.DictReader(text.splitlines()):
        if row["statistic"] in ("mean_wait", "p99_wait"):
            key = row["law"], row["regime"]
            errors[key] = errors.get(key, 0.0) + float(row["p95_percent"])
    return errors
