r"""M/H2/c exactly: Poisson arrivals, service exponential of one of two means.

Levels are requests in the station, states within a level how many of those in service are of
the first kind. From level c on the chain is homogeneous: pi_{n+1} = pi_n R, R from the least
solution G by logarithmic reduction (Latouche, Ramaswami 1993); below, one block elimination per
level. The number waiting at a random time is Poisson(lambda W) in law (distributional Little,
Keilson, Servi 1988, first come first served), so the eigenvalues eta of R give the wait,

.. math:: P(W > t) = \sum_i w_i e^{-\lambda (1-\eta_i) t / \eta_i} .

All in O(c^4) at worst: 10 ms at c = 64, half a second at c = 200.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.laws import Array

Phases = tuple[float, float, float]
"""Probability of the first kind, its mean service and that of the second, seconds."""
STEPS = 64
"""Doublings in logarithmic reduction."""
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


def mh2c_wait(servers: int, rate: float, phases: Phases) -> tuple[Array, Array]:
    """(w, means in seconds) with P(W > t) = sum w exp(-t/mean); arrays (servers+1,).

    ``rate`` requests/s at utilisation below 1; single w may be negative.
    """
    diagonal, down = _busy_level(servers, rate, phases)
    climb = _climb(diagonal, down, rate)
    level = _level_c(servers, rate, phases, climb, np.diag(diagonal) + climb @ down)
    eta, vectors = np.linalg.eig(climb)
    parts = (level @ vectors) * np.linalg.solve(vectors, np.ones(servers + 1, vectors.dtype))
    weights = np.real(parts / (1.0 - eta))
    return weights, np.maximum(np.real(eta / (rate * (1.0 - eta))), 1e-300)


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
        if missing < 1e-13 or missing >= before:
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
