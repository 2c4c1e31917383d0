"""The allocation problem in CVXPY, solved by SCIP: the model of :mod:`.cvxpy_milp`."""

from __future__ import annotations

from pdalloc.allocation.solvers.cvxpy_milp import CvxpyMilp

SOLVER = CvxpyMilp("cvxpy_scip", "SCIP", "mixed-integer linear program in CVXPY, solved by SCIP")
