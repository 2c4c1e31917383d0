"""Fitting and replaying a co-located run, on runs made by a law that is known."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.simulator import measured_runs

from pdalloc.errors import InputError

pytestmark = pytest.mark.pipeline

TRUE = measured_runs.PassTime((0.015, 1.2e-4, 0.0, 3e-5, 0.0), np.zeros(0))


def empty_run(requests: int, seed: int = 3) -> measured_runs.Measured:
    """Arrivals and lengths of a run whose times are still to come."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(0.1, requests))
    zero = np.zeros(requests)
    prompt, output = rng.integers(200, 3000, requests), rng.integers(100, 600, requests)
    return measured_runs.Measured(arrival - arrival[0], zero, zero, zero, prompt, output, 32, 2048)


def made_run(requests: int = 120) -> measured_runs.Measured:
    """A run as the co-located simulator plays it under the law TRUE."""
    run = empty_run(requests)
    log = measured_runs.play(run, TRUE)
    return replace(run, scheduled=log.prefill_start, first=log.first_token, last=log.finish)


RUN = made_run()


def write_run(folder: Path, run: measured_runs.Measured) -> None:
    """The files of a run; the two clocks differ by an hour, 2 ms pass from client to engine."""
    folder.mkdir(parents=True)
    with (folder / "requests.jsonl").open("w") as out:
        for i in range(len(run.arrival)):
            row = {
                "input_toks": int(run.prompt[i]),
                "output_toks": int(run.output[i]),
                "arrival_time": 3600.0 + run.arrival[i] - 0.002,
                "queued_ts": run.arrival[i],
                "scheduled_ts": run.scheduled[i],
                "first_token_ts": run.first[i],
                "last_token_ts": run.last[i],
            }
            out.write(json.dumps(row) + "\n")
    engine = {"max_num_seqs": run.slots, "max_num_batched_tokens": run.budget}
    (folder / "meta.json").write_text(json.dumps({"engine_kwargs": engine}))


def test_a_lone_request_sees_itself() -> None:
    """B = 1, S the mean of P + its position from 0 to L - 1, no prompts."""
    one = np.array([1.0])
    run = measured_runs.Measured(
        0 * one, 0 * one, one, 5 * one, np.array([100]), np.array([41]), 1, 1
    )
    assert measured_runs.seen(run)[0] == pytest.approx([1.0, 1.0, 100.0 + 0.5 * 40, 0.0, 0.0])
    assert run.gap == pytest.approx(0.1)


def test_tokens_and_prompts_of_others_are_seen_by_overlap() -> None:
    """Half of the other's tokens, and a quarter of its prompt, fall between its tokens."""
    run = measured_runs.Measured(
        np.zeros(2),
        np.array([0.0, 0.5]),
        np.array([2.0, 2.5]),
        np.array([4.0, 5.5]),
        np.array([8, 40]),
        np.array([11, 13]),
        2,
        64,
    )
    passes = 10
    batch, prompts, squares = measured_runs.seen(run)[0][[1, 3, 4]]
    assert batch == pytest.approx((passes + 0.5 * 12) / passes)
    assert prompts == pytest.approx(0.25 * 40 / passes)
    assert squares == pytest.approx(0.25 * 40**2 / passes)


def test_the_fit_finds_the_law_behind_a_run() -> None:
    """Pass time at the mean of what is seen: within 1 % for requests it was not fitted on."""
    even = measured_runs.parts(RUN)["even requests"]
    law = measured_runs.fit(RUN, even)
    assert min(law.coefficients) >= 0.0
    assert np.median(np.abs(law.errors[~even])) < 0.01
    for found, true in zip(law.coefficients[:2], TRUE.coefficients[:2], strict=True):
        assert found == pytest.approx(true, rel=0.15)
    assert law.coefficients[3] == pytest.approx(TRUE.coefficients[3], rel=0.05)


def test_a_replay_under_the_true_law_is_the_run() -> None:
    log = measured_runs.play(RUN, TRUE)
    for metric in ("ttft", "tpot", "e2e"):
        assert getattr(log, metric) == pytest.approx(RUN.latencies[metric], rel=1e-12)
    assert log.finish.max() == RUN.last.max()


def test_a_replay_under_the_fitted_law_comes_near() -> None:
    """Within 3 % in every mean, left-out requests alone as well; where nobody waits for a slot
    the time to the first token is a pass or two, of which the fit sees averages: within 10 %.
    """
    even = measured_runs.parts(RUN)["even requests"]
    log = measured_runs.play(RUN, measured_runs.fit(RUN, even))
    for row in measured_runs.compared(RUN, log, even):
        if row["statistic"] == "mean":
            alone = row["requests"] == "first of all" or row["metric"] == "scheduled_to_first"
            allowed = 10.0 if alone else 3.0
            assert abs(float(row["error_percent"] or 0.0)) < allowed, row


def test_limits_of_the_engine_hold() -> None:
    """At most ``slots`` requests between scheduling and last token, and a full batch comes."""
    events = [(t, 1) for t in RUN.scheduled] + [(t, -1) for t in RUN.last]
    present = np.cumsum([change for _, change in sorted(events)])
    assert present.max() == RUN.slots


def test_files_give_the_run_back(tmp_path) -> None:
    """The client's clock is shifted to the engine's; times and lengths are as written."""
    write_run(tmp_path / "run", RUN)
    found = measured_runs.read_run(tmp_path / "run")
    for name in ("arrival", "scheduled", "first", "last"):
        assert getattr(found, name) == pytest.approx(getattr(RUN, name), abs=1e-6)
    assert np.array_equal(found.prompt, RUN.prompt)
    assert (found.slots, found.budget) == (RUN.slots, RUN.budget)


def test_rows_of_both_runs(tmp_path) -> None:
    """Every run, choice, subset and metric has mean, percentiles and a distance."""
    for name in measured_runs.RUNS:
        write_run(tmp_path / measured_runs.FOLDER / name, RUN)
    found = measured_runs.rows(tmp_path)
    statistics = 2 + len(measured_runs.PERCENTS)
    assert len(found["measured"]) == 2 * 2 * 3 * 4 * statistics
    assert len(found["fits"]) == 2 * 2
    for row in found["measured"]:
        if row["measured_s"] is not None:
            ratio = float(row["simulated_s"] or 0.0) / float(row["measured_s"])
            assert row["error_percent"] == pytest.approx(100.0 * (ratio - 1.0))
    assert all(float(row["median_error_percent"] or 0.0) < 1.0 for row in found["fits"])


def test_missing_files_are_named(tmp_path) -> None:
    with pytest.raises(InputError, match=r"requests\.jsonl: no such file among the reference"):
        measured_runs.read_run(tmp_path / "none")
