"""How many replicas a role needs as a real number, the closed form that says so, merit order."""

from __future__ import annotations

import math
from collections.abc import Callable

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.closed_forms import decode_count, mm1_count, mm1_count_percentile
from pdalloc.errors import PdallocError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet, Role
from pdalloc.latency.affine import AffineDecode
from pdalloc.planning.explain_answer import FractionAnswer, MeritAnswer
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile
from pdalloc.system import ReplicaType

AGREES = 2e-3
"""Relative difference up to which a closed form is said to give a count."""


def fractions(problem: AllocationProblem, fleet: Fleet) -> list[FractionAnswer]:
    """One per role of ``fleet`` that has one type and replicas apart (random dispatch).

    Where an SLO spans both stages, prefill's is that beside the fleet's decode pools.
    """
    found = []
    for role in ROLES:
        pools = fleet.in_role(role)
        if len(pools) != 1 or problem.capacity.pooled(role):
            continue
        (pool,) = pools
        r = problem.capacity.system.replica_types[pool.replica_type]
        rate = _rate(problem, fleet, role, r)
        if rate <= 0.0:
            continue
        count = problem.demand / rate
        found.append(
            FractionAnswer(
                role=role,
                replica_type=r.name,
                admits_per_s=rate,
                count=count,
                replicas=pool.replicas,
                formula=_formula(problem, role, r, count),
            )
        )
    return found


def merit(problem: AllocationProblem, fleet: Fleet) -> list[MeritAnswer]:
    """USD/hour per admitted request/s of each type, roles that several may serve; cheapest first.

    Types that admit nothing are left out, and pooled roles, where it depends on the number.
    None where SLOs are kept over all requests: what a type admits then depends on the others.
    """
    if problem.slo_scope == "population":
        return []
    found = []
    for role in ROLES:
        options = problem.in_role(role)
        if len(options) < 2 or problem.capacity.pooled(role):
            continue
        types = problem.capacity.system.replica_types
        rates = {o: _rate(problem, fleet, role, types[o.replica_type]) for o in options}
        found += sorted(
            (
                MeritAnswer(
                    role=role,
                    replica_type=o.replica_type,
                    admits_per_s=rate,
                    usd_per_hour_per_request_per_s=o.usd_per_hour / rate,
                    replicas=fleet.count(role, o.replica_type),
                )
                for o, rate in rates.items()
                if rate > 0.0
            ),
            key=lambda m: m.usd_per_hour_per_request_per_s,
        )
    return found


def _rate(problem: AllocationProblem, fleet: Fleet, role: Role, r: ReplicaType) -> float:
    """Requests/s that one replica admits."""
    capacity = problem.capacity
    if role == DECODE or not capacity.coupled:
        return capacity.admissible_rate(role, r, 1)
    decodes = {pool.replica_type: pool.replicas for pool in fleet.in_role(DECODE)}
    return capacity.prefill_rates({r.name: 1}, decodes, problem.demand)[r.name]


def _formula(problem: AllocationProblem, role: Role, r: ReplicaType, count: float) -> str:
    """The closed form that gives ``count``; empty where none does."""
    for slo in problem.capacity.slos:
        if not isinstance(slo, Slo):
            continue
        for name, form in _forms(problem, role, r, slo).items():
            try:
                value = form()
            except PdallocError:  # the form's own assumptions do not hold
                continue
            if math.isclose(value, count, rel_tol=AGREES):
                return name
    return ""


def _forms(
    problem: AllocationProblem, role: Role, r: ReplicaType, slo: Slo
) -> dict[str, Callable[[], float]]:
    """Closed forms for ``slo`` by their text; lambda in requests/s, tau the bound in s."""
    predictor, demand = problem.capacity.predictor, problem.demand
    bound, statistic = slo.bound, slo.statistic
    if role == PREFILL and slo.metric == "ttft":
        mu = 1.0 / predictor.prefill(r, 0.0).service.mean
        moved = 0.0
        if problem.capacity.system.first_token != "prefill":
            moved = float(
                predictor.mix.weight @ problem.capacity.system.transfer_seconds(predictor.mix)
            )
        if isinstance(statistic, Mean):
            text = f"M/M/1: lambda/(mu - 1/tau), mu {mu:.4g}/s, tau {bound - moved:.4g} s"
            return {text: lambda: mm1_count(demand, mu, bound - moved)}
        if isinstance(statistic, Percentile):
            p = statistic.percent / 100.0
            text = f"M/M/1: lambda/(mu - ln(1/(1-p))/tau), mu {mu:.4g}/s, p {p:g}"
            return {text: lambda: mm1_count_percentile(demand, mu, bound - moved, p)}
    law, steps = r.latency.decode, predictor.mean_steps
    if role == DECODE and slo.metric == "tpot" and isinstance(law, AffineDecode):
        each = law.per_request + law.per_context_token * predictor.context
        text = f"lambda L b/(1 - (a + b)/tau), a {law.base:.4g} s, b {each:.4g} s"
        return {text: lambda: decode_count(demand, steps, law.base, each, bound)}
    return {}
