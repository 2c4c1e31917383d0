"""The same instance through HiGHS and SCIP in both modelling languages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from pdalloc.allocation.linear import LinearData
from pdalloc.allocation.solvers import cvxpy_milp, pyomo_milp

Outcome = tuple[float, float, float]
"""USD/hour of the best fleet (inf: none), proven bound (NaN: not told), wall seconds."""


def _cvxpy(engine: str, data: LinearData, limit: float) -> Outcome:
    started = time.perf_counter()
    problem, _ = cvxpy_milp.model(data)
    cvxpy_milp.optimise(problem, engine, limit)
    seconds = time.perf_counter() - started
    if problem.value is None:
        return math.inf, math.nan, seconds
    return float(problem.value), cvxpy_milp.proven_bound(problem, engine), seconds


def _pyomo(engine: str, data: LinearData, limit: float) -> Outcome:
    started = time.perf_counter()
    results = pyomo_milp.optimise(pyomo_milp.model(data), engine, limit)
    seconds = time.perf_counter() - started
    found = results.incumbent_objective
    return math.inf if found is None else float(found), float(results.objective_bound), seconds


RIVALS: dict[str, Callable[[LinearData, float], Outcome]] = {
    "cvxpy_highs": partial(_cvxpy, "HIGHS"),
    "cvxpy_scip": partial(_cvxpy, "SCIP"),
    "pyomo_highs": partial(_pyomo, "highs"),
    "pyomo_scip": partial(_pyomo, "scip_direct"),
}
