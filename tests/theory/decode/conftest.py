"""Stations and lengths of the decode tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pdalloc.queueing.decode import DecodeLaw, DecodeStation, DecodeWork, decode_work

Array = NDArray[np.float64]


class Pools:
    """Work of named lengths, and stations with t = a + b B + c S at a utilisation."""

    MEAN = 200.0

    @staticmethod
    def outputs(law: str, mean: float = MEAN, points: int = 200) -> Array:
        """Equally likely lengths."""
        level = (np.arange(points) + 0.5) / points
        if law == "fixed":
            return np.array([mean])
        if law == "geometric":
            return np.asarray(1.0 + np.floor(np.log1p(-level) / math.log1p(-1.0 / mean)))
        assert law == "two"
        return np.array([0.25 * mean, 1.75 * mean])

    @staticmethod
    def work(
        law: str = "fixed", mean: float = MEAN, prompts: tuple[float, ...] = (100.0,), **more: Any
    ) -> DecodeWork:
        """Outputs of ``law``, prompts drawn independently from ``prompts``."""
        out = Pools.outputs(law, mean)
        output, prompt = np.repeat(out, len(prompts)), np.tile(prompts, len(out))
        n = len(output)
        return decode_work(prompt, output, np.full(n, 1.0 / n), **more)

    @staticmethod
    def station(
        rho: float,
        a: float = 10.0,
        b: float = 1.0,
        c: float = 0.0,
        work: DecodeWork | None = None,
        **more: Any,
    ) -> DecodeStation:
        """A pool at utilisation ``rho``."""
        still = DecodeStation(
            0.0, lambda batch, held: a + b * batch + c * held, work or Pools.work(), **more
        )
        return still.at(rho * still.capacity)

    @staticmethod
    def law(rho: float, a: float = 10.0, b: float = 1.0, c: float = 0.0, **more: Any) -> DecodeLaw:
        """The law of :meth:`station`."""
        return DecodeLaw(Pools.station(rho, a, b, c, **more))


@pytest.fixture(scope="session")
def pools() -> type[Pools]:
    return Pools
