"""The link that carries KV caches from a prefill replica to a decode replica."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError

FloatOrArray = TypeVar("FloatOrArray", float, NDArray[np.float64])


@dataclass(frozen=True)
class Link:
    """A transfer takes ``latency`` seconds plus bytes / ``bandwidth`` (bytes/s).

    Whether transfers share it is the network's matter (``simulation: transfers:``); by default
    each has the bandwidth to itself.
    """

    latency: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if not math.isfinite(self.latency) or self.latency < 0:
            raise InputError(f"network latency must be finite and >= 0 s, got {self.latency:g}")
        if math.isnan(self.bandwidth) or self.bandwidth <= 0:
            raise InputError(f"network bandwidth must be positive, got {self.bandwidth:g} B/s")

    def transfer_time(self, size: FloatOrArray) -> FloatOrArray:
        """Seconds to move ``size`` bytes (a number or an array of any shape)."""
        return self.latency + size / self.bandwidth
