r"""The periods as one integer program for HiGHS.

Columns n, u, v (replicas, starts, stops; T x I each) and b (bought ones, where some are owned):

.. math:: \texttt{demand}: \sum_{i \in role} \kappa_{t,i} n_{t,i} / \lambda_t \ge 1, \quad
          \texttt{change}: n_t - n_{t-1} = u_t - v_t, \quad
          \texttt{least}: \sum_{i \in role} c_i b_{t,i} \ge C_{t,role},

beside stock, limits, and the most that starts and stops at once. C is the least cost of covering
one role in period t by itself; where the period as a whole is known to cost more than its roles,
a row says so, too. These rows follow from the others over integers, but not over fractions: with
them HiGHS proves in seconds what it else leaves open. Where kappa is what a replica admits
whatever the rest of the fleet is, the program is the problem. Elsewhere kappa is an upper bound,
and the program a relaxation, to which :mod:`.cuts` are added.

HiGHS keeps rows to 1e-6 only. Rates are therefore taken a little larger, which outweighs that:
its bound holds, and its answer is checked in plain arithmetic by whoever asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.covers import covers
from pdalloc.allocation.linear import COVERED, LEEWAY, Array, linear_data
from pdalloc.allocation.periods.cuts import Cut
from pdalloc.allocation.periods.problem import Counts, Period, PeriodsProblem
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import ROLES, Role

BOUND_SLACK = 1e-6
"""Relative amount by which HiGHS's bounds are lowered: its tolerance on reduced costs."""
POLL_SECONDS = 0.1
GAP = 1e-7
"""Relative gap at which HiGHS stops."""

FEW, ROLE_SECONDS = 4, 1.0
"""Types up to which the covers of one role are searched; seconds for HiGHS to do so beyond."""

Watch = Callable[[float], None]
"""Called with the seconds that HiGHS has run; may raise KeyboardInterrupt."""


@dataclass(frozen=True)
class Found:
    """HiGHS's answer: ``counts`` (T, options) or None, and a lower ``bound`` in USD.

    ``infeasible``: proven; ``interrupted``: stopped by the user.
    """

    counts: Counts | None
    bound: float
    infeasible: bool = False
    interrupted: bool = False


def most_shares(problem: AllocationProblem) -> Array:
    """Upper bounds on the share of the demand that a replica admits; (options,).

    What it admits, where that does not depend on the rest of the fleet.
    """
    planned = problem.with_headroom()
    if planned.slo_scope == "pool":
        shares = linear_data(planned)
        place = [shares.options.index(o) for o in problem.options]
        return shares.share[place]
    capacity, types = planned.capacity, planned.capacity.system.replica_types
    full = [capacity.stability_limit(o.role, types[o.replica_type]) for o in problem.options]
    return np.array(full) / planned.demand


def is_whole(problem: AllocationProblem) -> bool:
    """Whether counts that cover the demand at :func:`most_shares` keep every constraint."""
    return problem.capacity.linear and problem.slo_scope == "pool" and not problem.conditioned


def least_by_role(period: Period) -> dict[Role, float]:
    """Lower bounds on the USD/hour of covering each role of ``period`` by itself.

    In plain arithmetic where few types may serve it.
    """
    found = {}
    for role in ROLES:
        options = period.problem.in_role(role)
        alone = Period(1.0, replace(period.problem, options=options))
        if len(options) <= FEW:
            shares, stock = most_shares(alone.problem).tolist(), alone.problem.stock
            cover = next(covers(options, shares, 1.0, stock), None)
            found[role] = 0.0 if cover is None else cover[0] * (1.0 - BOUND_SLACK)
            continue
        none = (0.0,) * len(options)
        side = PeriodsProblem((alone,), none, none)
        found[role] = solve_program(side, [Least()], ROLE_SECONDS).bound
    return found


@dataclass(frozen=True)
class Least:
    """Proven USD/hour that a period takes at least: in all, and by role."""

    total: float = 0.0
    by_role: Mapping[Role, float] = field(default_factory=dict)


def solve_program(
    problem: PeriodsProblem,
    least: Sequence[Least],
    seconds: float,
    watch: Watch | None = None,
    cuts: Sequence[Cut] = (),
    most: Array | None = None,
) -> Found:
    """The program's best counts and bound after at most ``seconds``, which ``watch`` is told of.

    ``least`` of each period by itself; ``cuts`` on top of its rows; at most ``most`` (T, options)
    replicas, which cuts by fewer replicas need. A role without options is not asked for. No
    schedule is given to begin with: HiGHS 1.16 may return such a one at another's cost.
    """
    import highspy

    from pdalloc.allocation.packages import silent

    program = _Program(problem, least, cuts, most)
    with silent():
        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("time_limit", seconds)
    highs.setOptionValue("mip_rel_gap", GAP)
    highs.setOptionValue("mip_abs_gap", 0.0)
    highs.passModel(program.model(highspy))
    interrupted = _run(highs, watch)
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Found(None, math.inf, infeasible=True)
    info = highs.getInfo()
    bound = info.mip_dual_bound if math.isfinite(info.mip_dual_bound) else 0.0
    bound = max(bound * (1.0 - BOUND_SLACK), 0.0)
    if not math.isfinite(info.objective_function_value):
        return Found(None, bound, interrupted=interrupted)
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Found(None, bound, interrupted=interrupted)
    values = np.rint(np.array(highs.getSolution().col_value[: program.size]))
    counts = values.astype(np.int64).reshape(len(problem.periods), -1)
    return Found(counts, bound, interrupted=interrupted)


def _run(highs: Any, watch: Watch | None) -> bool:
    """Run HiGHS, watched in a thread of its own, so that ^C is heard; whether it came."""
    if watch is None:
        highs.run()
        return False
    highs.HandleKeyboardInterrupt = True
    highs.startSolve()
    waited, interrupted = 0.0, False
    while True:
        try:
            if highs.wait(POLL_SECONDS)[0]:
                return interrupted
            waited += POLL_SECONDS
            if not interrupted:
                watch(waited)
        except KeyboardInterrupt:
            interrupted = True
            highs.cancelSolve()


@dataclass(frozen=True)
class _Rows:
    """Rows of a sparse matrix with their lower and upper ends, as they are added."""

    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(
        self,
        columns: Sequence[int] | NDArray[np.int64],
        values: Sequence[float] | Array,
        low: float = -math.inf,
        high: float = math.inf,
    ) -> None:
        """The row low <= values @ x[columns] <= high."""
        self.columns.extend(int(c) for c in columns)
        self.values.extend(float(v) for v in values)
        self.starts.append(len(self.columns))
        self.low.append(low)
        self.high.append(high)


class _Program:
    """The columns and rows of ``problem``."""

    def __init__(
        self,
        problem: PeriodsProblem,
        least: Sequence[Least],
        cuts: Sequence[Cut] = (),
        most: Array | None = None,
    ) -> None:
        self.problem, self.least, self.cuts = problem, least, cuts
        self.options = problem.options
        self.periods, self.width = len(problem.periods), len(problem.options)
        self.size = self.periods * self.width
        self.shares = np.array([most_shares(p.problem) for p in problem.periods])
        self.owning = [i for i, o in enumerate(self.options) if o.owned]
        self.initial = None if problem.initial is None else problem.counts([problem.initial])[0]
        top = np.tile(self.ceiling, (self.periods, 1))
        self.top = top if most is None else np.minimum(top, most)

    def at(self, block: int, t: int) -> NDArray[np.int64]:
        """Columns of n (block 0), u (1) or v (2) of period ``t``."""
        return np.arange(self.width) + block * self.size + t * self.width

    def bought(self, t: int) -> NDArray[np.int64]:
        """Columns whose USD/hour count in period ``t``: b of options with owned replicas."""
        columns = self.at(0, t)
        columns[self.owning] = 3 * self.size + t * len(self.owning) + np.arange(len(self.owning))
        return columns

    @property
    def ceiling(self) -> Array:
        """Most replicas of each option that are of use in any period; (options,).

        Where counts that cover the demand keep every constraint, those cut off at what serves
        the greatest demand alone do, too, and start and stop no more replicas than before.
        """
        most = np.array([o.most for o in self.options])
        if not all(is_whole(p.problem) for p in self.problem.periods):
            return most
        with np.errstate(divide="ignore"):
            alone = np.where(self.shares > 0.0, np.ceil(1.0 / self.shares), 0.0).max(axis=0)
        useful = alone if self.initial is None else np.maximum(alone, self.initial)
        return np.asarray(np.minimum(useful, most))

    def model(self, highspy: Any) -> Any:
        """The program as HiGHS reads it."""
        rows = _Rows()
        for t, period in enumerate(self.problem.periods):
            self._serving(rows, t, period)
            self._changing(rows, t)
        cost = self._cost()
        leaving = self._cutting(rows, len(cost))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(cost) + len(leaving), len(rows.low)
        lp.col_cost_ = np.append(cost, np.zeros(len(leaving)))
        lp.col_lower_ = np.zeros(lp.num_col_)
        free = np.full(len(cost) - self.size, math.inf)
        lp.col_upper_ = np.concatenate([self.top.ravel(), free, leaving])
        lp.row_lower_, lp.row_upper_ = np.array(rows.low), np.array(rows.high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(rows.starts, np.int32)
        lp.a_matrix_.index_ = np.array(rows.columns, np.int32)
        lp.a_matrix_.value_ = np.array(rows.values)
        integer, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        kinds = [integer] * self.size + [real] * len(free) + [integer] * len(leaving)
        lp.integrality_ = kinds
        return lp

    def _cutting(self, rows: _Rows, first: int) -> list[float]:
        """Rows of the cuts, whose columns from ``first`` on say which counts leave; their tops."""
        tops: list[float] = []
        for cut in self.cuts:
            for t in (t for t, kind in enumerate(self.problem.kinds) if kind == cut.kind):
                n, leaving = self.at(0, t), []
                for i in cut.members:
                    at, top = int(cut.at[i]), float(self.top[t, i])
                    if cut.more and at < top:
                        leaving.append(first + len(tops))
                        tops.append(1.0)
                        rows.add([n[i], leaving[-1]], [1.0, -(at + 1.0)], low=0.0)
                    if cut.fewer and at > 0:
                        leaving.append(first + len(tops))
                        tops.append(1.0)
                        rows.add([n[i], leaving[-1]], [1.0, top - at + 1.0], high=top)
                carrying = np.flatnonzero(cut.share)
                values = [*((1.0 + LEEWAY) * cut.share[carrying]), *([1.0] * len(leaving))]
                rows.add([*n[carrying], *leaving], values, low=COVERED)
        return tops

    def _cost(self) -> Array:
        cost = np.zeros(3 * self.size + self.periods * len(self.owning))
        usd = np.array([o.usd_per_hour for o in self.options])
        for t, hours in enumerate(self.problem.hours):
            cost[self.bought(t)] += hours * usd
            cost[self.at(1, t)] = self.problem.start_usd
            cost[self.at(2, t)] = self.problem.stop_usd
        return cost

    def _serving(self, rows: _Rows, t: int, period: Period) -> None:
        """Demand, stock, and the least costs of period ``t``."""
        n = self.at(0, t)
        usd, least = np.array([o.usd_per_hour for o in self.options]), self.least[t]
        for role in ROLES:
            members = [i for i, o in enumerate(self.options) if o.role == role]
            if members:
                rows.add(n[members], (1.0 + LEEWAY) * self.shares[t, members], low=COVERED)
            if role in least.by_role:
                rows.add(self.bought(t)[members], usd[members], low=least.by_role[role])
        if least.total > sum(least.by_role.values()) * (1.0 + BOUND_SLACK):
            rows.add(self.bought(t), usd, low=least.total * (1.0 - BOUND_SLACK))
        for gpu, held in period.problem.stock.items():
            members = [i for i, o in enumerate(self.options) if o.gpu == gpu]
            rows.add(n[members], [self.options[i].gpus for i in members], high=held)
        for k, i in enumerate(self.owning):
            b = 3 * self.size + t * len(self.owning) + k
            rows.add([b, n[i]], [1.0, -1.0], low=-self.options[i].owned)

    def _changing(self, rows: _Rows, t: int) -> None:
        """Starts and stops before period ``t``, and the most of them."""
        n, u, v = (self.at(block, t) for block in range(3))
        for i in range(self.width):
            change = {int(n[i]): 1.0}
            before = 0.0
            if t > 0 or self.initial is None:
                last = int(self.at(0, (t or self.periods) - 1)[i])
                change[last] = change.get(last, 0.0) - 1.0  # one period that repeats: no change
            else:
                before = float(self.initial[i])
            pairs = {**change, int(u[i]): -1.0, int(v[i]): 1.0}
            rows.add(list(pairs), list(pairs.values()), low=before, high=before)
        for columns, most in ((u, self.problem.most_starts), (v, self.problem.most_stops)):
            if math.isfinite(most):
                rows.add(columns, np.ones(self.width), high=math.floor(most))
