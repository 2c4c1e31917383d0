"""Service times of one replica: one interface, three sources (measured, affine, roofline).

Prefill is a function of the prompt and its cached part, decode of the batch and its
context. A :class:`Latency` holds both, with the calibration factors that a cluster's own
measurements put on a benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError

Array = NDArray[np.float64]
Noise = Literal["none", "exponential"]
"""Spread of a prefill time around its curve: none (as the curve says) or exponential with
the curve's value as mean - what an engine's own variability looks like to an M/M/1."""


class PrefillTime(Protocol):
    """Time to compute the KV cache of a prompt."""

    @property
    def range_tokens(self) -> tuple[float, float]:
        """Prompt lengths (least, greatest) that the source covers, tokens."""
        ...

    def seconds(self, prompt: Array, cached: Array) -> Array:
        """Seconds for prompts of ``prompt`` tokens, ``cached`` of them cached; arrays (n,)."""
        ...

    def pass_seconds(self, tokens: Array, squares: Array) -> Array:
        """Seconds of passes over several prompts or parts of prompts; arrays (n,).

        A part that makes its prompt's KV cache grow from h to n tokens adds n - h to
        ``tokens`` and n^2 - h^2 to ``squares``.
        """
        ...


class DecodeStep(Protocol):
    """Time of one decode iteration."""

    @property
    def range_batch(self) -> tuple[float, float]:
        """Batch sizes (least, greatest) that the source covers."""
        ...

    def seconds(self, batch: Array, context: Array) -> Array:
        """Seconds for ``batch`` requests with ``context`` tokens *in all*; arrays (n,)."""
        ...


@dataclass(frozen=True)
class Calibration:
    """Factors on a benchmark's times, fitted on a cluster's own measurements.

    ``source`` says on which; factors of 1 with no source mean the benchmark is taken at its
    word.
    """

    prefill: float = 1.0
    decode: float = 1.0
    source: str = ""

    def __post_init__(self) -> None:
        for role, factor in (("prefill", self.prefill), ("decode", self.decode)):
            if not np.isfinite(factor) or factor <= 0:
                raise InputError(f"calibration factor of {role} must be positive, got {factor:g}")


@dataclass(frozen=True)
class Latency:
    """Service times of one replica type.

    ``estimates`` names what rests on no measurement; ``source`` is the provenance line.
    """

    prefill: PrefillTime
    decode: DecodeStep
    prefill_noise: Noise = "none"
    calibration: Calibration = Calibration()
    source: str = ""
    estimates: tuple[str, ...] = ()

    def prefill_seconds(self, prompt: Array, cached: Array) -> Array:
        """Mean prefill seconds after calibration; arrays (n,)."""
        return self.calibration.prefill * self.prefill.seconds(prompt, cached)

    def pass_seconds(self, tokens: Array, squares: Array) -> Array:
        """Mean seconds of prefill passes after calibration (:class:`PrefillTime`); (n,)."""
        return self.calibration.prefill * self.prefill.pass_seconds(tokens, squares)

    def step_seconds(self, batch: Array, context: Array) -> Array:
        """Decode step seconds after calibration; ``context`` tokens in all; arrays (n,)."""
        return self.calibration.decode * self.decode.seconds(batch, context)

    def slowed(self, prefill: float = 1.0, decode: float = 1.0) -> Latency:
        """The same replica with its prefill or decode ``factor`` times slower."""
        old = self.calibration
        return replace(
            self,
            calibration=Calibration(old.prefill * prefill, old.decode * decode, old.source),
        )
