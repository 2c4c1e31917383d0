"""Properties of every run under random options, and options that make no sense."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredDecode, MeasuredPrefill
from pdalloc.latency.service import Latency
from pdalloc.records import FINISHED
from pdalloc.simulation.options import (
    PLAIN,
    Clients,
    Colocated,
    Failures,
    KvMemory,
    MultiToken,
    Network,
    Noise,
    PassBudget,
    SimulationOptions,
)
from pdalloc.simulation.reference import Simulator, replay
from pdalloc.simulation.traffic import Draws, draw
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

GPU = Gpu("gpu", "GPU")
TYPES = {
    "a": Latency(AffinePrefill(0.01, 1e-3, 1e-6, 0.015), AffineDecode(0.01, 1e-3, 1e-5)),
    "b": Latency(
        MeasuredPrefill(Curve("p", np.array([3.0, 40.0]), np.array([0.01, 0.05]))),
        MeasuredDecode(Curve("d", np.array([1.0, 20.0]), np.array([0.01, 0.03]))),
        "exponential",
    ),
}
RULES = ("random", "round_robin", "least_loaded", "central_queue")
TOGETHER = [Colocated("prefill_first", 40.0), Colocated("chunked", 7.0), Colocated("chunked", 40.0)]
NOISES = [None, Noise("exponential"), Noise("gamma", 0.3), Noise("gamma", 3.0), Noise("lognormal")]
Case = tuple[System, Fleet, Draws, SimulationOptions]


@st.composite
def networks(choose: st.DrawFn) -> Network:
    """Any sharing and scope; sometimes type a prefills elsewhere."""
    network = Network(
        choose(st.sampled_from(["none", "fcfs", "processor_sharing"])),
        choose(st.sampled_from(["replica", "sites", "fabric"])),
        choose(st.sampled_from(NOISES)),
    )
    if choose(st.booleans()):
        return network
    sites = {(PREFILL, "a"): "east", (DECODE, "a"): "west"}
    return replace(network, sites=sites, links={("east", "west"): Link(0.05, 500.0)})


@st.composite
def option_sets(choose: st.DrawFn, together: Colocated | None) -> SimulationOptions:
    """Any combination that has a rule."""

    def some(*values: Any) -> Any:
        return choose(st.sampled_from([None, *values]))

    apart = together is None
    kv = some(*(KvMemory(r, w) for r in ("context", "full") for w in (0.0, 0.1)))
    if kv is not None and apart:
        kv = replace(kv, back_pressure=choose(st.booleans()))
    budgets = (PassBudget(20.0), PassBudget(8.0, True), PassBudget(50.0, True))
    clients = [Clients(t, q, 2, 0.3) for t in (0.1, math.inf) for q in (0.0, 2.0, math.inf)]
    return SimulationOptions(
        prefill_budget=some(*budgets) if apart else None,
        prefill_noise=choose(st.sampled_from(NOISES)),
        step_noise=choose(st.sampled_from(NOISES)),
        network=choose(st.none() | networks()) if apart else None,
        kv=kv,
        multi_token=some(MultiToken(1.7), MultiToken(2.0), MultiToken(2.5, "geometric")),
        clients=some(*clients),
        failures=some(Failures(0.3, 0.1), Failures(3.0, 1.0)) if apart else None,
        colocated=together,
        slow=choose(st.sampled_from([{}, {(PREFILL, 0): 2.5, (DECODE, 0): 1.5}])),
    )


@st.composite
def cases(choose: st.DrawFn) -> Case:
    """A random small fleet under random traffic with random options."""
    up_to = {n: st.integers(1, n) for n in (2, 3, 15, 30, 60)}
    prompts, outputs = (np.array([choose(up_to[n]) for _ in range(3)], float) for n in (30, 15))
    law = joint_table(prompts, outputs, np.ones(3))
    rate, scv = st.sampled_from([2.0, 30.0, 80.0]), st.sampled_from([0.0, 1.0, 4.0])
    classes = [
        TrafficClass(q, choose(rate), law, choose(scv), choose(st.sampled_from([0.0, 0.3])))
        for q in "xy"[: choose(up_to[2])]
    ]
    batch, memory = st.sampled_from([1.0, 3.0, math.inf]), st.sampled_from([46.0, 100.0, 400.0])
    names = "ab"[: choose(up_to[2])]
    types = {
        n: ReplicaType(n, GPU, 1, ROLES, TYPES[n], 1.0, choose(memory), choose(batch))
        for n in names
    }
    s = System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload(tuple(classes)),
        types,
        Link(choose(st.sampled_from([0.0, 0.01])), 1e3),
        {role: choose(st.sampled_from(RULES)) for role in ROLES},
        choose(st.sampled_from(["prefill", "transfer", "decode"])),
    )
    together = choose(st.none() | st.sampled_from(TOGETHER))
    counts = {(PREFILL, n): choose(up_to[3]) for n in names}
    for n in names:
        counts[DECODE, n] = choose(up_to[3]) if together is None else counts[PREFILL, n]
    fleet = Fleet.of(counts)
    draws = draw(
        s.workload, fleet, dict.fromkeys(counts, 1.0), choose(up_to[60]), choose(up_to[60])
    )
    return s, fleet, draws, choose(option_sets(together))


STAGES = (
    "arrival",
    "prefill_start",
    "prefill_end",
    "transfer_start",
    "transfer_end",
    "decode_start",
    "finish",
)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_every_request_ends_and_who_finishes_has_all_its_tokens(case: Case) -> None:
    s, fleet, draws, options = case
    run = replay(s, fleet, draws, options=options)
    log, finished = run.log, run.log.finished
    if options.off:
        assert log.status is None and run.token_times is None
        return
    assert log.left is not None and log.status is not None
    assert (run.token_times is None) == options.steps_tell
    times = np.array([getattr(log, stage) for stage in STAGES])[:, finished]
    assert np.isfinite(times).all()
    assert np.all(np.diff(times, axis=0) >= 0)
    assert np.array_equal(log.left[finished], log.finish[finished])
    assert np.isnan(log.prefill_start[~finished]).all()
    assert np.all(log.left >= log.arrival)
    for i in np.flatnonzero(finished).tolist():
        gaps = run.gaps(np.arange(len(log)) == i)
        assert len(gaps) == log.output_tokens[i] - 1
        assert gaps.sum() == pytest.approx(log.finish[i] - log.first_token[i], abs=1e-9)
    for i, tokens in enumerate(run.token_times or ()):
        assert len(tokens) == (log.output_tokens[i] if finished[i] else 0)
        assert np.all(np.diff(tokens) >= 0)
        if finished[i]:
            assert (tokens[0], tokens[-1]) == (log.first_token[i], log.finish[i])
    if options.clients is None:
        assert finished.all()
    if options.failures is None and (options.kv is None or options.kv.reserve == "full"):
        assert not np.any(log.recomputes)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_no_replica_does_two_things_at_once(case: Case) -> None:
    s, fleet, draws, options = case
    run = replay(s, fleet, draws, options=options)
    work = [(run.pass_starts, run.pass_seconds)]
    if run.both_roles:
        work.append((run.step_starts, run.step_seconds))
    else:
        steps = zip(run.step_starts, run.recompute_starts, strict=True)
        times = zip(run.step_seconds, run.recompute_seconds, strict=True)
        work.append((tuple(map(np.concatenate, steps)), tuple(map(np.concatenate, times))))
    for starts, seconds in work:
        for begin, lasts in zip(starts, seconds, strict=True):
            order = np.argsort(begin, kind="stable")
            end = (begin + lasts)[order]
            assert np.all(begin[order][1:] >= end[:-1] - 1e-12)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_nothing_is_left_behind(case: Case) -> None:
    """When all are gone: no load, no queue, no KV token held, nothing blocked."""
    s, fleet, draws, options = case
    if options.colocated is not None:
        return
    simulator = Simulator(s, fleet, draws, None, options)
    simulator.run()
    for prefill in simulator.prefills:
        assert prefill.load == 0 and not prefill.queue
        assert prefill.partial is None and prefill.blocking == 0
    for decode in simulator.decodes:
        assert decode.load == 0 and not decode.queue
        assert decode.used == 0 and not decode.batch and not decode.lost and not decode.pending
    for link in simulator.network.shared.values():
        cut = [request for _, _, request in link.marks]
        assert all(request.status == FINISHED for request in cut)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_same_draws_same_run(case: Case) -> None:
    s, fleet, draws, options = case
    one, two = (replay(s, fleet, draws, options=options) for _ in range(2))
    for name in one.log.__annotations__:
        left, right = getattr(one.log, name), getattr(two.log, name)
        assert left is right is None or np.array_equal(left, right, equal_nan=True)
    for mine, other in zip(one.step_starts, two.step_starts, strict=True):
        assert np.array_equal(mine, other)


def test_everything_is_off_by_default() -> None:
    assert PLAIN.off and SimulationOptions().off
    assert not SimulationOptions(clients=Clients()).off
    assert not SimulationOptions(slow={(PREFILL, 0): 2.0}).off


BAD = [
    (lambda: Noise("normal"), "no noise law 'normal'"),  # type: ignore[arg-type]
    (lambda: Noise("gamma", 0.0), "SCV of a noise must be positive"),
    (lambda: Noise("exponential", 2.0), "exponential noise has SCV 1"),
    (lambda: PassBudget(0.5), "at least 1 token"),
    (lambda: Network("fair"), "no sharing 'fair'"),  # type: ignore[arg-type]
    (lambda: Network("fcfs", "rack"), "no link scope 'rack'"),  # type: ignore[arg-type]
    (lambda: KvMemory("half"), "no KV reservation rule"),  # type: ignore[arg-type]
    (lambda: KvMemory(watermark=1.0), "watermark lies in"),
    (lambda: MultiToken(0.5), "at least 1: 0.5"),
    (lambda: MultiToken(2.0, "poisson"), "no law of tokens"),  # type: ignore[arg-type]
    (lambda: Clients(timeout=0.0), "timeout must be positive"),
    (lambda: Clients(max_queue=-1), "max_queue must not be negative"),
    (lambda: Clients(retries=-1), "retries must not be negative"),
    (lambda: Clients(retry_delay=math.inf), "retry_delay must be finite"),
    (lambda: Failures(0.0, 1.0), "mtbf must be positive"),
    (lambda: Failures(1.0, math.inf), "mttr must be positive"),
    (lambda: Colocated("both"), "no co-location 'both'"),  # type: ignore[arg-type]
    (lambda: Colocated("chunked", 0.0), "at least 1 token"),
    (lambda: SimulationOptions(slow={("encode", 0): 2.0}), "no role 'encode'"),
    (lambda: SimulationOptions(slow={(PREFILL, 0): 0.0}), "must be positive"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_options_that_make_no_sense_are_refused_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_slow_replica_must_exist(lab: Any) -> None:
    with pytest.raises(InputError, match="slow decode replica 3 does not exist"):
        lab.run(lab.system(), lab.draws([0.0], [1], [1]), slow={(DECODE, 3): 2.0})
