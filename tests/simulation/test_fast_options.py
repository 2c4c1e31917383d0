"""The fast simulator with options against the reference, over random fleets and options."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredDecode, MeasuredPrefill
from pdalloc.latency.service import Calibration, Latency
from pdalloc.simulation import fast, reference
from pdalloc.simulation.options import (
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
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws, draw
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

RULES: tuple[Dispatch, ...] = ("random", "round_robin", "least_loaded", "central_queue")
FIRST: tuple[FirstToken, ...] = ("prefill", "transfer", "decode")
PER_SERVER = (
    "step_starts",
    "step_seconds",
    "pass_starts",
    "pass_seconds",
    "recompute_starts",
    "recompute_seconds",
)

# Types c and d have times that are sums of powers of two; d prefills in no time at all.
STEPS = Curve("steps", np.array([1.0, 2.0, 5.0]), np.array([0.01, 0.013, 0.011]))
PROMPTS = Curve("prompts", np.array([2.0, 8.0, 30.0]), np.array([0.01, 0.02, 0.09]))
TYPES = {
    "a": Latency(AffinePrefill(0.01, 1e-3, 1e-5), AffineDecode(0.01, 1e-3, 1e-5), "exponential"),
    "b": Latency(
        MeasuredPrefill(PROMPTS), MeasuredDecode(STEPS), calibration=Calibration(1.1, 0.9)
    ),
    "c": Latency(AffinePrefill(0.25, 0.0625, 0.0, 0.5), AffineDecode(0.125, 0.125, 0.0)),
    "d": Latency(AffinePrefill(0.0, 1e-30), AffineDecode(0.25, 0.0)),
}


def assert_same(one: Run, two: Run) -> None:
    """Bit for bit, NaN where NaN."""
    for name in one.log.__annotations__:
        left, right = getattr(one.log, name), getattr(two.log, name)
        assert (left is None) == (right is None), name
        np.testing.assert_array_equal(left, right, err_msg=name)
    for name in PER_SERVER:
        pairs = zip(getattr(one, name), getattr(two, name), strict=True)
        for k, (mine, its) in enumerate(pairs):
            np.testing.assert_array_equal(mine, its, err_msg=f"{name}[{k}]")
    assert (one.token_times is None) == (two.token_times is None)
    for i, (mine, its) in enumerate(zip(one.token_times or (), two.token_times or (), strict=True)):
        np.testing.assert_array_equal(mine, its, err_msg=f"token_times[{i}]")


@st.composite
def small_runs(choose: st.DrawFn) -> tuple[System, Fleet, Draws]:
    """A random small fleet of one or two types with random rules, under random traffic."""
    upto = {n: st.integers(1, n) for n in (2, 4, 12, 80)}
    tokens = st.lists(upto[12], min_size=3, max_size=3)
    prompts, outputs = (np.array(choose(tokens), float) for _ in range(2))
    law = joint_table(prompts, outputs, np.ones(3))
    rate, scv = st.sampled_from([2.0, 20.0, 100.0]), st.sampled_from([0.0, 1.0, 4.0])
    hit = st.sampled_from([0.0, 0.25])
    classes = [
        TrafficClass(name, choose(rate), law, choose(scv), choose(hit))
        for name in "xy"[: choose(upto[2])]
    ]
    batch, kv = st.sampled_from([1.0, 3.0, math.inf]), st.sampled_from([24.0, 50.0, math.inf])
    names = choose(st.sampled_from(["a", "b", "c", "d", "ab", "cd"]))
    gpu = Gpu("gpu", "GPU")
    types = {
        name: ReplicaType(name, gpu, 1, ROLES, TYPES[name], 1.0, choose(kv), choose(batch))
        for name in names
    }
    s = System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload(tuple(classes)),
        types,
        Link(choose(st.sampled_from([0.0, 0.25])), choose(st.sampled_from([8.0, 100.0]))),
        {role: choose(st.sampled_from(RULES)) for role in ROLES},
        choose(st.sampled_from(FIRST)),
    )
    fleet = Fleet.of({(role, name): choose(upto[4]) for role in ROLES for name in names})
    rates = dict.fromkeys(fleet.counts, 1.0)
    draws = draw(s.workload, fleet, rates, choose(upto[80]), choose(st.integers(0, 99)))
    if choose(st.booleans()):  # on a grid of 1/8 s: many arrive together
        stream = replace(draws.stream, arrival=np.floor(draws.stream.arrival * 8.0) / 8.0)
        draws = replace(draws, stream=stream)
    return s, fleet, draws


NOISES = st.sampled_from(
    [Noise("exponential"), Noise("gamma", 0.3), Noise("gamma", 3.0), Noise("lognormal", 0.5)]
)
BUDGETS = st.builds(PassBudget, st.sampled_from([1.0, 5.0, 16.0, 40.0]), st.booleans())
MEMORIES = st.builds(
    KvMemory,
    st.sampled_from(["context", "full"]),
    st.sampled_from([0.0, 0.25]),
    st.booleans(),
)
TOKENS = st.builds(
    MultiToken, st.sampled_from([1.0, 1.5, 3.0]), st.sampled_from(["fixed", "geometric"])
)
CLIENTS = st.builds(
    Clients,
    st.sampled_from([0.05, 0.5, 2.0, math.inf]),
    st.sampled_from([0.0, 1.0, 4.0, math.inf]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([0.0, 0.25]),
)
# Passes last seconds at most, so that they are over before the next failure now and then.
FAILURES = st.builds(Failures, st.sampled_from([5.0, 30.0]), st.sampled_from([0.05, 0.5, 3.0]))

COLOCATED = st.builds(
    Colocated,
    st.sampled_from(["prefill_first", "chunked"]),
    st.sampled_from([1.0, 5.0, 16.0, math.inf]),
)


@st.composite
def networks(choose: st.DrawFn, names: list[str]) -> Network:
    """Random sharing and scope; the first type stands at another site, over another link."""
    far = choose(st.booleans())
    sites = {(role, names[0]): role for role in ROLES} if far else {}
    links = {(PREFILL, DECODE): Link(0.5, 16.0)} if far else {}
    return Network(
        choose(st.sampled_from(["none", "fcfs", "processor_sharing"])),
        choose(st.sampled_from(["replica", "sites", "fabric"])),
        choose(st.none() | NOISES),
        sites,
        links,
    )


@st.composite
def optioned_runs(choose: st.DrawFn) -> tuple[System, Fleet, Draws, SimulationOptions]:
    """A random run with one to all options."""
    s, fleet, draws = choose(small_runs())
    blocks: dict[str, Any] = {
        "prefill_budget": BUDGETS,
        "prefill_noise": NOISES,
        "step_noise": NOISES,
        "network": networks(list(s.replica_types)),
        "kv": MEMORIES,
        "multi_token": TOKENS,
        "clients": CLIENTS,
        "failures": FAILURES,
        "slow": st.just({(PREFILL, 0): 2.0, (DECODE, 0): 1.5}),
    }
    on = choose(st.lists(st.sampled_from(sorted(blocks)), min_size=1, unique=True))
    options = SimulationOptions(**{name: choose(blocks[name]) for name in on})
    return s, fleet, draws, options


@st.composite
def colocated_runs(choose: st.DrawFn) -> tuple[System, Fleet, Draws, SimulationOptions]:
    """A random run of replicas that do both roles, with none to all other options."""
    s, fleet, draws = choose(small_runs())
    counts = {(role, p.replica_type): p.replicas for role in ROLES for p in fleet.in_role(PREFILL)}
    blocks: dict[str, Any] = {
        "prefill_noise": NOISES,
        "step_noise": NOISES,
        "kv": st.builds(
            KvMemory, st.sampled_from(["context", "full"]), st.sampled_from([0.0, 0.25])
        ),
        "multi_token": TOKENS,
        "clients": CLIENTS,
        "slow": st.just({(PREFILL, 0): 2.0}),
    }
    on = choose(st.lists(st.sampled_from(sorted(blocks)), unique=True))
    options = SimulationOptions(
        colocated=choose(COLOCATED), **{name: choose(blocks[name]) for name in on}
    )
    return s, Fleet.of(counts), draws, options


def assert_both_agree(case: tuple[System, Fleet, Draws, SimulationOptions]) -> None:
    """Also where steps are counted and nothing is written down (``simulate``)."""
    s, fleet, draws, options = case
    try:
        expected = reference.replay(s, fleet, draws, options=options)
    except InputError:  # a request that no replica's memory holds
        with pytest.raises(InputError):
            fast.replay(s, fleet, draws, options=options)
        return
    run = fast.replay(s, fleet, draws, options=options)
    assert_same(run, expected)


@settings(max_examples=400, deadline=None)
@given(optioned_runs())
def test_same_as_the_reference_to_the_last_bit(
    case: tuple[System, Fleet, Draws, SimulationOptions],
) -> None:
    assert_both_agree(case)


@settings(max_examples=200, deadline=None)
@given(colocated_runs())
def test_same_where_replicas_do_both_roles(
    case: tuple[System, Fleet, Draws, SimulationOptions],
) -> None:
    assert_both_agree(case)
