r"""The law of W | W > 0 at many servers, from the dispersion of departures over time.

Excursions of the queue are short when there are many servers, and over a short time the
departures of c busy servers are nearly Poisson whatever the service law: their index of
dispersion I moves from 1 to the service SCV as the time grows. A wait of x belongs to times of
about x, so with I at theta = kappa / x the hazard rate of the wait is

.. math:: h(x) = \frac{2 c (1-\rho)}{(1 + I(\kappa / x))\,E[S]} .

With few servers the law of :class:`~pdalloc.queueing.delayed.LeastResidualWait` is better (one
long service then stops a large part of the station); between the two, quantiles are averaged.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.laws import Array
from pdalloc.queueing.delayed import LeastResidualWait
from pdalloc.queueing.service import Service
from pdalloc.queueing.survival import SurvivalTable

DEPTHS = np.concatenate([[0.0], np.geomspace(1e-3, 45.0, 400)])
"""-log P(W > x | W > 0) at which quantiles are averaged."""
STEPS = np.geomspace(1e-4, 80.0, 250)
"""Waits at which the hazard is taken, in mean waits."""
LATTICE = 1024
REACH = 20.0
"""Horizon, in means, of the lattice that the other law's quantiles come from."""
BELIEVED = 1e-5
"""Survival below which the lattice is not read."""


def few_servers_weight(servers: float) -> float:
    """Weight of the few-servers law: min(1, sqrt(2/c)), chosen on the reference grid.

    >>> few_servers_weight(2), few_servers_weight(8)
    (1.0, 0.5)
    """
    return min(1.0, math.sqrt(2.0 / servers))


def dispersion_shape(
    service: Service, servers: int, utilisation: float, scale: float
) -> SurvivalTable:
    """Law of W | W > 0 in seconds, up to its scale.

    ``scale`` = kappa in mean services: theta times the wait to which theta belongs.
    """
    few = LeastResidualWait(service, servers, utilisation)
    weight = few_servers_weight(servers)
    hazard_quantiles = _hazard_quantiles(service, servers, utilisation, scale)
    # both at one mean, so that the weights mean what they say
    many = hazard_quantiles * (few.mean / _mean(hazard_quantiles))
    quantiles = weight * _lattice_quantiles(few, many) + (1.0 - weight) * many
    survival = np.exp(-DEPTHS)
    survival[-1] = 0.0
    return SurvivalTable(np.maximum.accumulate(quantiles + 1e-12 * few.mean * DEPTHS), survival)


def _hazard_quantiles(service: Service, servers: int, rho: float, scale: float) -> Array:
    """Waits in seconds at DEPTHS: where the integral of h has reached them."""
    base = 2.0 * servers * (1.0 - rho)
    x = STEPS / base * (1.0 + service.scv)
    hazard = base / (1.0 + service.dispersions(scale / x))
    grown = 0.5 * (hazard[1:] + hazard[:-1]) * np.diff(x)
    depth = hazard[0] * x[0] + np.concatenate([[0.0], np.cumsum(grown)])
    inside = np.interp(DEPTHS, np.append(0.0, depth), np.append(0.0, x))
    beyond = np.maximum(DEPTHS - depth[-1], 0.0) / hazard[-1]
    quantiles: Array = (inside + beyond) * service.mean
    return quantiles


def _lattice_quantiles(few: LeastResidualWait, many: Array) -> Array:
    """Quantiles of ``few`` at DEPTHS, continued beyond its lattice as ``many`` goes on."""
    step = REACH * few.mean / LATTICE
    survival = 1.0 - np.cumsum(few.lattice(step, LATTICE))
    count = max(int(np.searchsorted(-survival, -BELIEVED)), 2)
    depth = -np.log(np.maximum(survival[:count], BELIEVED))
    at = (np.arange(count) + 0.5) * step
    inside = np.interp(DEPTHS, np.append(0.0, depth), np.append(0.0, at))
    last = np.interp(depth[-1], DEPTHS, many)
    quantiles: Array = np.where(depth[-1] < DEPTHS, at[-1] + many - last, inside)
    return quantiles


def _mean(quantiles: Array) -> float:
    """Integral of the survival function exp(-DEPTHS) over ``quantiles``."""
    return float(np.trapezoid(np.exp(-DEPTHS), quantiles))
