r"""Burden curves: what the traffic of one replica adds to an SLO over all requests.

A replica offered y requests/s adds :math:`f(y) = y D(y)`: D its mean delay, or the probability
that a request is later than the bound. With n replicas of type r that carry x_r, the SLO reads

.. math:: \sum_r n_r f_r(x_r / n_r) \le \lambda b, \qquad
          b = \tau \;\text{(mean)} \quad\text{or}\quad 1 - p \;\text{(percentile p)}.

The curves are tabulated on a grid from the predictor's laws, whatever they are. Means of an SLO
that spans both stages add up, so each stage has a curve of its own under one shared budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdalloc.allocation.linear import Array
from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.capacity import Capacity
from pdalloc.errors import UnstableError, UnsupportedError
from pdalloc.fleet import PREFILL, ROLES, Role
from pdalloc.slo.interface import Objective
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile
from pdalloc.system import ReplicaType

POINTS = 65
"""Loads of a curve, closer together towards full load."""
FULLEST = 1.0 - 1e-3
"""Greatest load of a curve, relative to the stability limit."""


@dataclass(frozen=True)
class Burdens:
    """n options, K SLOs, J loads.

    ``rates`` (n, J) requests/s per replica, from 0 up; ``values`` (K, n, J) of f; ``budgets``
    (K,) of b; ``demand`` requests/s. A curve of an SLO that the option's role does not touch
    is 0.
    """

    options: tuple[Option, ...]
    rates: Array
    values: Array
    budgets: Array
    demand: float

    def members(self, role: Role) -> list[int]:
        """Indices of the options of ``role``."""
        return [i for i, o in enumerate(self.options) if o.role == role]


def burdens(problem: AllocationProblem) -> Burdens:
    """The curves of ``problem``; UnsupportedError where level 2 of the design has no answer."""
    capacity = problem.capacity
    if any(capacity.pooled(role) for role in ROLES):
        raise UnsupportedError(
            "slo_scope: population is known for dispatch: random; set it, or slo_scope: pool"
        )
    options = tuple(o for role in ROLES for o in problem.in_role(role))
    types = capacity.system.replica_types
    curves = [_curves(capacity, o.role, types[o.replica_type]) for o in options]
    rates, values = (np.array([curve[part] for curve in curves]) for part in range(2))
    budgets = np.array([budget(on_one_latency(slo)) for slo in capacity.slos])
    return Burdens(options, rates, np.moveaxis(values, 1, 0), budgets, problem.demand)


def _curves(capacity: Capacity, role: Role, r: ReplicaType) -> tuple[Array, Array]:
    """Loads (J,) of a type and its burden on every SLO (K, J).

    Loads too near saturation for the laws are left out: the last good one stands in.
    """
    spread = 1.0 - (1.0 - np.linspace(0.0, 1.0, POINTS)) ** 2
    rates = FULLEST * capacity.stability_limit(role, r) * spread
    parts = delay_parts(capacity, role, capacity.slo_classes)
    burden, good = np.zeros((len(parts), POINTS)), 0
    state_of = capacity.predictor.prefill if role == PREFILL else capacity.predictor.decode
    for j, rate in enumerate(rates):
        try:
            state = state_of(r, float(rate))
            burden[:, j] = [rate * part(state) for part in parts]
        except UnstableError:
            break
        good = j
    rates[good:], burden[:, good:] = rates[good], burden[:, good : good + 1]
    return rates, burden


def on_one_latency(slo: Objective) -> Slo:
    """``slo``, a mean or a percentile; UnsupportedError for a joint one."""
    if not isinstance(slo, Slo):
        raise UnsupportedError(
            f"slo_scope: population knows means and percentiles, not {slo.name}; "
            "use slo_scope: pool"
        )
    return slo


def budget(slo: Slo) -> float:
    """b of ``slo``: seconds for a mean, a probability for a percentile."""
    if isinstance(slo.statistic, Mean):
        return slo.bound
    if isinstance(slo.statistic, Percentile):
        return 1.0 - slo.statistic.percent / 100.0
    raise UnsupportedError(
        f"slo_scope: population knows means and percentiles, not {slo.name}; use slo_scope: pool"
    )


def delay_parts(
    capacity: Capacity, role: Role, slos: Iterable[tuple[Objective, int]]
) -> list[Callable[[Any], float]]:
    """D of a state of ``role``, by SLO (given with the index of its class): its part of each."""
    return [_part(capacity, on_one_latency(slo), index, role) for slo, index in slos]


def _part(capacity: Capacity, slo: Slo, index: int, role: Role) -> Callable[[Any], float]:
    """D of a state of ``role``: its part of ``slo``, 0 where it has none."""
    touched = [s for s in ROLES if slo.metric in capacity.decided_by(s)]
    if role not in touched:
        return lambda state: 0.0
    mean = isinstance(slo.statistic, Mean)
    if len(touched) > 1 and not mean:
        raise UnsupportedError(
            f"slo_scope: population adds up means over both stages, not {slo.name}; "
            "use slo_scope: pool"
        )
    other_role = ROLES[1 - ROLES.index(role)]
    other = capacity.idle(other_role, capacity.system.types_for(other_role)[0])

    def value(state: Any) -> float:
        path = (state, other) if role == PREFILL else (other, state)
        law = capacity.predictor.law(slo.metric, index, *path)
        return law.mean if mean else law.tail(slo.bound)

    if len(touched) == 1 or role == PREFILL:
        return value
    # the prefill stage's part holds an idle decode replica of the first type: not twice
    counted = value(capacity.idle(role, capacity.system.types_for(role)[0]))
    return lambda state: value(state) - counted
