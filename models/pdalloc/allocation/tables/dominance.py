r"""Counts that some cheapest fleet does without, because other replicas serve better.

Where a replicas of option i cost no less and fill no fewer GPUs of the same stock than b of
option j, yet admit less,

.. math:: a c_i \ge b c_j, \qquad a k_i \ge b k_j, \qquad a r_i < b r_j,

trading them keeps a fleet feasible, costs nothing and gains capacity; so there is a cheapest
fleet with fewer than a of option i. Only affine tables are compared: every further replica of
theirs is alike.
"""

from __future__ import annotations

from pdalloc.allocation.tables.compiled import compiled
from pdalloc.allocation.tables.data import Array, Arrays, Ints

MOST_TRADED = 8
"""Replicas on either side of a trade."""
GAIN = 1e-12
"""Relative capacity that a trade must gain: more than rounding, so that trades never go round."""


@compiled
def _endless(t: Arrays, g: int, binds: bool, j: int, need: Array) -> bool:
    """Whether only the demand, or stock that binds, ends the replicas of option ``j``."""
    if t.admits[j, t.most[j]] >= need[t.role[j]]:
        return True
    return binds and t.most[j] == t.stock[g] // t.gpus[j]


@compiled
def _trade(t: Arrays, i: int, j: int, binds: bool) -> int:
    """Least replicas of option ``i`` that some of option ``j`` do better than; 0 if there are none.

    Free replicas are compared by GPUs alone: that needs a stock that ``binds``.
    """
    if t.usd[i, 1] <= 0.0 and not binds:
        return 0
    for a in range(1, min(MOST_TRADED, t.most[i]) + 1):
        b = int(a * t.admits[i, 1] * (1.0 + GAIN) / t.admits[j, 1]) + 1
        fits = a * t.gpus[i] >= b * t.gpus[j] or not binds
        if b <= t.most[j] and fits and t.usd[i, a] >= t.usd[j, b]:
            return a
    return 0


@compiled
def worth_having(t: Arrays, need: Array) -> Ints:
    """Greatest counts (n,) of some cheapest fleet that admits ``need`` (2,).

    Every trade lowers dollars per capacity, or GPUs per capacity where both are free, so trades
    end.
    """
    most = t.most.copy()
    for g in range(len(t.stock)):
        members = range(t.start[g], t.start[g + 1])
        reach = 0
        for j in members:
            reach += t.gpus[j] * t.most[j]
        binds = reach > t.stock[g]
        for j in members:
            useful = t.affine[j] and t.admits[j, 1] > 0.0
            if not useful or not _endless(t, g, binds, j, need):
                continue
            for i in members if binds else range(len(most)):
                if i != j and t.role[i] == t.role[j] and t.affine[i] and t.most[i] > 0:
                    traded = _trade(t, i, j, binds)
                    if traded > 0:
                        most[i] = min(most[i], traded - 1)
    return most
