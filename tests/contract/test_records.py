"""RequestLog: latencies by their definitions, whatever made the log."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.records import RequestLog, Sample, sample_of

TIMES = ("prefill_start", "prefill_end", "transfer_end", "decode_start", "first_token", "finish")


def log_of(rows: list[tuple[float, float, float, int]]) -> RequestLog:
    """From (arrival, first token, finish, output tokens); the other times lie between."""
    arrival, first, finish = (np.array([row[i] for row in rows], float) for i in range(3))
    outputs = np.array([row[3] for row in rows], np.int64)
    index = np.arange(len(rows), dtype=np.int64)
    return RequestLog(
        arrival=arrival,
        prefill_start=arrival + 0.1 * (first - arrival),
        prefill_end=arrival + 0.5 * (first - arrival),
        transfer_end=arrival + 0.6 * (first - arrival),
        decode_start=arrival + 0.9 * (first - arrival),
        first_token=first,
        finish=finish,
        prompt_tokens=100 + index,
        output_tokens=outputs,
        traffic_class=index % 2,
        prefill_replica=index % 3,
        decode_replica=index % 4,
    )


ROWS = [(0.0, 1.0, 3.0, 5), (2.0, 2.5, 2.5, 1), (4.0, 4.25, 5.25, 2), (10.0, 13.0, 13.9, 10)]


def test_latencies_by_hand() -> None:
    log = log_of(ROWS)
    assert len(log) == 4
    assert log.ttft == pytest.approx([1.0, 0.5, 0.25, 3.0])
    assert log.e2e == pytest.approx([3.0, 0.5, 1.25, 3.9])
    # the mean of L - 1 gaps: 2 s / 4, none, 1 s / 1, 0.9 s / 9
    assert log.tpot == pytest.approx([0.5, math.nan, 1.0, 0.1], nan_ok=True)


@pytest.mark.parametrize("seed", range(5))
def test_first_token_and_gaps_add_up_to_the_whole(seed: int) -> None:
    """E2E = TTFT + (L - 1) TPOT for every request of two tokens or more."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0, 200))
    first = arrival + rng.exponential(1.0, 200)
    outputs = rng.integers(1, 50, 200)
    finish = first + (outputs - 1) * rng.uniform(0.01, 0.1, 200)
    log = log_of(list(zip(arrival, first, finish, outputs, strict=True)))
    several = log.output_tokens > 1
    assert 0 < several.sum() < 200
    rebuilt = log.ttft[several] + (log.output_tokens[several] - 1) * log.tpot[several]
    assert log.e2e[several] == pytest.approx(rebuilt, rel=1e-9)
    assert np.all(np.isnan(log.tpot[~several]))
    assert log.e2e[~several] == pytest.approx(log.ttft[~several])


def test_one_token_has_no_gap_and_says_nothing_on_stderr() -> None:
    """Whatever the finish; a division by zero would warn."""
    log = log_of([(0.0, 1.0, 1.0, 1), (0.0, 1.0, 2.0, 1)])
    with np.errstate(all="raise"):
        assert np.all(np.isnan(log.tpot))


def test_select_keeps_every_field_of_the_same_requests() -> None:
    log = log_of(ROWS)
    keep = np.array([True, False, False, True])
    part = log.select(keep)
    assert len(part) == 2
    for field in fields(RequestLog):
        whole, kept = getattr(log, field.name), getattr(part, field.name)
        if whole is None:  # a column that only simulator options fill
            assert kept is None
        else:
            assert list(kept) == list(whole[keep])
    assert part.ttft == pytest.approx(log.ttft[keep])
    assert len(log) == 4  # the log itself is as it was


def test_selecting_by_class_loses_nobody() -> None:
    log = log_of(ROWS * 3)
    parts = [log.select(log.traffic_class == c) for c in (0, 1)]
    assert sum(len(part) for part in parts) == len(log)
    together = np.sort(np.concatenate([part.e2e for part in parts]))
    assert together == pytest.approx(np.sort(log.e2e))


def test_an_empty_selection_is_a_log_too() -> None:
    none = log_of(ROWS).select(np.zeros(4, bool))
    assert len(none) == len(none.ttft) == len(none.tpot) == len(none.e2e) == 0


def test_a_log_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        log_of(ROWS).finish = np.zeros(4)  # type: ignore[misc]


def test_every_time_of_a_request_is_a_field() -> None:
    names = {field.name for field in fields(RequestLog)}
    assert {"arrival", *TIMES} <= names
    log = log_of(ROWS)
    ordered = np.array([getattr(log, name) for name in ("arrival", *TIMES)])
    assert np.all(np.diff(ordered, axis=0) >= 0)


counted = st.lists(
    st.tuples(st.floats(0.0, 1e6) | st.sampled_from([0.0, 0.02, 1.0]), st.integers(1, 9)),
    min_size=1,
    max_size=60,
)


@given(counted, st.lists(st.floats(0.0, 100.0), min_size=1, max_size=5))
def test_a_counted_sample_reads_as_if_written_out(
    pairs: list[tuple[float, int]], percents: list[float]
) -> None:
    values, counts = (np.array(column) for column in zip(*pairs, strict=True))
    sample, written_out = Sample(values, counts), np.repeat(values, counts)
    assert sample.size == len(written_out)
    assert sample.mean == pytest.approx(written_out.mean())
    expected = np.percentile(written_out, percents)
    assert sample.percentiles(percents) == pytest.approx(expected.tolist(), rel=1e-12, abs=1e-12)


def test_nothing_has_no_mean_and_no_percentile() -> None:
    empty = sample_of(np.array([math.nan, math.inf]))
    assert empty.size == 0
    assert math.isnan(empty.mean) and math.isnan(empty.percentiles([50.0])[0])


def test_latencies_that_do_not_exist_are_left_out() -> None:
    """A request of one token has no TPOT."""
    tpot = sample_of(log_of(ROWS).tpot)
    assert tpot.size == 3 and tpot.mean == pytest.approx((0.5 + 1.0 + 0.1) / 3)
