"""Request streams against the laws that they are drawn from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.simulation.traffic import (
    RequestStream,
    arrival_times,
    child_seed,
    draw,
    draw_requests,
    pool_shares,
)
from pdalloc.workload.lengths import fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

FIVE_SIGMA = 5.0
FLEET = Fleet.of({(PREFILL, "a"): 2, (PREFILL, "b"): 1, (DECODE, "a"): 3})
RATES = {(PREFILL, "a"): 3.0, (PREFILL, "b"): 1.0, (DECODE, "a"): 4.0}


def traffic(scv: float = 1.0, rate: float = 4.0, hit: float = 0.0) -> TrafficClass:
    return TrafficClass("all", rate, fixed(100, 10), scv, hit)


def gaps(scv: float, count: int = 200_000) -> np.ndarray:
    return np.diff(arrival_times(traffic(scv), count, np.random.default_rng(1)))


@pytest.mark.parametrize("scv", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_gaps_have_the_mean_and_scv_asked_for(scv: float) -> None:
    """Gamma(k) gaps: mean 1/rate, SCV 1/k; the variance estimator's own by its kurtosis."""
    sample = 4.0 * gaps(scv)
    n = len(sample)
    assert sample.mean() == pytest.approx(1.0, abs=FIVE_SIGMA * math.sqrt(scv / n))
    kurtosis = 3.0 + 6.0 * scv
    assert sample.var() == pytest.approx(
        scv, abs=FIVE_SIGMA * scv * math.sqrt((kurtosis - 1.0) / n)
    )


def test_poisson_gaps_are_exponential() -> None:
    """Kolmogorov-Smirnov distance below its 1e-5 quantile, sqrt(ln(2e5)/2)/sqrt(n)."""
    sample = np.sort(4.0 * gaps(1.0))
    n = len(sample)
    empirical = (np.arange(n) + 0.5) / n
    distance = np.abs(empirical + np.expm1(-sample)).max()
    assert distance < math.sqrt(math.log(2e5) / 2.0) / math.sqrt(n)


def test_poisson_counts_have_variance_equal_to_mean() -> None:
    arrivals = arrival_times(traffic(1.0), 400_000, np.random.default_rng(2))
    counts = np.bincount(arrivals[arrivals < 90_000].astype(int) // 10, minlength=9000)
    mean, n = 40.0, len(counts)
    assert counts.mean() == pytest.approx(mean, abs=FIVE_SIGMA * math.sqrt(mean / n))
    assert counts.var() == pytest.approx(mean, abs=FIVE_SIGMA * mean * math.sqrt(2.0 / n))


def test_scv_zero_is_a_clock() -> None:
    assert gaps(0.0, 1000) == pytest.approx(0.25, rel=1e-9)


@pytest.mark.parametrize("scv", [0.0, 0.5, 1.0, 4.0])
def test_first_arrival_waits_a_residual_gap(scv: float) -> None:
    """E[residual] = E[gap] (1 + scv) / 2, so that the stream is stationary from 0 on."""
    c = traffic(scv)
    firsts = np.array([arrival_times(c, 1, np.random.default_rng(s))[0] for s in range(4000)])
    tolerance = FIVE_SIGMA * firsts.std() / math.sqrt(len(firsts))
    assert firsts.mean() == pytest.approx(0.25 * (1.0 + scv) / 2.0, abs=tolerance)


def test_classes_are_superposed_in_proportion_to_their_rates() -> None:
    slow, fast = TrafficClass("s", 1.0, fixed(1, 1)), TrafficClass("f", 3.0, fixed(2, 2), 0.5)
    n = 40_000
    stream = draw_requests(Workload((slow, fast)), n, 5)
    assert np.all(np.diff(stream.arrival) >= 0)
    share = (stream.traffic_class == 1).mean()
    assert share == pytest.approx(0.75, abs=FIVE_SIGMA * math.sqrt(0.75 * 0.25 / n))
    assert n / stream.arrival[-1] == pytest.approx(4.0, rel=FIVE_SIGMA / math.sqrt(n))
    assert np.array_equal(stream.prompt, stream.traffic_class + 1)


def test_each_class_keeps_its_own_gaps_when_another_joins() -> None:
    """A class's stream does not change with the rest of the traffic: only its place does."""
    clock = TrafficClass("clock", 2.0, fixed(1, 1), 0.0)
    stream = draw_requests(Workload((clock, traffic())), 3000, 5)
    alone = draw_requests(Workload((clock,)), 3000, 5)
    mine = stream.arrival[stream.traffic_class == 0]
    assert np.diff(mine) == pytest.approx(0.5, rel=1e-9)
    assert np.array_equal(mine, alone.arrival[: len(mine)])


def test_lengths_are_drawn_jointly_with_their_weights() -> None:
    law = joint_table(np.array([100.0, 900.0]), np.array([5.0, 1.0]), np.array([3.0, 1.0]))
    stream = draw_requests(Workload((TrafficClass("all", 1.0, law),)), 20_000, 7)
    pairs = set(zip(stream.prompt.tolist(), stream.output.tolist(), strict=True))
    assert pairs == {(100, 5), (900, 1)}
    tolerance = FIVE_SIGMA * math.sqrt(0.75 * 0.25 / 20_000)
    assert (stream.prompt == 100).mean() == pytest.approx(0.75, abs=tolerance)


def test_lengths_are_whole_tokens_and_at_least_one() -> None:
    law = joint_table(np.array([1.2, 7.6]), np.array([1.4, 2.5]), np.ones(2))
    stream = draw_requests(Workload((TrafficClass("all", 1.0, law),)), 100, 7)
    assert set(stream.prompt.tolist()) == {1, 8}
    assert set(stream.output.tolist()) == {1, 2}
    assert stream.prompt.dtype == stream.output.dtype == np.int64


def test_cached_tokens_are_the_hit_rate_of_each_prompt() -> None:
    stream = draw_requests(Workload((traffic(hit=0.3),)), 10, 1)
    assert stream.cached == pytest.approx(30.0)
    mix = stream.as_mix()
    assert mix.weight.sum() == pytest.approx(1.0)
    assert np.array_equal(mix.cached, stream.cached)


def columns(stream: RequestStream) -> list[np.ndarray]:
    return [getattr(stream, name) for name in stream.__annotations__]


@given(seed=st.integers(0, 2**32), n=st.integers(1, 60), scv=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_same_seed_same_draws(seed: int, n: int, scv: float) -> None:
    workload = Workload((traffic(scv), TrafficClass("other", 1.0, fixed(3, 3))))
    one, two = (draw(workload, FLEET, RATES, n, seed) for _ in range(2))
    for left, right in zip(columns(one.stream), columns(two.stream), strict=True):
        assert len(left) == n
        assert np.array_equal(left, right)
    assert np.array_equal(one.noise, two.noise)
    assert np.array_equal(one.pool[PREFILL], two.pool[PREFILL])
    assert not np.array_equal(one.stream.arrival, draw_requests(workload, n, seed + 1).arrival)


def test_a_seed_sequence_is_not_used_up() -> None:
    seed = np.random.SeedSequence(3)
    assert child_seed(seed, 1).generate_state(2).tolist() == (
        child_seed(seed, 1).generate_state(2).tolist()
    )
    assert child_seed(3, 1).generate_state(1) == child_seed(seed, 1).generate_state(1)
    assert child_seed(3, 1).generate_state(1) != child_seed(3, 2).generate_state(1)


def test_fleets_under_one_seed_see_the_same_traffic() -> None:
    """Common random numbers: a plan and its rival are judged on the same requests."""
    other = Fleet.of({(PREFILL, "b"): 4, (DECODE, "b"): 4})
    rates = {(PREFILL, "b"): 1.0, (DECODE, "b"): 1.0}
    workload = Workload((traffic(),))
    one, two = draw(workload, FLEET, RATES, 50, 9), draw(workload, other, rates, 50, 9)
    assert np.array_equal(one.stream.arrival, two.stream.arrival)
    assert np.array_equal(one.noise, two.noise)


def test_requests_take_pools_in_proportion_to_their_rates() -> None:
    n = 40_000
    draws = draw(Workload((traffic(),)), FLEET, RATES, n, 11)
    tolerance = FIVE_SIGMA * math.sqrt(0.75 * 0.25 / n)
    assert (draws.pool[PREFILL] == 0).mean() == pytest.approx(0.75, abs=tolerance)
    assert not draws.pool[DECODE].any()
    assert draws.noise.mean() == pytest.approx(1.0, abs=FIVE_SIGMA / math.sqrt(n))
    assert np.all((draws.pick[DECODE] >= 0) & (draws.pick[DECODE] < 1))


def test_a_pool_without_rate_takes_no_traffic() -> None:
    draws = draw(Workload((traffic(),)), FLEET, {**RATES, (PREFILL, "a"): 0.0}, 200, 11)
    assert np.all(draws.pool[PREFILL] == 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({(PREFILL, "a"): -1.0}, "must be finite and not negative"),
        ({(PREFILL, "a"): math.nan}, "must be finite and not negative"),
        ({(PREFILL, "c"): 1.0}, "prefill/c, which is not in the fleet"),
        ({(PREFILL, "a"): 0.0, (PREFILL, "b"): 0.0}, "every prefill pool has rate 0"),
    ],
)
def test_rates_that_do_not_fit_are_refused(
    change: dict[tuple[str, str], float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        pool_shares(FLEET, {**RATES, **change}, PREFILL)


def test_missing_rates_pools_and_requests_are_refused() -> None:
    with pytest.raises(InputError, match="no rate is given for pool prefill/a"):
        pool_shares(FLEET, {(PREFILL, "b"): 1.0}, PREFILL)
    with pytest.raises(InputError, match="no decode replica"):
        pool_shares(Fleet.of({(PREFILL, "a"): 1}), RATES, DECODE)
    with pytest.raises(InputError, match="at least 1 request"):
        draw_requests(Workload((traffic(),)), 0, 1)
