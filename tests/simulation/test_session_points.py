"""The law of a session's turns that formulas read, against theory and against what is drawn.

A random turn of sessions with a geometric number of turns of mean m has N turns before it,
P(N = j) = (1 - q) q^j with q = 1 - 1/m: E[N] = m - 1, Var N = m (m - 1). Without a limit it
carries the prompts and answers X of those turns: E = (m - 1) E[X], Var = E[N] Var X + Var N E[X]^2
(Wald).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pdalloc.simulation.traffic import child_seed, draw_requests
from pdalloc.workload.arrivals import Sessions
from pdalloc.workload.arrivals.sessions import SAMPLED
from pdalloc.workload.lengths import LengthLaw, fixed, independent
from pdalloc.workload.traffic import RequestMix, TrafficClass, Workload

RATE = 2.0
VARIED = independent(np.array([100.0, 300.0]), np.array([20.0, 40.0, 60.0]))
MEAN_NEW = 240.0
VAR_NEW = 100.0**2 + 20.0**2 * 2 / 3


def talks(
    turns: float, lengths: LengthLaw = VARIED, limit: float = math.inf, hit: float = 0.0
) -> TrafficClass:
    sessions = Sessions(RATE / turns, turns, 5.0, limit)
    return TrafficClass("chat", RATE, lengths, 1.0, hit, sessions)


def mean(points: RequestMix, values: np.ndarray) -> float:
    return float(points.weight @ values)


@pytest.mark.parametrize("turns", [1.5, 4.0, 12.0])
def test_moments_of_the_carried_context(turns: float) -> None:
    """Within four standard errors; turns before are stratified, so that of N is small."""
    points = talks(turns).points()
    assert len(points.weight) == SAMPLED and points.weight.sum() == pytest.approx(1.0)
    before = turns - 1.0
    error = math.sqrt(before * VAR_NEW / SAMPLED) + MEAN_NEW * turns / SAMPLED
    assert mean(points, points.cached) == pytest.approx(before * MEAN_NEW, abs=4.0 * error)
    spread = before * VAR_NEW + turns * before * MEAN_NEW**2
    found = mean(points, points.cached**2) - mean(points, points.cached) ** 2
    assert found == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("turns", [1.5, 4.0, 12.0])
def test_the_share_of_first_turns_is_that_of_sessions_among_turns(turns: float) -> None:
    """1 / m, to one stratum of the sample."""
    points = talks(turns).points()
    fresh = mean(points, (points.cached == 0.0).astype(float))
    assert fresh == pytest.approx(1.0 / turns, abs=1.0 / SAMPLED)


def test_new_parts_and_answers_keep_their_law() -> None:
    """Each point of the length law comes as often as its weight, to one stratum."""
    points = talks(4.0).points()
    new = points.prompt - points.cached
    for prompt in (100.0, 300.0):
        for output in (20.0, 40.0, 60.0):
            share = mean(points, ((new == prompt) & (points.output == output)).astype(float))
            assert share == pytest.approx(1.0 / 6.0, abs=1.0 / SAMPLED)


def test_what_is_carried_does_not_depend_on_what_is_new() -> None:
    points = talks(4.0).points()
    new = points.prompt - points.cached
    long = new == 300.0
    spread = math.sqrt(3.0 * VAR_NEW + 12.0 * MEAN_NEW**2)
    gap = float(points.cached[long].mean() - points.cached[~long].mean())
    assert abs(gap) < 4.0 * spread / math.sqrt(SAMPLED / 4)


@pytest.mark.parametrize("held", [1, 2, 5])
def test_a_limit_begins_again(held: int) -> None:
    """``held`` turns of 150 tokens fit: turn j carries j mod held of them.

    P(N mod k = j) = (1 - q) q^j / (1 - q^k), to one stratum for each turn that counts.
    """
    turns, each = 4.0, 150.0
    points = talks(turns, fixed(100.0, 50.0), held * each + 0.5 * each).points()
    q = 1.0 - 1.0 / turns
    for j in range(held):
        share = mean(points, (points.cached == j * each).astype(float))
        assert share == pytest.approx((1 - q) * q**j / (1 - q**held), abs=30.0 / SAMPLED)
    assert (points.prompt + points.output).max() == held * each


@pytest.mark.parametrize("limit", [math.inf, 2000.0, 450.0, 10.0])
@pytest.mark.parametrize("hit", [0.0, 0.5])
def test_cached_is_the_conversation_and_a_share_of_the_rest(limit: float, hit: float) -> None:
    points, whole = talks(4.0, VARIED, limit, hit).points(), talks(4.0, VARIED, limit).points()
    assert np.all((points.cached >= 0.0) & (points.cached <= points.prompt))
    assert np.array_equal(points.prompt, whole.prompt)
    assert points.cached == pytest.approx(whole.cached + hit * (whole.prompt - whole.cached))
    kept = whole.cached > 0.0
    assert np.all((points.prompt + points.output)[kept] <= limit)


def test_one_turn_is_no_conversation() -> None:
    """m = 1: nothing is carried, and the moments are those of the length law."""
    points = talks(1.0, hit=0.25).points()
    assert points.cached == pytest.approx(0.25 * points.prompt)
    error = 300.0 / SAMPLED
    assert mean(points, points.prompt) == pytest.approx(VARIED.mean_prompt, abs=error)
    assert mean(points, points.output) == pytest.approx(VARIED.mean_output, abs=error)
    assert mean(points, points.prompt**2) == pytest.approx((100**2 + 300**2) / 2, rel=1e-3)


def test_other_arrivals_have_the_length_law_itself() -> None:
    plain = TrafficClass("chat", RATE, VARIED, prefix_hit_rate=0.5)
    points = plain.points()
    assert np.array_equal(points.prompt, VARIED.prompt)
    assert np.array_equal(points.cached, 0.5 * VARIED.prompt)
    assert np.array_equal(points.weight, VARIED.weight)


def test_points_are_the_same_each_time_and_at_each_rate() -> None:
    """Nothing but the kind of session counts: demand margins compare like with like."""
    first = talks(4.0).points()
    for other in (talks(4.0), talks(4.0).scaled(3.0)):
        again = other.points()
        for name in ("prompt", "cached", "output", "weight"):
            assert np.array_equal(getattr(first, name), getattr(again, name))


def test_longer_answers_are_carried_too() -> None:
    """Outputs twice as long: 40 tokens more a turn, so (m - 1) 40 more are carried."""
    workload = Workload((talks(4.0),))
    longer = workload.with_longer_outputs(2.0).mix()
    found = mean(longer, longer.cached) - mean(workload.mix(), workload.mix().cached)
    error = math.sqrt(3.0 * VAR_NEW / SAMPLED)
    assert found == pytest.approx(3.0 * 40.0, abs=4.0 * error)


def test_a_mix_weighs_classes_by_their_rates() -> None:
    plain = TrafficClass("batch", 3.0 * RATE, fixed(1000.0, 10.0))
    mix = Workload((talks(4.0), plain)).mix()
    assert mix.weight.sum() == pytest.approx(1.0)
    assert float(mix.weight[mix.traffic_class == 0].sum()) == pytest.approx(0.25)
    chat, alone = mix.of_class(0), talks(4.0).points()
    assert np.array_equal(chat.prompt, alone.prompt)
    assert mean(chat, chat.cached) == pytest.approx(mean(alone, alone.cached))
    assert mix.of_class(1).prompt.tolist() == [1000.0]


@pytest.mark.parametrize(("turns", "limit"), [(1.0, math.inf), (4.0, math.inf), (6.0, 1500.0)])
def test_the_simulator_draws_the_same_law(lab, turns: float, limit: float) -> None:
    """Mean and mean square of prompt and cached tokens over independent streams.

    Points and stream are two ways to one law: the stream walks through whole sessions.
    """
    chat = talks(turns, VARIED, limit, hit=0.25)
    streams = [draw_requests(Workload((chat,)), 20_000, child_seed(5, i)) for i in range(8)]
    points = chat.points()
    for power in (1, 2):
        prompt = [float((s.prompt.astype(float) ** power).mean()) for s in streams]
        cached = [float((s.cached**power).mean()) for s in streams]
        lab.confirm(prompt, mean(points, points.prompt**power), 0.08)
        lab.confirm(cached, mean(points, points.cached**power), 0.08)
    assert all(np.all(s.cached <= s.prompt) for s in streams)


def test_the_stream_s_mean_is_wald_s(lab) -> None:
    chat = talks(4.0)
    streams = [draw_requests(Workload((chat,)), 20_000, child_seed(6, i)) for i in range(8)]
    lab.confirm([float(s.cached.mean()) for s in streams], 3.0 * MEAN_NEW)
    lab.confirm([float((s.cached == 0.0).mean()) for s in streams], 0.25)


def test_think_time_moves_turns_but_carries_nothing() -> None:
    quick, slow = talks(4.0), talks(4.0)
    assert isinstance(slow.arrivals, Sessions)
    slow = replace(slow, arrivals=replace(slow.arrivals, think=500.0))
    assert np.array_equal(quick.points().cached, slow.points().cached)
