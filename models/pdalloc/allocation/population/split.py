r"""The best split of the traffic among given counts, and the price of every count in it.

With :math:`\theta_{rj}` of the replicas of type r at load j of its grid, the linear program

.. math:: t^*(n) = \min t \quad\text{s.t.}\quad \sum_j \theta_{rj} = n_r, \quad
          \sum_{r \in role, j} \theta_{rj} y_{rj} = \lambda, \quad
          \sum_{r, j} \theta_{rj} f^k_{rj} \le (1 + t)\, \lambda b_k

tells whether n keeps all SLOs over all requests at once (:math:`t^* \le 0`). As a function of n
its optimum is convex, so the multipliers of its first rows give a plane below it that is linear
in n: a *dual cut*. For one SLO the cut is

.. math:: \sum_r n_r h_r(\nu) \ge \lambda (\nu - b), \qquad h_r(\nu) = \max_y [\nu y - f_r(y)],

with the conjugate h of the burden, whose closed forms for M/M/1, M/G/1 and the batch law are
tests of this one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdalloc.allocation.linear import Array
from pdalloc.allocation.population.burden import Burdens, burdens
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES
from pdalloc.prediction import PoolKey


@dataclass(frozen=True)
class Split:
    """``excess`` t*; ``slope`` (n,) of t* in the counts; ``rates`` (n,) requests/s per option."""

    excess: float
    slope: Array
    rates: Array


REFINEMENTS = 5
"""Times that points are put where the best split loads the replicas."""
CLEAR = 0.02
"""Excess beyond which the first table tells already whether the SLOs are kept."""
NEAR, NEARER = 1e-2, 0.2
"""Relative distance of points beside such a load, and its factor from one time to the next."""


def refined_split(problem: AllocationProblem, counts: Array) -> tuple[Burdens, Split | None]:
    """:func:`best_split` of ``problem`` on curves that have points where it lies."""
    b, more = burdens(problem), dict[PoolKey, list[float]]()
    split = best_split(b, counts)
    for times in range(REFINEMENTS):
        if split is None or abs(split.excess) > CLEAR:
            break
        add_points(more, b, counts, split, times)
        b = burdens(problem, more)
        split = best_split(b, counts)
    return b, split


def add_points(
    more: dict[PoolKey, list[float]], b: Burdens, counts: Array, split: Split, times: int
) -> None:
    """Put loads to ``more`` at and beside those of ``split``, the nearer the more ``times``.

    A split that is off by a share d of the load costs about d^2.
    """
    off = NEAR * NEARER**times
    for o, n, rate in zip(b.options, counts, split.rates, strict=True):
        if n > 0.0 and rate > 0.0:
            near = [float(rate / n) * factor for factor in (1.0 - off, 1.0, 1.0 + off)]
            more.setdefault((o.role, o.replica_type), []).extend(near)


def best_split(b: Burdens, counts: Array) -> Split | None:
    """The split of least excess among ``counts`` (n,); None when they cannot carry the demand."""
    from scipy.sparse import csr_array, hstack, kron, vstack

    linprog: Any = importlib.import_module("scipy.optimize").linprog  # stubs know no sparse arrays

    n, loads = b.rates.shape
    scale = b.demand * b.budgets
    equal = [hstack([kron(np.eye(n), np.ones((1, loads))), csr_array((n, 1))])]
    for role in ROLES:
        row = np.zeros((n, loads))
        row[b.members(role)] = b.rates[b.members(role)] / b.demand
        equal.append(hstack([csr_array(row.reshape(1, -1)), csr_array((1, 1))]))
    burden = b.values.reshape(len(scale), n * loads) / scale[:, None]
    found = linprog(
        np.r_[np.zeros(n * loads), 1.0],
        A_ub=csr_array(np.hstack([burden, -np.ones((len(scale), 1))])),
        b_ub=np.ones(len(scale)),
        A_eq=vstack(equal),
        b_eq=np.r_[counts, np.ones(len(ROLES))],
        bounds=[(0, None)] * (n * loads) + [(-1.0, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status == 2:
        return None
    if found.status != 0:
        raise UnsupportedError(f"HiGHS could not split the traffic: {found.message}")
    theta = found.x[:-1].reshape(n, loads)
    rates = np.einsum("ij,ij->i", theta, b.rates)
    return Split(float(found.fun), np.array(found.eqlin.marginals[:n]), rates)
