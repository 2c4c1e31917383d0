"""The capacity tables of a problem whose roles meet only in the stock."""

from __future__ import annotations

import math

import numpy as np

from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.tables.data import Array, Tables, tables

LONGEST = 20_000
"""Counts of one option beyond which tables are too long to be of use."""


def linear_tables(problem: AllocationProblem) -> Tables | None:
    """Tables of rate times replicas; None where one would be longer than LONGEST."""
    rows: list[Array] = []
    for o in problem.options:
        share = problem.rate(o) / problem.demand
        alone = math.ceil(COVERED / share) + 1 if share > 0 else 0
        held = problem.stock.get(o.gpu, math.inf) // o.gpus
        useful = min(alone, o.most, held)
        if useful > LONGEST:
            return None
        rows.append(np.arange(int(useful) + 1, dtype=np.float64) * share)
    return tables(problem.options, rows, problem.stock)
