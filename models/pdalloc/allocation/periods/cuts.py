r"""What a failed proposal teaches the integer program, where its rows are not the whole problem.

A fleet that the program proposes for a period and that breaks a constraint there adds a cut to
every period of that kind, as :mod:`pdalloc.allocation.rounds` does for one period:

*coupled stages*: *either* some decode count differs from d *or*
:math:`\sum_{i \in prefill} \kappa_i(d)\, n_i \ge \lambda`, with kappa(d) the most that a prefill
replica admits beside decode counts d, any of whose pools may be left idle;

*pools that share a queue, lost replicas*: some count of the role that fails must be greater,
because more replicas of a type never admit less.

Both remove no schedule that keeps the constraints, so every bound stays one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pdalloc.allocation.linear import COVERED, Array
from pdalloc.allocation.periods.problem import Counts, PeriodsProblem
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet


@dataclass(frozen=True)
class Cut:
    """In periods of ``kind``: a count of ``members`` leaves ``at``, or ``share`` covers.

    ``at`` (options,) replicas; ``share`` (options,) of the demand per replica, all 0 where
    nothing else helps. ``both_ways``: fewer replicas than ``at`` may help as well as more.
    """

    kind: int
    members: tuple[int, ...]
    at: Counts
    share: Array
    both_ways: bool


def cuts_of(
    problem: PeriodsProblem,
    kind: int,
    counts: Counts,
    own: Counts,
    serves: Callable[[Fleet], bool],
) -> list[Cut]:
    """Cuts that remove ``counts`` (options,), which fail in periods of ``kind``.

    ``own`` counts are known to serve there. None where no cut is known to hold.
    """
    period = problem.periods[kind].problem
    capacity = period.capacity
    if period.slo_scope != "pool" or period.compatible is not None or capacity.links_carry_all:
        return []
    if not capacity.coupled:
        return _greater(problem, kind, counts, own, serves)
    pooled = any(capacity.pooled(role) for role in ROLES)
    if pooled or period.conditioned or capacity.only_by_rule:
        return []
    share = _share_beside(period.with_headroom(), counts)
    if share @ counts >= COVERED:
        return []  # it fails by a hair, or by something else
    decode = _members(period, DECODE)
    return [Cut(kind, decode, counts, share, both_ways=True)]


def _members(period: AllocationProblem, role: str) -> tuple[int, ...]:
    return tuple(i for i, o in enumerate(period.options) if o.role == role)


def _greater(
    problem: PeriodsProblem,
    kind: int,
    counts: Counts,
    own: Counts,
    serves: Callable[[Fleet], bool],
) -> list[Cut]:
    """A cut for each role that fails beside the other role's counts of ``own``."""
    found = []
    for role in ROLES:
        members = _members(problem.periods[kind].problem, role)
        beside = own.copy()
        beside[list(members)] = counts[list(members)]
        if not serves(problem.fleet(beside)):
            nothing = np.zeros(len(counts))
            found.append(Cut(kind, members, counts, nothing, both_ways=False))
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
