"""The cheapest schedule: periods by themselves, ways between good fleets, integer program.

1. Each period alone, by the exact solver: without starts nothing is cheaper, so the sum of
   their bounds bounds every schedule. The period of the greatest demand comes first; its fleet,
   kept all day, is the first schedule.
2. Fleets that do in several periods - the optima, and the largest counts of neighbouring ones -
   and the cheapest way through them (:mod:`.paths`).
3. The integer program of all periods (:mod:`.program`): a bound on all schedules and, where its
   rows are the whole problem, a better schedule. Where they are not (stages coupled by an SLO,
   pools that share a queue, lost replicas), what it proposes is mended, the ways are sought
   again, and :mod:`.cuts` are added, until the best schedule meets the bound.

Every schedule is certified at each period's own demand. ^C, or the end of the time, gives the
best so far with the bound so far.
"""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from pdalloc.allocation.certify import certify
from pdalloc.allocation.periods.cuts import Cut, cuts_of, reach
from pdalloc.allocation.periods.paths import cheapest_path
from pdalloc.allocation.periods.problem import Counts, PeriodsProblem, Schedule
from pdalloc.allocation.periods.program import Least, is_whole, least_by_role, solve_program
from pdalloc.allocation.problem import Allocation, AllocationProblem, Status
from pdalloc.errors import InputError
from pdalloc.fleet import Fleet

TIME_LIMIT = 20.0
"""Seconds for the integer program."""
PROVEN = 3e-6
"""Relative gap that solver tolerances leave open: BOUND_SLACK and GAP of :mod:`.program`."""
MOST_ROUNDS, LEAST_SECONDS = 60, 0.01
"""Programs that are solved one after the other; seconds for one, at the least."""
MOST_FLEETS = 300
"""Fleets between which ways are sought."""
STUCK = (
    "each period has a fleet, but no schedule starts and stops as few replicas as it may; raise "
    "most_starts or most_stops, or begin with a larger fleet"
)
NOT_FOUND = "no schedule was found within {:g} s, nor is it proven that there is none; allow more"

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


def solve_periods(
    problem: PeriodsProblem,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
    solve: Callable[[AllocationProblem], Allocation] | None = None,
) -> Schedule:
    """The cheapest schedule found, with a proven bound on every schedule.

    ``time_limit`` in seconds is the integer program's; ``solve`` answers one period, with a proven
    bound (None: the exact solver). Raises InputError unless it is positive,
    and KeyboardInterrupt before the first schedule is known.
    """
    if not time_limit > 0.0:
        raise InputError(f"the time limit must be positive, got {time_limit:g} s")
    started = time.perf_counter()
    if solve is None:
        from pdalloc.allocation.solvers import solver_named

        solve = solver_named("exact").solve
    search = _Search(problem, time_limit, progress, solve)
    try:
        search.run()
    except KeyboardInterrupt:
        if search.best is None:
            raise
        search.interrupted = True
    return search.answer(time.perf_counter() - started)


@dataclass
class _Search:
    """The best schedule and bound so far; ``optima`` by kind of period."""

    problem: PeriodsProblem
    time_limit: float
    progress: Progress | None
    solve: Callable[[AllocationProblem], Allocation]
    optima: dict[int, Allocation] = field(default_factory=dict)
    best: tuple[Fleet, ...] | None = None
    bound: float = 0.0
    reason: str = ""
    interrupted: bool = False
    _serves: dict[tuple[int, Fleet], bool] = field(default_factory=dict)

    def run(self) -> None:
        """All three steps; stops where a period has no fleet."""
        if self._alone():
            self._ways(self._joined())
            self._program()

    @property
    def order(self) -> list[int]:
        """Kinds of periods, the greatest demand first."""
        return sorted(set(self.problem.kinds), key=lambda k: -self.problem.demands[k])

    def _alone(self) -> bool:
        """Solve each kind of period by itself, hardest first; False when one has no fleet."""
        for done, k in enumerate(self.order):
            found = self.solve(self.problem.periods[k].problem)
            if found.status == "infeasible":
                demand = self.problem.demands[k]
                self.reason = f"period {k + 1} ({demand:.4g} req/s): {found.reason}"
                return False
            self.optima[k] = found
            if done == 0:
                self.offer([found.fleet] * len(self.problem.periods))
            self._say(done + 1)
        self.offer(self.optima[k].fleet for k in self.problem.kinds)
        return True

    def _say(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.order) + math.ceil(self.time_limit))

    def least(self) -> list[float]:
        """Proven USD/hour of each period by itself."""
        found = (self.optima.get(k) for k in self.problem.kinds)
        return [0.0 if a is None or a.bound is None else a.bound for a in found]

    def serves(self, t: int, fleet: Fleet) -> bool:
        """Whether ``fleet`` keeps every constraint of period ``t``."""
        key = (self.problem.kinds[t], fleet)
        if key not in self._serves:
            self._serves[key] = certify(self.problem.periods[t].problem, fleet).certified
        return self._serves[key]

    def offer(self, fleets: Iterable[Fleet] | None) -> None:
        """Keep a schedule if it keeps every constraint and is the cheapest so far."""
        offered = tuple(fleets or ())
        if not offered or (self.best and self.cost(offered) >= self.cost(self.best)):
            return
        certified = all(self.serves(t, fleet) for t, fleet in enumerate(offered))
        if certified and not self.problem.too_many(offered):
            self.best = offered

    def cost(self, fleets: tuple[Fleet, ...]) -> float:
        """USD over all periods."""
        return self.problem.costs(fleets).total

    def _joined(self) -> list[Fleet]:
        """The periods' own optima, and the largest counts over neighbouring ones."""
        problem = self.problem
        own = problem.counts([self.optima[k].fleet for k in problem.kinds])
        periods, repeats = len(own), problem.initial is None
        rows = list(own)
        for width in range(2, periods + 1):
            for t in range(periods if repeats else periods - width + 1):
                rows.append(own[[(t + k) % periods for k in range(width)]].max(axis=0))
        if problem.initial is not None:
            start = problem.counts([problem.initial])[0]
            rows += [start, *(np.maximum(start, row) for row in own)]
        return [problem.fleet(row) for row in rows]

    def _near(self) -> list[Fleet]:
        """The best schedule's fleets with a replica more, fewer, or of another type of its role."""
        one, options = np.eye(len(self.problem.options), dtype=np.int64), self.problem.options
        pairs = itertools.permutations(range(len(options)), 2)
        steps = [*one, *-one]
        steps += [one[i] - one[j] for i, j in pairs if options[i].role == options[j].role]
        rows = self.problem.counts(tuple(dict.fromkeys(self.best or ())))
        return [self.problem.fleet(row + s) for s in steps for row in rows if (row + s).min() >= 0]

    def _ways(self, fleets: list[Fleet], end: float = math.inf) -> None:
        """The cheapest way through ``fleets`` and the best schedule's own.

        From the time ``end`` on no further fleet is looked at.
        """
        fleets = list(dict.fromkeys([*(self.best or ()), *fleets]))[:MOST_FLEETS]
        ranks = [self._rank(f) if time.perf_counter() < end else len(self.order) for f in fleets]
        place = {k: rank for rank, k in enumerate(self.order)}
        serves = [[rank <= place[k] for rank in ranks] for k in self.problem.kinds]
        self.offer(cheapest_path(self.problem, fleets, np.array(serves)))

    def _rank(self, fleet: Fleet) -> int:
        """From which place in the order on ``fleet`` serves, if what serves more serves less.

        Found by bisection; a way that rests on it is certified before it is taken.
        """
        order = self.order
        return bisect.bisect_left(order, True, key=lambda k: self.serves(k, fleet))

    def _program(self) -> None:
        """The integer program, again and again while cuts are found and time is left."""
        problem, end = self.problem, time.perf_counter() + self.time_limit
        sides = {k: least_by_role(problem.periods[k]) for k in self.order}
        least = [Least(usd, sides[k]) for usd, k in zip(self.least(), problem.kinds, strict=True)]
        cuts: list[Cut] = []
        for _ in range(MOST_ROUNDS):
            most = reach(problem, self.least(), self.cost(self.best)) if self.best else None
            left = max(end - time.perf_counter(), LEAST_SECONDS)
            found = solve_program(
                problem, least, left, self._watch(left), cuts, most if cuts else None
            )
            self.interrupted = found.interrupted
            if found.infeasible:  # where there is a best one, nothing within reach is cheaper
                self.bound, self.reason = self.cost(self.best) if self.best else 0.0, STUCK
                return
            self.bound = max(self.bound, found.bound)
            if found.counts is None:
                return
            mended = [self._mended(t, row) for t, row in enumerate(found.counts)]
            self.offer(mended)
            more = self._cuts(found.counts)
            if not all(is_whole(p.problem) for p in problem.periods):
                self._ways([*mended, *self._joined()])
            if not more or found.interrupted or self.proven or time.perf_counter() >= end:
                break
            cuts += more
        while not (found.interrupted or self.proven) and time.perf_counter() < end:
            before = self.best
            self._ways(self._near(), end)
            if self.best == before:
                break

    def _watch(self, left: float) -> Callable[[float], None]:
        """Tell the progress, of a program that may take ``left`` seconds."""
        before = len(self.order) + max(self.time_limit - left, 0.0)
        most = len(self.order) + math.ceil(self.time_limit)
        return lambda seconds: self._say(min(int(before + seconds), most))

    def _cuts(self, counts: Counts) -> list[Cut]:
        """What the proposals that fail teach; finite reach is needed where fewer may help."""
        problem, found = self.problem, dict[tuple[int, tuple[int, ...]], list[Cut]]()
        for t, k in enumerate(problem.kinds):
            key = (k, tuple(counts[t].tolist()))
            if key in found or self.serves(t, problem.fleet(counts[t])):
                continue
            own = problem.counts([self.optima[k].fleet])[0]
            found[key] = cuts_of(problem, k, counts[t], own)
        free = any(o.usd_per_hour == 0.0 for o in problem.options)
        cuts = [cut for each in found.values() for cut in each]
        return [c for c in cuts if not (c.fewer and (free or self.best is None))]

    def _mended(self, t: int, counts: Counts) -> Fleet:
        """The fleet of ``counts``, or with a replica more, or beside the period's optimum."""
        fleet = self.problem.fleet(counts)
        if self.serves(t, fleet):
            return fleet
        order = np.argsort([o.usd_per_hour for o in self.problem.options], kind="stable")
        for i in order:
            more = self.problem.fleet(counts + (np.arange(len(counts)) == i))
            if self.serves(t, more):
                return more
        own = self.problem.counts([self.optima[self.problem.kinds[t]].fleet])[0]
        return self.problem.fleet(np.maximum(counts, own))

    def _bound(self) -> float:
        """The best bound so far, USD over all periods."""
        return max(self.bound, float(self.problem.hours @ self.least()))

    @property
    def proven(self) -> bool:
        """Whether the best schedule meets its bound, up to solver tolerances."""
        if self.best is None:
            return False
        total = self.cost(self.best)
        return total - self._bound() <= PROVEN * total

    def answer(self, seconds: float) -> Schedule:
        """What was found."""
        problem = self.problem
        optima = tuple(self.optima.get(k) for k in problem.kinds)
        if self.best is None:
            reason = self.reason or NOT_FOUND.format(self.time_limit)
            return Schedule("infeasible", (), None, None, optima, reason, self.interrupted, seconds)
        costs = problem.costs(self.best)
        status: Status = "optimal" if self.proven else "feasible"
        bound = min(self._bound(), costs.total)
        return Schedule(status, self.best, costs, bound, optima, "", self.interrupted, seconds)
