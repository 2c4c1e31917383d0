"""Token gaps that the fast simulator plays again: those of the reference, however many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.fleet import DECODE, PREFILL, Dispatch, Fleet
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredDecode
from pdalloc.latency.service import Latency
from pdalloc.simulation import fast, reference
from pdalloc.simulation.kernels.plain import gaps, steps
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws, draw
from pdalloc.system import FirstToken, System
from pdalloc.workload.lengths import joint_table

AFFINE = AffineDecode(0.01, 1e-3, 1e-6)
MEASURED = MeasuredDecode(Curve("steps", np.array([1.0, 4.0, 9.0]), np.array([0.01, 0.013, 0.02])))
PERCENTS = [0.0, 10.0, 50.0, 90.0, 95.0, 99.0, 100.0]


def case(
    lab: Any,
    decode: AffineDecode | MeasuredDecode = AFFINE,
    first_token: FirstToken = "transfer",
    dispatch: Dispatch = "least_loaded",
    requests: int = 400,
    seed: int = 1,
    longest: float = 60.0,
) -> tuple[System, Fleet, Draws]:
    """Two prefill and three decode replicas under 30 requests/s, outputs of 1, 7 and more."""
    law = joint_table(np.array([50.0, 400.0, 90.0]), np.array([1.0, 7.0, longest]), np.ones(3))
    latency = Latency(AffinePrefill(0.01, 1e-4), decode, "exponential")
    system = lab.system(latency, law, 30.0, dispatch, first_token, max_batch=20.0)
    fleet = Fleet.of({(PREFILL, "r"): 2, (DECODE, "r"): 3})
    rates = dict.fromkeys(fleet.counts, 1.0)
    return system, fleet, draw(system.workload, fleet, rates, requests, seed)


def assert_same_gaps(played: Run, written: Run, keep: np.ndarray) -> None:
    """As counted samples and as percentiles."""
    one, two = played.gap_sample(keep), written.gap_sample(keep)
    expected = np.sort(written.gaps(keep))
    assert one.size == two.size == len(expected)
    np.testing.assert_array_equal(np.sort(np.repeat(one.values, one.counts)), expected)
    if one.size:
        assert one.mean == pytest.approx(expected.mean(), rel=1e-12)
        np.testing.assert_allclose(
            one.percentiles(PERCENTS), np.percentile(expected, PERCENTS), rtol=1e-12
        )


@pytest.mark.parametrize("decode", [AFFINE, MEASURED])
@pytest.mark.parametrize("first_token", ["prefill", "transfer", "decode"])
@pytest.mark.parametrize("dispatch", ["random", "central_queue", "least_loaded"])
def test_gaps_are_those_of_the_reference(
    lab: Any, decode: Any, first_token: FirstToken, dispatch: Dispatch
) -> None:
    run = case(lab, decode, first_token, dispatch)
    keep = np.arange(400) % 3 > 0
    assert_same_gaps(fast.replay(*run), reference.replay(*run), keep)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 7))
def test_whatever_the_portions(lab: Any, seed: int, requests: int, size: int) -> None:
    """Portions of a few steps change nothing."""
    run = case(lab, requests=requests, seed=seed)
    keep = np.random.default_rng(seed).random(requests) < 0.7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "PORTION", size)
        assert_same_gaps(fast.replay(*run), reference.replay(*run), keep)


def test_nobody_kept_no_gap(lab: Any) -> None:
    sample = fast.replay(*case(lab)).gap_sample(np.zeros(400, bool))
    assert sample.size == 0
    assert math.isnan(sample.mean) and math.isnan(sample.percentiles([50.0])[0])


def test_lengths_far_apart_share_the_outermost_bins(lab: Any) -> None:
    """A slow step of 1e6 s and the first one of 1e-6 s: more octaves than there are bins."""
    slow = MeasuredDecode(Curve("steps", np.array([1.0, 2.0, 3.0]), np.array([1e-6, 1.0, 1e6])))
    run = case(lab, slow, requests=60)
    assert_same_gaps(fast.replay(*run), reference.replay(*run), np.ones(60, bool))


def test_bits_are_in_the_order_of_the_numbers() -> None:
    lengths = np.array([0.0, 5e-324, 1e-9, 1.0, 1.0 + 2e-16, 7.5, 1e300])
    assert np.all(np.diff(gaps.bits(lengths)) > 0)


def test_passes_of_a_replica_follow_each_other(lab: Any) -> None:
    run = fast.replay(*case(lab))
    assert sum(map(len, run.pass_starts)) == 400
    for starts, seconds in zip(run.pass_starts, run.pass_seconds, strict=True):
        assert np.all(starts[1:] >= starts[:-1] + seconds[:-1] - 1e-9)


def test_one_token_answers_take_no_step(lab: Any) -> None:
    """Made by prefill, they leave a replica idle for ever."""
    run = fast.replay(*case(lab, first_token="prefill", requests=1, longest=1.0, seed=5))
    lengths = [len(starts) for starts in run.step_starts]
    assert sum(lengths) == max(int(run.log.output_tokens[0]) - 1, 0)
    assert len(lengths) == len(run.recompute_starts) == 3
