"""How sure is a plan: the growth and slow-down its fleet survives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.serving import serves
from pdalloc.capacity import demand_limit
from pdalloc.fleet import Fleet
from pdalloc.system import System

MOST = 3.0
"""Greatest relative change searched; a margin of 3 means "at least fourfold"."""
LEAST = -0.9
ACCURACY = 5e-4


def demand_margin(problem: AllocationProblem, fleet: Fleet) -> float | None:
    """Relative growth of the demand that the fleet survives; None when none at all."""
    if problem.slo_scope == "population":
        demand, system = problem.demand, problem.capacity.system

        def holds(factor: float) -> bool:
            capacity = problem.capacity
            if capacity.links_carry_all:
                capacity = capacity.under(system.with_workload(system.workload.scaled(factor)))
            return serves(replace(problem, capacity=capacity, demand=factor * demand), fleet)

        return greatest_change(holds)
    limit = demand_limit(problem.capacity, fleet, problem.demand * (1.0 + MOST))
    return limit / problem.demand - 1.0 if limit > 0 else None


def prefill_margin(problem: AllocationProblem, fleet: Fleet) -> float | None:
    """Relative slow-down of every prefill the fleet survives."""
    system = problem.capacity.system
    return greatest_change(lambda f: serves(_under(problem, system.slowed(prefill=f)), fleet))


def decode_margin(problem: AllocationProblem, fleet: Fleet) -> float | None:
    """Relative slow-down of every decode step the fleet survives."""
    system = problem.capacity.system
    return greatest_change(lambda f: serves(_under(problem, system.slowed(decode=f)), fleet))


def output_margin(problem: AllocationProblem, fleet: Fleet) -> float | None:
    """Relative lengthening of outputs, at the same request rate, that the fleet survives."""
    system = problem.capacity.system

    def holds(factor: float) -> bool:
        longer = system.with_workload(system.workload.with_longer_outputs(factor))
        return serves(_under(problem, longer), fleet)

    return greatest_change(holds)


def _under(problem: AllocationProblem, system: System) -> AllocationProblem:
    return replace(problem, capacity=problem.capacity.under(system))


def greatest_change(holds: Callable[[float], bool]) -> float | None:
    """Greatest relative change x in [LEAST, MOST] with ``holds(1 + x)``; None when none."""
    if holds(1.0 + MOST):
        return MOST
    low, high = (0.0, MOST) if holds(1.0) else (LEAST, 0.0)
    if low == LEAST and not holds(1.0 + LEAST):
        return None
    while high - low > ACCURACY:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(1.0 + middle) else (low, middle)
    return low
