r"""Speculative decoding and multi-token prediction: several accepted tokens per step.

A request of L tokens takes n(L) <= L steps of the usual length (the drafts' cost belongs in the
step time).

* ``GeometricTokens``, drafts accepted until the first refusal, P(j) = (1-q) q^(j-1), q = 1 -
  1/m: every token after the first begins a new step with probability 1/m, so exactly
  n = 1 + Binomial(L - 1, 1/m).
* ``FixedTokens``: floor(m), one more with probability f = m - floor(m); then
  P(n <= s) = P(s floor(m) + Binomial(s, f) >= L).

(Leviathan, Kalman, Matias 2023, "Fast inference from transformers via speculative decoding",
eq. 1, is the capped geometric; the cap is what the request still needs.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.laws import Array

Indices = NDArray[np.intp]

SPREAD = math.sqrt(1.5)
"""Three equally likely points at mean +- SPREAD sd and at the mean keep mean and variance."""
EXACT_STEPS = 4096
"""Steps up to which the count of fixed tokens is added up exactly."""


class TokensPerStep(ABC):
    """How many tokens a step gives a request."""

    @abstractmethod
    def steps(self, tokens: Array) -> tuple[Indices, Array, Array]:
        """(index of the point, steps, share of the point) for requests of ``tokens`` (n,)."""


@dataclass(frozen=True)
class OneToken(TokensPerStep):
    """One token a step."""

    def steps(self, tokens: Array) -> tuple[Indices, Array, Array]:
        """As many steps as tokens."""
        return np.arange(len(tokens)), np.asarray(tokens, float), np.ones(len(tokens))


@dataclass(frozen=True)
class _Several(TokensPerStep):
    """``mean`` tokens a step, at least 1."""

    mean: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.mean < math.inf:
            raise InputError(f"tokens per step must be at least 1 and finite, got {self.mean:g}")

    @abstractmethod
    def moments(self, tokens: float) -> tuple[float, float]:
        """(mean, variance) of the steps of a request of ``tokens`` >= 1."""

    def steps(self, tokens: Array) -> tuple[Indices, Array, Array]:
        """Three points per request, with its mean and variance of steps."""
        tokens = np.asarray(tokens, float)
        known, back = np.unique(tokens, return_inverse=True)
        pairs = np.array([self.moments(t) if t > 0 else (0.0, 0.0) for t in known])
        mean, sd = pairs[back, 0], np.sqrt(pairs[back, 1])
        sd = np.minimum(sd, np.maximum(mean - 1.0, 0.0) / SPREAD)  # at least one step
        steps = (mean[:, None] + sd[:, None] * SPREAD * np.array([-1.0, 0.0, 1.0])).ravel()
        n = len(tokens)
        return np.repeat(np.arange(n), 3), steps, np.full(3 * n, 1.0 / 3.0)


def tokens_per_step(mean: float, law: Literal["fixed", "geometric"]) -> TokensPerStep:
    """The law of that name with ``mean`` tokens a step; one token where the mean is 1."""
    if mean == 1.0:
        return OneToken()
    return FixedTokens(mean) if law == "fixed" else GeometricTokens(mean)


@dataclass(frozen=True)
class GeometricTokens(_Several):
    """Geometric from 1 with mean ``mean``."""

    def moments(self, tokens: float) -> tuple[float, float]:
        """1 + (L-1)/m and (L-1)(1-1/m)/m.

        >>> GeometricTokens(2.0).moments(5.0)
        (3.0, 1.0)
        """
        p = 1.0 / self.mean
        return 1.0 + (tokens - 1.0) * p, (tokens - 1.0) * p * (1.0 - p)


@dataclass(frozen=True)
class FixedTokens(_Several):
    """floor(``mean``), one more with probability ``mean`` - floor(``mean``)."""

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - frozen and small
    def moments(self, tokens: float) -> tuple[float, float]:
        """From P(n > s) = P(Binomial(s, f) < L - s floor(m)).

        >>> FixedTokens(2.0).moments(5.0)
        (3.0, 0.0)
        """
        from scipy.stats import binom

        whole = math.floor(self.mean)
        share = self.mean - whole
        most = math.ceil(tokens / whole)
        if share < 1e-12:
            return float(most), 0.0
        if most > EXACT_STEPS:  # renewal theory: Cox 1962, section 4.1
            spread = share * (1.0 - share)
            mean = tokens / self.mean + 0.5 + (spread / self.mean - 1.0) / (2.0 * self.mean)
            return mean, spread * tokens / self.mean**3
        s = np.arange(most, dtype=float)
        above = np.asarray(binom.cdf(np.ceil(tokens - s * whole) - 1.0, s, share))
        mean = float(above.sum())
        return mean, max(float((2.0 * s + 1.0) @ above) - mean**2, 0.0)
