"""Service times that are affine in their load (design 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError

Array = NDArray[np.float64]


def _check(where: str, **coefficients: float) -> None:
    for name, value in coefficients.items():
        if not math.isfinite(value) or value < 0:
            raise InputError(f"{where}: {name} must be finite and not negative, got {value:g}")


@dataclass(frozen=True)
class AffinePrefill:
    """t = base + per_token (n - h) + per_token_sq (n^2 - h^2), never below ``floor``.

    n prompt tokens, h of them cached: attention still reads the cached ones. Coefficients in
    s, s/token, s/token^2; ``floor`` in s (prefill is flat below about 256 tokens).
    """

    base: float
    per_token: float
    per_token_sq: float = 0.0
    floor: float = 0.0
    range_tokens: tuple[float, float] = (1.0, math.inf)

    def __post_init__(self) -> None:
        _check(
            "affine prefill",
            base=self.base,
            per_token=self.per_token,
            per_token_sq=self.per_token_sq,
            floor=self.floor,
        )
        if self.base + self.per_token + self.per_token_sq + self.floor <= 0:
            raise InputError("affine prefill: all coefficients are zero")

    def seconds(self, prompt: Array, cached: Array) -> Array:
        """Seconds per prompt; arrays (n,)."""
        time = (
            self.base
            + self.per_token * (prompt - cached)
            + self.per_token_sq * (prompt**2 - cached**2)
        )
        return np.maximum(time, self.floor)

    def pass_seconds(self, tokens: Array, squares: Array) -> Array:
        """Seconds of passes that compute sum(n - h) ``tokens`` and sum(n^2 - h^2) ``squares``."""
        time = self.base + self.per_token * tokens + self.per_token_sq * squares
        return np.maximum(time, self.floor)


@dataclass(frozen=True)
class AffineDecode:
    """t = base + per_request B + per_context_token S.

    B requests holding S context tokens in all; coefficients in s, s/request, s/token.
    """

    base: float
    per_request: float
    per_context_token: float = 0.0
    range_batch: tuple[float, float] = (1.0, math.inf)

    def __post_init__(self) -> None:
        _check(
            "affine decode",
            base=self.base,
            per_request=self.per_request,
            per_context_token=self.per_context_token,
        )
        if self.base + self.per_request <= 0:
            raise InputError("affine decode: base and per_request are both zero")

    def seconds(self, batch: Array, context: Array) -> Array:
        """Seconds per step; arrays (n,)."""
        return self.base + self.per_request * batch + self.per_context_token * context
