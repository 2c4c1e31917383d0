"""Exact search: decode fleets in order of cost, each with its cheapest prefill fleet.

For a fixed decode fleet the admissible prefill rates are numbers, so the cheapest prefill
cover is a covering knapsack (:mod:`pdalloc.allocation.covers`). No prefill fleet can cost
less than the one with idle decode, ``least_prefill``; once a decode fleet's cost plus that
reaches the best total so far, nothing later can win: the best is optimal. Without coupling
the first decode fleet settles it (later ones only matter when the roles share stock).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pdalloc.allocation.covers import MOST_REPLICAS, covers
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.problem import Allocation, AllocationProblem, Option, infeasible
from pdalloc.fleet import DECODE, PREFILL, Fleet

COST_STEP = 1e-9
"""Costs closer than this (USD/hour) are ties."""


@dataclass
class _Best:
    """The ``wanted`` cheapest fleets found so far, sorted by (cost, GPUs, text)."""

    wanted: int
    kept: list[tuple[float, int, str, Fleet]]

    @property
    def cutoff(self) -> float:
        """Cost at or above which another fleet cannot enter."""
        return self.kept[-1][0] if len(self.kept) == self.wanted else math.inf

    def offer(self, cost: float, gpus: int, fleet: Fleet) -> None:
        """Keep ``fleet`` if it is among the cheapest."""
        entry = (cost, gpus, str(fleet), fleet)
        if all(fleet != other for *_, other in self.kept):
            self.kept = sorted([*self.kept, entry], key=lambda e: e[:3])[: self.wanted]


class ExactSearch:
    """The default solver: proves its answer optimal."""

    name = "exact"
    exact = True
    sentence = "best-first search over integer fleets with proof of optimality"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The cheapest fleet that keeps every SLO and the ``alternatives`` next ones."""
        prefills, decodes = problem.in_role(PREFILL), problem.in_role(DECODE)
        relaxed = [problem.rate(o) for o in prefills]
        least = next(covers(prefills, relaxed, problem.demand, problem.stock), None)
        if least is None or not any(problem.rate(o) > 0 for o in decodes):
            return infeasible(self.name, explain_infeasible(problem))
        best = _Best(alternatives + 1, [])
        self._start(problem, best)
        rates = [problem.rate(o) for o in decodes]
        for cost, counts in covers(
            decodes,
            rates,
            problem.demand,
            problem.stock,
            lambda: best.cutoff - least[0] - COST_STEP,
        ):
            self._complete(problem, counts, cost, best)
        if not best.kept:
            return infeasible(self.name, explain_infeasible(problem))
        cost, _, _, fleet = best.kept[0]
        others = tuple(item[3] for item in best.kept[1:])
        return Allocation("optimal", self.name, fleet, cost, cost, alternatives=others)

    def _start(self, problem: AllocationProblem, best: _Best) -> None:
        """A first incumbent: each decode type alone, doubled until prefill has room."""
        decodes = problem.in_role(DECODE)
        for i, o in enumerate(decodes):
            rate = problem.rate(o)
            count = math.ceil(problem.demand / rate) if rate > 0 else 0
            room = min(o.most, MOST_REPLICAS, problem.stock.get(o.gpu, math.inf) / o.gpus)
            while 0 < count <= room and o.cost(count) < best.cutoff:
                vector = tuple(count if k == i else 0 for k in range(len(decodes)))
                found = len(best.kept)
                self._complete(problem, vector, o.cost(count), best)
                if len(best.kept) > found or not problem.capacity.coupled:
                    break
                count *= 2

    def _complete(
        self, problem: AllocationProblem, decode: tuple[int, ...], cost: float, best: _Best
    ) -> None:
        """Offer the cheapest prefill fleets that go with a decode fleet."""
        prefills, decodes = problem.in_role(PREFILL), problem.in_role(DECODE)
        rates = _prefill_rates(problem, decode)
        left = _stock_left(problem.stock, decodes, decode)
        if not any(rates):
            return
        for prefill_cost, prefill in covers(
            prefills, rates, problem.demand, left, lambda: best.cutoff - cost - COST_STEP
        ):
            pairs = [*zip(prefills, prefill, strict=True), *zip(decodes, decode, strict=True)]
            fleet = Fleet.of({(o.role, o.replica_type): n for o, n in pairs})
            best.offer(cost + prefill_cost, sum(problem.gpus(fleet).values()), fleet)


def _prefill_rates(problem: AllocationProblem, decode: tuple[int, ...]) -> list[float]:
    """Admissible requests/s per prefill replica when ``decode`` carries the demand."""
    prefills, decodes = problem.in_role(PREFILL), problem.in_role(DECODE)
    capacity, types = problem.capacity, problem.capacity.system.replica_types
    if not capacity.coupled:
        return [problem.rate(o) for o in prefills]
    pools = {(o.role, o.replica_type): n for o, n in zip(decodes, decode, strict=True)}
    split = capacity.decode_split(Fleet.of(pools), problem.demand)
    if split is None:
        return [0.0 for _ in prefills]
    states = [capacity.predictor.decode(types[t], rate) for t, rate in split.items() if rate > 0]
    return [capacity.prefill_rate(types[o.replica_type], states) for o in prefills]


def _stock_left(
    stock: Mapping[str, int], options: tuple[Option, ...], counts: tuple[int, ...]
) -> dict[str, int]:
    left = dict(stock)
    for o, n in zip(options, counts, strict=True):
        if o.gpu in left:
            left[o.gpu] -= o.gpus * n
    return left


SOLVER = ExactSearch()
