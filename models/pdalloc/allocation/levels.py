r"""Coupled problems with many replicas: a search over the level that decode is loaded to.

Decode pools are loaded to a common level t (:mod:`pdalloc.capacity`): a replica of type j then
takes Y_j(t), which rises with t, and leaves prefill type r the rate K_rj(Y_j(t)), which falls.
For levels in [a, b] the table search with Y(b) and K(a) is a lower bound,

.. math:: \min \sum_r c_r n_r + \sum_j c_j m_j \quad\text{s.t.}\quad
          \sum_j Y_j(b) m_j \ge \lambda, \quad \sum_r K_r(a) n_r \ge \lambda, \quad
          K_r = \min_{j\ \text{in use}} K_{rj} .

What prefill its decode fleet really needs is a fleet; where that costs more, the types in use are
settled first, then the range of levels is halved. Ranges, not fleets, are looked at: a thousand
replicas more make few more of them.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from pdalloc.allocation.covers import MOST_REPLICAS
from pdalloc.allocation.linear import COVERED, Array
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.tables import cheapest, tables
from pdalloc.fleet import DECODE, PREFILL, Fleet

MOST_RANGES = 3_000
"""Ranges of levels looked at before the search is given up."""
NARROWEST = 1e-9
"""Width of a range, relative to all levels, that is not halved; every bound is taken this much
outside its range, so that rounding is on the safe side."""
SAME_RATE = 1e-9
"""Relative difference of rates that is none; rates that rise by more with the load are a doubt."""
COST_STEP = 1e-9


class _DoubtError(Exception):
    """Something that the bound rests on does not hold here."""


@dataclass(order=True)
class _Range:
    """Levels ``low`` to ``high`` (seconds); decode types ``banned``, and in ``use``."""

    bound: float
    tie: int
    low: float = field(compare=False)
    high: float = field(compare=False)
    banned: frozenset[str] = field(default=frozenset(), compare=False)
    use: frozenset[str] = field(default=frozenset(), compare=False)


def cheapest_by_levels(problem: AllocationProblem, below: float) -> tuple[Fleet | None] | None:
    """A cheapest fleet of a coupled problem if it costs less than ``below`` USD/hour, else (None,).

    None where the search cannot tell: pools that share a queue, levels that do not rise with the
    load, tables that would be too long.
    """
    capacity = problem.capacity
    if not capacity.coupled or capacity.pooled(PREFILL) or capacity.pooled(DECODE):
        return None
    try:
        return (_Levels(problem, below).searched(),)
    except _DoubtError:
        return None


class _Levels:
    def __init__(self, problem: AllocationProblem, below: float) -> None:
        self.problem, self.capacity = problem, problem.capacity
        self.types = problem.capacity.system.replica_types
        self.prefills = [o.replica_type for o in problem.in_role(PREFILL)]
        self.decodes = [o.replica_type for o in problem.in_role(DECODE)]
        self.tables = {
            name: self.capacity.level_table(self.types[name])
            for name in self.decodes
            if self.capacity.admissible_rate(DECODE, self.types[name], 1) > 0.0
        }
        if any(np.any(np.diff(levels) <= 0.0) for _, levels in self.tables.values()):
            raise _DoubtError
        low = min((float(levels[0]) for _, levels in self.tables.values()), default=0.0)
        high = max((float(levels[-1]) for _, levels in self.tables.values()), default=0.0)
        self.ends, self.margin = (low, high), NARROWEST * (high - low)
        self.best = below
        self.fleet: Fleet | None = None
        self.ties = itertools.count()
        self.completed: set[Fleet] = set()
        self.known: dict[tuple[str, str], dict[float, float]] = {}

    def searched(self) -> Fleet | None:
        """The cheapest fleet below what was known, or None."""
        queue = [_Range(0.0, next(self.ties), *self.ends)]
        for _ in range(MOST_RANGES):
            if not queue or queue[0].bound >= self.best - COST_STEP:
                return self.fleet
            for child in self._split(heapq.heappop(queue)):
                heapq.heappush(queue, child)
        raise _DoubtError

    def _split(self, at: _Range) -> list[_Range]:
        """What is left to look at of ``at``, its bound raised."""
        decode, prefill = self._decode_rates(at), self._prefill_rates(at)
        found = self._cheapest(decode, prefill)
        if found is None:
            return []
        cost, fleet = found
        if cost >= self.best - COST_STEP:
            return []
        pools = Fleet(fleet.in_role(DECODE))
        self._complete(pools)
        if cost >= self.best - COST_STEP:
            return []
        for pool in pools.pools:
            name = pool.replica_type
            if name not in at.use and self._slower(name, at, prefill):
                return [
                    replace(at, bound=cost, tie=next(self.ties), banned=at.banned | {name}),
                    replace(at, bound=cost, tie=next(self.ties), use=at.use | {name}),
                ]
        middle = 0.5 * (at.low + min(max(self._level(pools), at.low), at.high))
        middle = max(middle, at.low + 0.02 * (at.high - at.low))
        if at.high - at.low <= 4.0 * self.margin:
            raise _DoubtError
        return [
            replace(at, bound=cost, tie=next(self.ties), high=middle),
            replace(at, bound=cost, tie=next(self.ties), low=middle),
        ]

    def _decode_rates(self, at: _Range) -> dict[str, float]:
        """Most requests/s per replica of each decode type within the range."""
        level = at.high + self.margin
        return {n: self._rate(n, level) for n in self.tables if n not in at.banned}

    def _rate(self, name: str, level: float) -> float:
        rates, levels = self.tables[name]
        return float(np.interp(level, levels, rates))

    def _prefill_rates(self, at: _Range) -> dict[str, float]:
        """Most requests/s per replica of each prefill type within the range."""
        level = at.low - self.margin
        loaded = [name for name in at.use if self._rate(name, level) > 0.0]
        if loaded:
            return {r: min(self._left(r, j, level) for j in loaded) for r in self.prefills}
        some = [name for name in self.tables if name not in at.banned]
        return {r: max((self._left(r, j, level) for j in some), default=0.0) for r in self.prefills}

    def _slower(self, name: str, at: _Range, prefill: dict[str, float]) -> bool:
        """Whether type ``name``, at the least level, leaves prefill less than ``prefill``."""
        level = at.low - self.margin
        if self._rate(name, level) <= 0.0:
            return False
        return any(
            self._left(r, name, level) < rate * (1.0 - SAME_RATE) for r, rate in prefill.items()
        )

    def _left(self, prefill: str, decode: str, level: float) -> float:
        """Requests/s per replica that decode at ``level`` leaves a prefill type."""
        known = self.known.setdefault((prefill, decode), {})
        load = self._rate(decode, level)
        if load not in known:
            state = self.capacity.predictor.decode(self.types[decode], load)
            rate = self.capacity.prefill_rate(self.types[prefill], [state])
            for other, theirs in known.items():
                less, more = (rate, theirs) if load > other else (theirs, rate)
                if less > more * (1.0 + SAME_RATE):
                    raise _DoubtError
            known[load] = rate
        return known[load]

    def _level(self, pools: Fleet) -> float:
        """Least level at which ``pools`` carry the demand."""
        low, high = self.ends
        for _ in range(50):
            middle = 0.5 * (low + high)
            carried = sum(p.replicas * self._rate(p.replica_type, middle) for p in pools.pools)
            low, high = (low, middle) if carried >= self.problem.demand else (middle, high)
        return high

    def _complete(self, pools: Fleet) -> None:
        """Keep the cheapest fleet with the decode ``pools``, if it is the best yet."""
        if pools in self.completed:
            return
        self.completed.add(pools)
        sizes = {pool.replica_type: pool.replicas for pool in pools.pools}
        rates = self.capacity.prefill_bounds(self.prefills, sizes, self.problem.demand)
        found = self._cheapest({}, rates, pools)
        if found is not None:
            fleet = Fleet.of({**pools.counts, **found[1].counts})
            cost = self.problem.cost(fleet)
            if cost < self.best - COST_STEP:
                self.best, self.fleet = cost, fleet

    def _cheapest(
        self, decode: dict[str, float], prefill: dict[str, float], beside: Fleet | None = None
    ) -> tuple[float, Fleet] | None:
        """The cheapest fleet at these rates per replica: decode's pools are given or chosen."""
        p = self.problem
        held = dict(p.stock)
        for gpu, used in (p.gpus(beside) if beside else {}).items():
            if gpu in held:
                held[gpu] -= used
        options = p.in_role(PREFILL) if beside else p.options
        rows: list[Array] = []
        for o in options:
            rate = (prefill if o.role == PREFILL else decode).get(o.replica_type, 0.0)
            alone = math.ceil(p.demand / rate) if rate * MOST_REPLICAS >= p.demand else 0
            most = int(min(alone, o.most, held.get(o.gpu, math.inf) // o.gpus))
            rows.append(np.arange(most + 1, dtype=np.float64) * (rate / p.demand))
        t = tables(options, rows, held)
        need = np.array([COVERED, 0.0 if beside else COVERED])
        proof = cheapest(t, need)
        if not proof.settled:
            raise _DoubtError
        if proof.counts is None:
            return None
        return proof.usd, t.fleet(proof.counts)
