"""Exact search: decode fleets in order of cost, each with its cheapest prefill fleet.

For a fixed decode fleet the admissible prefill rates are numbers, so the cheapest prefill
cover is a covering knapsack (:mod:`pdalloc.allocation.covers`). No prefill fleet can cost
less than the one with idle decode, ``least``; once a decode fleet's cost plus that reaches
the best total so far, nothing later can win: the best is optimal under the routing of
:mod:`pdalloc.capacity`.

Under dispatch rules that pool replicas the rates are those of pools large enough to serve the
demand alone, which bound those of smaller ones (a larger pool admits no less per replica: it has
no more to wait for). Covers then come in order of cost as before, and those that fail at the
rates of their own sizes are passed over.

Without coupling or pools the roles only meet in the stock: where their cheapest covers fit it
together they are optimal; otherwise :mod:`pdalloc.allocation.tables` proves the optimum. Should
its tree grow too large, HiGHS settles the integer program, gap 0, once with the rates a little
smaller and once a little larger: equal costs, or a fleet of the second that covers the demand
in plain arithmetic, prove the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pdalloc.allocation.covers import MOST_REPLICAS, SHORTFALL, covers
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.levels import cheapest_by_levels
from pdalloc.allocation.linear import LEEWAY, solve_by_highs
from pdalloc.allocation.population import solve_population
from pdalloc.allocation.problem import Allocation, AllocationProblem, Option, infeasible
from pdalloc.allocation.tables import solve_by_tables
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet, Role

COST_STEP = 1e-9
"""Costs closer than this (USD/hour) are ties."""
FEW = 4
"""Types per role up to which each role's own covers are tried before tables are made."""
MANY_DECODE_FLEETS = 64
"""Decode fleets looked at one by one before ranges of levels are."""
MOST_DECODE_FLEETS = 20_000
"""Decode fleets looked at before the search gives up (and says so)."""
MOST_PREFILL_FLEETS = 20_000
"""Prefill fleets looked at beside one decode fleet."""


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
        """The cheapest fleet that keeps every SLO and the ``alternatives`` next ones.

        Raises UnsupportedError when the search grows beyond MOST_DECODE_FLEETS.
        """
        problem = problem.with_headroom()
        if problem.conditioned and not (
            problem.capacity.linear and problem.slo_scope == "pool" and alternatives == 0
        ):
            raise UnsupportedError(
                "redundancy and compatible types are known for dispatch: random, SLOs of one "
                "stage each, slo_scope: pool and no alternatives; leave one of them out"
            )
        if problem.slo_scope == "population":
            if alternatives:
                raise UnsupportedError("slo_scope: population lists no alternatives")
            return solve_population(problem, self.name)
        if not problem.capacity.coupled and alternatives == 0:
            settled = self._uncoupled(problem)
            if settled is not None:
                return settled
        prefills, decodes = problem.in_role(PREFILL), problem.in_role(DECODE)
        relaxed = [problem.rate(o) for o in prefills]
        least = next(covers(prefills, relaxed, problem.demand, problem.stock), None)
        rates = [problem.rate(o) for o in decodes]
        if least is None or not any(rates):
            return infeasible(self.name, explain_infeasible(problem))
        best = _Best(alternatives + 1, [])
        if not self._start(problem, best):
            return infeasible(self.name, explain_infeasible(problem))
        found = covers(
            decodes,
            rates,
            problem.demand,
            problem.stock,
            lambda: best.cutoff - least[0] - COST_STEP,
        )
        for seen, (cost, counts) in enumerate(found):
            if seen == MANY_DECODE_FLEETS and alternatives == 0:
                settled_by_levels = cheapest_by_levels(problem, best.cutoff)
                if settled_by_levels is not None:
                    _offer(problem, settled_by_levels[0], best)
                    break
            if seen == MOST_DECODE_FLEETS:
                raise UnsupportedError(
                    f"the exact search looked at {seen} decode fleets without a proof; offer "
                    "fewer replica types, or loosen the SLO that is near its floor"
                )
            self._complete(problem, counts, cost, best)
        if not best.kept:
            return infeasible(self.name, explain_infeasible(problem))
        cost, _, _, fleet = best.kept[0]
        others = tuple(item[3] for item in best.kept[1:])
        if problem.capacity.only_by_rule:
            # another split between decode types might do with less: only the relaxation is proven
            bound = least[0] + next(covers(decodes, rates, problem.demand, problem.stock))[0]
            if bound < cost - COST_STEP:
                return Allocation("feasible", self.name, fleet, cost, bound, alternatives=others)
        return Allocation("optimal", self.name, fleet, cost, cost, alternatives=others)

    def _uncoupled(self, problem: AllocationProblem) -> Allocation | None:
        """The cheapest fleet by capacity tables, else by HiGHS; None where neither can tell."""
        linear = problem.capacity.linear
        few = (
            linear
            and not problem.conditioned
            and all(len(problem.in_role(role)) <= FEW for role in ROLES)
        )
        fleet = _apart(problem) if few else None
        found = solve_by_tables(problem) if fleet is None else None
        if found is not None and found[1].settled:
            t, proof = found
            if proof.counts is None:
                return infeasible(self.name, explain_infeasible(problem))
            fleet = t.fleet(proof.counts)
        if fleet is None and linear and not problem.conditioned:
            fleet = _by_highs(problem)
        if fleet is None and problem.conditioned:
            raise UnsupportedError(
                "the search over lost replicas and types was cut off without a proof"
            )
        if fleet is None:
            return None
        cost = problem.cost(fleet)
        return Allocation("optimal", self.name, fleet, cost, cost)

    def _start(self, problem: AllocationProblem, best: _Best) -> bool:
        """A first incumbent: each decode type alone, doubled until prefill has room.

        False when even as much of an unlimited type as is looked at leaves prefill too
        little: then no fleet exists.
        """
        decodes, endless = problem.in_role(DECODE), False
        for i, o in enumerate(decodes):
            rate = problem.rate(o)
            if rate * MOST_REPLICAS < problem.demand:
                continue
            count = math.ceil(problem.demand / rate * (1.0 - 1e-12))
            room = min(o.most, MOST_REPLICAS, problem.stock.get(o.gpu, math.inf) / o.gpus)
            endless = endless or room >= MOST_REPLICAS
            while count <= room and o.cost(count) < best.cutoff:
                vector = tuple(count if k == i else 0 for k in range(len(decodes)))
                found = len(best.kept)
                self._complete(problem, vector, o.cost(count), best)
                if len(best.kept) > found or problem.capacity.linear:
                    break
                count *= 2
        return bool(best.kept) or not endless

    def _complete(
        self, problem: AllocationProblem, decode: tuple[int, ...], cost: float, best: _Best
    ) -> None:
        """Offer the cheapest prefill fleets that go with a decode fleet."""
        prefills, decodes = problem.in_role(PREFILL), problem.in_role(DECODE)
        rates = _prefill_bounds(problem, decode)
        left = _stock_left(problem.stock, decodes, decode)
        found = covers(
            prefills, rates, problem.demand, left, lambda: best.cutoff - cost - COST_STEP
        )
        for seen, (_, prefill) in enumerate(found):
            if seen == MOST_PREFILL_FLEETS:
                raise UnsupportedError(
                    f"the exact search looked at {seen} prefill fleets beside one decode fleet; "
                    "offer fewer replica types, or set dispatch: random"
                )
            if problem.capacity.pooled(PREFILL) and not _serves(problem, prefill, decode):
                continue
            pairs = [*zip(prefills, prefill, strict=True), *zip(decodes, decode, strict=True)]
            _offer(problem, Fleet.of({(o.role, o.replica_type): n for o, n in pairs}), best)


def _offer(problem: AllocationProblem, fleet: Fleet | None, best: _Best) -> None:
    if fleet is not None:
        best.offer(problem.cost(fleet), sum(problem.gpus(fleet).values()), fleet)


def _apart(problem: AllocationProblem) -> Fleet | None:
    """Each role's cheapest cover; None where they do not exist or fit the stock together."""
    counts: dict[tuple[str, str], int] = {}
    for role in ROLES:
        options = problem.in_role(role)
        rates = [problem.rate(o) for o in options]
        cover = next(covers(options, rates, problem.demand, problem.stock), None)
        if cover is None:
            return None
        counts |= {(o.role, o.replica_type): n for o, n in zip(options, cover[1], strict=True)}
    fleet = Fleet.of(counts)
    fits = all(used <= problem.stock.get(g, used) for g, used in problem.gpus(fleet).items())
    return fleet if fits else None


def _by_highs(problem: AllocationProblem) -> Fleet | None:
    """The integer program's answer, proven by rates a little smaller and a little larger.

    None when a rate so near the demand decides that HiGHS's tolerance cannot tell, or when no
    fleet exists; then the search in plain arithmetic does.
    """
    safe, hopeful = (solve_by_highs(problem, sign * LEEWAY) for sign in (-1.0, 1.0))
    if hopeful is None or _covers(problem, hopeful):
        return hopeful
    if safe is not None and problem.cost(safe) == problem.cost(hopeful):
        return safe
    return None


def _covers(problem: AllocationProblem, fleet: Fleet) -> bool:
    """Whether ``fleet`` covers the demand of every role in plain arithmetic."""
    return all(
        sum(problem.rate(o) * fleet.count(o.role, o.replica_type) for o in problem.in_role(role))
        >= problem.demand * (1.0 - SHORTFALL)
        for role in ROLES
    )


def _prefill_bounds(problem: AllocationProblem, decode: tuple[int, ...]) -> list[float]:
    """Bounds on requests/s per prefill replica when ``decode`` carries the demand."""
    names = [o.replica_type for o in problem.in_role(PREFILL)]
    rates = problem.capacity.prefill_bounds(names, _pools(problem, DECODE, decode), problem.demand)
    return [rates[name] for name in names]


def _serves(problem: AllocationProblem, prefill: tuple[int, ...], decode: tuple[int, ...]) -> bool:
    """Whether pools of these sizes admit the demand beside each other."""
    pools = _pools(problem, PREFILL, prefill)
    rates = problem.capacity.prefill_rates(pools, _pools(problem, DECODE, decode), problem.demand)
    admitted = sum(n * rates[name] for name, n in pools.items())
    return admitted >= problem.demand * (1.0 - SHORTFALL)


def _pools(problem: AllocationProblem, role: Role, counts: tuple[int, ...]) -> dict[str, int]:
    """Replicas by type, without types that have none."""
    pairs = zip(problem.in_role(role), counts, strict=True)
    return {o.replica_type: n for o, n in pairs if n}


def _stock_left(
    stock: Mapping[str, int], options: tuple[Option, ...], counts: tuple[int, ...]
) -> dict[str, int]:
    left = dict(stock)
    for o, n in zip(options, counts, strict=True):
        if o.gpu in left:
            left[o.gpu] -= o.gpus * n
    return left


SOLVER = ExactSearch()
