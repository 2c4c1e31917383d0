"""Backwards: the greatest rate at which a decode pool keeps a bound."""

from __future__ import annotations

import math
from collections.abc import Callable

from pdalloc.errors import InfeasibleError, InputError, UnstableError
from pdalloc.laws import check_level
from pdalloc.queueing.decode.law import DecodeLaw
from pdalloc.queueing.decode.station import DecodeStation

FULLEST = 1.0 - 1e-4
"""Utilisation that is not exceeded."""
TOLERANCE = 1e-9
"""Of the rate found, relative to full load."""

Reads = Callable[[DecodeLaw], float]


def mean_tpot(law: DecodeLaw) -> float:
    """Mean TPOT, seconds."""
    return law.mean_tpot


def mean_slot_wait(law: DecodeLaw) -> float:
    """Mean wait for a slot, seconds."""
    return law.mean_slot_wait


def wait_probability(law: DecodeLaw) -> float:
    """P(wait for a slot)."""
    return law.wait_probability


def itl_percentile(level: float) -> Reads:
    """The ITL that a share ``level`` of gaps keeps, seconds."""
    check_level(level)
    return lambda law: law.itl.quantile(level)


def tpot_percentile(level: float) -> Reads:
    """The TPOT that a share ``level`` of requests keeps, seconds."""
    check_level(level)
    return lambda law: law.tpot().quantile(level)


def greatest_rate(station: DecodeStation, bound: float, reads: Reads = mean_tpot) -> float:
    """Requests/s of the pool up to which ``reads`` stays within ``bound``.

    The rate of ``station`` is not read. The answer is on the safe side of the root, found by
    bisection since percentiles jump. Raises InfeasibleError when an idle pool exceeds the bound
    (naming its value), InputError for a bound that is negative or NaN.
    """
    if math.isnan(bound) or bound < 0.0:
        raise InputError(f"a bound must not be negative, got {bound:g}")
    floor = reads(DecodeLaw(station.at(0.0)))
    if floor > bound:
        raise InfeasibleError(
            f"an idle decode replica already takes {floor:.4g} s, above the bound of "
            f"{bound:.4g} s; set a bound above that, or speed decode up"
        )
    full = FULLEST * station.at(0.0).capacity
    if not math.isfinite(full):
        raise InputError("a step time that does not grow with the batch bounds no rate")

    def keeps(share: float) -> bool:
        try:
            return reads(DecodeLaw(station.at(share * full))) <= bound
        except UnstableError:  # too near full load to be told
            return False

    low, high = (1.0, 1.0) if keeps(1.0) else (0.0, 1.0)
    while high - low > TOLERANCE:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low * full
