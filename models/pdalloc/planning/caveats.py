"""What a plan does not know: extrapolation, missing calibration, estimates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import PREFILL, Dispatch, Fleet
from pdalloc.prediction import DecodeState, Prediction, Predictor, PrefillState
from pdalloc.scenario import Scenario
from pdalloc.system import ReplicaType, System
from pdalloc.workload.arrivals import TimeVarying
from pdalloc.workload.traffic import RequestMix

if TYPE_CHECKING:
    from pdalloc.planning.simulation_answer import SimulationAnswer

ACCURACY: dict[Dispatch, str] = {
    "random": "exact",
    "round_robin": "exact where one type serves prefill",
    "central_queue": "within 15 % (worst 30 %)",
    "least_loaded": "semi-empirical, P99 off by up to 30 %",
}
"""Errors of the default delay laws under bursts: experiments/delay_laws/results/accuracy.csv."""
FEW = 1e-3
"""Shares of requests below this are not worth a warning."""
KNOWN = frozenset({"kv", "multi_token", "network"})
"""Options that formulas read."""
HIGH_BATCH = 0.99
WORKS_ALL_THE_TIME = 0.995
LITTLE_TOLERANCE = 0.03
"""Gap in Little's law above which a run has not been steady."""
GROWTH = 0.005
"""The same where replicas work all the time: 1 - 1/load of a queue that grows."""
OFF_DEMAND = 0.02
"""Relative difference of offered rate and demand, beside its interval, that is told."""
NEAR = 0.05
"""Relative difference of two measures of burstiness that is not worth a warning."""
FEW_FOR_P99 = 1000
"""Requests of a class in one replication below which its P99 is a guess."""
FULL = 0.95
"""Utilisation above which a plan sits on a knife's edge."""


def warnings_of(
    predictor: Predictor, prediction: Prediction | None, fleet: Fleet, rule: str = ""
) -> list[str]:
    """One line per reason to doubt the numbers; empty when there is none.

    ``rule`` says what the routing leaves unsearched (:attr:`pdalloc.capacity.Capacity.rule`).
    """
    system = predictor.system
    found = _window(system, predictor.mix) + _bursts(system)
    for pool in fleet.pools:
        r = system.replica_types[pool.replica_type]
        if pool.role == PREFILL:
            found += _prompts_beyond(r, predictor.mix)
        elif prediction is not None and pool.replica_type in prediction.decode:
            found += _batches_beyond(prediction, r)
    if rule:
        found.append(
            f"{rule}: decode types are loaded to a common level; the plan is the best "
            "under that routing, other splits were not searched"
        )
    found += _nearly_full(prediction)
    used = {pool.replica_type for pool in fleet.pools}
    found += _uncalibrated([system.replica_types[name] for name in sorted(used)])
    return list(dict.fromkeys(found))


def slower_pools(problem: AllocationProblem, prediction: Prediction) -> list[str]:
    """SLOs kept over all requests that those on the worst path miss, one line each."""
    if problem.slo_scope == "pool":
        return []
    found = []
    for slo, index in problem.capacity.slo_classes:
        seen = ((problem.capacity.value(slo, index, p, d), p, d) for p, d in prediction.paths())
        value, p, d = max(seen, key=lambda each: each[0])
        if not slo.keeps(value):
            share = p.rate * p.replicas * d.rate * d.replicas / problem.demand**2
            found.append(
                f"{slo.traffic_class}: {slo.name} holds over all requests; the {share:.0%} that "
                f"take prefill/{p.replica_type.name} and decode/{d.replica_type.name} see "
                f"{1e3 * value:.4g} ms"
            )
    return found


def estimates_of(system: System, fleet: Fleet) -> list[str]:
    """What the fleet's numbers rest on without a measurement, one line each."""
    used = dict.fromkeys(pool.replica_type for pool in fleet.pools)
    return [
        f"{name}: {what} (no measurement)"
        for name in used
        for what in system.replica_types[name].latency.estimates
    ]


def simulation_warnings(scenario: Scenario, fleet: Fleet, answer: SimulationAnswer) -> list[str]:
    """One line per reason to doubt what was simulated; empty when there is none."""
    system = scenario.system
    mix = system.workload.mix()
    found = _window(system, mix)
    types = system.replica_types
    for pool in fleet.in_role(PREFILL):
        found += _prompts_beyond(types[pool.replica_type], mix)
    used = sorted({pool.replica_type for pool in fleet.pools})
    found += _uncalibrated([types[name] for name in used])
    failures = scenario.options.failures
    up = 1.0 if failures is None else failures.mtbf / (failures.mtbf + failures.mttr)
    found += _unsteady(answer, up)
    offered, demand = answer.offered_requests_per_s, answer.demand_requests_per_s
    if abs(offered.value - demand) > OFF_DEMAND * demand + offered.half_width:
        found.append(
            f"{offered.value:.4g} req/s were offered, the demand is {demand:.4g}: the run does not "
            "see what its arrivals do on average"
        )
    lost = answer.timeout_share.value + answer.rejected_share.value
    if lost > 0.0:
        found.append(
            f"{lost:.2%} of requests got no answer; latencies are of the others, attainment counts "
            "them as missed"
        )
    if scenario.shed:
        found.append("nothing is shed here: all that is offered comes to this fleet")
    if answer.interrupted:
        found.append(
            f"stopped after {answer.replications} of {answer.replications_asked} replications; "
            "intervals are wider for it"
        )
    return list(dict.fromkeys(found))


def _unsteady(answer: SimulationAnswer, up: float) -> list[str]:
    """A queue that grows, or a run too short: its numbers would be others in a longer run.

    ``up`` is the share of time that a replica is up.
    """
    full = [pool for pool in answer.pools if pool.utilisation.value > WORKS_ALL_THE_TIME * up]
    # A decode replica works whenever it holds a request, so it is busy without being overloaded.
    suspects = [pool for pool in full if pool.role == PREFILL] or full
    gap = answer.littles_law_gap
    if suspects and gap.value < -max(gap.half_width, GROWTH):
        names = ", ".join(f"{pool.role}/{pool.replica_type}" for pool in suspects)
        return [
            f"{names}: busy all the time and its queue grows: there is no steady state, "
            "and the latencies depend on how long the run is"
        ]
    if abs(gap.value) > LITTLE_TOLERANCE + gap.half_width:
        return [
            f"Little's law is {gap.value:+.1%} off: the run is too short for a steady state; ask "
            "for more --requests"
        ]
    return []


def ignored_by_formulas(scenario: Scenario) -> list[str]:
    """What the simulator does and no formula knows, one line; empty when there is nothing."""
    on = [
        "transfers" if name == "network" else name.replace("_", " ")
        for name, value in vars(scenario.options).items()
        if value is not None and value != {} and name not in KNOWN
    ]
    kv = scenario.options.kv
    if kv is not None and kv.back_pressure:
        on.append("back-pressure of kv")
    if kv is not None and kv.reserve == "context":
        on.append("preemptions of kv that come in convoys (equal answers, memory nearly full)")
    network = scenario.options.network
    if network is not None and network.jitter is not None:
        on.append("transfer jitter")
    found = _fabric(scenario)
    if scenario.periods is not None:
        found.append(
            "periods: this is for the traffic's own rate all the time; pdalloc schedule plans each"
        )
    if on:
        found.append(
            f"simulation options ({', '.join(on)}): only a simulation knows them, formulas do not"
        )
    for c in scenario.system.workload.classes:
        if isinstance(c.arrivals, TimeVarying):
            found.append(
                f"{c.name}: the rate follows the clock, formulas take its mean; plan for the peak"
            )
        elif c.arrivals is not None and abs(c.arrivals.dispersion / c.arrival_scv - 1.0) > NEAR:
            found.append(
                f"{c.name}: formulas take an arrival SCV of {c.arrival_scv:.3g}, its process "
                f"disperses like {c.arrivals.dispersion:.3g} in the long run"
            )
    return found


def _fabric(scenario: Scenario) -> list[str]:
    """What is rough about the law of a link that several prefill replicas share."""
    network = scenario.options.network
    if network is None or network.sharing == "none" or network.scope == "replica":
        return []
    return [
        f"KV transfers share links per {network.scope}: formulas take them to come as requests do, "
        "so their waits are too long where prefill is busy, and each link to carry all the traffic"
    ]


def _nearly_full(prediction: Prediction | None) -> list[str]:
    if prediction is None:
        return []
    states: list[PrefillState | DecodeState] = [
        *prediction.prefill.values(),
        *prediction.decode.values(),
    ]
    return [
        f"{s.replica_type.name}: {s.utilisation:.1%} busy; a little more demand, or a burst, and "
        "its queue has no limit"
        for s in states
        if s.utilisation > FULL
    ]


def _window(system: System, mix: RequestMix) -> list[str]:
    share = float(mix.weight[mix.prompt + mix.output > system.llm.context_window].sum())
    if share < FEW:
        return []
    return [
        f"{share:.1%} of requests exceed the {system.llm.context_window:.0f}-token window of "
        f"{system.llm.name}; they are priced at their full length, as if it could take them"
    ]


def _bursts(system: System) -> list[str]:
    scv = system.workload.arrival_scv
    if scv == 1.0:
        return []
    rule = system.dispatch[PREFILL]
    return [
        f"arrival SCV {scv:g}: formulas take independent gamma gaps, thinned by each pool's share, "
        f"at prefill and at decode; under {rule} prefill waits are {ACCURACY[rule]} where gaps are "
        "so; simulate (--validate)"
    ]


def _prompts_beyond(r: ReplicaType, mix: RequestMix) -> list[str]:
    _, high = r.latency.prefill.range_tokens
    computed = mix.prompt - mix.cached
    above = float(mix.weight[computed > high].sum())
    if not math.isfinite(high) or above < FEW:
        return []
    return [
        f"{r.name}: {above:.1%} of prompts are longer than the {high:.0f} tokens its prefill was "
        "measured to; their time continues the last slope"
    ]


def _batches_beyond(prediction: Prediction, r: ReplicaType) -> list[str]:
    _, high = r.latency.decode.range_batch
    batch = prediction.decode[r.name].law
    if not math.isfinite(high):
        return []
    seen = batch.batch_quantile(HIGH_BATCH)
    if seen <= high:
        return []
    return [
        f"{r.name}: its batch passes the {high:.0f} requests its decode was measured to "
        f"(mean {batch.mean_batch:.0f}, P99 {seen:.0f}); steps beyond are extrapolated"
    ]


def _uncalibrated(types: list[ReplicaType]) -> list[str]:
    missing = [r.name for r in types if not r.latency.calibration.source]
    if not missing:
        return []
    return [
        f"{', '.join(missing)}: service times are a benchmark's word, not calibrated on a cluster; "
        "fit calibration factors on your own measurements before buying"
    ]
