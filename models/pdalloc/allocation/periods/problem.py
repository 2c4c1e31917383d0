r"""Which fleet runs in which period, as data.

.. math:: \min \sum_t h_t\, c(n_t) + \sum_{t,i} \left(a_i\, u_{t,i} + z_i\, v_{t,i}\right)
          \quad\text{s.t.}\quad n_t \text{ keeps the SLOs at } \lambda_t, \quad
          n_t = n_{t-1} + u_t - v_t, \quad
          \sum_i u_{t,i} \le U, \quad \sum_i v_{t,i} \le V,

with h hours, c USD/hour of a fleet, u starts and v stops at the beginning of a period, n, u and
v whole and not negative. Each period is an allocation problem of its own. Before the first
period stands the last one (the day repeats) or a given fleet.

A period is in steady state: neither the time that a start takes, nor draining, nor a backlog
from one period to the next is in it. Start costs stand for the paid time of the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import (
    COST_DIGITS,
    Allocation,
    AllocationProblem,
    Option,
    Status,
)
from pdalloc.errors import InputError
from pdalloc.fleet import Fleet

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Period:
    """``hours`` during which the demand of ``problem`` (requests/s) is steady."""

    hours: float
    problem: AllocationProblem

    def __post_init__(self) -> None:
        if not 0.0 < self.hours < math.inf:
            raise InputError(f"a period lasts a positive number of hours, got {self.hours:g}")
        if not 0.0 < self.problem.demand < math.inf:
            raise InputError(
                "the demand of a period must be positive and finite, got "
                f"{self.problem.demand:g} req/s"
            )


@dataclass(frozen=True)
class PeriodsProblem:
    """The cheapest fleets of ``periods``, one after the other.

    ``start_usd`` and ``stop_usd``: USD per replica that starts or stops, aligned with the
    options, owned replicas included. At most ``most_starts`` replicas start and ``most_stops``
    stop at the beginning of a period, over all pools. Periods that are alike may share one
    problem, which is then solved once. ``initial`` runs before the first period;
    None: the periods repeat, and the last one comes before the first. Raises InputError for
    negative costs or limits, or periods whose options differ.
    """

    periods: tuple[Period, ...]
    start_usd: tuple[float, ...]
    stop_usd: tuple[float, ...]
    most_starts: float = math.inf
    most_stops: float = math.inf
    initial: Fleet | None = None

    def __post_init__(self) -> None:
        if not self.periods:
            raise InputError("give at least one period")
        if any(p.problem.options != self.options for p in self.periods):
            raise InputError("all periods must offer the same options")
        for name, usd in (("start", self.start_usd), ("stop", self.stop_usd)):
            if len(usd) != len(self.options):
                raise InputError(f"give one {name} cost per option, {len(self.options)} in all")
            if not all(0.0 <= value < math.inf for value in usd):
                raise InputError(f"{name} costs must be finite and not negative")
        for name, most in (("most_starts", self.most_starts), ("most_stops", self.most_stops)):
            if not most >= 0.0:
                raise InputError(f"{name}: must not be negative, got {most:g}")

    @classmethod
    def of(
        cls,
        template: AllocationProblem,
        hours: Sequence[float],
        demands: Sequence[float],
        start_usd: float = 0.0,
        stop_usd: float = 0.0,
        **more: Any,
    ) -> PeriodsProblem:
        """``template`` at each of ``demands`` (requests/s); every option starts at one price."""
        problems = {demand: replace(template, demand=demand) for demand in demands}
        pairs = zip(hours, demands, strict=True)
        each = len(template.options)
        return cls(
            tuple(Period(h, problems[demand]) for h, demand in pairs),
            (start_usd,) * each,
            (stop_usd,) * each,
            **more,
        )

    @property
    def options(self) -> tuple[Option, ...]:
        """What every period may deploy."""
        return self.periods[0].problem.options

    @cached_property
    def hours(self) -> NDArray[np.float64]:
        """Hours of the periods; (T,)."""
        return np.array([p.hours for p in self.periods])

    @cached_property
    def demands(self) -> NDArray[np.float64]:
        """Requests/s of the periods; (T,)."""
        return np.array([p.problem.demand for p in self.periods])

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """For each period the first one with the very same problem; (T,)."""
        problems = [p.problem for p in self.periods]
        return tuple(next(k for k, q in enumerate(problems) if q is p) for p in problems)

    def counts(self, fleets: Sequence[Fleet]) -> Counts:
        """Replicas of each option in each of ``fleets``; (len(fleets), options)."""
        rows = [[f.count(o.role, o.replica_type) for o in self.options] for f in fleets]
        return np.array(rows, np.int64).reshape(len(fleets), len(self.options))

    def fleet(self, counts: Sequence[int] | Counts) -> Fleet:
        """The fleet of ``counts``, aligned with the options."""
        pairs = zip(self.options, counts, strict=True)
        return Fleet.of({(o.role, o.replica_type): int(n) for o, n in pairs})

    def changes(self, fleets: Sequence[Fleet]) -> Counts:
        """Replicas of each option that start (below 0: stop) before each period; (T, options)."""
        before = fleets[-1] if self.initial is None else self.initial
        return np.diff(self.counts([before, *fleets]), axis=0)

    def costs(self, fleets: Sequence[Fleet]) -> Costs:
        """What ``fleets``, one per period, cost in all."""
        changes = self.changes(fleets)
        pairs = zip(self.periods, fleets, strict=True)
        return Costs(
            sum(p.hours * p.problem.cost(f) for p, f in pairs),
            float(np.maximum(changes, 0).sum(axis=0) @ np.array(self.start_usd)),
            float(np.maximum(-changes, 0).sum(axis=0) @ np.array(self.stop_usd)),
        )

    def too_many(self, fleets: Sequence[Fleet]) -> list[str]:
        """Where ``fleets`` start or stop more replicas at once than they may, in words."""
        changes, broken = self.changes(fleets), []
        for words, signed, most in (
            ("start", changes, self.most_starts),
            ("stop", -changes, self.most_stops),
        ):
            for t, count in enumerate(np.maximum(signed, 0).sum(axis=1)):
                if count > most:
                    broken.append(f"period {t + 1}: {count} replicas {words}, limit {most:g}")
        return broken

    def broken(self, fleets: Sequence[Fleet]) -> list[str]:
        """Every constraint that ``fleets`` break, in words; each is certified at its demand."""
        found = []
        for t, (period, fleet) in enumerate(zip(self.periods, fleets, strict=True)):
            check = certify(period.problem, fleet)
            found += [f"period {t + 1}: {words}" for words in check.broken]
        return found + self.too_many(fleets)


@dataclass(frozen=True)
class Costs:
    """USD over all periods."""

    running: float
    starting: float
    stopping: float

    @property
    def total(self) -> float:
        """All three parts, to a nano-dollar."""
        return round(self.running + self.starting + self.stopping, COST_DIGITS)


@dataclass(frozen=True)
class Schedule:
    """The answer: one fleet per period.

    ``costs`` and ``bound``, a proven lower bound on their total, in USD over all periods.
    ``optima`` are the answers of the periods by themselves, as far as they were looked at.
    ``status``: optimal when bound and total differ by no more than solver tolerances.
    ``interrupted``: the search was stopped from outside; ``seconds`` that it took.
    """

    status: Status
    fleets: tuple[Fleet, ...]
    costs: Costs | None
    bound: float | None
    optima: tuple[Allocation | None, ...]
    reason: str = ""
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def gap(self) -> float | None:
        """How far the total may be above the least, relative to the total; None: no schedule."""
        if self.costs is None or self.bound is None:
            return None
        return max(1.0 - self.bound / self.costs.total, 0.0) if self.costs.total > 0.0 else 0.0
