"""Warm-up rule, intervals and Little's law against definitions and known coverage."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.records import RequestLog
from pdalloc.simulation.statistics import Run, interval, littles_law, steady


def log_of(arrival: np.ndarray, stay: np.ndarray) -> RequestLog:
    """A log in which all that matters is when requests come and go."""
    end, ones = arrival + stay, np.ones(len(arrival), np.int64)
    return RequestLog(
        arrival, arrival, arrival, arrival, arrival, end, end, ones, ones, ones, ones, ones
    )


def test_first_and_last_tenth_are_left_out_by_order_of_arrival() -> None:
    keep = steady(log_of(np.arange(50.0), np.ones(50)))
    assert np.flatnonzero(keep).tolist() == list(range(5, 45))


@given(st.integers(1, 200))
def test_something_is_always_kept(n: int) -> None:
    keep = steady(log_of(np.arange(float(n)), np.ones(n)))
    assert keep.sum() == n - 2 * math.floor(0.1 * n)


def test_the_cut_does_not_look_at_the_stays() -> None:
    arrival = np.arange(40.0)
    short, long = log_of(arrival, np.ones(40)), log_of(arrival, np.full(40, 1e6))
    assert np.array_equal(steady(short), steady(long))


@pytest.mark.parametrize(("n", "t"), [(2, 12.7062), (5, 2.77645), (10, 2.26216), (31, 2.04227)])
def test_half_width_is_student_t(n: int, t: float) -> None:
    """t(.975) of n - 1 degrees of freedom, from printed tables, times s / sqrt(n)."""
    samples = np.arange(float(n))
    mean, half_width = interval(samples)
    assert mean == pytest.approx((n - 1) / 2)
    assert half_width == pytest.approx(t * samples.std(ddof=1) / math.sqrt(n), rel=1e-5)


@pytest.mark.parametrize("n", [3, 10])
def test_intervals_cover_the_mean_95_times_in_100(n: int) -> None:
    rng, trials = np.random.default_rng(4), 4000
    hits = 0
    for _ in range(trials):
        mean, half_width = interval(rng.normal(7.0, 2.0, n))
        hits += abs(mean - 7.0) <= half_width
    sigma = math.sqrt(0.95 * 0.05 / trials)
    assert hits / trials == pytest.approx(0.95, abs=4 * sigma)


def test_equal_samples_have_no_width() -> None:
    assert interval([2.0, 2.0, 2.0]) == (2.0, 0.0)


def test_one_replication_gives_no_interval() -> None:
    with pytest.raises(InputError, match="at least 2 replications"):
        interval([1.0])


def test_littles_law_of_a_clock() -> None:
    """One arrival a second, each staying 2.5 s: N = lambda T = 2.5 in every window."""
    observed, expected, gap = littles_law(log_of(np.arange(100.0), np.full(100, 2.5)))
    assert (observed, expected) == pytest.approx((2.5, 2.5))
    assert gap == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("mean_stay", [0.5, 20.0])
def test_littles_law_of_an_infinite_server_queue(mean_stay: float) -> None:
    """M/G/inf: N is Poisson with mean lambda E[T] (Takacs 1962)."""
    rng, n = np.random.default_rng(6), 100_000
    arrival = np.cumsum(rng.exponential(0.5, n))
    observed, expected, gap = littles_law(log_of(arrival, rng.exponential(mean_stay, n)))
    # Standard error of the mean of a M/M/inf path of this length: sqrt(2 N T / window).
    error = math.sqrt(2.0 * (2.0 * mean_stay) * mean_stay / (0.8 * n * 0.5))
    assert observed == pytest.approx(2.0 * mean_stay, abs=5 * error)
    assert expected == pytest.approx(2.0 * mean_stay, rel=0.02)
    assert abs(gap) < 0.01


def test_littles_law_shows_a_queue_that_grows() -> None:
    """Stays that grow with time have no steady state: N lags behind lambda T."""
    arrival = np.arange(1000.0)
    assert littles_law(log_of(arrival, arrival / 2))[2] < -0.1


def test_littles_law_needs_a_window() -> None:
    with pytest.raises(InputError, match="longer run"):
        littles_law(log_of(np.zeros(1), np.ones(1)))


def gap_run(first_token: float) -> Run:
    """Two requests on one replica, steps at 1, 2, 4, 7 s; the second joins at the third."""
    two = np.array([0, 0])
    log = RequestLog(
        arrival=np.array([0.0, 0.0]),
        prefill_start=np.zeros(2),
        prefill_end=np.array([0.5, 0.5]),
        transfer_end=np.array([1.0, 3.0]),
        decode_start=np.array([1.0, 4.0]),
        first_token=np.array([first_token, 7.0]),
        finish=np.array([7.0, 12.0]),
        prompt_tokens=np.array([1, 1]),
        output_tokens=np.array([3 if first_token == 2.0 else 4, 2]),
        traffic_class=two,
        prefill_replica=two,
        decode_replica=two,
    )
    return Run(log, (np.array([1.0, 2.0, 4.0, 7.0]),), (np.array([1.0, 2.0, 3.0, 5.0]),))


def test_gaps_are_the_steps_after_the_first_token() -> None:
    run = gap_run(first_token=2.0)
    assert run.gaps(np.array([True, False])).tolist() == [2.0, 3.0]
    assert run.gaps(np.array([False, True])).tolist() == [5.0]
    assert run.gaps(np.array([True, True])).tolist() == [2.0, 3.0, 5.0]


def test_a_first_token_from_prefill_makes_the_first_gap_longer() -> None:
    """Token 1 at .5 s, the next at the end of the first step, 2 s."""
    run = gap_run(first_token=0.5)
    assert run.gaps(np.array([True, False])).tolist() == [1.5, 2.0, 3.0]


def test_gap_samples_count_how_many_requests_saw_each_step() -> None:
    run = gap_run(first_token=0.5)
    both = run.gap_sample(np.array([True, True]))
    assert sorted(np.repeat(both.values, both.counts).tolist()) == [1.5, 2.0, 3.0, 5.0]
    twice = RequestLog(
        **{name: np.tile(x, 2) for name, x in vars(run.log).items() if x is not None}
    )
    sample = replace(run, log=twice).gap_sample(np.ones(4, bool))
    assert dict(zip(sample.values.tolist(), sample.counts.tolist(), strict=True)) == {
        1.5: 1,  # a gap of one request's own, listed once each
        2.0: 2,
        3.0: 2,
        5.0: 2,
    }
    assert both.size == 4 and sample.size == 8


def test_no_request_no_gap() -> None:
    assert gap_run(2.0).gaps(np.array([False, False])).size == 0
