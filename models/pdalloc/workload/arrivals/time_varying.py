"""A rate that follows the clock: piecewise constant, once or over and over (a day)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pdalloc.errors import InputError
from pdalloc.workload.arrivals.process import Array, check_pieces, check_rates, inverted

DAYS = 5
"""A run this many profiles long loses less than one of them to warm-up and cool-down."""


@dataclass(frozen=True)
class TimeVarying:
    """Poisson arrivals at ``rates[i]`` req/s for ``seconds[i]``, from time 0 on.

    ``periodic``: the profile repeats; else its last rate goes on for ever (and is not 0).
    Drawn by inversion of the cumulative rate.
    """

    rates: tuple[float, ...]
    seconds: tuple[float, ...]
    periodic: bool = True

    def __post_init__(self) -> None:
        check_rates("a rate profile", self.rates, self.seconds)
        if not self.periodic and self.rates[-1] == 0:
            raise InputError("a rate profile that does not repeat must not end in rate 0")

    @property
    def rate(self) -> float:
        """Mean arrivals/s over the profile, once."""
        return float(np.dot(self.rates, self.seconds) / np.sum(self.seconds))

    @property
    def dispersion(self) -> float:
        """1: Poisson at any time of day. The day itself is not chance; plan for its peak."""
        return 1.0

    @property
    def typical_seconds(self) -> float:
        """DAYS times the profile, or once where it does not repeat, s."""
        return (DAYS if self.periodic else 1) * sum(self.seconds)

    def times(self, count: int, rng: np.random.Generator) -> Array:
        """``count`` arrival times, s (:class:`ArrivalProcess`)."""
        level = np.cumsum(rng.exponential(size=count))
        seconds, rates = np.array(self.seconds), np.array(self.rates)
        once = float(rates @ seconds)
        if self.periodic:
            check_pieces("a rate profile", len(seconds) * float(level[-1]) / once)
        rounds = 1 + int(level[-1] / once) if self.periodic else 1
        stay, rate = np.tile(seconds, rounds), np.tile(rates, rounds)
        if not self.periodic:
            stay[-1] = max(stay[-1], (level[-1] - once) / rate[-1] + stay[-1])
        time = np.concatenate([[0.0], np.cumsum(stay)])
        expected = np.concatenate([[0.0], np.cumsum(stay * rate)])
        return inverted(time, expected, level)

    def scaled(self, factor: float) -> TimeVarying:
        """Every rate times ``factor``; the clock is the same."""
        return replace(self, rates=tuple(r * factor for r in self.rates))
