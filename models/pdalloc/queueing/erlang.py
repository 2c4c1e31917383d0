r"""Erlang's formulas in O(1) for real numbers of servers, and the Poisson terms under them.

.. math:: B(c,a) = \frac{a^c e^{-a}}{\Gamma(c+1, a)}, \qquad
          C(c,a) = \frac{B}{1 - \rho (1 - B)}, \quad \rho = a/c

(Jagerman 1974, "Some properties of the Erlang loss function", eq. 5: the gamma integral gives
the formula for real c). Good to about 1e-11 for c up to 10 000 and more.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.laws import Array

STIRLING_FROM = 16.0
"""From here on Stirling's series gives log k! to double precision."""


def log_poisson(k: Array, a: Array) -> Array:
    """log of a^k e^-a / Gamma(k+1), real ``k`` > 0 and ``a`` > 0, any shapes.

    Loader's (2000) saddle-point form, so that large k near a lose no digits.
    """
    from scipy.special import gammaln

    k, a = np.asarray(k, float), np.asarray(a, float)
    x, square = (a - k) / k, 1.0 / k**2
    stirling = (1 / 12 - (1 / 360 - (1 / 1260 - square / 1680) * square) * square) / k
    if k.min() < STIRLING_FROM:
        small = gammaln(k + 1.0) - (k + 0.5) * np.log(k) + k - 0.5 * math.log(2 * math.pi)
        stirling = np.where(k < STIRLING_FROM, small, stirling)
    value: Array = -k * (x - np.log1p(x)) - stirling - 0.5 * np.log(2 * math.pi * k)
    return value


def erlang_b(servers: float, load: float) -> float:
    """Share of calls lost by ``servers`` > 0 (real) lines offered ``load`` >= 0 erlangs.

    >>> round(erlang_b(3, 2.0), 9)  # (2^3/3!) / (1 + 2 + 2 + 8/6) = 4/19
    0.210526316
    """
    from scipy.special import gammaincc

    if load <= 0.0:
        return 0.0
    term = math.exp(float(log_poisson(np.asarray(servers), np.asarray(load))))
    return term / float(gammaincc(servers + 1.0, load))


def erlang_c(servers: float, load: float) -> float:
    """P(W > 0) of M/M/c: ``servers`` > 0 (real), 0 <= ``load`` < ``servers`` erlangs.

    >>> round(erlang_c(10, 8.0), 8), round(erlang_c(10_000, 9_900.0), 9)
    (0.40918015, 0.222776929)
    """
    lost = erlang_b(servers, load)
    return lost / (1.0 - load / servers * (1.0 - lost))
