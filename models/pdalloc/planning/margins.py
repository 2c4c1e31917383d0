"""How sure is a plan: the growth and slow-down its fleet survives."""

from __future__ import annotations

from collections.abc import Callable

from pdalloc.capacity import Capacity, demand_limit
from pdalloc.errors import InputError
from pdalloc.fleet import Fleet

MOST = 3.0
"""Greatest relative change searched; a margin of 3 means "at least fourfold"."""
LEAST = -0.9
ACCURACY = 5e-4


def fits(capacity: Capacity, fleet: Fleet, demand: float) -> bool:
    """Whether ``fleet`` serves ``demand`` requests/s within every SLO."""
    try:
        return capacity.route(fleet, demand) is not None
    except InputError:  # a change such as longer outputs may not fit the KV memory at all
        return False


def demand_margin(capacity: Capacity, fleet: Fleet, demand: float) -> float | None:
    """Relative growth of ``demand`` (requests/s) the fleet survives; None when none at all."""
    limit = demand_limit(capacity, fleet, demand * (1.0 + MOST))
    return limit / demand - 1.0 if limit > 0 else None


def prefill_margin(capacity: Capacity, fleet: Fleet, demand: float) -> float | None:
    """Relative slow-down of every prefill the fleet survives."""
    return greatest_change(
        lambda f: fits(capacity.under(capacity.system.slowed(prefill=f)), fleet, demand)
    )


def decode_margin(capacity: Capacity, fleet: Fleet, demand: float) -> float | None:
    """Relative slow-down of every decode step the fleet survives."""
    return greatest_change(
        lambda f: fits(capacity.under(capacity.system.slowed(decode=f)), fleet, demand)
    )


def output_margin(capacity: Capacity, fleet: Fleet, demand: float) -> float | None:
    """Relative lengthening of outputs, at the same request rate, that the fleet survives."""
    system = capacity.system

    def holds(factor: float) -> bool:
        longer = system.with_workload(system.workload.with_longer_outputs(factor))
        return fits(capacity.under(longer), fleet, demand)

    return greatest_change(holds)


def greatest_change(holds: Callable[[float], bool]) -> float | None:
    """Greatest relative change x in [LEAST, MOST] with ``holds(1 + x)``; None when none."""
    if holds(1.0 + MOST):
        return MOST
    low, high = (0.0, MOST) if holds(1.0) else (LEAST, 0.0)
    if low == LEAST and not holds(1.0 + LEAST):
        return None
    while high - low > ACCURACY:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(1.0 + middle) else (low, middle)
    return low
