"""The fixed-point iteration that practitioners use, with its rounds and failures shown.

Start with twice the replicas that full use would take. Each round: prefill sends what it
admits beside the present decode pool; decode is sized for that stream; prefill is sized for
the demand at the rate decode leaves it. Neither moves by more than the round's step, 10 % at
first and 2 % at last. It ends where nothing moves, where prefill goes back and forth (the last
rounds are averaged), or after MOST_ROUNDS. Counts are then rounded up.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from pdalloc.allocation.baselines import judged, keeps_slos, one_type_each, whole
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.problem import Allocation, AllocationProblem, infeasible
from pdalloc.fleet import DECODE, PREFILL, Fleet

FIRST_STEP, LAST_STEP, SHRINK = 0.10, 0.02, 0.9
MOST_ROUNDS = 20
CONSERVATIVE = 2.0
"""Replicas at the start over those that full use would take."""
SETTLED = 1e-3
"""Relative move below which a count stands still."""


@dataclass(frozen=True)
class Point:
    """Fractional replicas after a round; whether its rounded fleet keeps the SLOs."""

    prefill: float
    decode: float
    keeps: bool

    @property
    def counts(self) -> tuple[int, int]:
        """Rounded up."""
        return whole(self.prefill), whole(self.decode)

    @property
    def xpyd(self) -> str:
        """``3P4D``."""
        return "{}P{}D".format(*self.counts)


class FixedPoint:
    """A baseline, not exact: one type per role; stock and limits are checked, not searched."""

    name = "fixed_point"
    exact = False
    sentence = "prefill's output sizes decode, decode's load sizes prefill, round by round"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """Where the iteration ends; ``alternatives`` is ignored.

        Details: ``rounds``, ``failures`` (rounds whose fleet, rounded up, breaks an SLO),
        ``ended`` and the ``path`` of fleets, round by round.
        """
        chosen = one_type_each(problem)
        if chosen is None:
            return infeasible(self.name, explain_infeasible(problem))
        (prefill, p_rate), (decode, d_rate) = chosen
        sizing = _Sizing(problem, prefill.replica_type, decode.replica_type, d_rate)
        start = sizing.point(*(CONSERVATIVE * problem.demand / rate for rate in (p_rate, d_rate)))
        path, ended = iterate(sizing, start)
        fleet = sizing.fleet(path[-1])
        details: dict[str, float | str] = {
            "rounds": float(len(path) - 1),
            "failures": float(sum(not point.keeps for point in path[1:])),
            "ended": ended,
            "path": " ".join(point.xpyd for point in path),
        }
        return judged(problem, self.name, fleet, details)


@dataclass(frozen=True)
class _Sizing:
    """What each role needs beside the other; ``decode_rate`` requests/s per replica."""

    problem: AllocationProblem
    prefill: str
    decode: str
    decode_rate: float

    def fleet(self, point: Point) -> Fleet:
        xp, yd = point.counts
        return Fleet.of({(PREFILL, self.prefill): xp, (DECODE, self.decode): yd})

    def point(self, prefill: float, decode: float) -> Point:
        keeps = keeps_slos(self.problem, self.fleet(Point(prefill, decode, False)))
        return Point(prefill, decode, keeps)

    def targets(self, point: Point) -> tuple[float, float] | None:
        """(prefill, decode) replicas wanted beside ``point``; None: decode leaves no room."""
        xp, yd = point.counts
        demand = self.problem.demand
        rates = self.problem.capacity.prefill_rates({self.prefill: xp}, {self.decode: yd}, demand)
        rate = rates[self.prefill]
        if rate <= 0.0:
            return None
        return demand / rate, point.prefill * rate / self.decode_rate


def iterate(sizing: _Sizing, start: Point) -> tuple[list[Point], str]:
    """(every point from ``start`` on, how it ended)."""
    path, step = [start], FIRST_STEP
    for _ in range(MOST_ROUNDS):
        now = path[-1]
        wanted = sizing.targets(now)
        if wanted is None:  # more decode, and as much prefill as before
            wanted = now.prefill, (1.0 + step) * now.decode
        x, y = _towards(now.prefill, wanted[0], step), _towards(now.decode, wanted[1], step)
        path.append(sizing.point(x, y))
        if max(abs(x / now.prefill - 1.0), abs(y / now.decode - 1.0)) < SETTLED:
            return path, "converged"
        if _oscillates(path):
            middle = sizing.point((now.prefill + x) / 2.0, (now.decode + y) / 2.0)
            return [*path, middle], "averaged an oscillation"
        step = max(step * SHRINK, LAST_STEP)
    return path, "stopped short"


def _towards(now: float, wanted: float, step: float) -> float:
    return min(max(wanted, now * (1.0 - step)), now * (1.0 + step))


def _oscillates(path: list[Point]) -> bool:
    """Whether the last three moves of prefill, or of decode, went one way, back, and again."""
    if len(path) < 4:
        return False
    for values in ([p.prefill for p in path[-4:]], [p.decode for p in path[-4:]]):
        a, b, c = (later - before for before, later in itertools.pairwise(values))
        if a * b < 0.0 and b * c < 0.0:
            return True
    return False


SOLVER = FixedPoint()
