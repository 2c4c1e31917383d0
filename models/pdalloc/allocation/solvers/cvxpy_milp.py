"""The allocation problem in CVXPY, solved by HiGHS; :mod:`.cvxpy_scip` takes SCIP instead.

Constraints are labelled ``demand[role]``, ``stock[gpu]``, ``limit[role/type]`` and, where
replicas share a queue, ``one_size[role/type]`` and ``size[role/type]``, as in
:mod:`pdalloc.allocation.solvers.pyomo_milp`; the model is that of
:mod:`pdalloc.allocation.linear`; :mod:`pdalloc.allocation.rounds` makes it exact also for
SLOs that couple the stages.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdalloc.allocation.linear import COVERED, HIGHS_OPTIONS, SCIP_OPTIONS, Array, LinearData
from pdalloc.allocation.packages import require, silent
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.rounds import solve_in_rounds
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES

ENGINES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "HIGHS": ("highspy", HIGHS_OPTIONS),
    "SCIP": ("pyscipopt", {"scip_params": dict(SCIP_OPTIONS)}),
}
"""Package and options of each solver, by CVXPY's name for it."""


class CvxpyMilp:
    """Exact: gap 0, and every answer certified. ``engine`` as in ENGINES."""

    exact = True

    def __init__(self, name: str, engine: str, sentence: str) -> None:
        self.name, self.engine, self.sentence = name, engine, sentence

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The cheapest fleet that keeps every SLO; ``alternatives`` is ignored.

        Raises UnsupportedError without the packages it needs, or as
        :func:`~pdalloc.allocation.rounds.solve_in_rounds` does.
        """
        require(self.name, "cvxpy", ENGINES[self.engine][0])
        return solve_in_rounds(problem, self.name, lambda data: minimise(data, self.engine))


def minimise(data: LinearData, engine: str = "HIGHS") -> tuple[Array, float] | None:
    """(counts (n,), lower bound in USD/hour) of one MILP; None when it is infeasible."""
    problem, counts = model(data)
    optimise(problem, engine)
    if counts.value is None:
        if problem.status in ("infeasible", "infeasible_or_unbounded"):
            return None
        raise UnsupportedError(f"{engine} ended with {problem.status!r}; use --solver exact")
    return counts.value, proven_bound(problem, engine)


def optimise(problem: Any, engine: str, seconds: float = math.inf) -> None:
    """Solve a cvxpy.Problem in silence to gap 0, or for ``seconds``."""
    options = dict(ENGINES[engine][1])
    if seconds < math.inf and engine == "HIGHS":
        options["time_limit"] = seconds
    elif seconds < math.inf:
        options["scip_params"] = {**options["scip_params"], "limits/time": seconds}
    with silent(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": stopped at the time limit
        problem.solve(solver=engine, **options)


def proven_bound(problem: Any, engine: str) -> float:
    """The greatest lower bound on the cost that ``engine`` proved, USD/hour."""
    extra = problem.solver_stats.extra_stats
    return float(extra.mip_dual_bound if engine == "HIGHS" else extra["model"].getDualbound())


def model(data: LinearData) -> tuple[Any, Any]:
    """(cvxpy.Problem, expression of the counts (n,)) with labelled constraints."""
    cp: Any = importlib.import_module("cvxpy")  # its annotations miss half its names

    n = len(data.options)
    used = cp.Variable(n, integer=True, name="owned", bounds=[0, data.owned])
    bought = cp.Variable(n, integer=True, name="bought", bounds=[0, data.ceiling])
    counts = used + bought
    sizes = {
        j: cp.Variable(len(row), boolean=True, name=f"is_size[{data.labels[j]}]")
        for j, row in data.sizes.items()
    }
    rows = []
    for role in ROLES:
        i = data.apart(role)
        admitted = data.share[i] @ counts[i] if i else 0.0
        admitted += sum(data.sizes[j] @ sizes[j] for j in data.pooled(role))
        rows.append((admitted >= COVERED).set_label(f"demand[{role}]"))
    for j, chosen in sizes.items():
        rows.append((cp.sum(chosen) == 1).set_label(f"one_size[{data.labels[j]}]"))
        count = np.arange(len(data.sizes[j])) @ chosen
        rows.append((counts[j] == count).set_label(f"size[{data.labels[j]}]"))
    for gpu, held in data.stock.items():
        i = data.on_gpu(gpu)
        rows.append((data.gpus[i] @ counts[i] <= held).set_label(f"stock[{gpu}]"))
    for j in data.limited:
        rows.append((counts[j] <= data.most[j]).set_label(f"limit[{data.labels[j]}]"))
    rows += _condition_rows(data, counts)
    if data.cuts:
        rows += _cut_rows(data, counts)
    return cp.Problem(cp.Minimize(data.usd @ bought), rows), counts


def _condition_rows(data: LinearData, counts: Any) -> list[Any]:
    """Types that do not fit each other, and what covers the demand with replicas lost."""
    cp: Any = importlib.import_module("cvxpy")
    rows, names, n = [], data.labels, len(data.options)
    if data.misfits:
        is_used = cp.Variable(n, boolean=True, name="is_used")
        for i in data.picky:
            rows.append((counts[i] <= data.top[i] * is_used[i]).set_label(f"used[{names[i]}]"))
        for i, j in data.misfits:
            pair = f"{data.options[i].replica_type},{data.options[j].replica_type}"
            rows.append((is_used[i] + is_used[j] <= 1).set_label(f"compatible[{pair}]"))
    if data.redundancy:
        is_large = cp.Variable(n, boolean=True, name="is_large")
        left = cp.Variable(n, name="left_over", bounds=[0, data.top])
        rest = np.maximum(data.top - data.redundancy, 0.0)
        for i in data.at_risk:
            others = data.only(data.options[i].role, data.share)
            others[i] = 0.0
            still = others @ counts + data.share[i] * left[i]
            kept = left[i] <= counts[i] - data.redundancy * is_large[i]
            rows.append((still >= COVERED).set_label(f"redundancy[{names[i]}]"))
            rows.append(kept.set_label(f"left[{names[i]}]"))
            rows.append((left[i] <= rest[i] * is_large[i]).set_label(f"large[{names[i]}]"))
    return rows


def _cut_rows(data: LinearData, counts: Any) -> list[Any]:
    """Per cut k: decode counts above or below its own, or enough prefill beside them."""
    cp: Any = importlib.import_module("cvxpy")
    d, p = data.members(DECODE), data.members(PREFILL)
    at = np.array([cut.decode[d] for cut in data.cuts])
    share = np.array([cut.share[p] for cut in data.cuts])
    top = np.broadcast_to(data.top[d], at.shape)
    is_above = cp.Variable(at.shape, boolean=True, name="is_above")
    is_below = cp.Variable(at.shape, boolean=True, name="is_below")
    each = np.ones((len(at), 1)) @ cp.reshape(counts[d], (1, len(d)), order="C")
    differs = (is_above + is_below) @ np.ones(len(d))
    return [
        (each >= cp.multiply(at + 1, is_above)).set_label("above"),
        (each <= top - cp.multiply(top - at + 1, is_below)).set_label("below"),
        (share @ counts[p] + differs >= COVERED).set_label("coupled"),
    ]


SOLVER = CvxpyMilp("cvxpy", "HIGHS", "mixed-integer linear program in CVXPY, solved by HiGHS")
