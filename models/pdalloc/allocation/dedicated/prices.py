r"""The Lagrangian bound of dedicated pools: prices on what parts share leave one problem each.

With a price mu_i in [0, c_i] on replicas of option i (c_i itself where none is owned), pi_g >= 0
on GPUs of stock and nu_i >= 0 on limits,

.. math:: L = \sum_q z_q(w) - \sum_i \mu_i o_i - \sum_g \pi_g \text{stock}_g
              - \sum_i \nu_i \text{most}_i, \qquad w_i = \mu_i + k_i \pi_{g(i)} + \nu_i,

never exceeds the cost of a feasible division, z_q(w) being the cheapest fleet of part q alone at
USD w_i per replica: an ordinary allocation problem, whatever its laws. L is concave; Kelley's
cutting planes (1960) raise it, each step solving every part exactly. A fleet of a part may be in
a division cheaper than U only if it costs at most z_q(w) + U - L at the prices w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pdalloc.allocation.dedicated.problem import DedicatedProblem
from pdalloc.allocation.linear import Array
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers.exact import SOLVER
from pdalloc.fleet import Fleet

STEPS = 40
"""Prices tried at most."""
CLOSE = 1e-6
"""Relative room between the cutting planes and the bound at which they end."""
LEAST_PRICE = 0.05
"""Owned replicas are never priced below this share of their own price: free ones have no order."""
DEAREST, OUT_OF_REACH = 20.0, 1e4
"""Stock and limits are priced at most so many times the dearest GPU, or replica; the latter where
no division is known, so that a bound may show that there is none."""
SUM_ERROR = 1e-8
"""Relative error of sums of costs, allowed on the safe side of every bound."""


@dataclass(frozen=True)
class Priced:
    """The best prices found: ``unit`` USD/hour per replica by option, and what they prove.

    ``alone`` (parts,) the least priced cost of each part, a lower bound; ``fixed`` what is
    taken off their sum; ``bound`` = sum(alone) - fixed, less rounding; ``exact``: whether every
    ``alone`` is attained, so that lists of fleets begin there.
    """

    unit: Array
    alone: Array
    fixed: float
    exact: bool

    @property
    def bound(self) -> float:
        """Proven lower bound on the cost, USD/hour."""
        total = float(self.alone.sum())
        return total - self.fixed - SUM_ERROR * (1.0 + abs(total) + abs(self.fixed))


def priced(problem: AllocationProblem, whole: DedicatedProblem, unit: Array) -> AllocationProblem:
    """``problem`` with ``unit`` USD/hour per replica, by the whole's options; none owned."""
    price = dict(zip(((o.role, o.replica_type) for o in whole.options), unit, strict=True))
    options = tuple(
        replace(o, usd_per_hour=float(price[o.role, o.replica_type]), owned=0)
        for o in problem.options
    )
    return replace(problem, options=options)


def best_prices(
    problem: DedicatedProblem, offer: Callable[[tuple[Fleet, ...]], None], goal: Callable[[], float]
) -> Priced:
    """Prices with the highest bound found; ``offer`` is given every answer of all parts.

    Ends early when the bound reaches ``goal()``, the cost of the best division known. Every
    part must be feasible alone.
    """
    rows = _Rows.of(problem, DEAREST if math.isfinite(goal()) else OUT_OF_REACH)
    at, best = rows.start, None
    value, slope = list[float](), list[Array]()
    for _ in range(STEPS):
        here, fleets = _evaluated(problem, rows, at)
        offer(fleets)
        if best is None or here.bound > best.bound:
            best = here
        value.append(float(here.alone.sum()) - here.fixed)
        slope.append(rows.used(problem, fleets) - rows.held)
        if best.bound >= goal() or not len(at):
            break
        value[-1] -= float(slope[-1] @ at)
        ceiling, at = _highest(value, slope, rows)
        if ceiling - best.bound <= CLOSE * (1.0 + abs(best.bound)):
            break
    assert best is not None
    return best


@dataclass(frozen=True)
class _Rows:
    """What parts share, one price each: ``held`` of it; ``low`` <= price <= ``high``; (m,).

    ``weight`` (m, options): units of it per replica. ``base`` (options,): price beside.
    """

    weight: Array
    held: Array
    low: Array
    high: Array
    base: Array

    @classmethod
    def of(cls, problem: DedicatedProblem, times: float) -> _Rows:
        """A row per GPU of stock, limit, and option with owned replicas."""
        options, n = problem.options, len(problem.options)
        usd = np.array([o.usd_per_hour for o in options])
        gpus = np.array([o.gpus for o in options], float)
        dearest = times * float((usd / gpus).max())
        rows: list[tuple[Array, float, float, float]] = []
        for gpu, held in problem.stock.items():
            on_gpu = gpus * [o.gpu == gpu for o in options]
            if on_gpu.any():
                rows.append((on_gpu, float(held), 0.0, dearest))
        base = usd.copy()
        for i, o in enumerate(options):
            unit: Array = np.eye(n)[i]
            if math.isfinite(o.most):
                rows.append((unit, o.most, 0.0, dearest * o.gpus))
            if o.owned:
                rows.append((unit, float(o.owned), LEAST_PRICE * usd[i], usd[i]))
                base[i] = 0.0
        if not rows:
            return cls(np.zeros((0, n)), np.zeros(0), np.zeros(0), np.zeros(0), base)
        weight = np.array([row[0] for row in rows])
        numbers = np.array([row[1:] for row in rows]).T
        return cls(weight, numbers[0], numbers[1], numbers[2], base)

    @property
    def start(self) -> Array:
        """Stock and limits free, owned replicas at their own price."""
        return np.where(self.low > 0.0, self.high, 0.0)

    def used(self, problem: DedicatedProblem, fleets: Sequence[Fleet]) -> Array:
        """What ``fleets`` take of each row; (m,)."""
        totals = problem.totals(fleets)
        counts = np.array([totals[o.role, o.replica_type] for o in problem.options], float)
        taken: Array = self.weight @ counts
        return taken


def _evaluated(
    problem: DedicatedProblem, rows: _Rows, at: Array
) -> tuple[Priced, tuple[Fleet, ...]]:
    unit = rows.base + at @ rows.weight
    answers = [SOLVER.solve(priced(part.problem, problem, unit)) for part in problem.parts]
    alone = np.array([math.inf if a.bound is None else a.bound for a in answers])
    exact = all(a.status == "optimal" for a in answers)
    return Priced(unit, alone, float(at @ rows.held), exact), tuple(a.fleet for a in answers)


def _highest(value: Sequence[float], slope: Sequence[Array], rows: _Rows) -> tuple[float, Array]:
    """The top of the cutting planes ``value`` + ``slope`` x within the prices' box, and where."""
    from scipy.optimize import linprog

    m = len(rows.held)
    planes = np.hstack([-np.array(slope), np.ones((len(slope), 1))])
    found = linprog(
        np.concatenate([np.zeros(m), [-1.0]]),
        A_ub=planes,
        b_ub=np.array(value),
        bounds=[*zip(rows.low, rows.high, strict=True), (None, None)],
    )
    x = np.asarray(found.x)
    return float(x[-1]), np.clip(x[:m], rows.low, rows.high)
