"""The allocation problem in Pyomo, solved by SCIP: the model of :mod:`.pyomo_milp`."""

from __future__ import annotations

from pdalloc.allocation.solvers.pyomo_milp import PyomoMilp

SOLVER = PyomoMilp(
    "pyomo_scip", "scip_direct", "mixed-integer linear program in Pyomo, solved by SCIP"
)
