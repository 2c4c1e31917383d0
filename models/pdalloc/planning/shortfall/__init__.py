"""Shortfall with a price: requests that are shed, and best-effort ones that are late."""

from pdalloc.planning.shortfall.outcome import (
    Outcome,
    as_served,
    least_total_of,
    priced_plan,
    refuse_shed,
    unpriced,
)
from pdalloc.planning.shortfall.served import served

__all__ = [
    "Outcome",
    "as_served",
    "least_total_of",
    "priced_plan",
    "refuse_shed",
    "served",
    "unpriced",
]
