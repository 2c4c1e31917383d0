"""Random numbers looked up by name (:mod:`pdalloc.simulation.hashing`), compiled."""

from __future__ import annotations

import math

import numpy as np

from pdalloc.simulation.hashing import (
    GAMMA_U64,
    MIX_1_U64,
    MIX_2_U64,
    ONE_U64,
    S11,
    S27,
    S30,
    S31,
    UNIT,
)
from pdalloc.simulation.kernels.compile import kernel

NO_NOISE, EXPONENTIAL, GAMMA, LOGNORMAL = range(4)
NOISES = (None, "exponential", "gamma", "lognormal")
"""Laws of noise, by number and as options name them."""
CUBE = 3.0


@kernel
def _mixed(z: np.uint64, part: int) -> np.uint64:
    """One more ``part`` of a name."""
    z = z + (np.uint64(part) + ONE_U64) * GAMMA_U64
    z = (z ^ (z >> S30)) * MIX_1_U64
    z = (z ^ (z >> S27)) * MIX_2_U64
    return z ^ (z >> S31)


@kernel
def uniform(key: np.uint64, kind: int, a: int, b: int, c: int) -> float:
    """The number in (0, 1) of that name."""
    z = _mixed(_mixed(_mixed(_mixed(key, kind), a), b), c)
    return float((np.float64(z >> S11) + 0.5) * UNIT)


@kernel
def normal(key: np.uint64, kind: int, a: int, b: int, c: int) -> float:
    """A standard normal number from the uniforms ``c`` and ``c + 1``."""
    radius = math.sqrt(-2.0 * math.log(uniform(key, kind, a, b, c)))
    return radius * math.cos(2.0 * math.pi * uniform(key, kind, a, b, c + 1))


@kernel
def gamma(scv: float, key: np.uint64, kind: int, a: int, b: int) -> float:
    """A gamma number of mean 1 and SCV ``scv``."""
    shape = 1.0 / scv
    d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
    width = 1.0 / math.sqrt(9.0 * d)
    j = 0
    while True:
        x = normal(key, kind, a, b, 3 * j + 1)
        v = math.pow(1.0 + width * x, CUBE)
        if v > 0.0:
            u = uniform(key, kind, a, b, 3 * j + 3)
            if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                break
        j += 1
    boost = 1.0 if shape >= 1.0 else math.pow(uniform(key, kind, a, b, 0), 1.0 / shape)
    return d * v * boost / shape


@kernel
def noise(law: int, scv: float, key: np.uint64, kind: int, a: int, b: int) -> float:
    """The factor of that name under a law of noise; 1 without one."""
    if law == EXPONENTIAL:
        return -math.log(uniform(key, kind, a, b, 0))
    if law == GAMMA:
        return gamma(scv, key, kind, a, b)
    if law == LOGNORMAL:
        variance = math.log1p(scv)
        return math.exp(math.sqrt(variance) * normal(key, kind, a, b, 0) - 0.5 * variance)
    return 1.0


@kernel
def multiply_by_noise(values: np.ndarray, law: int, scv: float, key: np.uint64, kind: int) -> None:
    """``values[i]``, one per request, times the factor that ``kind`` gives request i."""
    for i in range(len(values)):
        values[i] *= noise(law, scv, key, kind, i, 0)
