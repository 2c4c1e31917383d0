r"""Random numbers looked up by name, not drawn in turn.

Two simulators meet the events of a run in different orders, so a random number that an event
needs (the noise of step 17 of replica 2) must not depend on what was drawn before. Each is a
hash of its name: a key (one per run), a kind and up to three counters, run through the
finaliser of SplitMix64 once per part of the name (Steele, Lea, Flood 2014, "Fast splittable
pseudorandom number generators", OOPSLA, figure 17: the variant 13 of Stafford):

.. math:: z_0 = mix(key + (kind + 1)\gamma), \quad z_{i+1} = mix(z_i + (c_i + 1)\gamma),
          \quad u = (\lfloor z_3 / 2^{11} \rfloor + 1/2)\, 2^{-53} \in (0, 1).

:func:`uniform` works on plain integers; :func:`uniform_u64` is the same in unsigned 64-bit
arithmetic, on numpy arrays or, compiled, on scalars.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PREFILL_NOISE, STEP_NOISE, ACCEPTED, JITTER, UP_TIME, DOWN_TIME = range(6)
PREFILL_PICK, DECODE_PICK = 6, 7
"""Kinds of random number; their counters are listed in :mod:`pdalloc.simulation.options`."""

MASK = 0xFFFFFFFFFFFFFFFF
GAMMA, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
UNIT = 2.0**-53

U64 = NDArray[np.uint64]
ONE_U64, GAMMA_U64 = np.uint64(1), np.uint64(GAMMA)
MIX_1_U64, MIX_2_U64 = np.uint64(MIX_1), np.uint64(MIX_2)
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def mix(z: int) -> int:
    """SplitMix64's finaliser: a bijection of 64-bit integers that scatters close ones."""
    z = ((z ^ (z >> 30)) * MIX_1) & MASK
    z = ((z ^ (z >> 27)) * MIX_2) & MASK
    return z ^ (z >> 31)


def uniform(key: int, kind: int, a: int, b: int = 0, c: int = 0) -> float:
    """The number in (0, 1) of that name; ``key`` and counters are integers >= 0.

    >>> uniform(1, 2, 3) == uniform(1, 2, 3, 0, 0)
    True
    """
    z = key & MASK
    for part in (kind, a, b, c):
        z = mix((z + (part + 1) * GAMMA) & MASK)
    return ((z >> 11) + 0.5) * UNIT


def mix_u64(z: U64) -> U64:
    """:func:`mix` in wrapping arithmetic."""
    z = (z ^ (z >> S30)) * MIX_1_U64
    z = (z ^ (z >> S27)) * MIX_2_U64
    return z ^ (z >> S31)


def uniform_u64(key: U64, kind: U64, a: U64, b: U64, c: U64) -> NDArray[np.floating]:
    """:func:`uniform` of unsigned parts, arrays of one shape; compile :func:`mix_u64` with it."""
    z = mix_u64(key + (kind + ONE_U64) * GAMMA_U64)
    z = mix_u64(z + (a + ONE_U64) * GAMMA_U64)
    z = mix_u64(z + (b + ONE_U64) * GAMMA_U64)
    z = mix_u64(z + (c + ONE_U64) * GAMMA_U64)
    u: NDArray[np.floating] = ((z >> S11) + 0.5) * UNIT
    return u


def normal(key: int, kind: int, a: int, b: int, c: int) -> float:
    """A standard normal number from the uniforms ``c`` and ``c + 1`` (Box and Muller 1958)."""
    radius = math.sqrt(-2.0 * math.log(uniform(key, kind, a, b, c)))
    return radius * math.cos(2.0 * math.pi * uniform(key, kind, a, b, c + 1))


def exponential(key: int, kind: int, a: int, b: int = 0) -> float:
    """An Exp(1) number: -log of the uniform 0."""
    return -math.log(uniform(key, kind, a, b))


def lognormal(scv: float, key: int, kind: int, a: int, b: int = 0) -> float:
    """A lognormal number of mean 1 and SCV ``scv``, from the normal at 0."""
    variance = math.log1p(scv)
    return math.exp(math.sqrt(variance) * normal(key, kind, a, b, 0) - 0.5 * variance)


def gamma(scv: float, key: int, kind: int, a: int, b: int = 0) -> float:
    """A gamma number of mean 1 and SCV ``scv`` > 0, shape k = 1 / scv.

    Marsaglia and Tsang (2000), "A simple method for generating gamma variables": try j takes
    the normal at 3 j + 1 and the uniform 3 j + 3; for k < 1 a Gamma(k + 1) is multiplied by
    the uniform 0 to the power 1 / k.
    """
    shape = 1.0 / scv
    d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
    width = 1.0 / math.sqrt(9.0 * d)
    j = 0
    while True:
        x = normal(key, kind, a, b, 3 * j + 1)
        v = (1.0 + width * x) ** 3
        if v > 0.0:
            u = uniform(key, kind, a, b, 3 * j + 3)
            if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                break
        j += 1
    boost = 1.0 if shape >= 1.0 else uniform(key, kind, a, b) ** (1.0 / shape)
    return d * v * boost / shape
