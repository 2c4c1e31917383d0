"""The least cost against one bound, or against demand: a Pareto curve with its corners.

Values of a grid are solved one by one. Between two neighbours whose costs differ the corners
are then found exactly: the tightest bound (or the most demand) that the cheaper fleet still
holds. A corner belongs to the fleet that begins there, read from left to right.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from pdalloc.allocation.certify import Certificate, certify
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import Capacity
from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Fleet
from pdalloc.planning.plan import check_apart
from pdalloc.planning.sweeps import SAME_COST, costly
from pdalloc.planning.validated import Progress
from pdalloc.scenario import Scenario
from pdalloc.slo.objective import METRICS, Slo

Result = TypeVar("Result")
DEMAND = "demand"
POINTS = 13
"""Values of a default grid; the corners between them come on top."""
DEFAULT_RANGE = {DEMAND: (0.2, 1.6), "bound": (0.4, 3.0)}
"""Ends of a default range, relative to the scenario's own value."""
HALVINGS = 14
"""Bisections that place a corner between two demands."""
MOST_ROUNDS, SETTLED = 12, 1e-6
"""Rounds, and relative change at the last one, that place a corner between two bounds."""
BEYOND = 1e-5
"""A bound this much (relative) below the tightest that a fleet holds is another fleet's."""
MOST_CORNERS = 16
"""Most corners between two values."""
WORTH_PARALLEL = 8.0
"""Seconds of work ahead above which other processes are started."""


@dataclass(frozen=True)
class FrontierPoint:
    """The cheapest fleet at ``value`` (seconds, or requests/s) and to the right of it.

    ``fleet`` and ``cost`` (USD/hour) are None where no fleet keeps the SLOs; ``reason`` says
    why. ``corner``: the cheapest fleet changes exactly here.
    """

    value: float
    fleet: Fleet | None
    cost: float | None
    proven: bool = False
    corner: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Axis:
    """What is varied: the bound of ``slo``, or the demand where it is None.

    ``here`` is the scenario's own value, in seconds or requests/s.
    """

    slo: Slo | None
    here: float

    @property
    def rising(self) -> bool:
        """Whether greater values are harder to serve."""
        return self.slo is None

    def problem(self, scenario: Scenario, value: float, shared: Capacity) -> AllocationProblem:
        """The problem at ``value``; ``shared`` holds the rates under the scenario's own SLOs."""
        if self.slo is None:
            return replace(scenario.problem(shared), demand=value)
        slos = tuple(replace(s, bound=value) if s == self.slo else s for s in scenario.slos)
        return replace(scenario, slos=slos).problem(shared.asking(slos))


@dataclass(frozen=True)
class Frontier:
    """Points in rising order of value; ``interrupted``: some values were not solved."""

    scenario: Scenario
    axis: Axis
    points: tuple[FrontierPoint, ...]
    interrupted: bool = False


def axis_of(scenario: Scenario, over: str) -> Axis:
    """``demand``, ``ttft``, ``tpot.p99`` or, where classes share a metric, ``chat/ttft.mean``.

    Raises InputError when ``over`` names no SLO of the scenario, or more than one.
    """
    if over == DEMAND:
        return Axis(None, scenario.demand)
    klass, _, name = over.rpartition("/")
    single = [slo for slo in scenario.slos if isinstance(slo, Slo)]
    found = [
        slo for slo in single if name in (slo.metric, slo.name) and klass in ("", slo.traffic_class)
    ]
    known = ", ".join(f"{slo.traffic_class}/{slo.name}" for slo in single)
    if not found:
        kinds = ", ".join(METRICS)
        raise InputError(
            f"--over {over!r}: the scenario has no such SLO; choose {DEMAND} or one of {known}"
            + ("" if name.split(".")[0] in METRICS else f" (metrics are {kinds})")
        )
    if len(found) > 1:
        raise InputError(f"--over {over!r} fits {len(found)} SLOs; say which: {known}")
    return Axis(found[0], found[0].bound)


def grid(axis: Axis, low: float | None, high: float | None, points: int) -> tuple[float, ...]:
    """``points`` values from ``low`` to ``high`` and the scenario's own where it is among them.

    Bounds are spaced by equal factors, demands by equal differences.
    """
    first, last = DEFAULT_RANGE[DEMAND if axis.rising else "bound"]
    low = first * axis.here if low is None else low
    high = last * axis.here if high is None else high
    if not 0.0 < low < high < math.inf:
        raise InputError(f"the range must rise from above 0, got {low:g} to {high:g}")
    if points < 2:
        raise InputError(f"a frontier needs at least 2 points, got {points}")
    values = (np.linspace if axis.rising else np.geomspace)(low, high, points)
    own = {axis.here} if low < axis.here < high else set[float]()
    return tuple(sorted({*(float(v) for v in values), *own}))


def frontier(
    scenario: Scenario,
    over: str,
    low: float | None = None,
    high: float | None = None,
    points: int = POINTS,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Frontier:
    """The least cost over a range of bounds (seconds) or demands (requests/s), with corners.

    ``over`` as :func:`axis_of` reads it; ``jobs`` processes (None: as many as pay off). ^C
    gives what is done. Corners are not sought in scenarios whose plans take seconds.
    """
    check_apart(scenario)
    axis = axis_of(scenario, over)
    values = grid(axis, low, high, points)
    sweep = _Sweep(scenario, axis, scenario.problem().capacity)
    solved, corners, interrupted = list[FrontierPoint](), list[FrontierPoint](), False
    total = 2 * len(values) - 1
    try:
        for point in _each(sweep.solve, [(value,) for value in values], jobs):
            solved.append(point)
            if progress is not None:
                progress(len(solved), total)
        pairs = [] if costly(scenario) else list(itertools.pairwise(solved))
        for done, found in enumerate(_each(sweep.corners, pairs, jobs)):
            corners += found
            if progress is not None:
                progress(len(solved) + done + 1, total)
    except KeyboardInterrupt:
        interrupted = True
    ordered = sorted([*solved, *corners], key=lambda point: point.value)
    return Frontier(scenario, axis, tuple(ordered), interrupted)


@dataclass(frozen=True)
class _Sweep:
    """Solves one axis of one scenario."""

    scenario: Scenario
    axis: Axis
    shared: Capacity

    def solve(self, value: float) -> FrontierPoint:
        found = solver_named("exact").solve(self.axis.problem(self.scenario, value, self.shared))
        if found.status == "infeasible":
            return FrontierPoint(value, None, None, reason=found.reason)
        proven = found.status == "optimal"
        return FrontierPoint(value, found.fleet, found.cost, proven)

    def corners(self, left: FrontierPoint, right: FrontierPoint) -> list[FrontierPoint]:
        """Points between two neighbours at which the cheapest fleet changes."""
        rising = self.axis.rising
        easy, hard = (left, right) if rising else (right, left)
        found = list[FrontierPoint]()
        for _ in range(MOST_CORNERS):
            fleet = easy.fleet
            if fleet is None or (hard.cost is not None and _same(hard, easy)):
                break
            if rising:
                end = beyond = self._too_much(fleet, easy.value, hard.value)
            else:
                end = self._least_bound(fleet, easy.value)
                beyond = end * (1.0 - BEYOND)
            if not min(left.value, right.value) < beyond < max(left.value, right.value):
                break
            after = self.solve(beyond)
            if not _same(after, easy):
                here = after if rising else easy
                found.append(replace(here, value=end, corner=True))
            easy = after
        return found

    def _certificate(self, fleet: Fleet, value: float) -> Certificate:
        return certify(self.axis.problem(self.scenario, value, self.shared), fleet)

    def _too_much(self, fleet: Fleet, good: float, bad: float) -> float:
        """The least demand that ``fleet`` does not hold, up to ``bad``; ``good`` it does."""
        for _ in range(HALVINGS):
            middle = 0.5 * (good + bad)
            holds = self._certificate(fleet, middle).certified
            good, bad = (middle, bad) if holds else (good, middle)
        return bad

    def _least_bound(self, fleet: Fleet, bound: float) -> float:
        """The tightest bound that ``fleet`` holds; ``bound`` is one.

        It is what the fleet is predicted to do. Where a role has several types the routing
        follows the bound, so that the prediction is asked again until it stands still.
        """
        for _ in range(MOST_ROUNDS):
            check = self._certificate(fleet, bound)
            at = self.scenario.slos.index(self.axis.slo) if self.axis.slo else 0
            predicted = check.slos[at].predicted
            if not check.certified or predicted is None or predicted >= bound * (1.0 - SETTLED):
                break
            bound = predicted
            if len(fleet.pools) == len(ROLES):
                break
        return bound


def _same(one: FrontierPoint, other: FrontierPoint) -> bool:
    """Whether both cost the same, or neither has a fleet."""
    if one.cost is None or other.cost is None:
        return one.cost is other.cost
    return abs(one.cost - other.cost) <= SAME_COST


def _each(
    work: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], jobs: int | None
) -> Iterator[Result]:
    """``work`` on each of ``arguments``, in order; by ``jobs`` processes where that pays off.

    Without ``jobs`` the first two are done here, and tell how long the others would take.
    """
    from joblib import cpu_count

    start = time.perf_counter()
    for done, each in enumerate(arguments):
        ahead = (time.perf_counter() - start) / max(done, 1) * (len(arguments) - done)
        pays = jobs is None and done >= 2 and ahead > WORTH_PARALLEL and cpu_count() > 1
        if pays or jobs not in (None, 1):
            yield from _in_parallel(work, arguments[done:], jobs or -1)
            return
        yield work(*each)


def _in_parallel(
    work: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[Result]:
    from joblib import Parallel, delayed

    with warnings.catch_warnings():  # a worker that has idled away is started again
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)
        tasks = (delayed(work)(*each) for each in arguments)
        yield from Parallel(n_jobs=jobs, return_as="generator")(tasks)
