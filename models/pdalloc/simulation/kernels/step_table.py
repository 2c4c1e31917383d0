"""Decode step times as kernels read them: t(B, S) = factor (base[B] + slope S) seconds."""

from __future__ import annotations

import numpy as np

from pdalloc.errors import UnsupportedError
from pdalloc.latency.affine import AffineDecode
from pdalloc.latency.measured import MeasuredDecode
from pdalloc.latency.service import Latency
from pdalloc.records import Array

PROBES = (1.0, 2.0, 7.0, 64.0, 301.0), (1.0, 50.0, 4000.0, 250_000.0)
"""Batches and contexts at which a step time of an unknown kind is tried."""
TOLERANCE = 1e-12
"""Relative error allowed at the probes."""


def slope_of(latency: Latency) -> float:
    """Seconds per context token before calibration.

    Raises UnsupportedError for step times that are not a function of the batch plus a
    constant times the context.
    """
    if isinstance(latency.decode, AffineDecode):
        return latency.decode.per_context_token
    if isinstance(latency.decode, MeasuredDecode):
        return 0.0
    batch, context = (x.ravel() for x in np.meshgrid(*map(np.array, PROBES), indexing="ij"))
    empty = latency.decode.seconds(batch, np.zeros_like(batch))
    full = latency.decode.seconds(batch, context)
    slope = float((full[-1] - empty[-1]) / context[-1])
    if np.abs(empty + slope * context - full).max() > TOLERANCE * full.max():
        raise UnsupportedError(
            f"the fast simulator knows step times f(batch) + g context, not those of "
            f"{type(latency.decode).__name__}; use engine='reference'"
        )
    return slope


def base_table(latencies: list[Latency], most: int) -> Array:
    """``base[p, B]`` in seconds before calibration, B from 0 to ``most``, pools in order."""
    batch = np.arange(most + 1, dtype=float)
    nothing = np.zeros(most + 1)
    return np.array([latency.decode.seconds(batch, nothing) for latency in latencies])
