r"""What every option's traffic adds to every SLO over all requests, as tables.

A replica offered y requests/s adds :math:`f(y) = y D(y)`: D its mean delay, or the probability
that a request is later than the bound. With n replicas of type r that carry x_r, the SLO reads

.. math:: \sum_r n_r f_r(x_r / n_r) \le \lambda b, \qquad
          b = \tau \;\text{(mean)} \quad\text{or}\quad 1 - p \;\text{(percentile p)}.

Means of an SLO that spans both stages add up, so each stage has a curve of its own under one
shared budget. Between its points a convex curve lies under its chords and above its
neighbours': two tables that hold the truth between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.linear import Array
from pdalloc.allocation.population.curves import budget, curves, on_one_latency
from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES, Role
from pdalloc.prediction import PoolKey

Loads = Mapping[PoolKey, Sequence[float]]
"""Requests/s per replica, by (role, type)."""


@dataclass(frozen=True)
class Burdens:
    """n options, K SLOs, J loads.

    ``rates`` (n, J) requests/s per replica, from 0 up, the last repeated where an option has
    fewer; ``values`` (K, n, J) of f; ``budgets`` (K,) of b; ``demand`` requests/s. A curve of an
    SLO that the option's role does not touch is 0.
    """

    options: tuple[Option, ...]
    rates: Array
    values: Array
    budgets: Array
    demand: float

    def members(self, role: Role) -> list[int]:
        """Indices of the options of ``role``."""
        return [i for i, o in enumerate(self.options) if o.role == role]


def burdens(problem: AllocationProblem, more: Loads | None = None) -> Burdens:
    """The curves of ``problem``, with points at the loads ``more`` too.

    UnsupportedError where level 2 of the design has no answer.
    """
    capacity = problem.capacity
    if any(capacity.pooled(role) for role in ROLES):
        raise UnsupportedError(
            "slo_scope: population is known for dispatch: random; set it, or slo_scope: pool"
        )
    options = tuple(o for role in ROLES for o in problem.in_role(role))
    types = capacity.system.replica_types
    asked = more or {}
    found = [
        curves(capacity, o.role, types[o.replica_type], asked.get((o.role, o.replica_type), ()))
        for o in options
    ]
    budgets = np.array([budget(on_one_latency(slo)) for slo in capacity.slos])
    return _stacked(options, found, budgets, problem.demand)


def _stacked(
    options: tuple[Option, ...], found: Sequence[tuple[Array, Array]], budgets: Array, demand: float
) -> Burdens:
    """(loads (J,), values (K, J)) of each option, of differing J, in one table."""
    most = max(len(loads) for loads, _ in found)
    rates = np.array([np.pad(loads, (0, most - len(loads)), "edge") for loads, _ in found])
    values = [np.pad(v, ((0, 0), (0, most - v.shape[1])), "edge") for _, v in found]
    return Burdens(options, rates, np.stack(values, axis=1), budgets, demand)


def below(b: Burdens) -> Burdens:
    """Tables nowhere above the convex curves that ``b`` has points of.

    On an interval a convex function is at least the chord of the interval before and that of
    the one after, each drawn on. Points are where these two cross, of any SLO.
    """
    found = []
    for i, row in enumerate(b.rates):
        x, start = np.unique(row, return_index=True)
        y = b.values[:, i, start]
        found.append(_below(x, y) if len(x) > 3 else (x, y))
    return _stacked(b.options, found, b.budgets, b.demand)


def _below(x: Array, y: Array) -> tuple[Array, Array]:
    """:func:`below` of one option: loads (J,) and values (K, J) to more of both."""
    slope = np.diff(y) / np.diff(x)  # (K, J - 1), of each interval's chord
    width, rise = np.diff(x)[1:-1], np.diff(y)[:, 1:-1]
    bend = slope[:, 2:] - slope[:, :-2]
    bends = bend > 0.0
    step = np.where(bends, slope[:, 2:] * width - rise, 0.0) / np.where(bends, bend, 1.0)
    crossing = x[1:-2] + np.clip(step, 0.0, width)
    at = np.unique(np.concatenate([x, crossing.ravel()]))
    interval = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    rows = [_envelope(x, row, s, at, interval) for row, s in zip(y, slope, strict=True)]
    return at, np.array(rows).reshape(len(y), len(at))


def _envelope(x: Array, y: Array, slope: Array, at: Array, interval: NDArray[np.intp]) -> Array:
    """The greater of the neighbouring chords drawn on, at ``at``."""
    left, right = np.maximum(interval - 1, 0), np.minimum(interval + 1, len(slope) - 1)
    from_left = np.where(interval > 0, y[interval] + slope[left] * (at - x[interval]), -np.inf)
    end = interval + 1
    from_right = np.where(interval < len(slope) - 1, y[end] + slope[right] * (at - x[end]), -np.inf)
    found: Array = np.maximum(from_left, from_right)
    return found
