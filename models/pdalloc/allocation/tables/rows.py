"""One option's capacity table, exact where it was asked for and an upper bound elsewhere.

What a replica of a pooled type admits is dear to compute and grows with its pool. So a table
starts from a few exact entries; between them a pool's rate per replica is at most that of the
next larger pool known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pdalloc.allocation.linear import COVERED, Array
from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.fleet import Fleet

LONGEST = 20_000
"""Counts of one option beyond which tables are too long to be of use."""


def capacity_rows(problem: AllocationProblem) -> tuple[CapacityRow, ...] | None:
    """A row per option of an uncoupled problem; None where one would be longer than LONGEST."""
    rows = [CapacityRow.of(problem, o) for o in problem.options]
    found = tuple(row for row in rows if row is not None)
    return found if len(found) == len(rows) else None


def learn(problem: AllocationProblem, rows: Iterable[CapacityRow], fleet: Fleet) -> int:
    """Compute the entries of ``fleet``'s pools; how many were not known."""
    sizes = [(row, fleet.count(row.option.role, row.option.replica_type)) for row in rows]
    return sum(row.learn(problem, m) for row, m in sizes)


@dataclass
class CapacityRow:
    """Shares of the demand that m replicas of ``option`` admit, for the m in ``exact``."""

    option: Option
    most: int
    exact: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: AllocationProblem, option: Option) -> CapacityRow | None:
        """The row up to the pool that serves the demand alone; None beyond LONGEST."""
        share = problem.rate(option) / problem.demand
        alone = math.ceil(COVERED / share) if share > 0 else 0
        held = min(option.most, problem.stock.get(option.gpu, math.inf) // option.gpus)
        if min(alone, held) > LONGEST:
            return None
        if not problem.capacity.pooled(option.role):
            most = int(min(alone, held))
            return cls(option, most, {most: share * most})
        row = cls(option, int(min(alone, held)))
        while row.learn(problem, row.most) and row.exact[row.most] < COVERED and row.most < held:
            row.most += 1
        for halvings in range(1, row.most.bit_length()):
            row.learn(problem, row.most >> halvings)
        return row

    def learn(self, problem: AllocationProblem, m: int) -> bool:
        """Compute the entry of ``m`` replicas; False when it was known."""
        capacity, o = problem.capacity, self.option
        if m in self.exact or m == 0 or not capacity.pooled(o.role):
            return False
        r = capacity.system.replica_types[o.replica_type]
        self.exact[m] = m * capacity.admissible_rate(o.role, r, m) / problem.demand
        return True

    def upper(self) -> Array:
        """Exact entries; between them m times the rate of the next larger pool; (most + 1,)."""
        row = np.zeros(self.most + 1)
        start = 1
        for m, share in sorted(self.exact.items()):
            counts = np.arange(start, m + 1)
            row[counts] = counts * (share / max(m, 1))
            start = m + 1
        return np.maximum.accumulate(row)
