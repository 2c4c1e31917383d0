r"""M/D/c: mean wait and P(W > 0), exactly and in O(1).

First come, first served with equal services hands arrivals to the servers in turn, so W is the
all-time maximum of the random walk with steps D - Erlang_c. Spitzer's (1956) identity gives,
with m = n c and x = n lambda D,

.. math:: E[W] = D \sum_{n\ge1} \frac{p(m;x) - (1-\rho) P(m,x)}{\rho}, \qquad
          P(W=0) = \exp\Big(-\sum_{n\ge1} \frac{P(m,x)}{n}\Big),

p the Poisson probability and P the regularised lower gamma function. The terms are smooth in
n: the first are added, the rest is an integral (Euler-Maclaurin, midpoint).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from pdalloc.laws import Array
from pdalloc.queueing.erlang import erlang_c, log_poisson

ADDED = 32
"""Terms that are added one by one."""
QUADRATURE = 48
"""Gauss-Legendre nodes in log n for the others."""
EXPONENT = 40.0
"""Terms below exp(-EXPONENT) are left out."""
NO_DISPERSION = 1e-8
"""An index of dispersion this near 0 or 1 is taken as that."""
THETA_RANGE = (-25.0, 25.0)
"""Range of log theta."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(QUADRATURE)
_FIRST = np.arange(1.0, ADDED + 1.0)
_EDGE = np.array([-1.0, 1.0]) / 24.0


@lru_cache(maxsize=4096)
def mdc(servers: float, utilisation: float) -> tuple[float, float]:
    """(E[W]/D, P(W > 0)) for ``servers`` = c >= 1 and 0 <= ``utilisation`` < 1.

    >>> tuple(round(v, 9) for v in mdc(2, 0.5))
    (0.176741057, 0.323258943)
    """
    if utilisation <= 0.0:
        return 0.0, 0.0
    decay = servers * (utilisation - 1.0 - math.log(utilisation))
    start, end = ADDED + 0.5, EXPONENT / decay
    half = 0.5 * math.log(end / start) if end > start else 0.0
    far = start * np.exp(half * (_NODES + 1.0))
    # sum from N+1 on = int from N+1/2 + f'(N+1/2)/24
    weights = np.concatenate([np.ones(ADDED), half * _WEIGHTS * far, _EDGE * (half > 0.0)])
    n = np.concatenate([_FIRST, far, [start - 0.5, start + 0.5]])
    waits, signs = _terms(n, servers, utilisation)
    return max(float(weights @ waits), 0.0), -math.expm1(-float(weights @ signs))


def _terms(n: Array, servers: float, utilisation: float) -> tuple[Array, Array]:
    """The n-th terms of both sums, ``n`` real."""
    from scipy.special import gammainc

    m, x = n * servers, n * servers * utilisation
    late = gammainc(m, x)
    wait = (np.exp(log_poisson(m, x)) - (1.0 - utilisation) * late) / utilisation
    return wait, late / n


@lru_cache(maxsize=4096)
def time_scale(servers: float, utilisation: float) -> tuple[float, float]:
    """(theta, W_D/W_M): where the dispersion law with constant service gives the exact M/D/c.

    theta solves I_D(theta) = coth(theta/2) - 2/theta = 2 W_D/W_M - 1; 0 at one server, inf
    where W_D = W_M.
    """
    from scipy.optimize import brentq

    wait = erlang_c(servers, servers * utilisation) / (servers * (1.0 - utilisation))
    ratio = mdc(servers, utilisation)[0] / wait
    index = 2.0 * ratio - 1.0
    if servers == 1 or index <= NO_DISPERSION:
        return 0.0, ratio
    if index >= 1.0 - NO_DISPERSION:
        return math.inf, ratio

    def gap(log_theta: float) -> float:
        return constant_dispersion(math.exp(log_theta)) - index

    return math.exp(brentq(gap, *THETA_RANGE)), ratio


def constant_dispersion(theta: float) -> float:
    """I_D(theta) = coth(theta/2) - 2/theta, about theta/6 for small theta.

    >>> round(constant_dispersion(2.0), 6)  # coth(1) - 1
    0.313035
    """
    return theta / 6.0 if theta < 1e-3 else 1.0 / math.tanh(0.5 * theta) - 2.0 / theta
