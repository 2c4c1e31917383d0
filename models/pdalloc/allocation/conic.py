r"""The allocation problem over all requests as arrays: what conic backends are lowered from.

Of n replicas of type i, a are kept busy: together they serve :math:`\mu_i a` requests/s, mu what
a busy one serves. Delays of the family f + g y/(1 - y/mu) (:mod:`pdalloc.closed_forms.stages`:
M/M/1, M/G/1, batch law) make the traffic's share of an SLO's budget a sum of a line and of the
perspective q of a square, both convex together in n and a:

.. math::

    \min\; c^T b \quad \text{s.t.}\quad
    \texttt{demand[role]}: \sum_{i \in role} \mu_i a_i / \lambda \ge 1, \quad
    \texttt{slo[class/name]}: \sum_i \varphi_{ki} a_i + \kappa_{ki} q_i + z_{ki} \le 1,

    \texttt{idle[role/type]}: r_i = n_i - a_i, \quad
    \texttt{queue[role/type]}: a_i^2 \le q_i r_i, \quad
    \texttt{busy[role/type]}: a_i \le cap_i n_i,

    \texttt{tangent[class/name,role/type,j]}: s_j a_i + t_j n_i \le z_{ki},

:math:`\varphi = f \mu / (\lambda \tau)` and :math:`\kappa = g \mu^2 / (\lambda \tau)`, with stock
and limits as in :mod:`pdalloc.allocation.linear`. For M/M/1 it is the form
:math:`\sum_i n_i^2/(n_i - a_i) - n_i \le \lambda \tau`. Any other convex burden is what its
*tangents* leave below it (z); :mod:`pdalloc.allocation.conic_rounds` adds one where the answer
is, so that the optimum is that of the laws, and every round's a lower bound.

Over all requests no replica is busier than FULLEST, as in :mod:`pdalloc.allocation.population`.
``slo_scope: population`` asks every SLO so. Where each pool keeps the SLOs by itself, those of one
stage are in cap (and the problem is linear), those that span both stages are asked of all requests:
the same with one type per role, a relaxation with more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.linear import Array, LinearData, linear_data
from pdalloc.allocation.population.curves import (
    FULLEST,
    IDLE,
    budget,
    burden_of,
    on_one_latency,
)
from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES
from pdalloc.slo.interface import Objective
from pdalloc.slo.statistics import Mean

FAMILY = 1e-9
"""Relative error up to which a delay is of the family."""
TRIED = np.array([0.1, 0.3, 0.7, 0.9, 0.98])
"""Loads at which that is tried; the congestion is read off at half load."""
FIRST = (0.0, 0.3, 0.6, 0.8, 0.9, 0.96)
"""Loads of the first tangents."""
TOPS = (FULLEST, 0.99, 0.96, 0.9, 0.8)
"""Greatest loads that are tried: laws may have no numbers too near saturation."""
NOT_CONVEX = 1e-6
"""Relative noise of difference quotients that is put up with."""
STEP = 1e-4
"""Of a derivative, relative to the room left."""


@dataclass(frozen=True)
class Tangent:
    """Below the burden of option ``i`` on SLO ``k``: ``slope`` a + ``level`` n of its budget."""

    k: int
    i: int
    slope: float
    level: float

    @property
    def row(self) -> tuple[float, float, float]:
        """Coefficients of a, n and z, none above 1: solvers mind steep rows."""
        scale = max(1.0, abs(self.slope))
        return self.slope / scale, self.level / scale, 1.0 / scale


@dataclass(frozen=True)
class ConicData:
    """n options, K SLOs over all requests, prefill first.

    ``linear``: options, prices, stock and limits, with ``share`` of the demand per busy replica.
    ``slos`` (K,) by name; ``full`` (n,) requests/s of a busy replica; at most ``cap`` (n,) of the
    replicas are busy. ``work`` phi and ``queue`` kappa (K, n) are shares of a budget; ``curved``
    (K, n) is true where tangents stand in. ``relaxed``: more is asked of each pool than this.
    ``room`` (n,): the most whole replicas bought (real counts have no such box: stock and limits
    would lose their price to it).
    """

    linear: LinearData
    slos: tuple[str, ...]
    full: Array
    cap: Array
    work: Array
    queue: Array
    curved: NDArray[np.bool_]
    room: Array
    tangents: tuple[Tangent, ...] = ()
    relaxed: bool = False

    @property
    def queues(self) -> list[int]:
        """Indices of the options whose busy replicas make requests wait."""
        return [int(i) for i in np.flatnonzero(self.queue.any(axis=0))]

    @property
    def bends(self) -> list[tuple[int, int]]:
        """(SLO, option) that tangents stand in for."""
        return [(int(k), int(i)) for k, i in np.argwhere(self.curved)]

    @property
    def lines(self) -> dict[str, Tangent]:
        """The tangents by the indices of their rows: ``class/name,role/type,j``."""
        found: dict[str, Tangent] = {}
        for k, i in self.bends:
            of = f"{self.slos[k]},{self.linear.labels[i]}"
            own = [t for t in self.tangents if (t.k, t.i) == (k, i)]
            found |= {f"{of},{j}": t for j, t in enumerate(own)}
        return found


@dataclass(frozen=True)
class Burden:
    """Share of the budgets that one replica of an option makes at a load, by the laws.

    ``at(load)`` is (K,) with load in [0, 1), NaN where the laws end near saturation; ``first``
    (K,) is its slope at no load.
    """

    at: Callable[[float], Array]
    first: Array


def burdens_of(
    problem: AllocationProblem, o: Option, slos: Sequence[tuple[Objective, int]]
) -> Burden:
    """The burden of ``o`` on ``slos`` over all requests; UnsupportedError where none is known."""
    capacity, r = problem.capacity, problem.capacity.system.replica_types[o.replica_type]
    full = capacity.stability_limit(o.role, r)
    single = [(on_one_latency(slo), index) for slo, index in slos]
    curves = [burden_of(capacity, o.role, r, slo, index) for slo, index in single]
    budgets = problem.demand * np.array([budget(slo) for slo, _ in single])

    def at(load: float) -> Array:
        return np.array([curve(load * full) for curve in curves]) / budgets

    first = 2.0 * at(IDLE) / IDLE - at(2.0 * IDLE) / (2.0 * IDLE)
    return Burden(at, first)


def conic_data(problem: AllocationProblem, solver: str) -> tuple[ConicData, dict[int, Burden]]:
    """The arrays of ``problem``, headroom in its demand, and the burdens behind its tangents.

    The latter by index of the option. UnsupportedError names ``solver``.
    """
    capacity = problem.capacity
    slos = _over_all_requests(problem, solver)
    if not slos:
        linear = linear_data(problem)
        n, none = len(linear.options), np.zeros((0, len(linear.options)))
        full = linear.share * problem.demand
        curved, room = none.astype(bool), linear.ceiling
        return ConicData(linear, (), full, np.ones(n), none, none, curved, room), {}
    types = capacity.system.replica_types
    options = tuple(o for role in ROLES for o in problem.in_role(role))
    full = np.array([capacity.stability_limit(o.role, types[o.replica_type]) for o in options])
    cap, none = np.full(len(options), FULLEST), np.zeros((len(slos), len(options)))
    several = any(len(problem.in_role(role)) > 1 for role in ROLES)
    if problem.slo_scope == "pool":
        cap = np.minimum(cap, np.array([problem.rate(o) for o in options]) / full)
    linear = linear_data(problem, full / problem.demand)
    data = ConicData(
        linear,
        tuple(f"{slo.traffic_class}/{slo.name}" for slo, _ in slos),
        full,
        cap,
        none,
        none,
        none.astype(bool),
        linear.ceiling,
        relaxed=problem.slo_scope == "pool" and several,
    )
    burdens = {i: burdens_of(problem, o, slos) for i, o in enumerate(options)}
    for i, burden in burdens.items():
        data = _with_burden(data, i, burden)
    for k, i in data.bends:
        slopes = np.array([t.slope for t in data.tangents if (t.k, t.i) == (k, i)])
        if np.any(np.diff(slopes) < -NOT_CONVEX * np.abs(slopes[1:])):
            raise UnsupportedError(not_convex(data, k, i, solver))
    return data, {i: burdens[i] for _, i in data.bends}


def not_convex(data: ConicData, k: int, i: int, solver: str) -> str:
    """That tangents of option ``i`` on SLO ``k`` would cut off what works, in one line."""
    return (
        f"solver {solver!r}: the burden of {data.linear.labels[i]} on {data.slos[k]} is not "
        "convex; use --solver exact"
    )


def _over_all_requests(problem: AllocationProblem, solver: str) -> list[tuple[Objective, int]]:
    """The SLOs, with their classes, that are asked of all requests; refuses what is not convex."""
    capacity = problem.capacity
    if problem.conditioned:
        raise UnsupportedError(
            f"solver {solver!r} knows neither redundancy nor compatible types; use --solver exact"
        )
    if any(capacity.pooled(role) for role in ROLES):
        raise UnsupportedError(
            f"solver {solver!r} knows dispatch: random: pools that share a queue have no "
            "fractions; use --solver exact"
        )
    if problem.slo_scope == "population":
        return list(capacity.slo_classes)
    if not capacity.coupled:
        return []
    found = [(slo, index) for slo, index in capacity.slo_classes if capacity.spans(slo)]
    for slo, _ in found:
        if not isinstance(getattr(slo, "statistic", None), Mean):
            raise UnsupportedError(
                f"solver {solver!r} adds up means over both stages, not {slo.name}; "
                "use --solver exact"
            )
    return found


def _with_burden(data: ConicData, i: int, burden: Burden) -> ConicData:
    """``data`` with the burden of option ``i``: a cone where it is of the family, or tangents."""
    work, queue, cap = data.work.copy(), data.queue.copy(), data.cap.copy()
    curved = data.curved.copy()
    family, tangents = _family(burden), list[Tangent]()
    work[:, i] = burden.first
    if family is not None:
        queue[:, i] = family
    else:
        bent = ~(np.abs(burden.at(0.5) - 0.5 * burden.first) <= FAMILY * burden.first)
        work[bent, i], curved[bent, i] = 0.0, True
        cap[i] = min(cap[i], _fullest(burden))
        for u in FIRST:
            if u <= cap[i]:
                tangents += tangents_at(burden, i, np.flatnonzero(bent), u)
    tangents = [*data.tangents, *tangents]
    return replace(data, work=work, queue=queue, curved=curved, cap=cap, tangents=tuple(tangents))


def _fullest(burden: Burden) -> float:
    """The greatest load of TOPS with numbers."""
    for u in TOPS:
        if np.isfinite(burden.at(u + STEP * (1.0 - u))).all():
            return u
    raise UnsupportedError(f"no law has numbers at a load of {TOPS[-1]}; use --solver exact")


def _family(burden: Burden) -> Array | None:
    """kappa (K,) with burden = phi u + kappa u^2/(1 - u); None where some is not of that form."""
    kappa = (burden.at(0.5) - 0.5 * burden.first) * 2.0
    kappa = np.where(np.abs(kappa) <= FAMILY * burden.first, 0.0, kappa)
    for u in TRIED:
        there = burden.at(float(u))
        error = np.abs(burden.first * u + kappa * u * u / (1.0 - u) - there)
        if not np.all(error <= FAMILY * there):
            return None
    return kappa if np.all(kappa >= 0.0) else None


def tangents_at(burden: Burden, i: int, slos: Iterable[int], u: float) -> list[Tangent]:
    """Tangents of the burden of option ``i`` on ``slos`` at load ``u``, where there are laws."""
    value, slope = np.zeros_like(burden.first), burden.first
    if u > 0.0:
        h = min(STEP * (1.0 - u), u)
        slope = (burden.at(u + h) - burden.at(u - h)) / (2.0 * h)
        value = burden.at(u)
    return [Tangent(int(k), i, float(slope[k]), float(value[k] - slope[k] * u)) for k in slos]
