"""The continuous relaxation in CVXPY, solved by Clarabel, with duals.

Constraints are labelled as :mod:`pdalloc.allocation.conic` names them, and as
:mod:`pdalloc.allocation.solvers.pyomo_misocp` does; with whole counts the same model is that of
:mod:`pdalloc.allocation.solvers.cvxpy_misocp`.
"""

from __future__ import annotations

import importlib
import math
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from pdalloc.allocation.conic import ConicData
from pdalloc.allocation.conic_rounds import Point, solve_relaxation
from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.packages import require
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES

TOLERANCES = ((1e-13, 1e-9), (1e-11, 1e-9), (1e-9, 1e-7), (1e-8, 1e-6))
"""Of gap and feasibility, aimed at and put up with; later ones where tangents lie close together.

Prices are only as accurate as the root of the gap.
"""
SAFE = 10.0
"""As many times the tolerance put up with, relative, are taken off the bound."""


class CvxpyRelaxation:
    """A lower bound and prices; its fleet, rounded up, is a baseline and minds stock and limits."""

    name = "cvxpy_relaxation"
    exact = False
    sentence = "fractional replicas by a conic program (Clarabel): a bound and prices, rounded up"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The bound, fractions and prices, and a fleet; ``alternatives`` is ignored.

        Raises UnsupportedError without the packages cvxpy and clarabel, or as
        :func:`~pdalloc.allocation.conic_rounds.solve_relaxation` does.
        """
        require(self.name, "cvxpy", "clarabel")
        return solve_relaxation(problem, self.name, minimise)


def minimise(data: ConicData) -> Point | None:
    """The relaxation's optimum with its duals; None when it is infeasible."""
    problem, counts, busy = model(data, integer=False)
    tolerance = _optimise(problem)
    if tolerance is None:
        return None
    duals = {
        str(c.label): float(np.sum(c.dual_value))
        for c in problem.constraints
        if not str(c.label).startswith("queue")
    }
    bound = float(problem.value)
    return Point(counts.value, busy.value, bound - SAFE * tolerance * abs(bound), duals)


def _optimise(problem: Any) -> float | None:
    """The tolerance to which Clarabel solved ``problem``; None when it is infeasible."""
    cp: Any = importlib.import_module("cvxpy")
    for aim, least in TOLERANCES:
        kinds = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        options = dict.fromkeys(kinds, aim) | {f"reduced_{kind}": least for kind in kinds}
        with warnings.catch_warnings(), suppress(cp.error.SolverError):
            warnings.simplefilter("ignore")  # "may be inaccurate": as accurate as ``least``
            problem.solve(solver="CLARABEL", **options)
        if problem.status in ("optimal", "optimal_inaccurate"):
            return least
        if problem.status == "infeasible":
            return None
    raise UnsupportedError(f"Clarabel ended with {problem.status!r}; use --solver exact")


def model(data: ConicData, integer: bool) -> tuple[Any, Any, Any]:
    """(cvxpy.Problem, counts (n,), busy (n,)) with labelled constraints."""
    cp: Any = importlib.import_module("cvxpy")  # its annotations miss half its names
    linear, n = data.linear, len(data.linear.options)
    room = data.room if integer else np.full(n, math.inf)
    used = cp.Variable(n, integer=integer, name="owned", bounds=[0, linear.owned])
    bought = cp.Variable(n, integer=integer, name="bought", bounds=[0, room])
    busy = cp.Variable(n, nonneg=True, name="busy")
    counts = used + bought
    rows: list[Any] = []
    for role in ROLES:
        i = linear.members(role)
        served: Any = linear.share[i] @ busy[i] if i else 0.0
        rows.append((served >= COVERED).set_label(f"demand[{role}]"))
    for gpu, held in linear.stock.items():
        i = linear.on_gpu(gpu)
        rows.append((linear.gpus[i] @ counts[i] <= held).set_label(f"stock[{gpu}]"))
    for j in linear.limited:
        rows.append((counts[j] <= linear.most[j]).set_label(f"limit[{linear.labels[j]}]"))
    for j, label in enumerate(linear.labels):
        rows.append((busy[j] <= data.cap[j] * counts[j]).set_label(f"busy[{label}]"))
    rows += _slo_rows(data, counts, busy)
    return cp.Problem(cp.Minimize(linear.usd @ bought), rows), counts, busy


def _slo_rows(data: ConicData, counts: Any, busy: Any) -> list[Any]:
    """Every SLO over all requests: lines, cones and tangents together within its budget."""
    cp: Any = importlib.import_module("cvxpy")
    rows: list[Any] = []
    labels = data.linear.labels
    total = [data.work[k] @ busy for k in range(len(data.slos))]
    if data.queues:
        wait = cp.Variable(len(data.queues), nonneg=True, name="wait")
        idle = cp.Variable(len(data.queues), nonneg=True, name="idle")
        for at, i in enumerate(data.queues):
            rows.append((idle[at] == counts[i] - busy[i]).set_label(f"idle[{labels[i]}]"))
            cone = cp.quad_over_lin(busy[i], idle[at]) <= wait[at]
            rows.append(cone.set_label(f"queue[{labels[i]}]"))
        total = [t + data.queue[k, data.queues] @ wait for k, t in enumerate(total)]
    if data.bends:
        bend = cp.Variable(len(data.bends), nonneg=True, name="bend")
        at_of = {pair: at for at, pair in enumerate(data.bends)}
        for (k, _), at in at_of.items():
            total[k] += bend[at]
        for name, t in data.lines.items():
            slope, level, one = t.row
            line = slope * busy[t.i] + level * counts[t.i]
            rows.append((line <= one * bend[at_of[t.k, t.i]]).set_label(f"tangent[{name}]"))
    for k, name in enumerate(data.slos):
        rows.append((total[k] <= 1.0).set_label(f"slo[{name}]"))
    return rows


SOLVER = CvxpyRelaxation()
