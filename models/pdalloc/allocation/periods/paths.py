r"""The cheapest way through the periods over given fleets, by dynamic programming.

Periods are stages, fleets that keep the SLOs in them are states, and a step costs what starts
and stops. Where the periods repeat, a way is sought from each fleet of one period back to it:

.. math:: V_t(f, g) = \min_{e}\, [V_{t-1}(f, e) + \text{step}(e, g)] + h_t c_t(g) .

The answer is the best over these fleets, not over all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.linear import Array
from pdalloc.allocation.periods.problem import Counts, PeriodsProblem
from pdalloc.fleet import Fleet


def cheapest_path(
    problem: PeriodsProblem, fleets: Sequence[Fleet], serves: NDArray[np.bool_]
) -> tuple[Fleet, ...] | None:
    """One of ``fleets`` per period at least total cost; None where no way keeps the limits.

    ``serves`` (T, fleets): whether a fleet keeps every constraint of a period.
    """
    counts = problem.counts(fleets)
    run = np.array(
        [
            [
                p.hours * p.problem.cost(f) if ok else math.inf
                for f, ok in zip(fleets, row, strict=True)
            ]
            for p, row in zip(problem.periods, serves, strict=True)
        ]
    )
    steps = _steps(problem, counts, counts)
    if problem.initial is not None:
        first = _steps(problem, problem.counts([problem.initial]), counts) + run[0]
        order = list(range(1, len(run)))
        costs, back = _forward(first, run[order], steps)
        return _walk(fleets, costs[0], [b[0] for b in back])
    # A fleet of the period with the fewest is fixed; the way ends where it began.
    start = int(np.argmin(serves.sum(axis=1)))
    ends = np.flatnonzero(np.isfinite(run[start]))
    if not len(ends):
        return None
    first = np.full((len(ends), len(fleets)), math.inf)
    first[np.arange(len(ends)), ends] = run[start, ends]
    order = [(start + k) % len(run) for k in range(1, len(run))]
    costs, back = _forward(first, run[order], steps)
    closed = costs + steps[:, ends].T
    best = int(np.argmin(closed.min(axis=1)))
    path = _walk(fleets, closed[best], [b[best] for b in back])
    if path is None:
        return None
    return tuple(path[(t - start) % len(path)] for t in range(len(path)))


def _steps(problem: PeriodsProblem, before: Counts, after: Counts) -> Array:
    """USD from each fleet to each, infinity beyond the limits; (before, after)."""
    change = after[None, :, :] - before[:, None, :]
    started, stopped = np.maximum(change, 0), np.maximum(-change, 0)
    usd = started @ np.array(problem.start_usd) + stopped @ np.array(problem.stop_usd)
    over = (started.sum(axis=2) > problem.most_starts) | (stopped.sum(axis=2) > problem.most_stops)
    return np.where(over, math.inf, usd)


def _forward(first: Array, run: Array, steps: Array) -> tuple[Array, list[Counts]]:
    """Least costs (ways, fleets) after all stages, and the fleet before each; from ``first``."""
    costs, back = first, []
    for stage in run:
        through = costs[:, :, None] + steps[None, :, :]
        back.append(through.argmin(axis=1))
        costs = through.min(axis=1) + stage
    return costs, back


def _walk(fleets: Sequence[Fleet], last: Array, back: Sequence[Counts]) -> tuple[Fleet, ...] | None:
    """The fleets that lead to the cheapest end."""
    at = int(np.argmin(last))
    if not math.isfinite(last[at]):
        return None
    found = [at]
    for before in reversed(back):
        found.append(int(before[found[-1]]))
    return tuple(fleets[k] for k in reversed(found))
