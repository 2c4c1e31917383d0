"""Whole replicas under SLOs over all requests: a mixed-integer conic program, CVXPY and SCIP.

The model is that of :mod:`pdalloc.allocation.solvers.cvxpy_relaxation` with whole counts. A raw
ratio n^2/(n - a) instead of its cones is wrong in SCIP (119.7 where the optimum is 134.2).
"""

from __future__ import annotations

from pdalloc.allocation.conic import ConicData
from pdalloc.allocation.conic_rounds import Point, solve_integer
from pdalloc.allocation.packages import require
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers.cvxpy_milp import optimise, proven_bound
from pdalloc.allocation.solvers.cvxpy_relaxation import model
from pdalloc.errors import UnsupportedError


class CvxpyMisocp:
    """Exact: gap 0, and every answer certified on the laws."""

    name = "cvxpy_misocp"
    exact = True
    sentence = "mixed-integer conic program in CVXPY (SCIP): SLOs over all requests, shared means"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The cheapest fleet that keeps every SLO; ``alternatives`` is ignored.

        Raises UnsupportedError without the packages cvxpy and pyscipopt, or as
        :func:`~pdalloc.allocation.conic_rounds.solve_integer` does.
        """
        require(self.name, "cvxpy", "pyscipopt")
        return solve_integer(problem, self.name, minimise)


def minimise(data: ConicData) -> Point | None:
    """The optimum with whole counts; None when it is infeasible."""
    problem, counts, busy = model(data, integer=True)
    optimise(problem, "SCIP")
    if counts.value is None:
        if problem.status in ("infeasible", "infeasible_or_unbounded"):
            return None
        raise UnsupportedError(f"SCIP ended with {problem.status!r}; use --solver exact")
    return Point(counts.value.round(), busy.value, proven_bound(problem, "SCIP"))


SOLVER = CvxpyMisocp()
