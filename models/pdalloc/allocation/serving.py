"""Whether a fleet serves a demand, and with which traffic on each pool, in either scope of SLOs."""

from __future__ import annotations

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Fleet
from pdalloc.prediction import PoolKey


def traffic(problem: AllocationProblem, fleet: Fleet) -> dict[PoolKey, float] | None:
    """Requests/s offered to each pool so that every SLO holds; None when none is found."""
    if not all(fleet.in_role(role) for role in ROLES):
        return None
    if problem.slo_scope == "population":
        from pdalloc.allocation.population import population_traffic

        rates, kept = population_traffic(problem, fleet)
        return rates if kept else None
    return problem.capacity.route(fleet, problem.demand)


def best_traffic(problem: AllocationProblem, fleet: Fleet) -> dict[PoolKey, float]:
    """:func:`traffic`, or the best effort where some SLO breaks."""
    if problem.slo_scope == "population":
        from pdalloc.allocation.population import population_traffic

        rates, _ = population_traffic(problem, fleet)
        return rates or problem.capacity.best_effort_route(fleet, problem.demand)
    return problem.capacity.best_route(fleet, problem.demand)


def serves(problem: AllocationProblem, fleet: Fleet) -> bool:
    """Whether ``fleet`` keeps every SLO at the demand, whatever stock and conditions say."""
    try:
        return traffic(problem, fleet) is not None
    except InputError:  # a change such as longer outputs may not fit the KV memory at all
        return False
