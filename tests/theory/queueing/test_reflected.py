"""Reflected Brownian motion: its closed forms against each other and against paths."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.queueing.reflected import TIMES, kept_variance, memory, third


def idle_and_free(paths: int, time: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Idle time L and free path X over ``time``, from a stationary start; (paths,).

    Exact in law at the ends of steps: the least point of a Brownian bridge is drawn.
    """
    rng = np.random.default_rng(11)
    width = time / steps
    level, idle, free = rng.exponential(0.5, paths), np.zeros(paths), np.zeros(paths)
    for _ in range(steps):
        move = -width + math.sqrt(width) * rng.standard_normal(paths)
        least = 0.5 * (move - np.sqrt(move**2 - 2.0 * width * np.log(rng.random(paths))))
        push = np.maximum(-(level + least), 0.0)
        level, idle, free = level + move + push, idle + push, free + move
    return idle, free


@pytest.mark.parametrize("time", [0.1, 1.0, 4.0])
def test_idle_time_over_a_while(time: float) -> None:
    """Var L = t w*(t), and its third central moment, within three standard errors."""
    idle, free = idle_and_free(120_000, time, 40)
    off, x = idle - idle.mean(), free - free.mean()
    spread = off**2
    error = spread.std() / math.sqrt(len(off))
    assert abs(spread.mean() - time * kept_variance(np.array([time]))[0]) <= 3.0 * error + 1e-3
    cubes = off**3
    error = cubes.std() / math.sqrt(len(off))
    assert abs(cubes.mean() - time**1.5 * third(np.array([time]))[0]) <= 3.0 * error + 0.01
    # so a (2 a - 1) is what is left of it in D = -(1 - a) X - L; 0 at a = 1/2: M/M/1 is Poisson
    a = 0.5
    poisson = (1.0 - a) * x + off
    error = (poisson**3).std() / math.sqrt(len(off))
    assert abs((poisson**3).mean()) <= 3.0 * error + 0.02 * time**1.5


def test_long_and_short_times() -> None:
    """All of the variance goes through over long times, none over short; skewness fades."""
    ends = np.array([1e-8, 1e8])
    assert kept_variance(ends) == pytest.approx([0.0, 1.0], abs=1e-3)
    assert third(np.array([1e4]))[0] == 0.0
    assert np.all(third(TIMES) > 0.0)


def test_memory_is_the_first_passage_transform() -> None:
    """h solves h^2 s/2 + h - 1 = 0: the M/M/1 busy-period equation in the limit."""
    w = np.array([1e-6, 0.3, 7.0])
    h = memory(w)
    assert 0.5j * w * h**2 + h == pytest.approx(np.ones(3))
