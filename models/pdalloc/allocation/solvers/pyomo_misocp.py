"""Whole replicas under SLOs over all requests: a mixed-integer conic program, Pyomo and SCIP.

Constraints are named as :mod:`pdalloc.allocation.conic` has them and as
:mod:`pdalloc.allocation.solvers.cvxpy_relaxation` labels them; ``queue`` is a rotated cone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pdalloc.allocation.conic import ConicData
from pdalloc.allocation.conic_rounds import Point, solve_integer
from pdalloc.allocation.covers import MOST_REPLICAS
from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.packages import require
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers.pyomo_milp import counts_of, optimise
from pdalloc.fleet import ROLES


class PyomoMisocp:
    """Exact: gap 0, and every answer certified on the laws."""

    name = "pyomo_misocp"
    exact = True
    sentence = "mixed-integer conic program in Pyomo (SCIP): SLOs over all requests, shared means"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The cheapest fleet that keeps every SLO; ``alternatives`` is ignored.

        Raises UnsupportedError without the packages pyomo and pyscipopt, or as
        :func:`~pdalloc.allocation.conic_rounds.solve_integer` does.
        """
        require(self.name, "pyomo", "pyscipopt")
        return solve_integer(problem, self.name, minimise)


def minimise(data: ConicData) -> Point | None:
    """The optimum with whole counts; None when it is infeasible."""
    m = model(data, integer=True)
    results = optimise(m, "scip_direct")
    if results is None:
        return None
    counts, busy = point_of(m, data)
    return Point(counts.round(), busy, float(results.objective_bound))


def point_of(m: Any, data: ConicData) -> tuple[Any, Any]:
    """(counts (n,), busy (n,)) of a solved model."""
    import pyomo.environ as pyo

    labels = data.linear.labels
    return counts_of(m, labels), np.array([pyo.value(m.busy_count[x]) for x in labels])


def model(data: ConicData, integer: bool) -> Any:
    """The pyomo.ConcreteModel of ``data``; ``count[role/type]`` holds the replicas."""
    import pyomo.environ as pyo

    linear, labels = data.linear, data.linear.labels
    of, domain = {x: i for i, x in enumerate(labels)}, pyo.Integers if integer else pyo.Reals
    room = data.room if integer else np.full(len(labels), MOST_REPLICAS)
    m = pyo.ConcreteModel(name="conic_allocation")
    m.owned = pyo.Var(labels, domain=domain, bounds=lambda _, x: (0, float(linear.owned[of[x]])))
    m.bought = pyo.Var(labels, domain=domain, bounds=lambda _, x: (0, float(room[of[x]])))
    m.busy_count = pyo.Var(labels, domain=pyo.NonNegativeReals)
    m.count = pyo.Expression(labels, rule=lambda m, x: m.owned[x] + m.bought[x])
    m.cost = pyo.Objective(expr=sum(float(linear.usd[of[x]]) * m.bought[x] for x in labels))

    def served(m: Any, role: str) -> Any:
        i = linear.members(role)
        return sum(float(linear.share[j]) * m.busy_count[labels[j]] for j in i) >= COVERED

    def stocked(m: Any, gpu: str) -> Any:
        used = sum(float(linear.gpus[i]) * m.count[labels[i]] for i in linear.on_gpu(gpu))
        return used <= linear.stock[gpu]

    m.demand = pyo.Constraint(ROLES, rule=served)
    m.stock = pyo.Constraint(list(linear.stock), rule=stocked)
    m.limit = pyo.Constraint(
        [labels[i] for i in linear.limited],
        rule=lambda m, x: m.count[x] <= float(linear.most[of[x]]),
    )
    m.busy = pyo.Constraint(
        labels, rule=lambda m, x: m.busy_count[x] <= float(data.cap[of[x]]) * m.count[x]
    )
    _add_slos(m, data)
    return m


def _add_slos(m: Any, data: ConicData) -> None:
    """Every SLO over all requests: lines, cones and tangents together within its budget."""
    import pyomo.environ as pyo

    labels = data.linear.labels
    queues = {labels[i]: i for i in data.queues}
    m.wait = pyo.Var(list(queues), domain=pyo.NonNegativeReals)
    m.bend = pyo.Var(data.bends, domain=pyo.NonNegativeReals)
    # SCIP misjudges the cone (13.66 where 12.06 is feasible) unless idle is a variable of its own
    m.idle_count = pyo.Var(list(queues), domain=pyo.NonNegativeReals)
    m.idle = pyo.Constraint(
        list(queues), rule=lambda m, x: m.idle_count[x] == m.count[x] - m.busy_count[x]
    )
    m.queue = pyo.Constraint(
        list(queues), rule=lambda m, x: m.busy_count[x] ** 2 <= m.wait[x] * m.idle_count[x]
    )

    def tangent(m: Any, name: str) -> Any:
        t = data.lines[name]
        (slope, level, one), x = t.row, labels[t.i]
        return slope * m.busy_count[x] + level * m.count[x] <= one * m.bend[t.k, t.i]

    def within(m: Any, name: str) -> Any:
        k = data.slos.index(name)
        total = sum(float(w) * m.busy_count[x] for w, x in zip(data.work[k], labels, strict=True))
        total += sum(float(data.queue[k, i]) * m.wait[x] for x, i in queues.items())
        return total + sum(m.bend[pair] for pair in data.bends if pair[0] == k) <= 1.0

    m.tangent = pyo.Constraint(list(data.lines), rule=tangent)
    m.slo = pyo.Constraint(list(data.slos), rule=within)


SOLVER = PyomoMisocp()
