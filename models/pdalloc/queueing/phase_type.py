r"""M/H2/c exactly: Poisson arrivals, service exponential of one of two means.

Levels are requests in the station, states within a level how many of those in service are of
the first kind. From level c on the chain is homogeneous: pi_{n+1} = pi_n R, R from the least
solution G by logarithmic reduction (Latouche, Ramaswami 1993); below, one block elimination per
level. The number waiting at a random time is Poisson(lambda W) in law (distributional Little,
Keilson, Servi 1988, first come first served), so

.. math:: P(W > t) = \pi_c (I-R)^{-1} e^{-\lambda (R^{-1} - I) t} \mathbf{1},

whose exponential is taken in implicit steps (R may be close to singular). All in O(c^4) at
worst: 10 ms at c = 64, half a second at c = 200.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pdalloc.laws import Array, grid
from pdalloc.queueing.survival import SurvivalTable

Phases = tuple[float, float, float]
"""Probability of the first kind, its mean service and that of the second, seconds."""
STEPS = 64
"""Doublings in logarithmic reduction."""
PER_MEAN = 64
"""Steps per E[W | W > 0] of the tabulated tail,"""
MOST_STEPS = 64 * 40
"""at most these,"""
NEGLIGIBLE = 1e-9
"""and down to this."""
CONVERGED = 1e-6
"""Missing mass of G from which rounding, not convergence, decides its change."""
LEAST_THIRD = 1.5 * (1.0 + 1e-9)
"""A hyperexponential third moment exceeds 3/2 E[S^2]^2 / E[S]."""


def hyperexponential_fit(mean: float, second: float, third: float) -> Phases:
    """The H2 law of three moments (s, s^2, s^3; SCV above 1); too small a third is raised.

    Whitt (1982), "Approximating a point process by a renewal process", section 3.

    >>> p, one, two = hyperexponential_fit(1.0, 3.0, 18.0)
    >>> round(p * one + (1 - p) * two, 9), round(2 * (p * one**2 + (1 - p) * two**2), 9)
    (1.0, 3.0)
    """
    third = max(third, LEAST_THIRD * second**2 / mean)
    g2, g3 = second / 2.0, third / 6.0
    total = (g3 - mean * g2) / (g2 - mean**2)
    product = total * mean - g2
    spread = math.sqrt(max(total**2 - 4.0 * product, 0.0))
    one, two = 0.5 * (total + spread), 0.5 * (total - spread)
    return (mean - two) / (one - two), one, two


@dataclass(frozen=True)
class MH2cWait:
    """P(W > 0), E[W] in seconds, and P(W > t | W > 0)."""

    p_wait: float
    mean: float
    given_wait: SurvivalTable


def mh2c_wait(servers: int, rate: float, phases: Phases) -> MH2cWait:
    """The wait at ``rate`` requests/s, ``servers`` >= 1 with utilisation below 1."""
    diagonal, down = _busy_level(servers, rate, phases)
    climb = _climb(diagonal, down, rate)
    level = _level_c(servers, rate, phases, climb, np.diag(diagonal) + climb @ down)
    rest = np.eye(servers + 1) - climb
    queued = np.asarray(np.linalg.solve(rest.T, level), float)  # pi_c (I-R)^-1
    waits = float(queued.sum())
    mean = float((climb.T @ np.linalg.solve(rest.T, queued)).sum()) / rate  # Little
    step = mean / waits / PER_MEAN
    return MH2cWait(waits, mean, _survival(queued / waits, climb, rate * step, step))


def _survival(start: Array, climb: Array, advance: float, step: float) -> SurvivalTable:
    """``start`` exp(-lambda (R^-1 - I) t) 1 at even ``step``, ``advance`` = lambda step.

    L-stable diagonally implicit Runge-Kutta of order 2 (Alexander 1977): with
    M = I + g h lambda (R^-1 - I), two solves M x = y, that is (R + g h lambda (I-R)) x = R y.
    """
    from scipy.linalg import lu_factor, lu_solve

    gamma = 1.0 - math.sqrt(0.5)
    factors = lu_factor(climb + gamma * advance * (np.eye(len(climb)) - climb))
    y, values = np.ones(len(climb)), [1.0]
    while values[-1] > NEGLIGIBLE and len(values) < MOST_STEPS:
        first = lu_solve(factors, climb @ y)  # y + g k_1 = first
        slope = (first - y) / gamma
        y = lu_solve(factors, climb @ (y + (1.0 - gamma) * slope))
        values.append(min(float(start @ y), values[-1]))
    survival: Array = np.maximum(np.array(values, float), 0.0)
    survival[-1] = 0.0
    return SurvivalTable(grid(step, len(values)), survival)


def _busy_level(c: int, rate: float, phases: Phases) -> tuple[Array, Array]:
    """Diagonal of a level with all busy, and rates to the level below (next one starts)."""
    p, one, two = phases
    j = np.arange(c + 1.0)
    first, second = j / one, (c - j) / two
    down = np.diag(first * p + second * (1.0 - p))
    down += np.diag((second * p)[:-1], 1) + np.diag((first * (1.0 - p))[1:], -1)
    return -(rate + first + second), down


def _climb(diagonal: Array, down: Array, rate: float) -> Array:
    """R = lambda (-(A_1 + lambda G))^-1, G by logarithmic reduction."""
    identity = np.eye(len(diagonal))
    up: Array = np.diag(rate / -diagonal)
    low: Array = down / -diagonal[:, None]
    reach, product, before = low.copy(), up.copy(), math.inf
    for _ in range(STEPS):
        inverse: Array = np.asarray(np.linalg.inv(identity - up @ low - low @ up), float)
        up, low = inverse @ up @ up, inverse @ low @ low
        reach, product = reach + product @ low, product @ up
        missing = float(np.abs(1.0 - reach.sum(axis=1)).max())
        if missing < 1e-13 or before <= missing < CONVERGED:
            break
        before = missing
    climbed = rate * np.linalg.inv(-(np.diag(diagonal) + rate * reach))
    return np.asarray(climbed, float)


def _level_c(c: int, rate: float, phases: Phases, climb: Array, block: Array) -> Array:
    """Probabilities of level c, shape (c+1,): eliminate from c down to 0, then normalise."""
    p, one, two = phases
    ways: list[Array] = []
    for n in range(c - 1, -1, -1):
        j = np.arange(n + 1)
        up, down = np.zeros((n + 1, n + 2)), np.zeros((n + 2, n + 1))
        up[j, j], up[j, j + 1] = rate * (1.0 - p), rate * p
        down[j, j], down[j + 1, j] = (n + 1 - j) / two, (j + 1) / one
        way: Array = np.asarray(np.linalg.solve(-block.T, up.T).T, float)
        block = np.diag(-(rate + j / one + (n - j) / two)) + way @ down
        ways.append(way)
    level: Array = np.ones(1)
    total = 1.0
    for way in reversed(ways):
        level = level @ way
        total += float(level.sum())
        level, total = level / total, 1.0
    queue = float(level @ np.linalg.solve(np.eye(c + 1) - climb, np.ones(c + 1)))
    found: Array = level / (total - float(level.sum()) + queue)
    return found
