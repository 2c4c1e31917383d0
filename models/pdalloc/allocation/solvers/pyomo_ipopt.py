"""The continuous relaxation in Pyomo, solved by an ipopt-compatible program where one is there.

The model is that of :mod:`pdalloc.allocation.solvers.pyomo_misocp` without whole counts. An
interior point is not a proof: the bound is what the optimum says less its tolerance.
"""

from __future__ import annotations

from typing import Any

from pdalloc.allocation.conic import ConicData
from pdalloc.allocation.conic_rounds import Point, solve_relaxation
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.rounds import require
from pdalloc.allocation.solvers.pyomo_misocp import model, point_of
from pdalloc.errors import UnsupportedError

IPOPT_OPTIONS = {"tol": 1e-9, "constr_viol_tol": 1e-10, "acceptable_tol": 1e-9}
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
        if not _ipopt().available(exception_flag=False):
            raise UnsupportedError(
                f"solver {self.name!r} needs a program 'ipopt' on the path: pip install "
                "pounce-solver brings one"
            )
        return solve_relaxation(problem, self.name, minimise)


def _ipopt() -> Any:
    import pyomo.environ as pyo

    return pyo.SolverFactory("ipopt")


def minimise(data: ConicData) -> Point | None:
    """The relaxation's optimum; None when it is infeasible."""
    import pyomo.environ as pyo
    from pyomo.opt import TerminationCondition as End

    m = model(data, integer=False)
    for x, i in zip(data.linear.labels, range(len(data.full)), strict=True):
        start = 2.0 / max(float(data.linear.share[i]), 1e-5)
        m.bought[x].value, m.owned[x].value = min(start, m.bought[x].ub), 0.0
        m.busy_count[x].value = 0.25 * m.bought[x].value
    results = _ipopt().solve(m, options=IPOPT_OPTIONS, load_solutions=False)
    end = results.solver.termination_condition
    if end == End.infeasible:
        return None
    if end != End.optimal:
        raise UnsupportedError(f"ipopt ended with {str(end)!r}; use --solver cvxpy_relaxation")
    m.solutions.load_from(results)
    counts, busy = point_of(m, data)
    bound = float(pyo.value(m.cost))
    return Point(counts, busy, bound - SAFE * abs(bound))


SOLVER = PyomoIpopt()
