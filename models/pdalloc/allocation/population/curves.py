r"""Burden curves: :math:`f(y) = y D(y)` of one replica, from the predictor's laws.

States and values at a load are worked out once for all problems that share a system
(:attr:`pdalloc.capacity.Capacity.burdens`): a mean delay knows no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pdalloc.allocation.linear import Array
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

IDLE = 1e-6
"""Load at which a replica is as good as idle, relative to the greatest: the slope at 0."""


def curves(
    capacity: Capacity, role: Role, r: ReplicaType, more: Sequence[float] = ()
) -> tuple[Array, Array]:
    """Loads (J,) of a type, ``more`` among them, and its burden on every SLO (K, J).

    Ends where the laws do, near saturation.
    """
    spread = 1.0 - (1.0 - np.linspace(0.0, 1.0, POINTS)) ** 2
    most = FULLEST * capacity.stability_limit(role, r)
    some = [IDLE * most, *(y for y in more if 0.0 < y < most)]
    loads = np.unique(np.concatenate([most * spread, some]))
    values = np.empty((len(capacity.slo_classes), len(loads)))
    for row, (slo, index) in zip(values, capacity.slo_classes, strict=True):
        value = _burden(capacity, role, r, on_one_latency(slo), index)
        row[:] = [value(float(y)) for y in loads]
    known = np.isfinite(values).all(axis=0)
    good = len(loads) if known.all() else int(np.argmin(known))
    return loads[:good], values[:, :good]


def _burden(
    capacity: Capacity, role: Role, r: ReplicaType, slo: Slo, index: int
) -> Callable[[float], float]:
    """f on ``slo`` against the load in requests/s; NaN beyond the laws."""
    bound = 0.0 if isinstance(slo.statistic, Mean) else slo.bound
    memory = capacity.burdens.setdefault(
        (role, r.name, slo.metric, slo.statistic, bound, index), dict[float, float]()
    )
    states = capacity.burdens.setdefault((role, r.name), dict[float, Any]())
    state_of = capacity.predictor.prefill if role == PREFILL else capacity.predictor.decode
    part = _part(capacity, slo, index, role)

    def value(load: float) -> float:
        if load not in memory:
            try:
                if load not in states:
                    states[load] = state_of(r, load)
                memory[load] = load * part(states[load])
            except UnstableError:
                memory[load] = math.nan
        return float(memory[load])

    return value


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
