"""The blocks every profile is made of: prefill table and affine decode step (design 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from experiments.catalogue.documents import significant

from pdalloc.errors import InputError
from pdalloc.latency.fitting import fit_decode, isotonic

WORST_FIT = 0.15
"""A decode fit that misses one of its points by more than this is not published."""


@dataclass(frozen=True)
class Target:
    """One profile to make: catalogue GPU and GPU count, and the GPU's name in the source."""

    gpu: str
    gpus: int
    source_gpu: str


def prefill_block(milliseconds: Mapping[int, float]) -> dict[str, Any]:
    """Measured table of single prompts: tokens -> ms, made nondecreasing, in seconds."""
    tokens = sorted(milliseconds)
    seconds = isotonic([milliseconds[n] / 1e3 for n in tokens])
    return {
        "kind": "measured",
        "prompt_tokens": tokens,
        "seconds": [significant(float(s)) for s in seconds],
    }


def decode_block(points: list[tuple[int, int, float]]) -> dict[str, Any]:
    """Affine fit to (batch, context per request, ms) points, with the range they cover.

    Raises InputError when the fit misses one of them by more than ``WORST_FIT``.
    """
    batch, context, ms = (np.array(column, float) for column in zip(*points, strict=True))
    fit = fit_decode(batch, batch * context, ms / 1e3)
    if fit.worst_relative_error > WORST_FIT:
        raise InputError(
            f"decode fit misses a point by {fit.worst_relative_error:.0%}; narrow the range"
        )
    base, per_request, per_token = map(significant, fit.coefficients)
    return {
        "kind": "affine",
        "base_s": base,
        "per_request_s": per_request,
        "per_context_token_s": per_token,
        "batch_range": [int(batch.min()), int(batch.max())],
        "context_range_tokens": [int(context.min()), int(context.max())],
        "worst_relative_error": significant(fit.worst_relative_error, 3),
    }
