"""Random numbers by name: known values, uniformity, independence, the laws, the two forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.simulation import hashing
from pdalloc.simulation.hashing import GAMMA, MASK, mix, uniform, uniform_u64
from pdalloc.simulation.options import Noise
from pdalloc.simulation.setup import noise_factor

WORD = st.integers(0, MASK)
SMALL = st.integers(0, 2**40)


def test_the_finaliser_is_that_of_splitmix64() -> None:
    """The first outputs of SplitMix64 with seed 1234567, as its reference code prints them."""
    state, outputs = 1234567, []
    for _ in range(3):
        state = (state + GAMMA) & MASK
        outputs.append(mix(state))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(WORD, st.integers(0, 9), SMALL, SMALL, st.integers(0, 50))
def test_plain_and_unsigned_arithmetic_agree(key: int, kind: int, a: int, b: int, c: int) -> None:
    parts = [np.array([x], np.uint64) for x in (key, kind, a, b, c)]
    assert uniform_u64(*parts)[0] == uniform(key, kind, a, b, c)
    assert 0.0 < uniform(key, kind, a, b, c) < 1.0


def table(n: int) -> np.ndarray:
    """Uniforms of counters 0..n-1 squared."""
    a, b = (x.ravel().astype(np.uint64) for x in np.meshgrid(np.arange(n), np.arange(n)))
    key, kind, c = (np.full(n * n, x, np.uint64) for x in (99, 1, 0))
    return uniform_u64(key, kind, a, b, c).reshape(n, n)


def test_numbers_are_uniform_and_their_names_independent() -> None:
    """Kolmogorov-Smirnov below its 1e-5 quantile; neighbours uncorrelated within 5 sigma."""
    u = table(500)
    flat = np.sort(u.ravel())
    n = len(flat)
    distance = np.abs(flat - (np.arange(n) + 0.5) / n).max()
    assert distance < math.sqrt(math.log(2e5) / 2.0) / math.sqrt(n)
    for one, next_to_it in ((u[:-1], u[1:]), (u[:, :-1], u[:, 1:])):
        correlation = 12.0 * ((one - 0.5) * (next_to_it - 0.5)).mean()
        assert abs(correlation) < 5.0 / math.sqrt(one.size)


def test_another_key_kind_or_counter_is_another_number() -> None:
    names = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 0, 0, 1), (1, 0, 0, 0, 1)]
    assert len({uniform(*name) for name in names}) == len(names)
    assert uniform(1, 0, 5, 7) != uniform(1, 0, 7, 5)


@pytest.mark.parametrize(
    ("noise", "third"),
    [
        (Noise("exponential"), 6.0),
        (Noise("gamma", 0.25), 1.25 * 1.5),
        (Noise("gamma", 4.0), 5.0 * 9.0),
        (Noise("lognormal", 0.5), 1.5**3),
    ],
)
def test_noise_has_mean_1_the_scv_and_the_third_moment_of_its_law(
    noise: Noise, third: float
) -> None:
    """E X^3: 3! ; (1 + s)(1 + 2 s) for a gamma; (1 + s)^3 for a lognormal."""
    x = np.array([noise_factor(noise, 7, hashing.STEP_NOISE, 3, i) for i in range(60_000)])
    for power, moment in ((1, 1.0), (2, 1.0 + noise.scv), (3, third)):
        sample = x**power
        error = sample.std() / math.sqrt(len(sample))
        assert sample.mean() == pytest.approx(moment, abs=5 * error)
