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
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, DecodeWork, decode_work
from pdalloc.queueing.decode.memory import Space, memory_slots, needs, room
from pdalloc.queueing.decode.memory_law import MemoryLaw, MemoryStation
from pdalloc.simulation import fast
from pdalloc.simulation.options import KvMemory, SimulationOptions
from pdalloc.simulation.statistics import interval, steady
from pdalloc.simulation.traffic import draw
from pdalloc.system import ReplicaType, System
from pdalloc.workload.traffic import TrafficClass, Workload


@pytest.mark.parametrize("slots", [1, 5, 40])
def test_equal_requests(slots: int) -> None:
    """150 tokens each, from the start: K = floor(M / 150), exactly."""
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    assert memory_slots(work, 150.0 * slots, "full") == slots
    assert memory_slots(work, 150.0 * (slots + 1) - 1.0, "full") == slots


@pytest.mark.parametrize("tokens", [2050.0, 4050.0, 10_050.0])
def test_random_needs_fit_as_a_renewal_count(tokens: float) -> None:
    """Needs of 100 or 300, as often, and stays that do not depend on them: N = the most k with d_1
    + ... + d_k <= M. Completions see N, so K = 1/E[1/N] (Rumyantsev and Morozov 2017); E[1/N] by
    convolution in whole hundreds."""
    work = DecodeWork(
        np.full(2, 10.0), np.array([90.0, 290.0]), np.ones(2), np.full(2, 9.0), np.full(2, 0.5)
    )
    cells = int(tokens // 100)
    mass = np.zeros(cells + 1)
    mass[0], inverse = 1.0, 0.0
    for k in range(1, cells + 1):
        after = np.zeros(cells + 1)
        after[1:] += 0.5 * mass[:-1]
        after[3:] += 0.5 * mass[:-3]
        stays = 0.5 * after[cells] + 0.5 * after[max(cells - 2, 0) :].sum()
        mass = after
        inverse += stays / k
    assert memory_slots(work, tokens, "full") == pytest.approx(1.0 / inverse, rel=0.01)


def test_context_is_held_while_it_grows() -> None:
    """100..149 tokens, 124.5 on average, 100 asked for: of the memory E[d^2]/(2 E[d]) = 50 lie
    empty while the next does not fit (residual life)."""
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    assert memory_slots(work, 124.5 * 30 + 50.0) == pytest.approx(30.0, rel=0.02)


def test_long_answers_hold_more_than_their_share() -> None:
    """Weighed by steps: 10 and 90 steps evenly hold (10 x 110 + 90 x 190)/100 = 182 tokens."""
    work = decode_work(np.full(2, 100.0), np.array([10.0, 90.0]), np.full(2, 0.5))
    values, weights = needs(work, 1e4, "full").held
    assert float(values @ weights) == pytest.approx(182.0, rel=1e-12)


def test_who_fits_and_who_is_blocked() -> None:
    """F_k falls with k, B_k is what an arrival loses of it, and they add up: in the end everybody
    who comes is blocked somewhere, sum B_k = 1 where all that is asked for is held from then on."""
    work = DecodeWork(
        np.full(3, 10.0), np.array([50.0, 120.0, 300.0]), np.ones(3), np.full(3, 9.0),
        np.full(3, 1 / 3),
    )  # fmt: skip
    fits, blocks = needs(work, 5e3, "full").fitting(5e3)
    assert np.all(np.diff(fits) <= 1e-12) and np.all(blocks <= fits + 1e-12)
    assert blocks.sum() == pytest.approx(1.0, abs=1e-6)
    less, _ = needs(work, 5e3, "full").fitting(4e3)
    assert np.all(less <= fits + 1e-12)


def test_memory_that_moves_is_not_there() -> None:
    """Requests in transfer hold lambda E[d X] tokens: as much less serves as much less."""
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))

    def capacity(tokens: float, moving: float) -> float:
        return room(work, Space(tokens, "full", moving=moving), 2.0, np.ones_like).capacity

    assert capacity(1500.0, 75.0) == pytest.approx(capacity(1350.0, 0.0), rel=1e-12)


def test_preemption_costs_capacity() -> None:
    """1/lambda* = E[n] E[t/k] + pi R; none of it under full reservation."""
    work = decode_work(np.array([1000.0]), np.array([200.0]), np.ones(1))
    free, dear = (
        room(work, Space(20_000.0, "context", 0.0, lambda tokens, r=r: r), 0.0, np.ones_like)  # type: ignore[misc]
        for r in (0.0, 3.0)
    )
    assert free.preemptions > 0.1
    lost = 1.0 / dear.capacity - 1.0 / free.capacity
    assert lost == pytest.approx(3.0 * free.preemptions, rel=1e-9)
    assert room(work, Space(20_000.0, "full"), 0.0, np.ones_like).preemptions == 0.0


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
    """Stated: mean TPOT within 2 %, mean wait within a quarter - where a memory divided by the
    mean context says less than a quarter of it."""
    law = lengths("geometric", 200.0, "lognormal")
    work = decode_work(law.prompt, law.output, law.weight)
    tokens = contexts * work.mean_context
    space = Space(tokens, "full")
    most = space.needs(work).most
    still = MemoryStation(0.0, lambda batch, held: 20.0 + batch, work, 1, most, space=space)
    station = replace(still, rate=0.85 * still.capacity)
    tpot, wait = simulated(station, law, tokens)
    found = MemoryLaw(station)
    assert found.mean_tpot == pytest.approx(tpot[0], rel=0.02 + tpot[1] / tpot[0])
    assert found.mean_slot_wait == pytest.approx(wait[0], rel=0.25 + wait[1] / wait[0])
    plain = DecodeLaw(DecodeStation(station.rate, station.step_time, work, slots=contexts))
    assert plain.mean_slot_wait < 0.25 * wait[0] + wait[1]


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
        assert log.transfer_start is not None
        waited = log.transfer_start - log.prefill_end
        found.append((float(np.nanmean(log.tpot)), float(waited.mean())))
    tpot, wait = zip(*found, strict=True)
    return interval(tpot), interval(wait)


def test_a_batch_limit_ends_the_count() -> None:
    """Up to the limit F_k and B_k are those without it; one more tells that memory is left."""
    work = DecodeWork(
        np.full(2, 10.0), np.array([90.0, 290.0]), np.ones(2), np.full(2, 9.0), np.full(2, 0.5)
    )
    all_fit, limited = needs(work, 2e4, "full"), needs(work, 2e4, "full", 20.0)
    assert limited.most == 21 < all_fit.most
    for found, whole in zip(limited.fitting(1.7e4), all_fit.fitting(1.7e4), strict=True):
        np.testing.assert_allclose(found, whole[:22], rtol=0.0, atol=1e-12)
    step = np.ones_like
    one = room(work, Space(2e4, "full"), 0.0, step, 20.0)
    other = room(work, Space(2e4, "full", max_batch=20.0), 0.0, step, 20.0)
    assert other.capacity == pytest.approx(one.capacity, rel=1e-12)
    assert other.preemptions == one.preemptions
    level = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    assert needs(level, 1.5e4, "full", 20.0).most == 21
    assert needs(level, 1.5e3, "full", 20.0).most == 10


def test_short_requests_in_a_large_memory() -> None:
    """1e5 would fit, 64 may: as many rows are counted, not one for each that fits."""
    work = decode_work(np.array([10.0, 30.0]), np.array([5.0, 15.0]), np.full(2, 0.5))
    found = Space(2e6, max_batch=64.0).needs(work)
    assert found.most == 65
    assert found.fitting(2e6)[0] == pytest.approx(np.ones(66))
