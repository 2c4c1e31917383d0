"""Dedicated pools, exactly: apart where they do not meet, else together, else by prices.

1. Every part's cheapest fleet under the whole stock, limits and owned replicas is a lower bound
   on what the part costs. Where these fleets fit together and cost their sum, nothing is cheaper.
2. Linear parts: one integer program (:mod:`.joint`).
3. Any parts: divisions made part by part in every order are answers; prices on what is shared
   (:mod:`.prices`) are a bound; and every fleet of a part that may be in a cheaper division is
   listed in order of its priced cost, and the lists are searched. Lists that are cut off leave
   ``feasible``, with the bound that they prove.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pdalloc.allocation.dedicated.joint import solve_jointly
from pdalloc.allocation.dedicated.prices import SUM_ERROR, Priced, best_prices, priced
from pdalloc.allocation.dedicated.problem import NOTHING, DedicatedAllocation, DedicatedProblem
from pdalloc.allocation.problem import COST_DIGITS, Allocation, AllocationProblem, Status
from pdalloc.allocation.solvers.exact import COST_STEP, SOLVER
from pdalloc.errors import UnsupportedError, located
from pdalloc.fleet import Fleet

MOST_ORDERS = 24
"""Orders of the parts in which the stock is divided greedily."""
TIE = 1e-7
"""Relative: by prices, costs closer than this are ties, and a bound so close is a proof."""
LENGTHS = (4, 16, 64, 256)
"""Fleets listed of each part, in turn, until the proof is done."""
MOST_SUMS = 200_000
"""Partial divisions looked at before a search of the lists is given up."""
APART, PRICES = "each part alone, which fit together", "prices on what parts share, and lists"


def solve_dedicated(problem: DedicatedProblem) -> DedicatedAllocation:
    """The cheapest fleet of every part under the common stock, limits and owned replicas.

    ``optimal`` is proven; ``feasible`` comes with the bound that is. Raises UnsupportedError
    where no division of the stock is found, nor proven that there is none, and what the exact
    solver raises for a part.
    """
    problem = problem.with_headroom()
    alone = []
    for part in problem.parts:
        with located(f"pools of {part.name}"):
            alone.append(SOLVER.solve(part.problem))
    reasons = [
        f"{part.name}: {a.reason}"
        for part, a in zip(problem.parts, alone, strict=True)
        if a.cost is None
    ]
    if reasons:
        return DedicatedAllocation("infeasible", (), None, None, APART, "; ".join(reasons))
    fleets = tuple(a.fleet for a in alone)
    bound = round(sum(a.bound or 0.0 for a in alone), COST_DIGITS)
    costs = sum(a.cost or 0.0 for a in alone) + COST_STEP
    if not problem.violations(fleets) and problem.cost(fleets) <= costs:
        return _answer(problem, fleets, bound, APART)
    if all(_linear(part.problem) for part in problem.parts):
        found = solve_jointly(problem)
        if found is not None and found.status != "infeasible":
            return found
        if found is not None:
            return _none(problem, fleets, found.method)
    return _by_prices(problem, alone, bound)


def _linear(p: AllocationProblem) -> bool:
    return p.capacity.linear and not p.conditioned and p.slo_scope == "pool"


def _answer(
    problem: DedicatedProblem, fleets: tuple[Fleet, ...], bound: float, method: str
) -> DedicatedAllocation:
    cost = problem.cost(fleets)
    proven = bound >= cost - _tie(cost)
    status: Status = "optimal" if proven else "feasible"
    return DedicatedAllocation(status, fleets, cost, cost if proven else bound, method)


def _tie(cost: float) -> float:
    return COST_STEP + TIE * cost


def _none(problem: DedicatedProblem, fleets: Sequence[Fleet], method: str) -> DedicatedAllocation:
    """No division serves every part; ``fleets`` are the cheapest of each alone."""
    needs = " and ".join(problem.violations(fleets))
    reason = (
        "each part can be served alone, but not all together: their cheapest fleets need "
        f"{needs}; raise stock or limits, lower the demand, or let classes share pools"
    )
    return DedicatedAllocation("infeasible", (), None, None, method, reason)


@dataclass
class _Best:
    """The cheapest division so far."""

    problem: DedicatedProblem
    cost: float = math.inf
    fleets: tuple[Fleet, ...] = field(default=())

    def offer(self, fleets: tuple[Fleet, ...]) -> None:
        """Keep ``fleets`` if they are all there, fit together and are cheaper."""
        if not all(f.pools for f in fleets) or self.problem.violations(fleets):
            return
        cost = self.problem.cost(fleets)
        if cost < self.goal():
            self.cost, self.fleets = cost, fleets

    def goal(self) -> float:
        """A bound from here on proves the cost."""
        return self.cost - _tie(self.cost) if self.fleets else math.inf


def _by_prices(
    problem: DedicatedProblem, alone: Sequence[Allocation], bound: float
) -> DedicatedAllocation:
    best = _Best(problem)
    for order in itertools.islice(itertools.permutations(range(len(problem.parts))), MOST_ORDERS):
        best.offer(_in_turn(problem, order))
    prices = best_prices(problem, best.offer, best.goal)
    bound = max(bound, prices.bound)
    if bound < min(best.goal(), _dearest(problem)) and prices.exact:
        bound = max(bound, _listed(problem, prices, best))
    if best.fleets:
        return _answer(problem, best.fleets, bound, PRICES)
    if bound > _dearest(problem):
        return _none(problem, [a.fleet for a in alone], PRICES)
    raise UnsupportedError(
        "pools: no division of stock and limits between the parts was found, nor a proof that "
        "there is none; raise stock or limits, or let classes share pools"
    )


def _dearest(problem: DedicatedProblem) -> float:
    """More than any division of the stock costs, USD/hour; inf where some GPU is unlimited."""
    unit: dict[str, float] = {}
    for o in problem.options:
        unit[o.gpu] = max(unit.get(o.gpu, 0.0), o.usd_per_hour / o.gpus)
    return (1.0 + SUM_ERROR) * sum(
        usd * problem.stock.get(gpu, math.inf) for gpu, usd in unit.items() if usd > 0.0
    )


def _in_turn(problem: DedicatedProblem, order: Sequence[int]) -> tuple[Fleet, ...]:
    """Each part's cheapest fleet with what the parts before it leave; empty ones where none."""
    fleets = [NOTHING] * len(problem.parts)
    for index in order:
        fleets[index] = SOLVER.solve(problem.rest(index, fleets)).fleet
        if not fleets[index].pools:
            break
    return tuple(fleets)


def _listed(problem: DedicatedProblem, prices: Priced, best: _Best) -> float:
    """The bound by listing the fleets of every part in order of priced cost.

    A division with a fleet that is not listed costs at least the bound and what the last fleet
    listed costs beyond its part's cheapest. inf where every fleet of a part is listed and no
    division was found.
    """
    bound = prices.bound
    for length in LENGTHS:
        lists, beyond = [], math.inf
        for i, part in enumerate(problem.parts):
            p = priced(part.problem, problem, prices.unit)
            try:
                found = SOLVER.solve(p, length)
            except UnsupportedError:  # the solver lists no fleets of this problem
                return bound
            fleets = [found.fleet, *found.alternatives]
            lists.append([(p.cost(f) - float(prices.alone[i]), f) for f in fleets])
            if len(fleets) > length:
                beyond = min(beyond, lists[-1][-1][0])
        if not _search(problem, prices.bound, lists, best):
            return bound
        reached = prices.bound + beyond - SUM_ERROR * (1.0 + abs(prices.bound))
        bound = max(bound, min(reached, best.cost))
        if bound >= best.goal():
            return bound
    return bound


def _search(
    problem: DedicatedProblem,
    bound: float,
    lists: Sequence[Sequence[tuple[float, Fleet]]],
    best: _Best,
) -> bool:
    """Look at every division made of the lists that may be cheaper; False when too many are.

    ``lists`` by part: (priced cost beyond the part's cheapest, fleet), in that order.
    """
    seen = 0

    def divisions(i: int, over: float, chosen: tuple[Fleet, ...]) -> Iterator[bool]:
        nonlocal seen
        if i == len(lists):
            best.offer(chosen)
            return
        for more, fleet in lists[i]:
            if bound + over + more >= best.goal():
                return
            seen += 1
            if seen > MOST_SUMS:
                yield False
                return
            if not problem.violations((*chosen, fleet)):
                yield from divisions(i + 1, over + more, (*chosen, fleet))

    return all(divisions(0, 0.0, ()))
