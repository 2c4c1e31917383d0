"""The reference simulator against hand computation, queueing theory and its own rules.

The theorems on mean waits and TPOT are in test_validation.py, as predictions to confirm.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import nbinom

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredDecode
from pdalloc.latency.service import Calibration, Latency
from pdalloc.records import RequestLog
from pdalloc.simulation.reference import (
    replay,
    replica_types,
    simulate,
    step_time,
)
from pdalloc.simulation.statistics import Run, interval, littles_law, steady
from pdalloc.simulation.traffic import Draws, RequestStream, child_seed, draw
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

Array = np.ndarray
RULES: tuple[Dispatch, ...] = ("random", "round_robin", "least_loaded", "central_queue")
INSTANT = AffinePrefill(0.0, 1e-15)


def replica(latency: Latency, name: str = "r") -> ReplicaType:
    return ReplicaType(name, Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0)


def system(
    lengths: LengthLaw,
    rate: float,
    latency: Latency,
    dispatch: Dispatch = "random",
    first_token: FirstToken = "prefill",
    link: Link | None = None,
    max_batch: float = math.inf,
    kv_tokens: float = math.inf,
) -> System:
    workload = Workload((TrafficClass("all", rate, lengths),))
    types = {"r": replace(replica(latency), max_batch=max_batch, kv_tokens=kv_tokens)}
    rules = dict.fromkeys(ROLES, dispatch)
    return System(
        Llm("m", "M", 1, 1.0, 1e9, 1), workload, types, link or Link(), rules, first_token
    )


def fleet_of(prefills: int, decodes: int = 1) -> tuple[Fleet, dict[tuple[str, str], float]]:
    counts = {(PREFILL, "r"): prefills, (DECODE, "r"): decodes}
    return Fleet.of(counts), dict.fromkeys(counts, 1.0)


def by_hand(arrival: list[float], prompt: list[int], output: list[int]) -> Draws:
    """Draws that leave nothing to chance."""
    n = len(arrival)
    none = np.zeros(n)
    stream = RequestStream(
        np.array(arrival), np.zeros(n, int), np.array(prompt), none, np.array(output)
    )
    zero, pick = dict.fromkeys(ROLES, np.zeros(n, int)), dict.fromkeys(ROLES, none)
    return Draws(stream, np.ones(n), zero, pick)


# Hand computation: every time is a sum of powers of two, so equality is exact.

HAND = Latency(AffinePrefill(0.5, 0.25), AffineDecode(0.5, 0.25, 0.0625))
HAND_LINK = Link(0.25, 8.0)


def hand_run(
    first_token: FirstToken,
    draws: Draws,
    dispatch: Dispatch = "random",
    replicas: tuple[int, int] = (1, 1),
    **options: float,
) -> Run:
    s = system(fixed(2, 3), 1.0, HAND, dispatch, first_token, HAND_LINK, **options)
    return replay(s, fleet_of(*replicas)[0], draws)


def test_timeline_of_three_requests() -> None:
    """Prefill 0.5 + n/4 s, transfer 1/4 + n/8 s, step 1/2 + B/4 + S/16 s, one replica each.

    Requests 0 and 1: 2-token prompts, prefill 0-1 and 1-2, cache there at 1.5 and 2.5.
    Step 1: 1.5 + (3/4 + 2/16) = 2.375. Step 2 (3 tokens held): 2.375 + 15/16 = 3.3125;
    request 1 has come meanwhile and joins. Step 3 holds 4 + 2 tokens: 3.3125 + 1 + 6/16 =
    4.6875, the last token of request 0. Step 4, request 1 alone with 3: 4.6875 + 15/16 =
    5.625. Request 2: prefill 4-6 (6 tokens), cache at 7, one step of 3/4 + 6/16 = 1.125.
    """
    run = hand_run("decode", by_hand([0.0, 0.5, 4.0], [2, 2, 6], [3, 2, 1]))
    log = run.log
    assert log.prefill_start.tolist() == [0.0, 1.0, 4.0]
    assert log.prefill_end.tolist() == [1.0, 2.0, 6.0]
    assert log.transfer_end.tolist() == [1.5, 2.5, 7.0]
    assert log.decode_start.tolist() == [1.5, 3.3125, 7.0]
    assert log.first_token.tolist() == [2.375, 4.6875, 8.125]
    assert log.finish.tolist() == [4.6875, 5.625, 8.125]
    assert run.step_starts[0].tolist() == [1.5, 2.375, 3.3125, 4.6875, 7.0]
    assert run.step_seconds[0].tolist() == [0.875, 0.9375, 1.375, 0.9375, 1.125]


def test_timeline_when_one_slot_is_all() -> None:
    """The same with K = 1: request 1 starts when request 0 is done, 3.3125 + 16/16."""
    log = hand_run("decode", by_hand([0.0, 0.5, 4.0], [2, 2, 6], [3, 2, 1]), max_batch=1).log
    assert log.decode_start.tolist() == [1.5, 4.3125, 7.0]
    assert log.finish.tolist() == [4.3125, 6.125, 8.125]


def test_timeline_when_prefill_makes_the_first_token() -> None:
    """One step fewer each, one context token more: request 2 never reaches decode.

    Request 0: 1.5 + 15/16 = 2.4375. Then request 1 (there at 2.5) has not come, so step 2 is
    request 0 alone: + 1 = 3.4375, its last. Request 1: 3.4375 + 15/16 = 4.375, its only one.
    """
    log = hand_run("prefill", by_hand([0.0, 0.5, 4.0], [2, 2, 6], [3, 2, 1])).log
    assert log.first_token.tolist() == [1.0, 2.0, 6.0]
    assert log.decode_start.tolist() == [1.5, 3.4375, 6.0]
    assert log.finish.tolist() == [3.4375, 4.375, 6.0]


def test_arriving_at_a_step_boundary_is_in_time_for_it() -> None:
    """Caches at 1.5 and 2.375, when step 1 ends: the second joins step 2, not step 3."""
    draws = by_hand([0.0, 0.875], [2, 2], [3, 2])
    log = hand_run("decode", draws, "round_robin", (2, 1)).log
    assert log.transfer_end.tolist() == log.decode_start.tolist() == [1.5, 2.375]


def test_arriving_together_is_starting_together() -> None:
    draws = by_hand([0.0, 0.0], [2, 2], [1, 1])
    log = hand_run("decode", draws, "round_robin", (2, 1)).log
    assert log.decode_start.tolist() == [1.5, 1.5]
    assert log.finish.tolist() == [1.5 + 0.5 + 0.5 + 0.25] * 2


def test_round_robin_takes_turns() -> None:
    draws = by_hand([0.0, 1.0, 2.0, 3.0], [2] * 4, [1] * 4)
    log = hand_run("decode", draws, "round_robin", (3, 2)).log
    assert log.prefill_replica.tolist() == [0, 1, 2, 0]
    assert log.decode_replica.tolist() == [0, 1, 0, 1]


def test_least_loaded_prefill_counts_prompt_tokens_and_the_running_one_whole() -> None:
    """10 tokens on replica 0; 2, 2, 4 and 4 on replica 1; then 12 > 10."""
    draws = by_hand([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], [10, 2, 2, 4, 4, 2], [1] * 6)
    log = hand_run("decode", draws, "least_loaded", (2, 1)).log
    assert log.prefill_replica.tolist() == [0, 1, 1, 1, 1, 0]


def test_least_loaded_decode_counts_requests_whose_cache_still_moves() -> None:
    """Both prefills end at 1, both caches arrive at 1.5: the first replica is spoken for.

    At 20 and at 40 all is done, and the first of equals is chosen again.
    """
    draws = by_hand([0.0, 0.0, 20.0, 40.0], [2] * 4, [9, 1, 1, 1])
    log = hand_run("decode", draws, "least_loaded", (2, 2)).log
    assert log.prefill_replica.tolist() == log.decode_replica.tolist() == [0, 1, 0, 0]


def test_central_decode_queue_goes_to_the_first_free_slot() -> None:
    """K = 1: the third request takes whichever replica is done first, here the second."""
    draws = by_hand([0.0, 0.0, 0.0], [2, 2, 2], [9, 2, 1])
    log = hand_run("decode", draws, "central_queue", (3, 2), max_batch=1).log
    assert log.decode_replica.tolist() == [0, 1, 1]
    assert log.decode_start[2] == log.finish[1]


# Theorems.


def test_number_decoding_is_negative_binomial() -> None:
    """N ~ NB(1 + a/b, 1 - rho); steps make time discrete, hence the small allowance."""
    a, b, rho = 0.010, 0.001, 0.5
    latency = Latency(INSTANT, AffineDecode(a, b))
    s = system(fixed(1, 60), rho / (b * 60), latency, first_token="decode")
    seeds = (child_seed(2, i) for i in range(8))
    logs = [simulate(s, *fleet_of(1), 8000, seed) for seed in seeds]
    law = nbinom(1 + a / b, 1 - rho)
    for k in law.ppf([0.1, 0.5, 0.9]):
        below, half_width = interval([share_of_time_at_most(log, k) for log in logs])
        assert half_width < 0.03
        assert below == pytest.approx(law.cdf(k), abs=2 * half_width + 0.005)


def share_of_time_at_most(log: RequestLog, k: float) -> float:
    """Share of the steady window with at most k requests at the decode replica."""
    window = log.select(steady(log)).arrival[[0, -1]]
    times = np.concatenate([log.transfer_end, log.finish])
    order = np.argsort(times)
    number = np.cumsum(np.repeat([1, -1], len(log))[order])
    at = np.clip(times[order], *window)
    return float(np.diff(at)[number[:-1] <= k].sum() / (window[1] - window[0]))


# Rules.


def rich_system(dispatch: Dispatch, first_token: FirstToken, **options: float) -> System:
    """Both roles loaded, lengths correlated, transfers and contexts that matter."""
    law = joint_table(np.array([50.0, 400.0]), np.array([1.0, 30.0]), np.array([1.0, 2.0]))
    latency = Latency(AffinePrefill(0.01, 2e-4), AffineDecode(0.01, 1e-3, 1e-6), "exponential")
    return system(law, 20.0, latency, dispatch, first_token, Link(0.02, 5e3), **options)


@pytest.mark.parametrize("dispatch", RULES)
def test_prefill_is_first_come_first_served_and_conserves_work(dispatch: Dispatch) -> None:
    """Who waited starts the moment a prefill ends; nobody overtakes within a queue."""
    fleet, rates = fleet_of(3, 2)
    log = simulate(rich_system(dispatch, "decode"), fleet, rates, 3000, 4)
    pooled = dispatch == "central_queue"
    for r in range(1 if pooled else 3):
        mine = log if pooled else log.select(log.prefill_replica == r)
        assert np.all(np.diff(mine.prefill_start) >= 0)
        waited = mine.prefill_start > mine.arrival
        assert waited.any()
        assert np.isin(mine.prefill_start[waited], mine.prefill_end).all()
    assert sorted(set(log.prefill_replica.tolist())) == [0, 1, 2]


def most_together(log: RequestLog) -> int:
    """Greatest number of requests in one decode batch of a run with one decode replica."""
    decoded = log.finish > log.decode_start
    times = np.concatenate([log.finish[decoded], log.decode_start[decoded]])
    change = np.repeat([-1, 1], decoded.sum())
    return int(np.cumsum(change[np.lexsort((change, times))]).max(initial=0))


@pytest.mark.parametrize("limit", [{"max_batch": 6.0}, {"kv_tokens": 6.9 * 409.0}])
def test_batch_limit_is_reached_and_never_exceeded(limit: dict[str, float]) -> None:
    """K = 6 by the engine's limit, or as KV tokens over the size-biased mean context.

    Only the 400-token prompts decode long: (E[P L] + E[L^2]/2) / E[L] = 409 tokens.
    """
    s = rich_system("random", "decode", **limit)
    assert s.mean_context == pytest.approx((50 + 0.5 + 2 * (12_000 + 450)) / 61)
    log = simulate(s, *fleet_of(3), 2000, 4)
    assert most_together(log) == 6


def test_first_token_of_prefill_and_transfer_differ_by_the_transfer() -> None:
    fleet, rates = fleet_of(3, 2)
    one, two = (
        simulate(rich_system("random", rule), fleet, rates, 1000, 4)
        for rule in ("prefill", "transfer")
    )
    assert np.array_equal(one.first_token, one.prefill_end)
    assert np.array_equal(two.first_token, two.transfer_end)
    decoded = one.output_tokens > 1
    assert np.array_equal(one.transfer_end[decoded], two.transfer_end[decoded])
    assert np.array_equal(one.finish[decoded], two.finish[decoded])
    assert np.array_equal(one.finish[~decoded], one.prefill_end[~decoded])
    assert np.array_equal(two.finish[~decoded], two.transfer_end[~decoded])
    seconds = 0.02 + two.prompt_tokens / 5e3
    assert two.first_token - two.prefill_end == pytest.approx(seconds)


def test_first_token_of_decode_comes_a_first_step_later() -> None:
    """L tokens under decode are the L steps of L + 1 tokens under transfer, one step later."""
    fleet, rates = fleet_of(1)
    latency = Latency(AffinePrefill(0.02, 0.0), AffineDecode(0.01, 1e-3))
    decode = system(fixed(10, 20), 20.0, latency, first_token="decode")
    transfer = system(fixed(10, 21), 20.0, latency, first_token="transfer")
    draws = [draw(s.workload, fleet, rates, 500, 1) for s in (decode, transfer)]
    one, two = replay(decode, fleet, draws[0]), replay(transfer, fleet, draws[1])
    assert np.array_equal(one.log.finish, two.log.finish)
    step = np.searchsorted(one.step_starts[0], one.log.decode_start)
    later = one.log.first_token - two.log.first_token
    wait = two.log.decode_start - two.log.transfer_end
    assert later == pytest.approx(wait + one.step_seconds[0][step])


def test_littles_law_holds() -> None:
    log = simulate(rich_system("random", "decode"), *fleet_of(3, 2), 10_000, 4)
    observed, expected, gap = littles_law(log)
    assert observed > 1.0
    assert abs(gap) < 0.01, (observed, expected)


def test_same_seed_same_log_and_other_seed_other_log() -> None:
    s = rich_system("least_loaded", "decode")
    one, two, other = (simulate(s, *fleet_of(3, 2), 300, seed) for seed in (7, 7, 8))
    assert all(np.array_equal(getattr(one, x), getattr(two, x)) for x in one.__annotations__)
    assert not np.array_equal(one.finish, other.finish)


def test_random_dispatch_chooses_for_each_role_independently() -> None:
    log = simulate(rich_system("random", "decode"), *fleet_of(2, 2), 4000, 4)
    pairs = np.bincount(2 * log.prefill_replica + log.decode_replica)
    assert pairs / 4000 == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / 4000))


def test_a_replica_too_small_for_one_request_is_refused() -> None:
    with pytest.raises(InputError, match="do not hold one"):
        simulate(rich_system("random", "decode", kv_tokens=100.0), *fleet_of(1), 10, 1)


def test_step_time_is_the_latency_of_one_point() -> None:
    curve = Curve("steps", np.array([10.0, 20.0]), np.array([0.012, 0.016]))
    for decode in (AffineDecode(0.01, 1e-3, 1e-6), MeasuredDecode(curve)):
        latency = Latency(INSTANT, decode, calibration=Calibration(decode=1.5))
        seconds = step_time(latency)
        for batch, context in ((1, 50), (15, 9000), (30, 1), (15, 9000)):
            exact = latency.step_seconds(np.array([batch * 1.0]), np.array([context * 1.0]))
            assert seconds(batch, context) == exact[0]


# Properties of every run.

TYPES = {
    "a": replica(Latency(AffinePrefill(0.01, 1e-3), AffineDecode(0.01, 1e-3, 1e-6)), "a"),
    "b": replica(Latency(AffinePrefill(0.02, 0.0), AffineDecode(0.0, 2e-3), "exponential"), "b"),
}


@st.composite
def small_runs(choose: st.DrawFn) -> tuple[System, Fleet, Draws]:
    """A random small fleet of one or two types with random rules, under random traffic."""
    pick = {n: st.integers(1, n) for n in (2, 3, 12, 40)}
    tokens = st.lists(pick[12], min_size=3, max_size=3)
    prompts, outputs = (np.array(choose(tokens), float) for _ in range(2))
    law = joint_table(prompts, outputs, np.ones(3))
    rate, scv = st.sampled_from([2.0, 50.0]), st.sampled_from([0.0, 0.5, 1.0, 4.0])
    classes = [TrafficClass(q, choose(rate), law, choose(scv)) for q in "xy"[: choose(pick[2])]]
    batch = st.sampled_from([1.0, 3.0, math.inf])
    names = "ab"[: choose(pick[2])]
    s = System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload(tuple(classes)),
        {name: replace(TYPES[name], max_batch=choose(batch)) for name in names},
        Link(choose(st.sampled_from([0.0, 0.01])), 1e4),
        {role: choose(st.sampled_from(RULES)) for role in ROLES},
        choose(st.sampled_from(["prefill", "transfer", "decode"])),
    )
    fleet = Fleet.of({(role, name): choose(pick[3]) for role in ROLES for name in names})
    rates = dict.fromkeys(fleet.counts, 1.0)
    return s, fleet, draw(s.workload, fleet, rates, choose(pick[40]), choose(st.integers(0, 99)))


STAGES = ("arrival", "prefill_start", "prefill_end", "transfer_end", "decode_start", "finish")


@settings(max_examples=150, deadline=None)
@given(small_runs())
def test_every_request_goes_through_every_stage(case: tuple[System, Fleet, Draws]) -> None:
    s, fleet, draws = case
    log = replay(s, fleet, draws).log
    times = np.array([getattr(log, stage) for stage in STAGES])
    assert np.isfinite(times).all()
    assert np.all(np.diff(times, axis=0) >= 0)
    assert np.all((log.first_token >= log.prefill_end) & (log.first_token <= log.finish))
    mix = draws.stream.as_mix()
    moved = (s.decode_steps(mix) > 0) | (s.first_token == "transfer")
    transfer = (log.transfer_end - log.prefill_end)[moved]
    assert transfer == pytest.approx(s.transfer_seconds(mix)[moved])
    types = np.array(replica_types(fleet, PREFILL))[log.prefill_replica]
    for name, r in s.replica_types.items():
        mine = types == name
        seconds = r.latency.prefill_seconds(mix.prompt, mix.cached)[mine]
        noise = draws.noise[mine] if r.latency.prefill_noise == "exponential" else 1.0
        assert (log.prefill_end - log.prefill_start)[mine] == pytest.approx(seconds * noise)


@settings(max_examples=150, deadline=None)
@given(small_runs())
def test_one_token_per_step_and_no_batch_above_its_limit(
    case: tuple[System, Fleet, Draws],
) -> None:
    """As many steps begin during a request's decode as it has tokens to get there."""
    s, fleet, draws = case
    run = replay(s, fleet, draws)
    log = run.log
    for i, steps in enumerate(s.decode_steps(draws.stream.as_mix())):
        starts = run.step_starts[log.decode_replica[i]]
        during = (starts >= log.decode_start[i]) & (starts < log.finish[i])
        assert during.sum() == steps
        gaps = run.gaps(np.arange(len(log)) == i)
        assert len(gaps) == log.output_tokens[i] - 1
        assert gaps.sum() == pytest.approx(log.finish[i] - log.first_token[i], abs=1e-9)
    for d, name in enumerate(replica_types(fleet, DECODE)):
        starts, seconds = run.step_starts[d], run.step_seconds[d]
        assert np.all(starts[1:] >= starts[:-1] + seconds[:-1])  # no step overlaps the next
        mine = log.select(log.decode_replica == d)
        assert most_together(mine) <= s.replica_types[name].max_batch
