"""Arrival processes against the laws that they claim: rate, gaps, dispersion, stationarity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.simulation.traffic import draw_requests
from pdalloc.workload.arrivals import (
    ArrivalProcess,
    MarkovModulated,
    Poisson,
    Renewal,
    Sessions,
    TimeVarying,
    Trace,
)
from pdalloc.workload.arrivals.sessions import carried_context, turns_before
from pdalloc.workload.lengths import fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

FIVE_SIGMA = 5.0
BURSTS = MarkovModulated((1.0, 9.0), (3.0, 1.0))
DAY = TimeVarying((2.0, 6.0, 0.0), (10.0, 5.0, 5.0))
TALKS = Sessions(0.5, 4.0, 2.0)
STATIONARY: list[ArrivalProcess] = [
    Poisson(2.0),
    Renewal(2.0, 0.25),
    Renewal(2.0, 4.0),
    Renewal(2.0, 0.5, "weibull"),
    Renewal(2.0, 4.0, "weibull"),
    BURSTS,
    MarkovModulated((0.0, 2.0, 7.0), (1.0, 2.0, 0.5)),
    TALKS,
]
ALL = [*STATIONARY, DAY, TimeVarying((1.0, 5.0), (10.0, 10.0), periodic=False)]


def counts(process: ArrivalProcess, width: float, replications: int) -> np.ndarray:
    """Arrivals in [0, width) s of independent replications; shape (replications,)."""
    most = int(20 + process.rate * width + 40 * math.sqrt(process.rate * width))
    seeds = np.random.SeedSequence(5).spawn(replications)
    return np.array([(process.times(most, np.random.default_rng(s)) < width).sum() for s in seeds])


@pytest.mark.parametrize("process", ALL)
def test_times_are_nondecreasing_and_reproducible(process: ArrivalProcess) -> None:
    one, two = (process.times(500, np.random.default_rng(3)) for _ in range(2))
    assert len(one) == 500
    assert one[0] >= 0 and np.all(np.diff(one) >= 0)
    assert np.array_equal(one, two)


@pytest.mark.parametrize("process", STATIONARY)
@pytest.mark.parametrize("width", [0.5, 8.0])
def test_stationary_streams_have_their_rate_from_time_0_on(
    process: ArrivalProcess, width: float
) -> None:
    """E[N(0, t)] = rate t for every t: nothing has to warm up."""
    sample = counts(process, width, 3000)
    error = sample.std() / math.sqrt(len(sample))
    assert sample.mean() == pytest.approx(process.rate * width, abs=FIVE_SIGMA * error)


@pytest.mark.parametrize(
    "process",
    [BURSTS, MarkovModulated((0.0, 2.0, 7.0), (1.0, 2.0, 0.5)), TALKS, Renewal(2.0, 4.0)],
)
def test_counts_have_the_dispersion_claimed(
    process: MarkovModulated | Sessions | Renewal,
) -> None:
    """Var N(t) / E N(t) -> I; what is missing at t falls as 1/t, under 2 % at t = 400."""
    sample = counts(process, 400.0, 3000)
    dispersion = sample.var(ddof=1) / sample.mean()
    sigma = process.dispersion * math.sqrt(2.0 / len(sample))
    assert dispersion == pytest.approx(process.dispersion, abs=5 * sigma + 0.02 * dispersion)


def test_two_states_have_the_dispersion_of_the_cookbook() -> None:
    """1 + 2 s1 s2 (l1 - l2)^2 / ((s1 + s2)^2 (l1 s2 + l2 s1)) (Fischer and M.-H. 1993)."""
    (l1, l2), (s1, s2) = BURSTS.rates, (1 / d for d in BURSTS.dwell)
    expected = 1 + 2 * s1 * s2 * (l1 - l2) ** 2 / ((s1 + s2) ** 2 * (l1 * s2 + l2 * s1))
    assert BURSTS.dispersion == pytest.approx(expected)
    assert BURSTS.rate == pytest.approx((1 * 3 + 9 * 1) / 4)
    assert MarkovModulated((3.0, 3.0), (1.0, 2.0)).dispersion == pytest.approx(1.0)


@pytest.mark.parametrize("scv", [0.3, 2.0])
def test_weibull_gaps_have_the_mean_and_scv_asked_for(scv: float) -> None:
    gaps = 2.0 * np.diff(Renewal(2.0, scv, "weibull").times(200_000, np.random.default_rng(1)))
    n, kurtosis = len(gaps), (((gaps - 1) ** 4).mean() / scv**2)
    assert gaps.mean() == pytest.approx(1.0, abs=FIVE_SIGMA * math.sqrt(scv / n))
    assert gaps.var() == pytest.approx(scv, abs=FIVE_SIGMA * scv * math.sqrt((kurtosis - 1) / n))


def test_weibull_of_scv_1_is_exponential() -> None:
    assert Renewal(1.0, 1.0, "weibull").shape == pytest.approx(1.0)


def test_a_profile_has_its_rate_in_every_piece_of_every_period() -> None:
    """Poisson counts: the mean of each piece over many periods, +- five sigma; none at rate 0."""
    assert DAY.rate == pytest.approx((20 + 30) / 20)
    times = DAY.times(50_000, np.random.default_rng(2))
    periods = int(times[-1] // 20)
    phase = times[times < 20 * periods] % 20
    for (low, high), rate in (((0, 10), 2.0), ((10, 15), 6.0)):
        expected = rate * (high - low) * periods
        inside = ((phase >= low) & (phase < high)).sum()
        assert inside == pytest.approx(expected, abs=FIVE_SIGMA * math.sqrt(expected))
    assert not (phase > 15.0 + 1e-9).any()


def test_a_profile_that_ends_goes_on_at_its_last_rate() -> None:
    profile = TimeVarying((1.0, 5.0), (10.0, 10.0), periodic=False)
    times = profile.times(5010, np.random.default_rng(3))
    late = times[times > 20.0]
    assert np.diff(late).mean() == pytest.approx(0.2, rel=FIVE_SIGMA / math.sqrt(len(late)))


def test_a_trace_is_replayed_from_0_and_repeats_after_a_mean_gap() -> None:
    """Gaps 1, 0, 2 s at twice the speed; mean gap 1 s / 2 before it starts again."""
    trace = Trace((5.0, 6.0, 6.0, 8.0), speed=2.0)
    rng = np.random.default_rng(0)
    assert trace.times(6, rng).tolist() == [0.0, 0.5, 0.5, 1.5, 2.0, 2.5]
    assert trace.rate == pytest.approx(2.0)
    assert trace.scaled(0.5).times(4, rng).tolist() == [0.0, 1.0, 1.0, 3.0]


@pytest.mark.parametrize("process", [*ALL, Trace((0.0, 1.0, 1.5))])
def test_scaling_multiplies_the_rate(process: ArrivalProcess) -> None:
    assert process.scaled(3.0).rate == pytest.approx(3.0 * process.rate)


# Sessions.


def test_sessions_have_geometric_turns_and_exponential_thinking() -> None:
    """Of the sessions that begin after 0: mean turns 4, variance 4 (4 - 1); mean gap 2 s."""
    times, session, turn = TALKS.conversations(60_000, np.random.default_rng(6))
    begun = times[turn == 0]
    assert np.diff(begun).mean() == pytest.approx(2.0, rel=FIVE_SIGMA / math.sqrt(len(begun)))
    early = np.isin(session, session[(turn == 0) & (times < 0.8 * times[-1])])
    length = np.bincount(session[early])
    length = length[length > 0]
    error = math.sqrt(12.0 / len(length))
    assert length.mean() == pytest.approx(4.0, abs=FIVE_SIGMA * error)
    order = np.lexsort((turn, session))
    same = np.diff(session[order]) == 0
    gaps = np.diff(times[order])[same]
    assert gaps.mean() == pytest.approx(2.0, rel=FIVE_SIGMA / math.sqrt(len(gaps)))
    assert np.all(np.diff(turn[order])[same] == 1)


def test_sessions_under_way_at_time_0_are_as_old_as_geometric_says() -> None:
    """P(j turns before) = (1 - q) q^(j - 1), q = 3/4: mean 4."""
    first = []
    for seed in np.random.SeedSequence(2).spawn(1500):
        _, session, turn = TALKS.conversations(40, np.random.default_rng(seed))
        at = np.unique(session, return_index=True)[1]
        first += turn[at][turn[at] > 0].tolist()
    assert np.mean(first) == pytest.approx(4.0, abs=FIVE_SIGMA * math.sqrt(12 / len(first)) + 0.1)


def test_later_turns_carry_what_was_said() -> None:
    """Two sessions; the second was two turns old (7 + 8 tokens); at most 40 tokens."""
    session, turn = np.array([0, 1, 0, 0, 1]), np.array([0, 2, 1, 2, 3])
    new, history = np.array([10, 5, 12, 30, 6]), np.array([7, 8])
    assert turns_before(session, turn) == 2
    carried = carried_context(session, turn, new, history, 40.0)
    assert carried.tolist() == [0, 15, 10, 0, 20]  # 22 + 30 > 40: that session starts anew


def test_a_session_class_has_longer_and_cached_prompts() -> None:
    """Prompts 100, answers 20: turn k carries 120 k tokens, E[k] = turns - 1 = 3."""
    c = TrafficClass("chat", 2.0, fixed(100, 20), arrivals=TALKS)
    stream = draw_requests(Workload((c,)), 40_000, 3)
    turns = (stream.prompt - 100) // 120
    assert np.array_equal(stream.prompt, 100 + 120 * turns)
    assert np.array_equal(stream.cached, 120.0 * turns)
    error = math.sqrt(12.0 * 7.0 / len(stream))  # turns of one session come together
    assert turns.mean() == pytest.approx(3.0, abs=FIVE_SIGMA * error)


def test_the_prefix_hit_rate_applies_to_the_new_part() -> None:
    c = TrafficClass("chat", 2.0, fixed(100, 20), prefix_hit_rate=0.25, arrivals=TALKS)
    stream = draw_requests(Workload((c,)), 200, 3)
    assert (stream.prompt - stream.cached) == pytest.approx(75.0)


# Classes.


def test_a_class_draws_from_its_process_and_scales_with_it() -> None:
    c = TrafficClass("x", 3.0, fixed(1, 1), 7.0, arrivals=BURSTS)
    times = draw_requests(Workload((c,)), 300, 1).arrival
    other = TrafficClass("y", 3.0, fixed(1, 1), 7.0)
    assert not np.array_equal(times, draw_requests(Workload((other,)), 300, 1).arrival)
    louder = Workload((c, other)).scaled(2.0)
    assert louder.classes[0].process.rate == louder.classes[0].rate == pytest.approx(6.0)
    assert Workload((c,)).with_longer_outputs(2.0).classes[0].arrivals == BURSTS


@given(rate=st.floats(0.1, 100.0), scv=st.sampled_from([0.0, 0.5, 1.0, 4.0]))
def test_without_a_process_a_class_is_a_gamma_renewal(rate: float, scv: float) -> None:
    process = TrafficClass("x", rate, fixed(1, 1), scv).process
    assert process == Renewal(rate, scv)


def test_several_classes_keep_their_own_lengths() -> None:
    law = joint_table(np.array([3.0, 5.0]), np.array([1.0, 2.0]), np.ones(2))
    chat = TrafficClass("chat", 2.0, fixed(100, 20), arrivals=TALKS)
    stream = draw_requests(Workload((chat, TrafficClass("x", 1.0, law))), 3000, 3)
    mine = stream.traffic_class == 1
    assert set(stream.prompt[mine].tolist()) == {3, 5}
    assert not stream.cached[mine].any()


BAD = [
    (lambda: Renewal(0.0), "must be positive"),
    (lambda: Renewal(1.0, -1.0), "not negative"),
    (lambda: Renewal(1.0, 1.0, "pareto"), "no law of gaps"),  # type: ignore[arg-type]
    (lambda: Renewal(1.0, 1e-9, "weibull"), "Weibull gaps have an SCV"),
    (lambda: MarkovModulated((1.0,), (1.0,)), "at least two states"),
    (lambda: MarkovModulated((1.0, 2.0), (1.0,)), "as many rates as durations"),
    (lambda: MarkovModulated((0.0, 0.0), (1.0, 1.0)), "one above 0"),
    (lambda: TimeVarying((1.0,), (0.0,)), "duration must be positive"),
    (lambda: TimeVarying((1.0, 0.0), (1.0, 1.0), False), "must not end in rate 0"),
    (lambda: Trace((1.0,)), "at least two"),
    (lambda: Trace((1.0, 0.5)), "must not go back"),
    (lambda: Trace((1.0, 1.0)), "nor all be the same"),
    (lambda: Sessions(1.0, 0.5, 1.0), "at least 1 turn"),
    (lambda: Sessions(1.0, 2.0, 0.0), "think time must be positive"),
    (lambda: Sessions(1.0, 2.0, 1.0, 0.0), "context limit"),
    (lambda: TrafficClass("x", 5.0, fixed(1, 1), arrivals=BURSTS), "come at 3 req/s"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_what_makes_no_sense_is_refused_in_one_line(make, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
