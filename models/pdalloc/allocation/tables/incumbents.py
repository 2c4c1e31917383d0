"""Fleets from counts that miss the demand or the stock a little: what a proof is cut short by."""

from __future__ import annotations

import math

import numpy as np

from pdalloc.allocation.tables.compiled import compiled
from pdalloc.allocation.tables.data import Array, Arrays, Ints


@compiled
def _left(t: Arrays, counts: Ints) -> Ints:
    """GPUs of each block that ``counts`` leave, after the dearest excess is taken off; (G,)."""
    left = t.stock.copy()
    for g in range(len(left)):
        members = slice(t.start[g], t.start[g + 1])
        left[g] -= (t.gpus[members] * counts[members]).sum()
        while left[g] < 0:
            i = t.start[g] + int(np.argmax(t.gpus[members] * counts[members]))
            off = min(-(left[g] // t.gpus[i]), counts[i])
            counts[i] -= off
            left[g] += off * t.gpus[i]
    return left


@compiled
def _add(t: Arrays, counts: Ints, left: Ints, lacking: Array, s: int) -> bool:
    """Add the replicas of role ``s`` that cover the most of what is lacking per dollar."""
    best, option, added = math.inf, -1, 0
    for g in range(len(left)):
        for i in range(t.start[g], t.start[g + 1]):
            if t.role[i] != s:
                continue
            here = counts[i]
            have, usd = t.admits[i, here], t.usd[i, here]
            room = min(here + left[g] // t.gpus[i], t.most[i])
            enough = np.searchsorted(t.admits[i, : room + 1], have + lacking[s])
            for m in (min(enough, room), enough - 1, here + 1):
                gain = min(t.admits[i, m] - have, lacking[s]) if here < m <= room else 0.0
                if gain > 0.0 and (t.usd[i, m] - usd) / gain < best:
                    best, option, added = (t.usd[i, m] - usd) / gain, i, m - here
    if option < 0:
        return False
    g = int(np.searchsorted(t.start, option, side="right")) - 1
    left[g] -= added * t.gpus[option]
    before = t.admits[option, counts[option]]
    counts[option] += added
    lacking[s] -= t.admits[option, counts[option]] - before
    return True


@compiled
def _trim(t: Arrays, counts: Ints, lacking: Array) -> None:
    """Take off what is not needed, the dearest per demand first; ``lacking`` (2,) <= 0."""
    unit = np.empty(len(counts))
    for i in range(len(counts)):
        unit[i] = -t.usd[i, counts[i]] / max(t.admits[i, counts[i]], 1e-300)
    for i in np.argsort(unit, kind="mergesort"):
        s, m, have = t.role[i], counts[i], t.admits[i, counts[i]]
        m = int(np.searchsorted(t.admits[i, : m + 1], max(have + lacking[s], 0.0)))
        while m < counts[i] and lacking[s] + have - t.admits[i, m] > 0.0:  # rounding
            m += 1
        lacking[s] += have - t.admits[i, m]
        counts[i] = m


@compiled
def repaired(t: Arrays, counts: Ints, need: Array) -> bool:
    """Make ``counts`` (n,) a fleet within stock that admits ``need`` (2,), if additions can."""
    left = _left(t, counts)
    lacking = need.copy()
    for i in range(len(counts)):
        lacking[t.role[i]] -= t.admits[i, counts[i]]
    for s in range(len(need)):
        while lacking[s] > 0.0:
            if not _add(t, counts, left, lacking, s):
                return False
    _trim(t, counts, lacking)
    return True


@compiled
def cheapest_repaired(t: Arrays, rows: Ints, need: Array) -> tuple[float, Ints]:
    """The cheapest fleet (USD/hour, inf if none; counts) that repairs of ``rows`` (N, n) give."""
    best, fleet = math.inf, np.zeros(rows.shape[1], np.int64)
    for row in rows:
        counts = row.copy()
        if repaired(t, counts, need):
            usd = 0.0
            for i in range(len(counts)):
                usd += t.usd[i, counts[i]]
            if usd < best:
                best, fleet = usd, counts
    return best, fleet
