"""The allocation problem in CVXPY, solved by HiGHS.

Constraints are labelled ``demand[role]``, ``stock[gpu]``, ``limit[role/type]`` and, where
replicas share a queue, ``one_size[role/type]`` and ``size[role/type]``, as in
:mod:`pdalloc.allocation.solvers.pyomo_milp`; the model is that of
:mod:`pdalloc.allocation.linear`; :mod:`pdalloc.allocation.rounds` makes it exact also for
SLOs that couple the stages.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pdalloc.allocation.linear import COVERED, HIGHS_OPTIONS, Array, LinearData
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
    with silent():
        problem.solve(solver="HIGHS", **HIGHS_OPTIONS)
    if counts.value is None:
        if problem.status in ("infeasible", "infeasible_or_unbounded"):
            return None
        raise UnsupportedError(f"HiGHS ended with {problem.status!r}; use --solver exact")
    return counts.value, float(problem.solver_stats.extra_stats.mip_dual_bound)


@contextmanager
def silent() -> Iterator[None]:
    """Keep HiGHS's banner, printed below Python, out of this process's output."""
    sys.stdout.flush()
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)


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
    if data.cuts:
        rows += _cut_rows(data, counts)
    return cp.Problem(cp.Minimize(data.usd @ bought), rows), counts


def _cut_rows(data: LinearData, counts: Any) -> list[Any]:
    """Per cut k: decode counts above or below its own, or enough prefill beside them."""
    cp: Any = importlib.import_module("cvxpy")
    d, p = data.members(DECODE), data.members(PREFILL)
    at = np.array([cut.decode[d] for cut in data.cuts])
    share = np.array([cut.share[p] for cut in data.cuts])
    top = np.broadcast_to((data.owned + data.ceiling)[d], at.shape)
    is_above = cp.Variable(at.shape, boolean=True, name="is_above")
    is_below = cp.Variable(at.shape, boolean=True, name="is_below")
    each = np.ones((len(at), 1)) @ cp.reshape(counts[d], (1, len(d)), order="C")
    differs = (is_above + is_below) @ np.ones(len(d))
    return [
        (each >= cp.multiply(at + 1, is_above)).set_label("above"),
        (each <= top - cp.multiply(top - at + 1, is_below)).set_label("below"),
        (share @ counts[p] + differs >= COVERED).set_label("coupled"),
    ]


SOLVER = CvxpyMilp()
