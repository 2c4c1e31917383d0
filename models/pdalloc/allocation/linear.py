r"""The allocation problem as arrays: what every MILP backend is lowered from.

Integer n = (owned replicas used) + (bought ones b), only the latter cost:

.. math:: \min\; c^T b \quad \text{s.t.}\quad
          \texttt{demand[role]}: \sum_{i \in role} \kappa_i n_i / \lambda \ge 1, \quad
          \texttt{stock[gpu]}: \sum_{g(i) = gpu} k_i n_i \le stock_{gpu}, \quad
          \texttt{limit[role/type]}: n_i \le most_i .

Beside types that do not fit each other, and with f replicas of any one pool lost,

.. math:: \texttt{used[role/type]}: n_i \le top_i u_i, \quad
          \texttt{compatible[p,d]}: u_p + u_d \le 1, \quad
          \texttt{left[role/type]}: l_i \le n_i - f w_i, \quad
          \texttt{large[role/type]}: l_i \le (top_i - f) w_i,

          \texttt{redundancy[role/type]}: \sum_{j \ne i} \kappa_j n_j / \lambda +
          \kappa_i l_i / \lambda \ge 1,

with u and w binary: what is left of a pool, l = max(n - f, 0), needs w to be more than nothing.

The arrays run over the options, prefill first. When an SLO spans both stages the rates kappa
are upper bounds and :mod:`pdalloc.allocation.rounds` adds cuts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.covers import MOST_REPLICAS, SHORTFALL
from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Fleet, Role

Array = NDArray[np.float64]

COVERED = 1.0 - SHORTFALL
"""Right-hand side of the demand rows, as a share of the demand."""
LEEWAY = 2e-6
"""Relative change of the rates that outweighs HiGHS's feasibility tolerance of 1e-6."""
HIGHS_OPTIONS: Mapping[str, float] = {
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}
"""HiGHS's default gap, 1e-4, exceeds the step between the costs of fleets."""
SCIP_OPTIONS: Mapping[str, float] = {
    "limits/gap": 0.0,
    "limits/absgap": 0.0,
    "numerics/feastol": 1e-9,
    "numerics/dualfeastol": 1e-9,
}
"""SCIP's default tolerance, 1e-6, lets fleets break an SLO by 1e-5."""


@dataclass(frozen=True)
class Cut:
    """Either decode counts other than ``decode``, or prefill covers at ``share``; (n,) each.

    ``share`` of the demand per prefill replica. Both are 0 outside their role.
    """

    decode: Array
    share: Array


@dataclass(frozen=True)
class LinearData:
    """Arrays aligned with ``options``, shape (n,).

    ``share`` of the demand per replica; ``usd`` per bought replica and hour; ``gpus`` per
    replica; ``owned`` and ``most`` replicas; at most ``ceiling`` replicas are bought. ``sizes``:
    shares of the demand that pools of 0, 1, ... replicas admit, by option, where replicas share
    a queue; their ``share`` is not used. ``redundancy`` replicas of any one pool may be lost;
    ``misfits`` are (prefill, decode) indices of types that do not fit each other.
    """

    options: tuple[Option, ...]
    share: Array
    usd: Array
    gpus: Array
    owned: Array
    most: Array
    ceiling: Array
    stock: Mapping[str, int]
    cuts: tuple[Cut, ...] = ()
    sizes: Mapping[int, Array] = field(default_factory=dict)
    redundancy: int = 0
    misfits: tuple[tuple[int, int], ...] = ()

    @property
    def top(self) -> Array:
        """The most replicas of each option that are looked at; (n,)."""
        return self.owned + self.ceiling

    @property
    def picky(self) -> list[int]:
        """Indices of the options that do not fit some other."""
        return sorted({i for pair in self.misfits for i in pair})

    @property
    def at_risk(self) -> list[int]:
        """Indices of the options that may lose replicas; none without redundancy."""
        return list(range(len(self.options))) if self.redundancy else []

    @property
    def labels(self) -> list[str]:
        """``prefill/h200x8`` per option: the names in ``limit[...]``."""
        return [f"{o.role}/{o.replica_type}" for o in self.options]

    def members(self, role: Role) -> list[int]:
        """Indices of the options of ``role``."""
        return [i for i, o in enumerate(self.options) if o.role == role]

    def on_gpu(self, gpu: str) -> list[int]:
        """Indices of the options on ``gpu``."""
        return [i for i, o in enumerate(self.options) if o.gpu == gpu]

    def apart(self, role: Role) -> list[int]:
        """Indices of the options of ``role`` whose replicas do not share a queue."""
        return [i for i in self.members(role) if i not in self.sizes]

    def pooled(self, role: Role) -> list[int]:
        """Indices of the options of ``role`` whose replicas share one."""
        return [i for i in self.members(role) if i in self.sizes]

    @property
    def limited(self) -> list[int]:
        """Indices of the options with a limit."""
        return [i for i, most in enumerate(self.most) if math.isfinite(most)]

    def surplus(self, role: Role, counts: Array) -> float:
        """Share of the demand that ``counts`` (n,) cover beyond it when the worst pool loses."""
        i = self.members(role)
        lost = self.share[i] * np.minimum(counts[i], self.redundancy)
        return float(self.share[i] @ counts[i] - lost.max(initial=0.0)) - COVERED

    def only(self, role: Role, values: Array) -> Array:
        """``values`` (n,) with zeros outside ``role``."""
        kept = np.zeros_like(values)
        kept[self.members(role)] = values[self.members(role)]
        return kept

    def cost(self, counts: Array) -> float:
        """USD/hour of ``counts`` (n,), owned replicas free."""
        return float(self.usd @ np.maximum(counts - self.owned, 0.0))

    def fleet(self, counts: Array) -> Fleet:
        """The fleet of integer ``counts`` (n,)."""
        pairs = zip(self.options, counts, strict=True)
        return Fleet.of({(o.role, o.replica_type): round(n) for o, n in pairs})

    def reach(self, cost: float) -> Array:
        """Replicas of each option that a fleet of at most ``cost`` USD/hour may buy; (n,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            afford = np.where(self.usd > 0, np.floor(cost / self.usd), math.inf)
        left = np.maximum(self.most - self.owned, 0.0)
        for gpu, held in self.stock.items():
            i = self.on_gpu(gpu)
            left[i] = np.minimum(left[i], np.maximum(held // self.gpus[i] - self.owned[i], 0.0))
        return np.where(self.share > 0, np.minimum(afford, left), 0.0)


def linear_data(problem: AllocationProblem, share: Array | None = None) -> LinearData:
    """The arrays of ``problem``; InputError without a positive demand.

    ``share`` (n,) of the demand per replica, prefill first; else the relaxed rates'.
    """
    if not 0.0 < problem.demand < math.inf:
        raise InputError(f"demand must be positive and finite, got {problem.demand:g} req/s")
    options = tuple(o for role in ROLES for o in problem.in_role(role))
    if share is None:
        share = np.array([problem.rate(o) for o in options], float) / problem.demand
    share = useful(share)
    # More replicas than cover the demand alone, some of them lost, are idle, unless they speed up
    # the other stage.
    room, spare = 4.0 if problem.capacity.coupled else 1.0, problem.redundancy
    return LinearData(
        options,
        share,
        usd=np.array([o.usd_per_hour for o in options], float),
        gpus=np.array([o.gpus for o in options], float),
        owned=np.array([o.owned for o in options], float),
        most=np.array([o.most for o in options], float),
        ceiling=np.array([room * math.ceil(1.0 / s) + spare if s > 0 else 0.0 for s in share]),
        stock={g: n for g, n in problem.stock.items() if any(o.gpu == g for o in options)},
        redundancy=problem.redundancy,
        misfits=_misfits(problem, options),
    )


def _misfits(
    problem: AllocationProblem, options: tuple[Option, ...]
) -> tuple[tuple[int, int], ...]:
    """(prefill, decode) indices of ``options`` that do not fit each other."""
    fitting = problem.compatible
    if fitting is None:
        return ()
    return tuple(
        (i, j)
        for i, o in enumerate(options)
        for j, other in enumerate(options)
        if (o.role, other.role) == ROLES and (o.replica_type, other.replica_type) not in fitting
    )


def useful(share: Array) -> Array:
    """``share`` with 0 where more than MOST_REPLICAS replicas would be needed; (n,)."""
    return np.where(share * MOST_REPLICAS >= 1.0, share, 0.0)


def solve_by_highs(problem: AllocationProblem, leeway: float = 0.0) -> Fleet | None:
    """The uncoupled problem's optimum by scipy's HiGHS, gap 0; None when infeasible.

    Every rate is taken (1 + ``leeway``) times as large: with -LEEWAY the fleet truly covers
    the demand, with +LEEWAY its cost is a true lower bound.
    """
    data = linear_data(problem)
    counts = integer_program(data, leeway)
    return None if counts is None else data.fleet(counts)


def integer_program(
    data: LinearData, leeway: float = 0.0, rows: Array | None = None, least: Array | None = None
) -> Array | None:
    """Cheapest counts (n,) by scipy's HiGHS, gap 0; None when infeasible.

    ``leeway`` as in :func:`solve_by_highs`; further ``rows`` (m, n) times the counts must be at
    least ``least`` (m,). Sizes and cuts of ``data`` are not used.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    n = len(data.options)
    blocks: list[tuple[Array, Array, Array]] = []
    for role in ROLES:
        row = (1.0 + leeway) * data.only(role, data.share)
        blocks.append((row[None], np.array([COVERED]), np.array([math.inf])))
    for gpu, held in data.stock.items():
        on_gpu = np.zeros(n)
        on_gpu[data.on_gpu(gpu)] = data.gpus[data.on_gpu(gpu)]
        blocks.append((on_gpu[None], np.array([-math.inf]), np.array([float(held)])))
    limited = data.limited
    blocks.append((np.eye(n)[limited], np.full(len(limited), -math.inf), data.most[limited]))
    if rows is not None and least is not None:
        blocks.append((rows, least, np.full(len(least), math.inf)))
    matrix, low, high = (np.concatenate([block[k] for block in blocks]) for k in range(3))
    found = milp(
        np.concatenate([np.zeros(n), data.usd]),  # owned replicas used, then bought ones
        constraints=LinearConstraint(np.hstack([matrix, matrix]), low, high),
        integrality=np.ones(2 * n, dtype=np.int64),
        bounds=Bounds(np.zeros(2 * n), np.concatenate([data.owned, data.ceiling])),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    counts: Array = np.rint(found.x)
    return counts[:n] + counts[n:]
