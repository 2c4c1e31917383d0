r"""What a failed proposal teaches the integer program, where its rows are not the whole problem.

A fleet that the program proposes for a period and that breaks a constraint there adds a cut to
every period of that kind, as :mod:`pdalloc.allocation.rounds` does for one period:

*coupled stages*: *either* some decode count differs from d *or*
:math:`\sum_{i \in prefill} \kappa_i(d)\, n_i \ge \lambda`, with kappa(d) the most that a prefill
replica admits beside decode counts d, any of whose pools may be left idle;

*pools that share a queue, lost replicas*: some count of the role that fails must be greater,
because more replicas of a type never admit less;

*types that do not fit each other*: there must be none of one of them.

None removes a schedule that keeps the constraints, so every bound stays one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pdalloc.allocation.certify import certify
from pdalloc.allocation.conditions import misfits
from pdalloc.allocation.linear import COVERED, Array
from pdalloc.allocation.periods.problem import Counts, PeriodsProblem
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import DECODE, PREFILL, ROLES


@dataclass(frozen=True)
class Cut:
    """In periods of ``kind``: a count of ``members`` leaves ``at``, or ``share`` covers.

    ``at`` (options,) replicas; ``share`` (options,) of the demand per replica, all 0 where
    nothing else helps. Counts leave upwards if ``more`` replicas may help, downwards if
    ``fewer`` may.
    """

    kind: int
    members: tuple[int, ...]
    at: Counts
    share: Array
    more: bool
    fewer: bool


def cuts_of(problem: PeriodsProblem, kind: int, counts: Counts, own: Counts) -> list[Cut]:
    """Cuts that remove ``counts`` (options,), which fail in periods of ``kind``.

    ``own`` counts are known to serve there. None where no cut is known to hold.
    """
    period = problem.periods[kind].problem
    capacity = period.capacity
    if period.slo_scope != "pool" or capacity.links_carry_all:
        return []
    if apart := misfits(period, problem.fleet(counts)):
        return [_either(period, kind, pair) for pair in apart]
    if not capacity.coupled:
        return _greater(problem, kind, counts, own)
    pooled = any(capacity.pooled(role) for role in ROLES)
    if pooled or period.conditioned or capacity.only_by_rule:
        return []
    share = _share_beside(period.with_headroom(), counts)
    if share @ counts >= COVERED:
        return []  # it fails by a hair, or by something else
    return [Cut(kind, _members(period, DECODE), counts, share, more=True, fewer=True)]


def _members(period: AllocationProblem, role: str) -> tuple[int, ...]:
    return tuple(i for i, o in enumerate(period.options) if o.role == role)


def _either(period: AllocationProblem, kind: int, pair: tuple[str, str]) -> Cut:
    """One of a pair of (prefill type, decode type) must not be there."""
    named = list(zip((PREFILL, DECODE), pair, strict=True))
    members = [i for i, o in enumerate(period.options) if (o.role, o.replica_type) in named]
    each = len(period.options)
    one, nothing = np.ones(each, np.int64), np.zeros(each)
    return Cut(kind, tuple(members), one, nothing, more=False, fewer=True)


def _greater(problem: PeriodsProblem, kind: int, counts: Counts, own: Counts) -> list[Cut]:
    """A cut for each role that fails beside the other role's counts of ``own``.

    What both take of the stock, and whether they fit each other, is no fault of either.
    """
    period = replace(problem.periods[kind].problem, stock={}, compatible=None)
    found = []
    for role in ROLES:
        members = _members(period, role)
        beside = own.copy()
        beside[list(members)] = counts[list(members)]
        if not certify(period, problem.fleet(beside)).certified:
            nothing = np.zeros(len(counts))
            found.append(Cut(kind, members, counts, nothing, more=True, fewer=False))
    return found


def _share_beside(period: AllocationProblem, counts: Counts) -> Array:
    """Most of the demand that a prefill replica admits beside these decode counts; (options,)."""
    prefill, decode = (_members(period, role) for role in (PREFILL, DECODE))
    pools = {period.options[i].replica_type: int(counts[i]) for i in decode if counts[i]}
    names = {period.options[i].replica_type: 1 for i in prefill}
    best = np.zeros(len(counts))
    for used in _subsets(list(pools)):
        rates = period.capacity.prefill_rates(names, {n: pools[n] for n in used}, period.demand)
        shares = np.array([rates[period.options[i].replica_type] for i in prefill]) / period.demand
        best[list(prefill)] = np.maximum(best[list(prefill)], shares)
    return best


def _subsets(names: Sequence[str]) -> itertools.chain[tuple[str, ...]]:
    sizes = range(1, len(names) + 1)
    return itertools.chain.from_iterable(itertools.combinations(names, k) for k in sizes)


def reach(problem: PeriodsProblem, least: Sequence[float], total: float) -> Array:
    """Most replicas of each option in any schedule cheaper than ``total`` USD; (T, options).

    ``least`` USD/hour of each period by itself. Infinity for what costs nothing.
    """
    hours = problem.hours
    spare = total - float(hours @ np.array(least))
    usd = np.array([o.usd_per_hour for o in problem.options])
    owned = np.array([o.owned for o in problem.options])
    room = spare / hours + np.array(least)
    with np.errstate(divide="ignore", invalid="ignore"):
        bought = np.where(usd > 0.0, np.floor(room[:, None] / usd + 1e-6), math.inf)
    return np.asarray(np.maximum(bought, 0.0) + owned)
