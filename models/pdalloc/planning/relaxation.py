"""The continuous relaxation with one type per role: fractional replicas, and the price of a bound.

Under random dispatch a replica is alone with its share of the traffic, so that counts may be
real numbers. Stock, limits and owned replicas are left aside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.scenario import Scenario
from pdalloc.slo.objective import Slo

STEP = 0.01
"""Relative change of a bound in the finite difference."""
LEAST_LOAD = 0.02
"""Decode rates are sought from this share of the admissible one."""
DEAR = 1e30
"""Stands for the cost where no fleet works, USD/hour."""


@dataclass(frozen=True)
class Relaxed:
    """Fractional replicas and their cost in USD/hour."""

    prefill: float
    decode: float
    cost: float


def relaxed(problem: AllocationProblem, prefill: Option, decode: Option) -> Relaxed | None:
    """The cheapest fractional fleet of these two types; None where there is none.

    None, too, under dispatch rules that pool replicas: their pools have no fractions. Where
    an SLO spans both stages the load of a decode replica is chosen for the least cost.
    """
    capacity = problem.capacity
    if capacity.pooled(PREFILL) or capacity.pooled(DECODE):
        return None
    most = problem.rate(decode)
    if most <= 0.0:
        return None
    if not capacity.coupled:
        return _at(problem, prefill, decode, problem.rate(prefill), most)
    from scipy.optimize import minimize_scalar

    types = capacity.system.replica_types

    def beside(rate: float) -> Relaxed | None:
        try:
            state = capacity.predictor.decode(types[decode.replica_type], rate)
        except UnstableError:
            return None
        admitted = capacity.prefill_rate(types[prefill.replica_type], [state])
        return _at(problem, prefill, decode, admitted, rate)

    def cost(rate: float) -> float:
        found = beside(rate)
        return DEAR if found is None else found.cost

    ends = (LEAST_LOAD * most, most)
    best = minimize_scalar(cost, bounds=ends, method="bounded", options={"xatol": 1e-7 * most})
    tried = (beside(float(best.x)), beside(most))
    return min((t for t in tried if t is not None), key=lambda t: t.cost, default=None)


def _at(
    problem: AllocationProblem, prefill: Option, decode: Option, p_rate: float, d_rate: float
) -> Relaxed | None:
    """Counts at these requests/s per replica."""
    if p_rate <= 0.0 or d_rate <= 0.0:
        return None
    x, y = problem.demand / p_rate, problem.demand / d_rate
    return Relaxed(x, y, x * prefill.usd_per_hour + y * decode.usd_per_hour)


def price_of_bound(scenario: Scenario, prefill: Option, decode: Option, slo: Slo) -> float | None:
    """d cost/d bound of the relaxation, USD/hour per second, by a central difference of STEP.

    Negative: a longer bound saves. One-sided where the tighter bound cannot be kept; None
    where there is no relaxation.
    """

    def at(bound: float) -> Relaxed | None:
        slos = tuple(replace(s, bound=bound) if s == slo else s for s in scenario.slos)
        return relaxed(replace(scenario, slos=slos).problem(), prefill, decode)

    here = at(slo.bound)
    tight, loose = at(slo.bound * (1.0 - STEP)), at(slo.bound * (1.0 + STEP))
    if here is None or loose is None:
        return None
    if tight is None:
        return (loose.cost - here.cost) / (STEP * slo.bound)
    return (loose.cost - tight.cost) / (2.0 * STEP * slo.bound)
