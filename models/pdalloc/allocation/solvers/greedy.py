"""Greedy merit order: the cheapest USD per admissible request first, rounded up.

The rule of autoscalers that rank variants by cost per unit of capacity. What it overlooks is
that replicas are whole: the type with the least unit cost may be far too large for what is left
(need 100; A costs 10 and serves 200, B costs 6 and serves 100: greedy buys A).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdalloc.allocation.baselines import judged, merit_order, room, whole
from pdalloc.allocation.covers import MOST_REPLICAS, SHORTFALL
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.problem import Allocation, AllocationProblem, Option, infeasible
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.prediction import PoolKey

Rated = Sequence[tuple[Option, float]]


class GreedyMeritOrder:
    """A baseline, not exact. Keeps stock and limits; owned replicas come first, they are free."""

    name = "greedy"
    exact = False
    sentence = "merit order: the cheapest USD per admissible request first, rounded up"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """Decode by merit order, then prefill beside it; ``alternatives`` is ignored.

        Nothing is taken back: where decode leaves prefill too little of an SLO that spans
        both stages, or of the stock, the fleet falls short and is returned as infeasible.
        """
        prefills, decodes = merit_order(problem, PREFILL), merit_order(problem, DECODE)
        if not prefills or not decodes:
            return infeasible(self.name, explain_infeasible(problem))
        counts = cover(problem, decodes, {})
        decode = {name: n for (_, name), n in counts.items() if n}
        names = [o.replica_type for o, _ in prefills]
        beside = problem.capacity.prefill_bounds(names, decode, problem.demand)
        rated = [(o, beside[o.replica_type]) for o, _ in prefills if beside[o.replica_type] > 0.0]
        rated.sort(key=lambda item: item[0].usd_per_hour / item[1])
        return judged(problem, self.name, Fleet.of(cover(problem, rated, counts)))


def cover(
    problem: AllocationProblem, rated: Rated, taken: Mapping[PoolKey, int]
) -> dict[PoolKey, int]:
    """``taken`` and replicas that serve the demand: owned ones first, then in the given order.

    ``rated`` holds (option, requests/s per replica). Falls short where stock and limits end.
    """
    counts, left = dict(taken), problem.demand
    owned_first = [(o, rate, o.owned) for o, rate in rated]
    for option, rate, most in [*owned_first, *((o, rate, MOST_REPLICAS) for o, rate in rated)]:
        if left <= SHORTFALL * problem.demand:
            break
        n = min(whole(left / rate), room(problem, option, counts), most)
        key = (option.role, option.replica_type)
        counts[key] = counts.get(key, 0) + n
        left -= n * rate
    return counts


SOLVER = GreedyMeritOrder()
