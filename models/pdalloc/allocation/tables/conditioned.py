r"""Redundancy and compatibility: a tree of table searches.

With f replicas of any one pool lost the demand must still be covered,

.. math:: \sum_i C_i(m_i) - \Lambda \ge \lambda, \qquad
          \Lambda = \max_i [C_i(m_i) - C_i(m_i - f)] \quad\text{in each role.}

A node knows that Lambda lies in an interval: it asks for lambda + its lower end and leaves out
counts that lose its upper end or more; each is a plain table search, whose cost is a bound. If
the answer loses more than was provided for, the node splits at what it loses. A pair of types
that do not fit each other splits it too: one of them goes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from pdalloc.allocation.conditions import misfits
from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.tables.data import Array, Ints, Tables, tables
from pdalloc.allocation.tables.tree import Proof, cheapest
from pdalloc.fleet import DECODE, PREFILL, ROLES

MOST_SEARCHES = 2_000


@dataclass(order=True)
class _Node:
    bound: float
    tie: int
    lost: tuple[float, float] = field(compare=False)
    below: tuple[float, float] = field(compare=False)
    banned: frozenset[tuple[str, str]] = field(compare=False)


def cheapest_conditioned(problem: AllocationProblem, admits: list[Array]) -> tuple[Tables, Proof]:
    """The cheapest counts that keep the problem's conditions, proven.

    ``admits``: shares of the demand by count, long enough for the redundancy, by option.
    """
    ties = itertools.count()
    queue = [_Node(0.0, next(ties), (0.0, 0.0), (math.inf, math.inf), frozenset())]
    searches, nodes, t = 0, 0, _tables(problem, admits, queue[0])
    while queue:
        node = heapq.heappop(queue)
        t = _tables(problem, admits, node)
        searches += 1
        proof = cheapest(t, COVERED + np.array(node.lost))
        nodes += proof.nodes
        if not proof.settled or searches > MOST_SEARCHES:
            return t, Proof(None, math.inf, max(node.bound, proof.bound), nodes)
        if proof.counts is None:
            continue
        bound = max(node.bound, proof.usd)
        children = _children(problem, t, node, proof.counts)
        if not children:
            # every node left costs at least as much as this one's bound did
            if not queue or proof.usd <= queue[0].bound:
                return t, replace(proof, nodes=nodes)
            heapq.heappush(queue, replace(node, bound=bound, tie=next(ties)))
            continue
        for child in children:
            heapq.heappush(queue, replace(child, bound=bound, tie=next(ties)))
    return t, Proof(None, math.inf, math.inf, nodes)


def _tables(problem: AllocationProblem, admits: list[Array], node: _Node) -> Tables:
    """The tables that ``node`` allows."""
    rows = []
    for o, row in zip(problem.options, admits, strict=True):
        if (o.role, o.replica_type) in node.banned:
            rows.append(row[:1])
            continue
        too_much = _losses(row, problem.redundancy) >= node.below[ROLES.index(o.role)]
        rows.append(row[: int(np.argmax(too_much))] if too_much.any() else row)
    return tables(problem.options, rows, problem.stock, math.inf)


def _losses(row: Array, lost: int) -> Array:
    """What pools of 0, 1, ... replicas lose with ``lost`` of them; (len(row),)."""
    before = np.maximum(np.arange(len(row)) - lost, 0)
    return row - row[before]


def _children(problem: AllocationProblem, t: Tables, node: _Node, counts: Ints) -> list[_Node]:
    """How ``node`` splits because ``counts`` break a condition; empty when they break none."""
    for p, d in misfits(problem, t.fleet(counts)):
        pair = ((PREFILL, p), (DECODE, d))
        return [replace(node, banned=node.banned | {each}) for each in pair]
    if problem.redundancy == 0:
        return []
    covered, n = t.covered(counts), np.arange(len(counts))
    loss = t.admits[n, counts] - t.admits[n, np.maximum(counts - problem.redundancy, 0)]
    for s in range(len(ROLES)):
        worst = float(loss[t.role == s].max())
        if covered[s] - worst < COVERED:
            lost, below = list(node.lost), list(node.below)
            lost[s], below[s] = worst, worst
            return [
                replace(node, lost=(lost[0], lost[1])),
                replace(node, below=(below[0], below[1])),
            ]
    return []
