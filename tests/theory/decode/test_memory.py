"""Slots of a KV memory, by counting and by simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from experiments.delay_laws.decode_runs import lengths
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, decode_work
from pdalloc.queueing.decode.memory import memory_slots
from pdalloc.simulation import fast
from pdalloc.simulation.options import KvMemory, SimulationOptions
from pdalloc.simulation.statistics import interval, steady
from pdalloc.simulation.traffic import draw
from pdalloc.system import ReplicaType, System
from pdalloc.workload.traffic import TrafficClass, Workload


@pytest.mark.parametrize("slots", [1, 5, 40])
def test_equal_requests(slots: int) -> None:
    """150 tokens each: M = 150 K + 75 (the half request that lies empty) holds K."""
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    assert memory_slots(work, 150.0 * slots + 75.0, "full") == slots
    assert memory_slots(work, 150.0 * (slots + 1) + 74.0, "full") == slots


def test_context_is_held_while_it_grows() -> None:
    """Context of 100..149 tokens: 124.5 on average; admission asks for 101."""
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    assert memory_slots(work, 124.5 * 8 + 50.5) == 8


def test_long_answers_hold_more_than_their_share() -> None:
    """Weighed by steps: 10 and 90 steps evenly hold (10 x 110 + 90 x 190)/100 = 182 tokens."""
    work = decode_work(np.full(2, 100.0), np.array([10.0, 90.0]), np.full(2, 0.5))
    empty = (110.0**2 + 190.0**2) / (2.0 * 300.0)
    assert memory_slots(work, 182.0 * 20 + empty, "full") == 20
    assert memory_slots(work, 182.0 * 20 + empty - 1.0, "full") == 19


@settings(max_examples=30, deadline=None)
@given(st.floats(300.0, 1e6), st.floats(1.0, 3.0), st.sampled_from(["context", "full"]))
def test_more_memory_holds_more(tokens: float, more: float, reserve: Any) -> None:
    work = decode_work(np.array([50.0, 150.0]), np.array([40.0, 90.0]), np.full(2, 0.5))
    assert memory_slots(work, more * tokens, reserve) >= memory_slots(work, tokens, reserve)
    assert memory_slots(work, tokens, "full") <= memory_slots(work, tokens, "context")


@pytest.mark.parametrize("tokens", [0.0, -5.0, math.nan, math.inf])
def test_impossible_memory(tokens: float) -> None:
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    with pytest.raises(InputError, match="positive number of tokens"):
        memory_slots(work, tokens)


def test_memory_below_one_request() -> None:
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    with pytest.raises(InputError, match="do not hold one request of 150 tokens"):
        memory_slots(work, 149.0, "full")


@pytest.mark.parametrize("contexts", [12, 32])
def test_full_reservation_against_simulation(contexts: int) -> None:
    """Stated: mean TPOT within 2 %, mean wait low by at most a half - where a memory divided by
    the mean context says less than a quarter of it."""
    law = lengths("geometric", 200.0, "lognormal")
    work = decode_work(law.prompt, law.output, law.weight)
    tokens = contexts * work.mean_context
    station = DecodeStation(
        0.0, lambda batch, held: 20.0 + batch, work, slots=memory_slots(work, tokens, "full")
    )
    station = station.at(0.85 * station.capacity)
    tpot, wait = simulated(station, law, tokens)
    found = DecodeLaw(station)
    assert found.mean_tpot == pytest.approx(tpot[0], rel=0.02 + tpot[1] / tpot[0])
    assert 0.5 * wait[0] - wait[1] <= found.mean_entry <= wait[0] + wait[1]
    plain = DecodeLaw(replace(station, slots=contexts))
    assert plain.mean_entry < 0.25 * wait[0] + wait[1]


def simulated(
    station: DecodeStation, law: Any, tokens: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(mean, half-width) of TPOT and of the time from prefill to the first step."""
    latency = Latency(AffinePrefill(0.0, 1e-15), AffineDecode(20.0, 1.0))
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0, kv_tokens=tokens)
    system = System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload((TrafficClass("all", station.rate, law),)),
        {"r": kind},
        Link(),
        dict.fromkeys(ROLES, "random"),
        "decode",
    )
    fleet = Fleet.of({(PREFILL, "r"): 1, (DECODE, "r"): 1})
    found = []
    for seed in range(4):
        draws = draw(system.workload, fleet, dict.fromkeys(fleet.counts, 1.0), 40_000, seed)
        run = fast.replay(system, fleet, draws, options=SimulationOptions(kv=KvMemory("full")))
        log = run.log.select(steady(run.log))
        waited = log.decode_start - log.prefill_end
        found.append((float(np.nanmean(log.tpot)), float(waited.mean())))
    tpot, wait = zip(*found, strict=True)
    return interval(tpot), interval(wait)
