"""The uncoupled problem by capacity tables, as exact as they need to be.

The cheapest fleet under upper bounds (:mod:`.rows`) costs no more than the true one: its own
entries are computed and the search repeated until they were exact already.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.tables.conditioned import cheapest_conditioned
from pdalloc.allocation.tables.data import Array, Tables, tables
from pdalloc.allocation.tables.rows import CapacityRow, capacity_rows, learn
from pdalloc.allocation.tables.tree import Proof, cheapest
from pdalloc.fleet import ROLES

MOST_REFINEMENTS = 1_000
"""Searches over ever tighter tables before they are given up."""
NEED = np.full(len(ROLES), COVERED)


def solve_by_tables(problem: AllocationProblem) -> tuple[Tables, Proof] | None:
    """The cheapest counts of an uncoupled problem; None where tables would be too long.

    The proof is unsettled when a search was cut off.
    """
    rows = capacity_rows(problem)
    if rows is None:
        return None
    if problem.conditioned:
        return cheapest_conditioned(problem, [_longer(row, problem) for row in rows])
    for _ in range(MOST_REFINEMENTS):
        t = tables(problem.options, [row.upper() for row in rows], problem.stock)
        proof = cheapest(t, NEED)
        if proof.counts is None or not learn(problem, rows, t.fleet(proof.counts)):
            return t, proof
    return t, Proof(None, math.inf, proof.bound, proof.nodes)


def _longer(row: CapacityRow, problem: AllocationProblem) -> Array:
    """A row of rate times replicas, by the replicas that may be lost longer."""
    share = problem.rate(row.option) / problem.demand
    return share * np.arange(row.most + problem.redundancy + 1, dtype=np.float64)
