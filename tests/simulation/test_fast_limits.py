"""What the fast simulator costs, what it refuses, and how it stops."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import DecodeStep, Latency, PrefillTime
from pdalloc.records import RequestLog
from pdalloc.simulation import fast, hashing, reference
from pdalloc.simulation.fast import RunInterrupted
from pdalloc.simulation.kernels import chance, compile
from pdalloc.simulation.options import (
    PLAIN,
    Clients,
    KvMemory,
    Network,
    Noise,
    PassBudget,
    SimulationOptions,
)
from pdalloc.simulation.sampling import choose_points
from pdalloc.simulation.setup import noise_factor
from pdalloc.simulation.traffic import draw
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

Array = np.ndarray
OPTIONS = SimulationOptions(clients=Clients(timeout=2.0, retries=1), kv=KvMemory())


def busy_system(
    prefills: int = 4,
    decodes: int = 4,
    dispatch: Dispatch = "least_loaded",
    prefill: PrefillTime | None = None,
    decode: DecodeStep | None = None,
) -> tuple[System, Fleet, dict[tuple[str, str], float]]:
    """Outputs of 100 and 300 tokens; replicas of either role are about 70 % busy."""
    law = joint_table(np.array([500.0, 2000.0]), np.array([300.0, 100.0]), np.ones(2))
    first = prefill or AffinePrefill(0.01, 1e-4)
    step = decode or AffineDecode(0.01, 2e-4, 1e-7)
    rate = min(prefills * 5.0, decodes * 7.0)
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, Latency(first, step), 1.0, 2e5)
    s = System(
        Llm("m", "M", 1, 1e5, 1e9, 1),
        Workload((TrafficClass("all", rate, law),)),
        {"r": kind},
        Link(0.005, 2.5e10),
        dict.fromkeys(ROLES, dispatch),
        "decode",
    )
    counts = {(PREFILL, "r"): prefills, (DECODE, "r"): decodes}
    return s, Fleet.of(counts), dict.fromkeys(counts, 1.0)


def percentiles(log: RequestLog) -> list[float]:
    """Mean, P50, P90 and P99 of every latency, s."""
    values = []
    for name in ("ttft", "tpot", "e2e"):
        sample = getattr(log, name)
        values += [float(sample.mean()), *np.percentile(sample, [50, 90, 99]).tolist()]
    return values


# Cost.


def test_a_million_requests_take_seconds_and_less_than_400_bytes_each() -> None:
    """With drawing them and all percentiles; 10 million then fit in 4 GB."""
    s, fleet, rates = busy_system()
    fast.simulate(s, fleet, rates, 10, 1)  # compiles
    start = time.process_time()
    values = percentiles(fast.simulate(s, fleet, rates, 1_000_000, 1))
    assert time.process_time() - start < 5.0
    assert np.isfinite(values).all()
    tracemalloc.start()
    percentiles(fast.simulate(s, fleet, rates, 1_000_000, 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400e6


def test_cost_grows_no_faster_than_linearly() -> None:
    s, fleet, rates = busy_system()

    def seconds(requests: int) -> float:
        spent = []
        for seed in range(3):
            start = time.process_time()
            fast.simulate(s, fleet, rates, requests, seed)
            spent.append(time.process_time() - start)
        return min(spent)

    seconds(1000)
    assert seconds(800_000) < 1.6 * 8.0 * seconds(100_000)


TEN_MILLION = """
import resource, sys
sys.path.insert(0, {folder!r})
from test_fast_limits import busy_system, percentiles
from pdalloc.simulation import fast
percentiles(fast.simulate(*busy_system(), 10_000_000, 1))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
A_FEW = """
import sys, time
sys.path.insert(0, {folder!r})
from test_fast_limits import busy_system
from pdalloc.simulation import fast
start = time.perf_counter()
fast.simulate(*busy_system(), 100, 1)
print(time.perf_counter() - start)
"""


def in_a_new_process(script: str, **environment: str) -> float:
    """The number that ``script`` prints."""
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", script.format(folder=here)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.slow
def test_ten_million_requests_fit_in_4_gb() -> None:
    assert in_a_new_process(TEN_MILLION) < 4e9


def test_the_second_process_need_not_compile(tmp_path: Path) -> None:
    folder = str(tmp_path)
    cold = in_a_new_process(A_FEW, NUMBA_CACHE_DIR=folder)
    warm = in_a_new_process(A_FEW, NUMBA_CACHE_DIR=folder)
    assert list(tmp_path.rglob("*.nbc"))
    assert warm < 0.5 * cold


def test_kept_code_has_a_name_that_changes_with_any_kernel() -> None:
    from pdalloc.simulation.kernels.plain.core import play

    digest = compile._digest()
    assert len(digest) == 10
    assert play.__qualname__ == f"play_{digest}"


def test_where_nothing_can_be_written_kernels_are_compiled_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numba refuses to keep code when it finds no folder for it."""
    plain = numba.njit

    def njit(*function: Any, **options: Any) -> Any:
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return plain(*function, **options)

    monkeypatch.setattr(numba, "njit", njit)

    def twice(x: float) -> float:
        return 2.0 * x

    assert compile.kernel(twice)(3.0) == 6.0


# Progress and ^C.


@pytest.mark.parametrize("options", [PLAIN, OPTIONS])
def test_progress_is_called_about_a_hundred_times(options: SimulationOptions) -> None:
    seen: list[tuple[int, int]] = []
    s, fleet, rates = busy_system()
    log = fast.simulate(
        s, fleet, rates, 300_000, 1, lambda done, total: seen.append((done, total)), options
    )
    assert len(log) == 300_000
    done = [number for number, _ in seen]
    assert {total for _, total in seen} == {300_000}
    assert done == sorted(done)
    assert done[-1] == 300_000 or options is OPTIONS
    assert 10 <= len(seen) <= 110


@pytest.mark.parametrize("options", [PLAIN, OPTIONS])
def test_an_interrupted_run_keeps_what_is_done(options: SimulationOptions) -> None:
    """The log of the requests up to the first that was not done, as the whole run has it."""

    def impatient(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    s, fleet, rates = busy_system()
    draws = draw(s.workload, fleet, rates, 100_000, 1)
    with pytest.raises(RunInterrupted, match="interrupted after") as caught:
        fast.replay(s, fleet, draws, impatient, options)
    part, whole = caught.value.log, fast.simulate(s, fleet, rates, 100_000, 1, options=options)
    assert 30_000 < len(part) < 90_000
    for name in part.__annotations__:
        column = getattr(part, name)
        if column is not None:
            np.testing.assert_array_equal(column, getattr(whole, name)[: len(part)])


def test_interrupted_is_an_interrupt() -> None:
    """Who does not know it treats it as ^C."""
    assert issubclass(RunInterrupted, KeyboardInterrupt)


# Other kinds of latency.


@dataclass(frozen=True)
class Quadratic:
    """Steps that the kernels cannot evaluate: superlinear in the context."""

    range_batch: tuple[float, float] = (1.0, 1e9)

    def seconds(self, batch: Array, context: Array) -> Array:
        return 0.01 + 1e-4 * batch + 1e-12 * context**2


@dataclass(frozen=True)
class Root:
    """Steps of a kind of their own, but linear in the context."""

    range_batch: tuple[float, float] = (1.0, 1e9)

    def seconds(self, batch: Array, context: Array) -> Array:
        return np.asarray(0.01 + 1e-3 * np.sqrt(batch) + 3e-7 * context)


@dataclass(frozen=True)
class Lines:
    """Prefill of a kind of its own."""

    range_tokens: tuple[float, float] = (1.0, 1e9)

    def seconds(self, prompt: Array, cached: Array) -> Array:
        return np.asarray(0.01 + 1e-4 * (prompt - cached))

    def pass_seconds(self, tokens: Array, squares: Array) -> Array:
        return np.asarray(0.01 + 1e-4 * tokens)


def test_a_step_time_that_is_not_linear_in_the_context_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"not those of Quadratic.*engine='reference'"):
        fast.simulate(*busy_system(decode=Quadratic()), 10, 1)


def test_other_kinds_of_step_and_prefill_time_are_tabulated() -> None:
    """The slope is measured, so that the last digits may differ."""
    s, fleet, rates = busy_system(decode=Root(), prefill=Lines())
    one, two = (engine.simulate(s, fleet, rates, 3000, 1) for engine in (fast, reference))
    np.testing.assert_allclose(one.finish, two.finish, rtol=1e-9)
    np.testing.assert_array_equal(one.decode_replica, two.decode_replica)


def test_passes_of_an_unknown_kind_of_prefill_are_refused() -> None:
    options = SimulationOptions(prefill_budget=PassBudget(4096.0))
    with pytest.raises(UnsupportedError, match=r"no passes of Lines; use engine='reference'"):
        fast.simulate(*busy_system(prefill=Lines()), 10, 1, options=options)
    network = SimulationOptions(network=Network("fcfs"))
    assert len(fast.simulate(*busy_system(prefill=Lines()), 10, 1, options=network)) == 10


def test_bad_options_are_refused_as_by_the_reference() -> None:
    slow = SimulationOptions(slow={(DECODE, 9): 2.0})
    with pytest.raises(InputError, match="slow decode replica 9 does not exist"):
        fast.simulate(*busy_system(), 10, 1, options=slow)


# Random numbers.


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 7),
    *(st.integers(0, 10**9) for _ in range(3)),
)
def test_compiled_uniforms_are_those_of_the_reference(
    key: int, kind: int, a: int, b: int, c: int
) -> None:
    assert chance.uniform(np.uint64(key), kind, a, b, c) == hashing.uniform(key, kind, a, b, c)


@given(
    st.sampled_from([("exponential", 1.0), ("gamma", 0.2), ("gamma", 4.0), ("lognormal", 0.7)]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 10**6),
)
def test_compiled_noise_is_that_of_the_reference(law: tuple[Any, float], key: int, a: int) -> None:
    factor = chance.noise(chance.NOISES.index(law[0]), law[1], np.uint64(key), 1, a, 5)
    assert factor == noise_factor(Noise(*law), key, 1, a, 5)


def test_no_noise_is_a_factor_of_one() -> None:
    assert chance.noise(chance.NO_NOISE, 1.0, np.uint64(1), 1, 2, 3) == 1.0


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60).filter(lambda w: sum(w) > 1e-6),
    st.integers(0, 2**32),
)
def test_points_are_chosen_as_numpy_chooses_them(weight: list[float], seed: int) -> None:
    law = np.array(weight) / sum(weight)
    law[law.argmax()] += 1.0 - law.sum()
    one, two = (np.random.default_rng(seed) for _ in range(2))
    chosen = choose_points(one, law, 40_000)
    np.testing.assert_array_equal(chosen, two.choice(len(law), size=40_000, p=law))
    assert one.random() == two.random()


@pytest.mark.parametrize("dispatch", ["random", "round_robin", "least_loaded", "central_queue"])
def test_large_fleets_too(dispatch: Dispatch) -> None:
    s, fleet, rates = busy_system(40, 24, dispatch)
    one, two = (engine.simulate(s, fleet, rates, 4000, 1) for engine in (fast, reference))
    np.testing.assert_array_equal(one.finish, two.finish)
