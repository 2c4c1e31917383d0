"""The same instance through HiGHS and SCIP in both modelling languages."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

from pdalloc.allocation.linear import LinearData
from pdalloc.allocation.solvers import cvxpy_milp, pyomo_milp

Outcome = tuple[float, float, float]
"""USD/hour of the best fleet (inf: none), proven bound (NaN: not told), wall seconds."""


def cvxpy_highs(data: LinearData, limit: float) -> Outcome:
    return _cvxpy(data, solver="HIGHS", mip_rel_gap=0.0, mip_abs_gap=0.0, time_limit=limit)


def cvxpy_scip(data: LinearData, limit: float) -> Outcome:
    return _cvxpy(data, solver="SCIP", scip_params={"limits/time": limit, "limits/gap": 0.0})


def pyomo_highs(data: LinearData, limit: float) -> Outcome:
    return _pyomo(data, "highs", limit)


def pyomo_scip(data: LinearData, limit: float) -> Outcome:
    return _pyomo(data, "scip_direct", limit)


RIVALS: dict[str, Callable[[LinearData, float], Outcome]] = {
    "cvxpy_highs": cvxpy_highs,
    "cvxpy_scip": cvxpy_scip,
    "pyomo_highs": pyomo_highs,
    "pyomo_scip": pyomo_scip,
}


def _cvxpy(data: LinearData, **options: Any) -> Outcome:
    started = time.perf_counter()
    problem, _ = cvxpy_milp.model(data)
    with warnings.catch_warnings(), cvxpy_milp.silent():
        warnings.simplefilter("ignore")  # "may be inaccurate": stopped at the time limit
        problem.solve(**options)
    seconds = time.perf_counter() - started
    cost = float(problem.value) if problem.value is not None else math.inf
    return cost, cost if problem.status == "optimal" else math.nan, seconds


def _pyomo(data: LinearData, name: str, limit: float) -> Outcome:
    from pyomo.contrib.solver.common.factory import SolverFactory

    started = time.perf_counter()
    model = pyomo_milp.model(data)
    results = SolverFactory(name).solve(
        model,
        time_limit=limit,
        rel_gap=0.0,
        raise_exception_on_nonoptimal_result=False,
        load_solutions=False,
    )
    seconds = time.perf_counter() - started
    found = results.incumbent_objective
    return math.inf if found is None else float(found), float(results.objective_bound), seconds
