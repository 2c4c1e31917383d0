"""Shortfall with a price: requests that are shed, and best-effort ones that are late."""

from pdalloc.planning.shortfall.outcome import (
    Outcome,
    least_total_of,
    priced_plan,
    refuse_shed,
)
from pdalloc.planning.shortfall.served import served

__all__ = ["Outcome", "least_total_of", "priced_plan", "refuse_shed", "served"]
