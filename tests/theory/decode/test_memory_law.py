"""The law of a pool with KV memory counted by token: limits, and its measured errors."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdalloc.errors import UnstableError
from pdalloc.fleet import Dispatch
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, DecodeWork, decode_work
from pdalloc.queueing.decode.memory import Space
from pdalloc.queueing.decode.memory_law import MemoryLaw, MemoryStation

RESULTS = Path(__file__).parents[3] / "experiments" / "delay_laws" / "results"


def geometric(prompt: float = 1000.0, mean: float = 200.0) -> DecodeWork:
    """Outputs at 200 equally likely levels of a geometric law."""
    level = (np.arange(200) + 0.5) / 200
    out = np.maximum(np.rint(-np.log1p(-level) * mean), 1.0)
    return decode_work(np.full(200, prompt), out, np.full(200, 1 / 200))


def station(
    work: DecodeWork, space: Space, rho: float, r: int = 1, rule: Dispatch = "random"
) -> MemoryStation:
    """t = 20 + B, at ``rho`` of what it can serve."""
    most = space.needs(work).most
    still = MemoryStation(0.0, lambda k, held: 20.0 + k, work, r, most, rule, space=space)
    return replace(still, rate=rho * still.limit)


def level_needs() -> DecodeWork:
    """Geometric steps that all hold 1000 tokens: no growth."""
    plain = geometric()
    none = np.zeros_like(plain.steps)
    return DecodeWork(plain.steps, none + 1000.0, none, plain.gaps, plain.weight)


@pytest.mark.parametrize("rho", [0.6, 0.8, 0.9])
def test_equal_needs_are_slots(rho: float) -> None:
    """1000 tokens each in 12,500: 12 slots. Exponential lengths wait by birth and death, so the law
    is that of 12 slots: P(W > 0), batch and mean TPOT."""
    work = level_needs()
    found = MemoryLaw(station(work, Space(12_500.0, "full"), rho))
    plain = DecodeLaw(DecodeStation(found.station.rate, found.station.step_time, work, slots=12))
    assert found.station.capacity == pytest.approx(plain.station.capacity, rel=1e-9)
    assert found.wait_probability == pytest.approx(plain.wait_probability, rel=0.03)
    assert found.mean_batch == pytest.approx(plain.mean_batch, rel=1e-3)
    assert found.mean_tpot == pytest.approx(plain.mean_tpot, rel=2e-3)


def test_much_memory_is_no_limit() -> None:
    work = geometric()
    found = MemoryLaw(station(work, Space(1e5, "full"), 0.3))
    free = DecodeLaw(DecodeStation(found.station.rate, found.station.step_time, work))
    assert found.wait_probability < 1e-6 and found.preemptions == 0.0
    assert found.mean_tpot == pytest.approx(free.mean_tpot, rel=1e-3)


@pytest.mark.parametrize("reserve", ["full", "context"])
def test_waits_rise_with_load_and_fall_with_memory(reserve: str) -> None:
    work = geometric()
    tokens = 15_000.0
    laws = [MemoryLaw(station(work, Space(tokens, reserve), rho)) for rho in (0.5, 0.7, 0.9)]  # type: ignore[arg-type]
    waits = [law.mean_slot_wait for law in laws]
    assert 0.0 < waits[0] < waits[1] < waits[2]
    wider = MemoryStation(
        laws[1].station.rate, laws[1].station.step_time, work, 1,
        Space(2 * tokens).needs(work).most, space=Space(2 * tokens, reserve),  # type: ignore[arg-type]
    )  # fmt: skip
    assert MemoryLaw(wider).mean_slot_wait < waits[1]


def test_shares_of_time_are_a_law() -> None:
    law = MemoryLaw(station(geometric(), Space(15_000.0), 0.8)).batches
    assert law.share.sum() == pytest.approx(1.0, rel=1e-12)
    assert np.all(law.share >= 0.0) and 0.0 < law.full < 1.0


def test_preemption_prolongs_and_never_under_full_reservation() -> None:
    """Under ``context`` E[TPOT] holds a stall and a pass per preemption; most so a short one's."""
    work = geometric(300.0, 300.0)
    quick, slow = (
        MemoryLaw(station(work, Space(6000.0, "context", 0.0, lambda t, s=s: s * t), 0.85))  # type: ignore[misc]
        for s in (0.0, 0.1)
    )
    assert quick.preemptions > 0.05
    assert slow.station.capacity < quick.station.capacity
    short, long = quick.request_means(np.array([30.0, 900.0]), np.full(2, 450.0))
    assert short > long
    assert quick.greatest_step == math.inf
    assert MemoryLaw(station(work, Space(6000.0, "full"), 0.85)).preemptions == 0.0


def test_requests_add_up_to_the_mean() -> None:
    """The mean over requests of their own mean steps is the mean step."""
    work = geometric()
    law = MemoryLaw(station(work, Space(15_000.0), 0.85))
    some = work.gaps > 0
    held = work.context + work.growth * (work.steps - 1.0) / 2.0
    means = law.request_means(work.steps[some], held[some])
    weight = work.weight[some] / work.weight[some].sum()
    assert float(weight @ means) == pytest.approx(law.mean_step, rel=1e-9)


def test_one_queue_waits_less() -> None:
    """Replicas that take from one queue wait less than each for itself."""
    work, space = geometric(), Space(15_000.0)
    alone = MemoryLaw(station(work, space, 0.85)).mean_slot_wait
    pooled = MemoryLaw(station(work, space, 0.85, 4, "central_queue")).mean_slot_wait
    assert 0.0 < pooled < 0.6 * alone


def test_what_moves_leaves_less_room() -> None:
    work = geometric()
    still = Space(15_000.0, "full")
    moving = Space(15_000.0, "full", moving=1200.0 * 500.0)
    of = station(work, moving, 0.9)
    assert of.limit < station(work, still, 0.9).limit
    assert replace(of, rate=0.999999 * of.limit).room.capacity == pytest.approx(of.limit, rel=1e-5)
    with pytest.raises(UnstableError, match="utilisation"):
        of.at(1.01 * of.limit)


def test_stated_errors() -> None:
    """Docstring of the law: mean TPOT and mean wait of the table of cells."""
    with (RESULTS / "memory.csv").open() as file:
        rows = list(csv.DictReader(file))

    def errors(key: str) -> np.ndarray:
        found = [r[f"{key}_error_percent"] for r in rows]
        values = [abs(float(x)) for x in found if x not in ("", "nan")]
        return np.array(values)

    tpot, wait = errors("mean_tpot"), errors("mean_wait")
    assert np.median(tpot) <= 0.7 and np.quantile(tpot, 0.95) <= 4.5 and tpot.max() <= 8.0
    assert np.median(wait) <= 10.0 and np.quantile(wait, 0.95) <= 52.0 and wait.max() <= 60.0


@pytest.mark.parametrize("slots", [1.0, 8.0, 64.0])
def test_slots_before_memory_are_slots(slots: float) -> None:
    """A batch limit that comes long before the memory: the slot law, without preemption."""
    work = decode_work(np.array([100.0, 300.0]), np.array([50.0, 150.0]), np.full(2, 0.5))

    def step(batch: Any, held: Any) -> Any:
        return 0.02 + 2e-4 * batch

    plain = DecodeStation(0.0, step, work, slots=slots)
    space = Space(tokens=20.0 * slots * 400.0, reserve="context")
    counted = MemoryStation(0.0, step, work, slots=slots, space=space)
    assert counted.limit == pytest.approx(plain.limit, rel=1e-6)
    rate = 0.8 * plain.limit
    law, other = MemoryLaw(replace(counted, rate=rate)), DecodeLaw(plain.at(rate))
    assert law.mean_tpot == pytest.approx(other.mean_tpot, rel=0.01)
