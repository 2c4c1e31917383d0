r"""Capacity tables: what m replicas of each option admit and cost.

.. math:: \min \sum_i c_i(m_i) \quad\text{s.t.}\quad
          \sum_{i \in role} C_i(m_i) \ge \lambda, \quad
          \sum_{i \in block} k_i m_i \le \text{stock}_{block}, \quad m_i \in \{0, ..., M_i\}.

C and c are tables, so pools that share a queue (C superlinear), owned replicas (c flat at
first) and limits (M) need no case of their own. A *block* is the options on one GPU type, which
share its stock; an option whose stock can never bind is a block by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.problem import Option
from pdalloc.allocation.tables.compiled import compiled
from pdalloc.fleet import ROLES, Fleet

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

ROUNDING = 1e-14
"""Relative to the last entry: differences between steps of a table that are all alike."""


@compiled
def _affine(admits: Array, usd: Array, most: Ints) -> Flags:
    found = np.ones(len(most), np.bool_)
    for i in range(len(most)):
        for row in (admits[i], usd[i]):
            least, greatest = row[1] - row[0], row[1] - row[0]
            for m in range(2, most[i] + 1):
                least, greatest = (
                    min(least, row[m] - row[m - 1]),
                    max(greatest, row[m] - row[m - 1]),
                )
            if greatest - least > ROUNDING * row[most[i]]:
                found[i] = False
    return found


class Arrays(NamedTuple):
    """What compiled code reads of :class:`Tables`, whose fields have these names."""

    role: Ints
    gpus: Ints
    most: Ints
    admits: Array
    usd: Array
    affine: Flags
    start: Ints
    stock: Ints


@dataclass(frozen=True)
class Tables:
    """n options in G blocks, block g being ``start[g]:start[g + 1]``; W >= largest count + 2.

    ``role`` (n,) index into ROLES; ``gpus`` (n,) per replica; ``most`` (n,) replicas;
    ``admits`` (n, W) share of the demand and ``usd`` (n, W) per hour of m replicas, both
    nondecreasing in m; ``stock`` (G,) GPUs.
    """

    options: tuple[Option, ...]
    role: Ints
    gpus: Ints
    most: Ints
    admits: Array
    usd: Array
    start: Ints
    stock: Ints

    @cached_property
    def affine(self) -> Flags:
        """Whether an option's every further replica admits and costs the same; (n,)."""
        return _affine(self.admits, self.usd, self.most)

    @cached_property
    def arrays(self) -> Arrays:
        """The tables for compiled code."""
        return Arrays(
            self.role,
            self.gpus,
            self.most,
            self.admits,
            self.usd,
            self.affine,
            self.start,
            self.stock,
        )

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.stock)

    def fleet(self, counts: Ints) -> Fleet:
        """The fleet of ``counts`` (n,)."""
        pairs = zip(self.options, counts, strict=True)
        return Fleet.of({(o.role, o.replica_type): int(m) for o, m in pairs})

    def covered(self, counts: Ints) -> Array:
        """Share of the demand that ``counts`` (n,) admit in each role; (2,)."""
        each = self.admits[np.arange(len(counts)), counts]
        return np.array([each[self.role == s].sum() for s in range(len(ROLES))])

    def cost(self, counts: Ints) -> float:
        """USD/hour of ``counts`` (n,)."""
        return float(self.usd[np.arange(len(counts)), counts].sum())


def tables(
    options: Sequence[Option],
    admits: Sequence[Array],
    stock: Mapping[str, int],
    enough: float = COVERED,
) -> Tables:
    """The tables of ``options`` with their admitted shares by count, from 0 replicas up.

    Entries that limits, stock or a lone pool that covers ``enough`` of the demand make useless
    are dropped.
    """
    most = [_useful(o, a, stock, enough) for o, a in zip(options, admits, strict=True)]
    groups: dict[str, list[int]] = {}
    for i, o in enumerate(options):
        groups.setdefault(o.gpu, []).append(i)
    blocks: list[tuple[list[int], int]] = []
    for gpu, members in groups.items():
        need = sum(options[i].gpus * most[i] for i in members)
        if stock.get(gpu, math.inf) < need:
            blocks.append((members, stock[gpu]))
        else:
            blocks += [([i], options[i].gpus * most[i]) for i in members]
    order = [i for members, _ in blocks for i in members]
    width = max(most, default=0) + 2
    admit, usd = np.zeros((len(order), width)), np.zeros((len(order), width))
    for row, i in enumerate(order):
        m = most[i]
        admit[row, : m + 1] = admits[i][: m + 1]
        bought = np.maximum(np.arange(m + 1) - options[i].owned, 0)
        usd[row, : m + 1] = options[i].usd_per_hour * bought
    return Tables(
        tuple(options[i] for i in order),
        np.array([ROLES.index(options[i].role) for i in order], np.int64),
        np.array([options[i].gpus for i in order], np.int64),
        np.array([most[i] for i in order], np.int64),
        admit,
        usd,
        np.cumsum([0, *(len(members) for members, _ in blocks)]).astype(np.int64),
        np.array([held for _, held in blocks], np.int64),
    )


def _useful(option: Option, admits: Array, stock: Mapping[str, int], enough: float) -> int:
    """Most replicas worth having: the first count that covers ``enough`` alone, if any."""
    if admits[-1] <= 0.0:
        return 0
    alone = int(np.searchsorted(admits, enough))
    held = stock.get(option.gpu, math.inf) // option.gpus
    return int(min(alone, len(admits) - 1, option.most, held))
