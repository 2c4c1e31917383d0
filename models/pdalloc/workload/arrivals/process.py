"""What every arrival process offers."""

from __future__ import annotations

import math
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Self = TypeVar("Self", bound="ArrivalProcess")


class ArrivalProcess(Protocol):
    """A stream of arrivals from time 0 on."""

    @property
    def rate(self) -> float:
        """Long-run arrivals/s."""
        ...

    @property
    def dispersion(self) -> float:
        """Burstiness in one number, for formulas: Var(N(t)) / E[N(t)] in the long run."""
        ...

    @property
    def typical_seconds(self) -> float:
        """How long a run lasts at least to see of every state, or hour, what is usual, s."""
        ...

    def times(self, count: int, rng: np.random.Generator) -> Array:
        """The first ``count`` arrival times, s, nondecreasing; shape (count,)."""
        ...

    def scaled(self: Self, factor: float) -> Self:
        """The same pattern with ``factor`` times as many arrivals/s."""
        ...


MOST_PIECES = 10_000_000
"""Pieces of constant rate that a stream may be made of."""
CYCLES = 50
"""Bursts or sessions that a typical run has at least, one after another."""


def check_positive(what: str, value: float, unit: str) -> None:
    """Raise InputError unless ``value`` is finite and positive."""
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{what} must be positive and finite, got {value:g} {unit}")


def check_rates(what: str, rates: tuple[float, ...], seconds: tuple[float, ...]) -> None:
    """Raise InputError unless there is a rate >= 0 per positive duration, one above 0."""
    if not rates or len(rates) != len(seconds):
        raise InputError(
            f"{what}: give as many rates as durations, got {len(rates)} and {len(seconds)}"
        )
    if not all(math.isfinite(r) and r >= 0 for r in rates) or not any(rates):
        raise InputError(f"{what}: rates must be finite and not negative, one above 0 req/s")
    for duration in seconds:
        check_positive(f"{what}: a duration", duration, "s")


def check_pieces(what: str, pieces: float) -> None:
    """Raise InputError when a stream would be made of too many pieces of constant rate."""
    if pieces > MOST_PIECES:
        raise InputError(
            f"{what}: {pieces:.3g} changes of rate in one run; let each last longer, or give the "
            "mean rate"
        )


def inverted(time: Array, expected: Array, level: Array) -> Array:
    """When a cumulative intensity, piecewise linear through (time, expected), is at ``level``.

    Unit-rate Poisson points ``level`` become the points of an inhomogeneous Poisson process
    (Çinlar 1975, "Introduction to Stochastic Processes", chapter 4). ``expected``
    nondecreasing; arrays (k,), (k,) and (n,).
    """
    where = np.searchsorted(expected, level, side="left")
    where = np.clip(where, 1, len(expected) - 1)
    low, high = expected[where - 1], expected[where]
    share = (level - low) / (high - low)
    times: Array = time[where - 1] + share * (time[where] - time[where - 1])
    return times
