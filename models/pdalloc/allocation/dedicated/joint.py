r"""Linear parts together: one integer program over parts, roles and types, by HiGHS.

n_{q,i} replicas of option i for part q, b_i of them bought:

.. math:: \min\; c^T b \quad\text{s.t.}\quad
          \texttt{demand[part/role]}: \sum_{i \in role} \kappa_{q,i} n_{q,i} / \lambda_q \ge 1,
          \quad \texttt{bought[role/type]}: \sum_q n_{q,i} - b_i \le o_i, \\
          \texttt{stock[gpu]}: \sum_{q,\, g(i) = gpu} k_i n_{q,i} \le stock_{gpu}, \quad
          \texttt{limit[role/type]}: \sum_q n_{q,i} \le most_i .

HiGHS keeps rows to an absolute tolerance of 1e-6 only. Demand rows are in hundredths of the
demand, and the rates are taken once a little smaller and once a little larger (LEEWAY), as in
:mod:`pdalloc.allocation.solvers.exact`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pdalloc.allocation.covers import SHORTFALL
from pdalloc.allocation.dedicated.problem import DedicatedAllocation, DedicatedProblem
from pdalloc.allocation.linear import COVERED, Array, linear_data
from pdalloc.allocation.linear import LEEWAY as WHOLE_LEEWAY
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import ROLES, Fleet

SCALE = 100.0
"""Demand rows ask for so many units: HiGHS's tolerance is that much smaller a share of them."""
LEEWAY = WHOLE_LEEWAY / SCALE
"""Relative change of the rates that outweighs HiGHS's tolerance."""
SECONDS = 60.0
"""Time that HiGHS has for each of its two programs."""
METHOD = "one integer program over all parts (HiGHS, gap 0)"


@dataclass(frozen=True)
class _Found:
    """``fleets`` of least cost, or None; ``bound`` on it in USD/hour (inf: there are none)."""

    fleets: tuple[Fleet, ...] | None
    bound: float


def solve_jointly(problem: DedicatedProblem) -> DedicatedAllocation | None:
    """The cheapest fleets of linear parts, proven; None where HiGHS cannot tell.

    Where its time runs out, or a rate lies within its tolerance of the demand, the status is
    ``feasible`` with the bound of the program with larger rates.
    """
    hopeful = _by_highs(problem, LEEWAY)
    if math.isinf(hopeful.bound):
        return DedicatedAllocation("infeasible", (), None, None, METHOD)
    answers = [hopeful.fleets]
    if hopeful.fleets is None or not _covers(problem, hopeful.fleets):
        answers.append(_by_highs(problem, -LEEWAY).fleets)
    kept = [
        (problem.cost(fleets), fleets)
        for fleets in answers
        if fleets and _covers(problem, fleets) and not problem.violations(fleets)
    ]
    if not kept:
        return None
    cost, fleets = min(kept, key=lambda item: item[0])
    if cost <= hopeful.bound:
        return DedicatedAllocation("optimal", fleets, cost, cost, METHOD)
    return DedicatedAllocation("feasible", fleets, cost, hopeful.bound, METHOD)


def _covers(problem: DedicatedProblem, fleets: tuple[Fleet, ...]) -> bool:
    """Whether every part's fleet covers its demand in plain arithmetic."""
    return all(
        sum(p.rate(o) * fleet.count(o.role, o.replica_type) for o in p.in_role(role))
        >= p.demand * (1.0 - SHORTFALL)
        for p, fleet in zip((part.problem for part in problem.parts), fleets, strict=True)
        for role in ROLES
    )


def _by_highs(problem: DedicatedProblem, leeway: float) -> _Found:
    """The program with every rate (1 + ``leeway``) times as large."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    options, parts = problem.options, [part.problem for part in problem.parts]
    n = len(options)
    shares, ceilings = zip(*(_aligned(problem, p) for p in parts), strict=True)
    each = np.tile(np.eye(n), len(parts))  # adds up an option's replicas over the parts
    rows, low, high = [], [], []
    for q, share in enumerate(shares):
        for role in ROLES:
            row = np.zeros((len(parts), n))
            row[q] = SCALE * (1.0 + leeway) * share * [o.role == role for o in options]
            rows.append(np.concatenate([row.ravel(), np.zeros(n)]))
            low.append(SCALE * COVERED)
            high.append(math.inf)
    for i, o in enumerate(options):
        bought = np.concatenate([each[i], -np.eye(n)[i]])
        rows.append(bought)
        low.append(-math.inf)
        high.append(float(o.owned))
        if math.isfinite(o.most):
            rows.append(np.concatenate([each[i], np.zeros(n)]))
            low.append(-math.inf)
            high.append(float(o.most))
    for gpu, held in problem.stock.items():
        weight = np.array([o.gpus if o.gpu == gpu else 0.0 for o in options])
        rows.append(np.concatenate([np.tile(weight, len(parts)), np.zeros(n)]))
        low.append(-math.inf)
        high.append(float(held))
    found = milp(
        np.concatenate([np.zeros(n * len(parts)), [o.usd_per_hour for o in options]]),
        constraints=LinearConstraint(np.array(rows), np.array(low), np.array(high)),
        integrality=np.ones(n * (len(parts) + 1), dtype=np.int64),
        bounds=Bounds(0.0, np.concatenate([*ceilings, np.sum(ceilings, axis=0)])),
        options={"mip_rel_gap": 0.0, "time_limit": SECONDS},
    )
    return _read(problem, found)


def _aligned(problem: DedicatedProblem, part: AllocationProblem) -> tuple[Array, Array]:
    """(share of the part's demand per replica, most replicas of use), by the whole's options."""
    data = linear_data(part)
    places = {(o.role, o.replica_type): i for i, o in enumerate(problem.options)}
    share, ceiling = np.zeros(len(places)), np.zeros(len(places))
    where = [places[o.role, o.replica_type] for o in data.options]
    share[where], ceiling[where] = data.share, data.ceiling
    return share, ceiling


def _read(problem: DedicatedProblem, found: object) -> _Found:
    status, x = getattr(found, "status", 4), getattr(found, "x", None)
    if status == 2:  # infeasible
        return _Found(None, math.inf)
    fleets = None
    if x is not None:
        keys = [(o.role, o.replica_type) for o in problem.options]
        counts = np.rint(x[: len(keys) * len(problem.parts)]).reshape(len(problem.parts), -1)
        fleets = tuple(
            Fleet.of({key: int(m) for key, m in zip(keys, row, strict=True)}) for row in counts
        )
    if status == 0 and fleets is not None:
        return _Found(fleets, problem.cost(fleets))
    bound = getattr(found, "mip_dual_bound", None)  # stopped by the clock
    return _Found(fleets, 0.0 if bound is None else float(bound))
