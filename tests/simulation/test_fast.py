"""The fast simulator against the reference, to the last bit, and against theory at scale."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import nbinom, poisson

from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredDecode, MeasuredPrefill
from pdalloc.latency.service import Calibration, Latency, Noise
from pdalloc.records import RequestLog
from pdalloc.simulation import fast, reference
from pdalloc.simulation.statistics import Run, interval, littles_law, steady
from pdalloc.simulation.traffic import Draws, child_seed, draw
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

RULES: tuple[Dispatch, ...] = ("random", "round_robin", "least_loaded", "central_queue")
FIRST: tuple[FirstToken, ...] = ("prefill", "transfer", "decode")
LLM = Llm("m", "M", 1, 1.0, 1e9, 1)
INSTANT = AffinePrefill(0.0, 1e-30)


PER_SERVER = (
    "step_starts",
    "step_seconds",
    "pass_starts",
    "pass_seconds",
    "recompute_starts",
    "recompute_seconds",
)


def replica(latency: Latency, name: str = "r", **limits: float) -> ReplicaType:
    return ReplicaType(name, Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0, **limits)


def columns(log: RequestLog) -> dict[str, np.ndarray]:
    found = {name: getattr(log, name) for name in log.__annotations__}
    return {name: column for name, column in found.items() if column is not None}


def assert_same(one: Run, two: Run) -> None:
    """Bit for bit, NaN where NaN."""
    assert columns(one.log).keys() == columns(two.log).keys()
    for name, column in columns(one.log).items():
        np.testing.assert_array_equal(column, columns(two.log)[name], err_msg=name)
    for name in PER_SERVER:
        pairs = zip(getattr(one, name), getattr(two, name), strict=True)
        for d, (left, right) in enumerate(pairs):
            np.testing.assert_array_equal(left, right, err_msg=f"{name}[{d}]")


# Random fleets. Types c and d have times that are sums of powers of two, and clocked
# arrivals, so that many events fall on one instant; INSTANT prefills take no time at all.

STEPS = Curve("steps", np.array([1.0, 2.0, 5.0]), np.array([0.01, 0.013, 0.011]))
PROMPTS = Curve("prompts", np.array([2.0, 8.0, 30.0]), np.array([0.01, 0.02, 0.09]))
TYPES = {
    "a": Latency(AffinePrefill(0.01, 1e-3), AffineDecode(0.01, 1e-3, 1e-5), "exponential"),
    "b": Latency(
        MeasuredPrefill(PROMPTS), MeasuredDecode(STEPS), calibration=Calibration(1.1, 0.9)
    ),
    "c": Latency(AffinePrefill(0.25, 0.0625), AffineDecode(0.125, 0.125, 0.0)),
    "d": Latency(INSTANT, AffineDecode(0.25, 0.0)),
}


@st.composite
def small_runs(choose: st.DrawFn) -> tuple[System, Fleet, Draws]:
    """A random small fleet of one or two types with random rules, under random traffic."""
    pick = {n: st.integers(1, n) for n in (2, 4, 12, 120)}
    tokens = st.lists(pick[12], min_size=3, max_size=3)
    prompts, outputs = (np.array(choose(tokens), float) for _ in range(2))
    law = joint_table(prompts, outputs, np.ones(3))
    rate, scv = st.sampled_from([2.0, 50.0]), st.sampled_from([0.0, 0.5, 1.0, 4.0])
    hit = st.sampled_from([0.0, 0.3])
    classes = [
        TrafficClass(q, choose(rate), law, choose(scv), choose(hit))
        for q in "xy"[: choose(pick[2])]
    ]
    batch, kv = st.sampled_from([1.0, 3.0, math.inf]), st.sampled_from([60.0, math.inf])
    names = choose(st.sampled_from(["a", "b", "c", "d", "ab", "cd", "bd"]))
    types = {
        name: replica(TYPES[name], name, max_batch=choose(batch), kv_tokens=choose(kv))
        for name in names
    }
    s = System(
        LLM,
        Workload(tuple(classes)),
        types,
        Link(choose(st.sampled_from([0.0, 0.25])), choose(st.sampled_from([8.0, 1e4, math.inf]))),
        {role: choose(st.sampled_from(RULES)) for role in ROLES},
        choose(st.sampled_from(FIRST)),
    )
    fleet = Fleet.of({(role, name): choose(pick[4]) for role in ROLES for name in names})
    rates = dict.fromkeys(fleet.counts, 1.0)
    draws = draw(s.workload, fleet, rates, choose(pick[120]), choose(st.integers(0, 99)))
    if choose(st.booleans()):  # on a grid of 1/8 s: many arrive together
        stream = replace(draws.stream, arrival=np.floor(draws.stream.arrival * 8.0) / 8.0)
        draws = replace(draws, stream=stream)
    return s, fleet, draws


@settings(max_examples=400, deadline=None)
@given(small_runs())
def test_same_as_the_reference_to_the_last_bit(case: tuple[System, Fleet, Draws]) -> None:
    assert_same(fast.replay(*case), reference.replay(*case))


def rich_system(dispatch: Dispatch, first_token: FirstToken, **limits: float) -> System:
    """Both roles loaded, lengths correlated, transfers and contexts that matter."""
    law = joint_table(np.array([50.0, 400.0]), np.array([1.0, 30.0]), np.array([1.0, 2.0]))
    latency = Latency(AffinePrefill(0.01, 2e-4), AffineDecode(0.01, 1e-3, 1e-6), "exponential")
    workload = Workload((TrafficClass("all", 30.0, law),))
    types = {"r": replica(latency, "r", **limits)}
    return System(
        LLM, workload, types, Link(0.02, 5e3), dict.fromkeys(ROLES, dispatch), first_token
    )


def fleet_of(prefills: int, decodes: int) -> tuple[Fleet, dict[tuple[str, str], float]]:
    counts = {(PREFILL, "r"): prefills, (DECODE, "r"): decodes}
    return Fleet.of(counts), dict.fromkeys(counts, 1.0)


@pytest.mark.parametrize("first_token", FIRST)
@pytest.mark.parametrize("dispatch", RULES)
def test_same_on_a_loaded_fleet_over_many_batches(
    dispatch: Dispatch, first_token: FirstToken
) -> None:
    """5000 requests in five batches; the queue is never empty for long at K = 4."""
    s = rich_system(dispatch, first_token, max_batch=4.0)
    fleet, rates = fleet_of(4, 3)
    draws = draw(s.workload, fleet, rates, 5000, 3)
    assert_same(fast.replay(s, fleet, draws), reference.replay(s, fleet, draws))
    log = fast.simulate(s, fleet, rates, 5000, 3)
    np.testing.assert_array_equal(log.finish, fast.replay(s, fleet, draws).log.finish)


def test_same_when_the_batch_has_no_limit_and_only_grows() -> None:
    """Overload: the table of step times is made longer as the batch grows."""
    s = rich_system("random", "decode")
    s = replace(s, workload=s.workload.scaled(20.0))
    fleet, rates = fleet_of(40, 1)
    draws = draw(s.workload, fleet, rates, 3000, 3)
    run = fast.replay(s, fleet, draws)
    assert_same(run, reference.replay(s, fleet, draws))
    assert run.step_seconds[0].max() > 1.0  # over a thousand requests in one step


# Theorems, on millions of requests. Each interval is over REPLICATIONS independent runs.

REPLICATIONS = 8


def waits(
    scv: str, dispatch: Dispatch, servers: int, rho: float, requests: int
) -> list[np.ndarray]:
    """Prefill waits in units of the mean prefill time, of steady requests, by replication."""
    noise: Noise = "exponential" if scv == "M" else "none"
    latency = Latency(AffinePrefill(1.0, 0.0), AffineDecode(1e-6, 0.0), noise)
    workload = Workload((TrafficClass("all", rho * servers, fixed(1, 1)),))
    s = System(
        LLM, workload, {"r": replica(latency)}, Link(), dict.fromkeys(ROLES, dispatch), "prefill"
    )
    samples = []
    for i in range(REPLICATIONS):
        log = fast.simulate(s, *fleet_of(servers, 1), requests, child_seed(7, i))
        kept = log.select(steady(log))
        samples.append(kept.prefill_start - kept.arrival)
    return samples


def assert_mean(samples: list[np.ndarray], exact: float, within: float) -> None:
    mean, half_width = interval([float(w.mean()) for w in samples])
    assert half_width < within * exact
    assert mean == pytest.approx(exact, abs=1.5 * half_width)


def erlang_c(servers: int, rho: float) -> float:
    """P(wait > 0) of M/M/c."""
    load = rho * servers
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) / (1.0 - rho)
    return last / (sum(terms) + last)


def md_c_wait(servers: int, rho: float) -> float:
    """Mean wait of M/D/c, D = 1 (Tijms 2003, "A First Course in Stochastic Models", 9.6).

    Who is in service now is gone D later, and nobody who came since: the number present at
    D steps is N' = max(N - c, 0) + Poisson(rho c), whose stationary law holds at any time.
    """
    size = 40 * servers + 400
    step = np.zeros((size, size))
    for n in range(size):
        step[n, max(n - servers, 0) :] = poisson.pmf(
            np.arange(size - max(n - servers, 0)), rho * servers
        )
    law = np.linalg.matrix_power(step / step.sum(axis=1, keepdims=True), 4096)[0]
    waiting = np.maximum(np.arange(size) - servers, 0.0)
    return float(law @ waiting) / (rho * servers)


def test_random_dispatch_of_exponential_prefills_is_mm1_per_replica() -> None:
    """W = rho / (1 - rho); P(W > t) = rho exp(-(1 - rho) t)."""
    rho = 0.8
    samples = waits("M", "random", 4, rho, 250_000)
    assert_mean(samples, rho / (1.0 - rho), 0.03)
    for p in (0.5, 0.9, 0.99):
        exact = math.log(rho / (1.0 - p)) / (1.0 - rho)
        found, half_width = interval([float(np.quantile(w, p)) for w in samples])
        assert found == pytest.approx(exact, abs=1.5 * half_width)


@pytest.mark.parametrize("servers", [2, 16])
def test_central_queue_of_exponential_prefills_is_mmc(servers: int) -> None:
    rho = 0.85
    waiting = erlang_c(servers, rho)
    samples = waits("M", "central_queue", servers, rho, 250_000)
    assert_mean(samples, waiting / (servers * (1.0 - rho)), 0.06)
    share, half_width = interval([float((w > 0).mean()) for w in samples])
    assert share == pytest.approx(waiting, abs=1.5 * half_width)


def test_random_dispatch_of_constant_prefills_is_md1_per_replica() -> None:
    """W = rho / (2 (1 - rho)) (Pollaczek-Khinchine)."""
    assert_mean(waits("D", "random", 4, 0.8, 250_000), 0.8 / (2.0 * 0.2), 0.02)


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.8), (8, 0.9)])
def test_central_queue_of_constant_prefills_is_mdc(servers: int, rho: float) -> None:
    exact = md_c_wait(servers, rho)
    assert_mean(waits("D", "central_queue", servers, rho, 250_000), exact, 0.05)


def test_round_robin_of_exponential_prefills_is_erlang_arrivals() -> None:
    """E_2/M/1: W = s / (1 - s), s the root in (0, 1) of (2 rho / (2 rho + 1 - s))^2 = s."""
    rho = 0.8
    s = 0.5
    for _ in range(200):
        s = (2.0 * rho / (2.0 * rho + 1.0 - s)) ** 2
    assert_mean(waits("M", "round_robin", 2, rho, 250_000), s / (1.0 - s), 0.04)


def batch_system(a: float, b: float, steps: int, rho: float, dispatch: Dispatch) -> System:
    """Instant prefills, steps of a + b B, outputs of ``steps`` tokens or four times as many."""
    law = joint_table(np.ones(2), np.array([steps, 4.0 * steps]), np.array([3.0, 1.0]))
    rate = rho / (b * law.mean_output)
    return System(
        LLM,
        Workload((TrafficClass("all", rate, law),)),
        {"r": replica(Latency(INSTANT, AffineDecode(a, b)))},
        Link(),
        dict.fromkeys(ROLES, dispatch),
        "decode",
    )


def time_at_most(log: RequestLog, k: float) -> float:
    """Share of the steady window with at most k requests present."""
    window = log.select(steady(log)).arrival[[0, -1]]
    times = np.concatenate([log.transfer_end, log.finish])
    order = np.argsort(times)
    number = np.cumsum(np.repeat([1, -1], len(log))[order])
    at = np.clip(times[order], *window)
    return float(np.diff(at)[number[:-1] <= k].sum() / (window[1] - window[0]))


def test_number_decoding_is_negative_binomial_whatever_the_lengths() -> None:
    """N ~ NB(1 + a/b, 1 - rho); outputs of 200 and 800 tokens, so steps are short against them.

    Processor sharing with speed k / (a + b k); the law of the lengths does not matter.
    """
    a, b, rho = 0.010, 0.001, 0.6
    s = batch_system(a, b, 200, rho, "random")
    logs = [
        fast.simulate(s, *fleet_of(1, 1), 60_000, child_seed(3, i)) for i in range(REPLICATIONS)
    ]
    law = nbinom(1 + a / b, 1 - rho)
    for k in law.ppf([0.05, 0.5, 0.95]):
        share, half_width = interval([time_at_most(log, k) for log in logs])
        assert half_width < 0.02
        assert share == pytest.approx(law.cdf(k), abs=1.5 * half_width + 0.002)
    tpot, half_width = interval([float(log.tpot[steady(log)].mean()) for log in logs])
    assert tpot == pytest.approx((a + b) / (1 - rho), abs=1.5 * half_width + 2e-4 * tpot)


@pytest.mark.parametrize("dispatch", RULES)
def test_littles_law_holds_at_scale(dispatch: Dispatch) -> None:
    s = rich_system(dispatch, "decode")
    log = fast.simulate(s, *fleet_of(6, 3), 200_000, 4)
    observed, expected, gap = littles_law(log)
    assert observed > 1.0
    assert abs(gap) < 2e-3, (observed, expected)
