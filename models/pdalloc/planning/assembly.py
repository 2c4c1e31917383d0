"""From an allocation to the answer: prediction, margins, pools and SLOs in one place."""

from __future__ import annotations

from pdalloc.allocation.certify import Certificate, SloCheck, certify
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.fleet import ROLES, Fleet
from pdalloc.planning import margins
from pdalloc.planning.answer import (
    AlternativeAnswer,
    Answer,
    LinkAnswer,
    MarginAnswer,
    PoolAnswer,
)
from pdalloc.planning.caveats import (
    estimates_of,
    ignored_by_formulas,
    slower_pools,
    warnings_of,
)
from pdalloc.planning.promises import predicted_lateness, predicted_rows
from pdalloc.prediction import DecodeState
from pdalloc.scenario import Scenario
from pdalloc.slo.interface import Objective
from pdalloc.version import provenance


def answer_of(
    scenario: Scenario,
    problem: AllocationProblem,
    allocation: Allocation,
    seed: int,
    with_margins: bool = True,
) -> Answer:
    """What ``allocation`` comes to by prediction, which has the last word on its SLOs.

    Margins take most of the time; without them the most demand is not known either.
    """
    fleet = allocation.fleet
    check = certify(problem, fleet) if fleet.pools else None
    capacity, demand = problem.capacity, problem.demand
    tokens_per_minute = 60.0 * scenario.system.workload.tokens_per_second
    gpus = problem.gpus(fleet)
    total = sum(gpus.values())
    served = check is not None and all(fleet.in_role(role) for role in ROLES)
    margin = _margin(problem, fleet) if served and with_margins else None
    cost = allocation.cost
    status, reason = allocation.status, allocation.reason
    if status != "infeasible" and check is not None and not check.certified:
        # prediction has the last word, whatever solver spoke
        status, reason = "infeasible", f"the fleet fails its check: {'; '.join(check.broken)}"
    checks = check.slos if check else [SloCheck(slo, None) for slo in capacity.slos]
    slos, joint = predicted_rows(checks, _binding(problem, check) if check else set())
    return Answer(
        scenario=scenario.name,
        title=scenario.title,
        variant=scenario.variant,
        status=status,
        reason=reason,
        xpyd=fleet.xpyd if fleet.pools else None,
        fleet=str(fleet) if fleet.pools else None,
        gpus=total,
        gpus_by_type=gpus,
        demand_requests_per_s=demand,
        demand_tokens_per_minute=tokens_per_minute,
        demand_limit_tokens_per_minute=(
            tokens_per_minute * (1.0 + margin.demand)
            if margin is not None and margin.demand is not None and margin.demand < margins.MOST
            else None
        ),
        cost_usd_per_hour=cost,
        bound_usd_per_hour=allocation.bound if status != "infeasible" else None,
        cost_usd_per_million_tokens=(
            cost / (60.0 * tokens_per_minute) * 1e6 if cost is not None else None
        ),
        tokens_per_minute_per_gpu=tokens_per_minute / total if total else None,
        pools=_pools(problem, check),
        links=_links(check),
        slo_scope=problem.slo_scope,
        slos=slos,
        joint_slos=joint,
        lateness=predicted_lateness(scenario, check.prediction if check else None),
        margin=margin,
        alternatives=[
            AlternativeAnswer(fleet=str(f), xpyd=f.xpyd, cost_usd_per_hour=problem.cost(f))
            for f in allocation.alternatives
        ],
        details=dict(allocation.details),
        warnings=_warnings(scenario, problem, fleet, check, ruled=allocation.solver != "evaluate"),
        estimates=estimates_of(scenario.system, fleet),
        produced_by=provenance(allocation.solver, seed),
    )


def _warnings(
    scenario: Scenario,
    problem: AllocationProblem,
    fleet: Fleet,
    check: Certificate | None,
    ruled: bool,
) -> list[str]:
    """Reasons to doubt the numbers; ``ruled``: the fleet was chosen under the routing's rule."""
    capacity, prediction = problem.capacity, check.prediction if check else None
    rule = capacity.rule if ruled and problem.slo_scope == "pool" else ""
    slower = slower_pools(problem, prediction) if prediction else []
    found = warnings_of(capacity.predictor, prediction, fleet, rule)
    return [*found, *ignored_by_formulas(scenario), *slower]


def _margin(problem: AllocationProblem, fleet: Fleet) -> MarginAnswer:
    return MarginAnswer(
        demand=margins.demand_margin(problem, fleet),
        prefill=margins.prefill_margin(problem, fleet),
        decode=margins.decode_margin(problem, fleet),
        output_length=margins.output_margin(problem, fleet),
    )


def _pools(problem: AllocationProblem, check: Certificate | None) -> list[PoolAnswer]:
    if check is None:
        return []
    found = []
    for o in problem.options:
        count = check.fleet.count(o.role, o.replica_type)
        if not count:
            continue
        prediction, key = check.prediction or check.loads, (o.role, o.replica_type)
        state = None if prediction is None else prediction.state(*key)
        rate = None if prediction is None else prediction.rates[key]
        found.append(
            PoolAnswer(
                role=o.role,
                replica_type=o.replica_type,
                gpu=o.gpu,
                gpus_per_replica=o.gpus,
                replicas=count,
                owned=min(o.owned, count),
                rate_per_s=rate,
                rate_share=None if rate is None else rate / problem.demand,
                utilisation=None if state is None else state.utilisation,
                mean_batch=state.law.mean_batch if isinstance(state, DecodeState) else None,
                cost_usd_per_hour=o.cost(count),
            )
        )
    return found


def _links(check: Certificate | None) -> list[LinkAnswer]:
    if check is None or check.prediction is None:
        return []
    return [
        LinkAnswer(
            link=link.name,
            transfers_per_s=link.rate,
            utilisation=link.utilisation,
            mean_delay_s=link.mean_delay,
        )
        for link in check.prediction.links()
    ]


def _binding(problem: AllocationProblem, check: Certificate) -> set[Objective]:
    """The SLOs that are broken, or that break when some pool has one replica fewer.

    A pool without which there is no steady state is held by stability, not by an SLO.
    """
    bound: set[Objective] = {c.slo for c in check.slos if not c.kept}
    for pool in check.fleet.pools:
        fewer = dict(check.fleet.counts)
        fewer[pool.role, pool.replica_type] -= 1
        smaller = certify(problem, Fleet.of(fewer))
        if smaller.prediction is not None:
            bound |= {c.slo for c in smaller.slos if not c.kept}
    return bound
