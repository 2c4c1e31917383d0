"""Waits for a slot: how dispatch shares the slots of several replicas, and bursts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.prediction import Predictor
from pdalloc.queueing.decode import DecodeLaw
from pdalloc.queueing.departures import relaxation
from pdalloc.simulation import fast
from pdalloc.simulation.options import PLAIN
from pdalloc.simulation.pools import batch_memory
from pdalloc.simulation.statistics import interval, steady
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import independent
from pdalloc.workload.traffic import TrafficClass, Workload

SLOTS = 8.0


@pytest.mark.parametrize("dispatch", ["random", "central_queue", "round_robin"])
def test_only_least_loaded_leaves_slots_free(dispatch: str, pools: Any) -> None:
    """Elsewhere who comes while all slots are taken waits."""
    law = pools.law(0.9, slots=SLOTS, replicas=4, dispatch=dispatch)
    assert law.waiting._met == 1.0
    assert pools.law(0.9, slots=SLOTS, dispatch="least_loaded").waiting._met == 1.0


def test_free_slots_beside_queues_are_fewer_near_saturation(pools: Any) -> None:
    """1 - exp(-w), w = 1/((1 - sigma) R) waiting at each of R: to 1 as sigma does, less for more
    replicas; the mean wait is what it was."""
    met = [
        pools.law(rho, slots=SLOTS, replicas=6, dispatch="least_loaded").waiting._met
        for rho in (0.7, 0.9, 0.97, 0.995)
    ]
    assert met == sorted(met)
    assert met[-1] > 0.999
    law = pools.law(0.9, slots=SLOTS, replicas=6, dispatch="least_loaded").waiting
    assert law._met == pytest.approx(1.0 - math.exp(-1.0 / ((1.0 - law.pool.load) * 6)))
    more = pools.law(0.9, slots=SLOTS, replicas=12, dispatch="least_loaded").waiting
    assert more._met < law._met
    conditional = law.mean_slot_wait / law.probability
    assert law.slot_wait.mean == pytest.approx(law.mean_slot_wait, rel=1e-9)
    assert conditional > law.mean_slot_wait


@pytest.mark.parametrize(("replicas", "slots"), [(8, 6), (4, 10)])
def test_chance_to_wait_as_simulated(replicas: int, slots: int) -> None:
    """P(wait) under least_loaded at 94 % of capacity, geometric answers: within 12 %."""
    outputs = np.rint(-80.0 * np.log1p(-(np.arange(50) + 0.5) / 50)) + 1.0
    latency = Latency(AffinePrefill(0.0, 1e-7), AffineDecode(0.02, 4e-4))
    kind = ReplicaType("a", Gpu("a", "A"), 1, ROLES, latency, 1.0, max_batch=float(slots))
    lengths = independent(np.array([100.0]), outputs)
    step = 0.02 + 4e-4 * slots
    rate = 0.94 * replicas * slots / step / float(outputs.mean())
    system = System(
        Llm("t", "T", 1e9, 1e5, 1e5, 1e9),
        Workload((TrafficClass("all", rate, lengths),)),
        {"a": kind},
        Link(0.0, math.inf),
        {PREFILL: "random", DECODE: "least_loaded"},
        "decode",
    )
    law: DecodeLaw = Predictor(system).decode(kind, rate / replicas, replicas).law
    fleet = Fleet.of({(PREFILL, "a"): 1, (DECODE, "a"): replicas})
    shares = {(role, "a"): 1.0 for role in ROLES}
    waited = []
    for seed in range(6):
        log = fast.simulate(system, fleet, shares, 150_000, seed)
        entry = (np.asarray(log.decode_start) - np.asarray(log.transfer_end))[steady(log)]
        waited.append(float((entry > step).mean()))
    share, half_width = interval(waited)
    assert law.wait_probability == pytest.approx(share, abs=0.12 * share + half_width)


@pytest.mark.parametrize("scv", [0.3, 1.0, 4.0])
def test_bursts_count_at_the_pace_of_the_queue(scv: float, pools: Any) -> None:
    """The wait is scaled by F at the frequency at which the waiting room forgets: the gaps' SCV
    near saturation, nearer 1 with much room."""
    near = pools.law(0.99, slots=SLOTS, arrival_scv=scv).waiting
    far = pools.law(0.5, slots=SLOTS, arrival_scv=scv).waiting
    assert near._arrival_scv == pytest.approx(scv, rel=0.02)
    assert abs(far._arrival_scv - 1.0) <= abs(near._arrival_scv - 1.0)


def test_relaxation_in_light_traffic() -> None:
    """At no load a queue of c servers forgets at c times a server's rate."""
    assert relaxation(0.0, 3.0, 0.5) == pytest.approx(6.0)


@pytest.mark.parametrize("first", ["prefill", "transfer", "decode"])
@pytest.mark.parametrize("slots", [3, 6, 7, 20])
def test_formula_and_simulator_count_the_same_slots(first: FirstToken, slots: int) -> None:
    """A memory of exactly ``slots`` mean contexts holds as many in both (a hair below: one
    fewer)."""
    latency = Latency(AffinePrefill(0.0, 1e-5), AffineDecode(0.02, 4e-4))
    lengths = independent(np.array([100.0, 900.0]), np.array([20.0, 300.0]))
    bare = ReplicaType("a", Gpu("a", "A"), 1, ROLES, latency, 1.0)
    system = System(
        Llm("t", "T", 1e9, 1e5, 1e5, 1e9),
        Workload((TrafficClass("all", 1.0, lengths),)),
        {"a": bare},
        Link(0.0, math.inf),
        dict.fromkeys(ROLES, "random"),
        first,
    )
    for tokens, count in ((1.0 + 1e-9, slots), (1.0 - 1e-9, slots - 1)):
        kind = replace(bare, kv_tokens=tokens * slots * system.mean_context)
        counted = replace(system, replica_types={"a": kind})
        assert Predictor(counted).slots(kind) == count
        assert batch_memory(counted, kind, PLAIN)[0] == count
