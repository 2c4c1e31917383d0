"""The continuous relaxation in Pyomo, solved by an ipopt-compatible program where one is there.

The model is that of :mod:`pdalloc.allocation.solvers.pyomo_misocp` without whole counts, and with
the cones as ratios: where a type is hardly used, a product a^2 <= q (n - a) holds within any
tolerance. An interior point is not a proof: the bound is the optimum less its tolerance.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pdalloc.allocation.conic import ConicData
from pdalloc.allocation.conic_rounds import Point, solve_relaxation
from pdalloc.allocation.packages import require, silent
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers.pyomo_misocp import model, point_of
from pdalloc.errors import UnsupportedError

TOLERANCES = (1e-9, 1e-7)
"""Of optimality: the first that is reached (tangents may lie close together)."""
PROGRAMS = ("ipopt", "pounce")
NEAR = 1e-6
"""Excess over a budget, relative, at which no more tangents are asked for."""
SAFE = 1e-6
"""Relative accuracy of the optimum (variable bounds are relaxed by 1e-8), taken off the bound."""


class PyomoIpopt:
    """A lower bound; its fleet, rounded up, is a baseline and minds stock and limits."""

    name = "pyomo_ipopt"
    exact = False
    sentence = "fractional replicas by a nonlinear program (Pyomo, ipopt): a bound, rounded up"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The bound, fractions and prices, and a fleet; ``alternatives`` is ignored.

        Raises UnsupportedError without the package pyomo or a program called ``ipopt``, or as
        :func:`~pdalloc.allocation.conic_rounds.solve_relaxation` does.
        """
        require(self.name, "pyomo")
        if program() is None:
            raise UnsupportedError(
                f"solver {self.name!r} needs one of the programs {', '.join(PROGRAMS)}: pip "
                "install pounce-solver brings one"
            )
        return solve_relaxation(problem, self.name, minimise, NEAR)


def program() -> str | None:
    """Path of an ipopt-compatible program, also beside this Python's own; None without one."""
    places = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    return next((found for name in PROGRAMS if (found := shutil.which(name, path=places))), None)


def minimise(data: ConicData) -> Point | None:
    """The relaxation's optimum with its duals; None when it is infeasible."""
    import pyomo.environ as pyo
    from pyomo.opt import TerminationCondition as End

    m = as_ratios(model(data, integer=False), data)
    m.dual = pyo.Suffix(direction=pyo.Suffix.IMPORT)
    ipopt = pyo.SolverFactory("ipopt", executable=program())
    for tolerance in TOLERANCES:
        _start(m, data)
        options = {"tol": tolerance, "acceptable_tol": tolerance, "constr_viol_tol": tolerance}
        with silent():
            results = ipopt.solve(m, options=options, load_solutions=False)
        end = results.solver.termination_condition
        if end == End.infeasible:
            return None
        if end == End.optimal:
            break
    else:
        raise UnsupportedError(f"ipopt ended with {str(end)!r}; use --solver cvxpy_relaxation")
    m.solutions.load_from(results)
    rows = m.component_data_objects(pyo.Constraint)
    # Pyomo quotes an index with a dot in it
    duals = {c.name.replace("'", ""): abs(float(m.dual.get(c, 0.0))) for c in rows}
    counts, busy = point_of(m, data)
    bound = float(pyo.value(m.cost))
    return Point(counts, busy, bound - SAFE * abs(bound), duals)


def as_ratios(m: Any, data: ConicData) -> Any:
    """``m`` with every cone as wait >= busy^2/idle: ipopt keeps idle positive."""
    import pyomo.environ as pyo

    m.del_component(m.queue)
    m.queue = pyo.Constraint(
        [data.linear.labels[i] for i in data.queues],
        rule=lambda m, x: m.busy_count[x] ** 2 / m.idle_count[x] <= m.wait[x],
    )
    return m


def _start(m: Any, data: ConicData) -> None:
    """Every type at a quarter of its load, twice as many as the demand asks for."""
    for i, x in enumerate(data.linear.labels):
        m.owned[x].value = 0.0
        m.bought[x].value = min(2.0 / max(float(data.linear.share[i]), 1e-5), m.bought[x].ub)
        m.busy_count[x].value = 0.25 * m.bought[x].value
    for x in m.idle_count:
        m.idle_count[x].value = 0.75 * m.bought[x].value


SOLVER = PyomoIpopt()
