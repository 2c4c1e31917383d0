"""simulate: what a given fleet does, judged by the simulator alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.serving import best_traffic
from pdalloc.capacity import Capacity
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import PREFILL, ROLES, Fleet, parse_both_roles, parse_fleet
from pdalloc.planning.caveats import FEW_FOR_P99, estimates_of, simulation_warnings
from pdalloc.planning.effort import SEED, Effort
from pdalloc.planning.promises import late_shares, simulated_lateness, simulated_rows
from pdalloc.planning.simulation_answer import (
    EstimateAnswer,
    LatencyAnswer,
    SimulatedPool,
    SimulationAnswer,
)
from pdalloc.records import RequestLog
from pdalloc.scenario import Scenario
from pdalloc.simulation.attainment import Bound
from pdalloc.simulation.statistics import Run, steady
from pdalloc.simulation.summary import (
    PERCENTS,
    STAGES,
    Estimate,
    Summary,
    latencies,
    measure,
    replicate,
)
from pdalloc.simulation.traffic import Rates
from pdalloc.slo.interface import Objective
from pdalloc.slo.objective import METRICS, Slo
from pdalloc.validation import Seen, lost_share
from pdalloc.version import provenance

Progress = Callable[[int, int], None]
TYPICAL_BATCH = 32.0
"""Decoding requests among whom a step's time is shared, for the split of co-located pools."""


@dataclass(frozen=True)
class Simulation:
    """The answer, and the log of the first replication."""

    answer: SimulationAnswer
    log: RequestLog


def simulate(
    scenario: Scenario,
    fleet: str | Fleet,
    effort: Effort | None = None,
    seed: int = SEED,
    progress: Progress | None = None,
    engine: str = "fast",
) -> Simulation:
    """Simulate ``fleet`` under the scenario's traffic and options.

    ``fleet`` as ``3P4D`` or ``prefill/h200x8=3,decode/h200x8=4``; co-located fleets as
    ``h200x8=7``. Pools of one role share the traffic as the planner would let them. ``engine``
    is ``fast`` or ``reference``. Raises InputError for a fleet or options that do not fit, and
    for so few requests that they have no steady part.
    """
    if isinstance(fleet, str):
        together = scenario.options.colocated is not None
        parse = parse_both_roles if together else parse_fleet
        fleet = parse(fleet, scenario.system.type_names)
    effort = effort or Effort()
    problem = scenario.problem()
    rates, routing = rates_for(scenario, problem, fleet)
    requests = effort.requests_for(scenario.system, scenario.options)
    bounds = request_bounds(scenario.slos, [c.name for c in scenario.system.workload.classes])
    cost = _cost(scenario, fleet)
    first: list[RequestLog] = []
    late: list[list[float]] = []

    def read(run: Run, replication: int) -> dict[str, float]:
        if replication == 0:
            first.append(run.log)
        overall = measure(run, fleet, bounds, cost)
        late.append(late_shares(scenario, run))
        return {**overall, **_of_classes(scenario, run, overall)}

    summary = replicate(
        scenario.system,
        fleet,
        rates,
        requests,
        effort.replications,
        seed,
        scenario.options,
        read,
        progress,
        _engine(engine),
    )
    answer = _answer(scenario, fleet, rates, summary, requests, cost)
    warnings = [
        *routing,
        *simulation_warnings(scenario, fleet, answer),
        *_few(scenario, first[0]),
        *effort.unseen(scenario.system, scenario.options),
    ]
    produced = provenance(f"simulate ({engine})", seed)
    priced = simulated_lateness(scenario, late[: summary.replications])
    answer = answer.model_copy(
        update={"lateness": priced, "warnings": warnings, "produced_by": produced}
    )
    return Simulation(answer, first[0])


def _few(scenario: Scenario, log: RequestLog) -> list[str]:
    """Classes of which a replication has too few requests for a P99."""
    kept = log.traffic_class[steady(log) & log.finished]
    counts = np.bincount(kept, minlength=len(scenario.system.workload.classes))
    return [
        f"{c.name}: {count} requests a replication are few for a P99; ask for more --requests"
        for c, count in zip(scenario.system.workload.classes, counts, strict=True)
        if count < FEW_FOR_P99
    ]


def _engine(name: str) -> Callable[..., Run]:
    if name == "fast":
        from pdalloc.simulation import fast

        return fast.replay
    if name == "reference":
        from pdalloc.simulation import reference

        return reference.replay
    raise InputError(f"no simulator {name!r}; known: fast, reference")


def rates_for(
    scenario: Scenario, problem: AllocationProblem, fleet: Fleet
) -> tuple[Rates, list[str]]:
    """(requests/s of each pool, what to say about it).

    As the plan routes; a role's only pool takes everything.
    """
    for role in ROLES:
        if not fleet.in_role(role):
            raise InputError(
                f"the fleet has no {role} replica; a simulation needs one of each role"
            )
    if all(len(fleet.in_role(role)) == 1 for role in ROLES):
        return dict.fromkeys(fleet.counts, problem.demand), []
    if scenario.options.colocated is not None:
        return _by_work(scenario, fleet), [
            "co-located types share the traffic by how fast they serve a mean request"
        ]
    try:
        return best_traffic(problem, fleet), []
    except UnsupportedError as error:
        known = Capacity(
            scenario.system, tuple(s for s in scenario.slos if isinstance(s, Slo)), scenario.options
        )
        words = f"{error}; types share the traffic as the other SLOs would have it"
        return known.best_route(fleet, problem.demand), [words]


def _by_work(scenario: Scenario, fleet: Fleet) -> Rates:
    """Requests/s of co-located pools, by replicas over the seconds that a request costs one.

    A request costs its prefill and its share of steps at a batch of TYPICAL_BATCH.
    """
    system = scenario.system
    mix = system.workload.mix()
    steps, context = system.decode_steps(mix), TYPICAL_BATCH * system.mean_context
    speed = {}
    for pool in fleet.in_role(PREFILL):
        latency = system.replica_types[pool.replica_type].latency
        prefill = float(mix.weight @ latency.prefill_seconds(mix.prompt, mix.cached))
        step = float(latency.step_seconds(np.array([TYPICAL_BATCH]), np.array([context]))[0])
        cost = prefill + float(mix.weight @ steps) * step / TYPICAL_BATCH
        speed[pool.replica_type] = pool.replicas / cost
    total = sum(speed.values())
    return {
        (role, name): scenario.demand * x / total for role in ROLES for name, x in speed.items()
    }


def request_bounds(slos: Sequence[Objective], classes: Sequence[str]) -> list[Bound]:
    """What a single request must keep: per class and latency the limit of the highest level.

    That is the highest percentile's bound, or a joint SLO's limit of the highest share; where
    there is a mean only, the bound of the mean. Of a request's token gaps the percentile's
    share must keep the bound, of a mean half of them.
    """
    bounds = []
    for q, name in enumerate(classes):
        for metric in METRICS:
            mine = [s for s in slos if s.traffic_class == name and metric in s.limits]
            if mine:
                slo = max(mine, key=lambda s: s.level)
                share = slo.gap_share if metric == "itl" else 1.0
                bounds.append(Bound(metric, slo.limits[metric], q, share))
    return bounds


def _cost(scenario: Scenario, fleet: Fleet) -> float:
    """USD/hour; a co-located replica is listed in both roles and paid once."""
    types = scenario.system.replica_types
    pools = fleet.pools if scenario.options.colocated is None else fleet.in_role(PREFILL)
    return sum(pool.replicas * types[pool.replica_type].usd_per_hour for pool in pools)


def _of_classes(scenario: Scenario, run: Run, overall: Mapping[str, float]) -> dict[str, float]:
    """Latencies of each class and the value of each SLO, by key (:func:`_key`).

    ``overall`` has those of all classes, and need not be computed again where there is one.
    """
    values: dict[str, float] = {}
    classes = [c.name for c in scenario.system.workload.classes]
    kept = steady(run.log)
    for q, name in enumerate(classes):
        mine = kept & (run.log.traffic_class == q)
        of_it = overall if len(classes) == 1 else latencies(run, mine & run.log.finished)
        values |= {f"{name} {key}": x for key, x in of_it.items()}
        seen = Seen(run, mine, lost_share(run, mine))
        its = (slo for slo in scenario.slos if slo.traffic_class == name)
        values |= {_key(slo): slo.measure(seen) for slo in its}
    return values


def _key(slo: Objective) -> str:
    return f"slo {slo.traffic_class} {slo.name}"


def _answer(
    scenario: Scenario,
    fleet: Fleet,
    rates: Rates,
    summary: Summary,
    requests: int,
    cost: float,
) -> SimulationAnswer:
    numbers = {name: _estimate(e) for name, e in summary.numbers.items()}
    together = scenario.options.colocated is not None
    pools = fleet.in_role(PREFILL) if together else fleet.pools
    types = scenario.system.replica_types
    gpus: dict[str, int] = {}
    for pool in pools:
        kind = types[pool.replica_type]
        gpus[kind.gpu.name] = gpus.get(kind.gpu.name, 0) + kind.gpus * pool.replicas
    bounds = request_bounds(scenario.slos, [c.name for c in scenario.system.workload.classes])
    slos, joint = simulated_rows(
        scenario, {slo: summary.samples[_key(slo)] for slo in scenario.slos}
    )
    return SimulationAnswer(
        scenario=scenario.name,
        title=scenario.title,
        variant=scenario.variant,
        fleet=",".join(f"{p.replica_type}={p.replicas}" for p in pools) if together else str(fleet),
        xpyd=None if together else fleet.xpyd,
        gpus=sum(gpus.values()),
        gpus_by_type=gpus,
        cost_usd_per_hour=cost,
        demand_requests_per_s=scenario.demand,
        demand_tokens_per_minute=60.0 * scenario.system.workload.tokens_per_second,
        requests=requests,
        replications=summary.replications,
        replications_asked=summary.asked,
        slos=slos,
        joint_slos=joint,
        latencies=_latencies(scenario, numbers),
        attainment=numbers["attainment"],
        attainment_bounds=[_words(scenario, bound) for bound in bounds],
        goodput_requests_per_s=numbers["goodput_req_per_s"],
        offered_requests_per_s=numbers["offered_req_per_s"],
        timeout_share=numbers["timeout_share"],
        rejected_share=numbers["rejected_share"],
        retries_per_request=numbers["retries_per_request"],
        recomputes_per_request=numbers["recomputes_per_request"],
        pools=[
            SimulatedPool(
                role="both" if together else pool.role,
                replica_type=pool.replica_type,
                gpu=types[pool.replica_type].gpu.name,
                gpus_per_replica=types[pool.replica_type].gpus,
                replicas=pool.replicas,
                rate_per_s=rates[pool.role, pool.replica_type],
                utilisation=numbers[f"utilisation {pool.label}"],
            )
            for pool in pools
        ],
        stages={stage: numbers[stage] for stage in STAGES},
        usd_per_million_tokens=numbers.get("usd_per_mtoken"),
        usd_per_million_output_tokens=numbers.get("usd_per_mtoken_output"),
        littles_law_gap=numbers["littles_law_gap"],
        warnings=[],
        estimates=estimates_of(scenario.system, fleet),
        produced_by={},
    )


def _estimate(estimate: Estimate) -> EstimateAnswer:
    return EstimateAnswer(value=estimate.value, half_width=estimate.half_width)


def _latencies(scenario: Scenario, numbers: Mapping[str, EstimateAnswer]) -> list[LatencyAnswer]:
    rows = []
    for c in scenario.system.workload.classes:
        for metric in METRICS:
            of_it = {
                f"{statistic}_s": numbers.get(f"{c.name} {metric}_{statistic}_s")
                for statistic in ("mean", *(f"p{p}" for p in PERCENTS))
            }
            if all(of_it.values()):
                rows.append(
                    LatencyAnswer.model_validate(
                        {"traffic_class": c.name, "metric": metric, **of_it}
                    )
                )
    return rows


def _words(scenario: Scenario, bound: Bound) -> str:
    classes = scenario.system.workload.classes
    of = f" of {classes[bound.traffic_class or 0].name}" if len(classes) > 1 else ""
    share = f" ({100 * bound.share:.3g} % of its gaps)" if bound.metric == "itl" else ""
    return f"{bound.metric.upper()}{of} <= {1e3 * bound.seconds:g} ms{share}"
