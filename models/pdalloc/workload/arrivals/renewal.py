r"""Independent gaps of one law: Poisson, gamma or Weibull.

Gaps of mean :math:`1/\lambda` and SCV :math:`c^2`. The first arrival comes after a *residual*
gap, so that the stream has its long-run rate from time 0 on: a uniform share of a
length-biased gap (Cox 1962, "Renewal Theory", section 5.4). A length-biased Gamma(k) is a
Gamma(k + 1) of the same scale; a Weibull(k) gap to the power k is exponential, a length-biased
one a Gamma(1 + 1/k).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from pdalloc.errors import InputError
from pdalloc.workload.arrivals.process import CYCLES, Array, check_positive

LEAST_SHAPE, GREATEST_SHAPE = 0.1, 100.0
"""Weibull shapes that are looked for: SCV from 1.6e-4 to 1.8e5."""


@dataclass(frozen=True)
class Renewal:
    """Gaps of mean 1 / ``rate`` s and SCV ``scv``; 0 is a clock, 1 is Poisson.

    ``law``: ``gamma``, or ``weibull`` (more very short and very long gaps at equal SCV).
    """

    rate: float
    scv: float = 1.0
    law: Literal["gamma", "weibull"] = "gamma"

    def __post_init__(self) -> None:
        check_positive("an arrival rate", self.rate, "req/s")
        if not math.isfinite(self.scv) or self.scv < 0:
            raise InputError(f"the SCV of gaps must be finite and not negative, got {self.scv:g}")
        if self.law not in ("gamma", "weibull"):
            raise InputError(f"no law of gaps {self.law!r}; known: gamma, weibull")
        if self.law == "weibull" and self.scv > 0:
            most, least = _weibull_scv(LEAST_SHAPE), _weibull_scv(GREATEST_SHAPE)
            if not least < self.scv < most:
                raise InputError(f"Weibull gaps have an SCV from {least:.2g} to {most:.2g}")

    @property
    def dispersion(self) -> float:
        """Limit of Var(N(t)) / E[N(t)]: the SCV of the gaps."""
        return self.scv

    @property
    def typical_seconds(self) -> float:
        """Gaps are independent: a hundred or so, more where they spread."""
        return CYCLES * (1.0 + self.scv) / self.rate

    @cached_property
    def shape(self) -> float:
        """Weibull shape k with Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1 = scv."""
        from scipy.optimize import brentq

        found = brentq(lambda k: _weibull_scv(k) - self.scv, LEAST_SHAPE, GREATEST_SHAPE)
        return float(found)

    def times(self, count: int, rng: np.random.Generator) -> Array:
        """``count`` arrival times, s (:class:`ArrivalProcess`)."""
        mean, scv = 1.0 / self.rate, self.scv
        biased: float
        if scv == 0.0:
            gaps, biased = np.full(count, mean), mean
        elif scv == 1.0:
            gaps, biased = rng.exponential(mean, count), rng.gamma(2.0, mean)
        elif self.law == "gamma":
            shape, scale = 1.0 / scv, mean * scv
            gaps, biased = rng.gamma(shape, scale, count), rng.gamma(shape + 1.0, scale)
        else:
            power = 1.0 / self.shape
            scale = mean / math.gamma(1.0 + power)
            gaps = scale * rng.exponential(size=count) ** power
            biased = scale * rng.gamma(1.0 + power) ** power
        gaps[0] = rng.uniform() * biased
        return np.cumsum(gaps)

    def scaled(self, factor: float) -> Renewal:
        """Gaps of the same law, ``factor`` times as short."""
        return replace(self, rate=self.rate * factor)


def Poisson(rate: float) -> Renewal:
    """Exponential gaps of mean 1 / ``rate`` s."""
    return Renewal(rate)


def _weibull_scv(shape: float) -> float:
    return math.gamma(1.0 + 2.0 / shape) / math.gamma(1.0 + 1.0 / shape) ** 2 - 1.0
