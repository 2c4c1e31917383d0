"""The allocation problem in CVXPY, solved by HiGHS.

Constraints are labelled ``demand[role]``, ``stock[gpu]`` and ``limit[role/type]``, as in
:mod:`pdalloc.allocation.solvers.pyomo_milp`; the model is that of
:mod:`pdalloc.allocation.linear`; :mod:`pdalloc.allocation.rounds` makes it exact also for
SLOs that couple the stages.
"""

from __future__ import annotations

from typing import Any

from pdalloc.allocation.linear import COVERED, HIGHS_OPTIONS, Array, Cut, LinearData
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.rounds import solve_in_rounds
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES


class CvxpyMilp:
    """Exact: gap 0, and every answer certified."""

    name = "cvxpy"
    exact = True
    sentence = "mixed-integer linear program in CVXPY, solved by HiGHS"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The cheapest fleet that keeps every SLO; ``alternatives`` is ignored.

        Raises UnsupportedError without the packages cvxpy and highspy, or as
        :func:`~pdalloc.allocation.rounds.solve_in_rounds` does.
        """
        try:
            import cvxpy  # noqa: F401
            import highspy  # noqa: F401
        except ImportError as error:
            raise UnsupportedError(
                f"solver 'cvxpy' needs the package {error.name}: pip install cvxpy highspy"
            ) from None
        return solve_in_rounds(problem, self.name, minimise)


def minimise(data: LinearData) -> tuple[Array, float] | None:
    """(counts (n,), lower bound in USD/hour) of one MILP; None when it is infeasible."""
    problem, counts = model(data)
    problem.solve(solver="HIGHS", **HIGHS_OPTIONS)
    if counts.value is None:
        if problem.status in ("infeasible", "infeasible_or_unbounded"):
            return None
        raise UnsupportedError(f"HiGHS ended with {problem.status!r}; use --solver exact")
    return counts.value, float(problem.solver_stats.extra_stats.mip_dual_bound)


def model(data: LinearData) -> tuple[Any, Any]:
    """(cvxpy.Problem, expression of the counts (n,)) with labelled constraints."""
    import cvxpy as cp

    n = len(data.options)
    used = cp.Variable(n, integer=True, name="owned", bounds=[0, data.owned])
    bought = cp.Variable(n, integer=True, name="bought", bounds=[0, data.ceiling])
    counts = used + bought
    rows = []
    for role in ROLES:
        i = data.members(role)
        rows.append((data.share[i] @ counts[i] >= COVERED).set_label(f"demand[{role}]"))
    for gpu, held in data.stock.items():
        i = data.on_gpu(gpu)
        rows.append((data.gpus[i] @ counts[i] <= held).set_label(f"stock[{gpu}]"))
    for j in data.limited:
        rows.append((counts[j] <= data.most[j]).set_label(f"limit[{data.labels[j]}]"))
    for k, cut in enumerate(data.cuts):
        rows += _cut_rows(data, counts, cut, k)
    return cp.Problem(cp.Minimize(data.usd @ bought), rows), counts


def _cut_rows(data: LinearData, counts: Any, cut: Cut, k: int) -> list[Any]:
    """Decode counts above or below those of ``cut``, or enough prefill beside them."""
    import cvxpy as cp

    d, p = data.members(DECODE), data.members(PREFILL)
    at, top = cut.decode[d], (data.owned + data.ceiling)[d]
    above = cp.Variable(len(d), boolean=True, name=f"above{k}")
    below = cp.Variable(len(d), boolean=True, name=f"below{k}")
    differs = cp.sum(above) + cp.sum(below)
    return [
        (counts[d] >= cp.multiply(at + 1, above)).set_label(f"above[{k}]"),
        (counts[d] <= top - cp.multiply(top - at + 1, below)).set_label(f"below[{k}]"),
        (cut.share[p] @ counts[p] + differs >= COVERED).set_label(f"coupled[{k}]"),
    ]


SOLVER = CvxpyMilp()
