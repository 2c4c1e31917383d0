"""A published fleet under its publisher's constants: fluid law, least stable fleet, its answer."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.simulator import diverging

pytestmark = pytest.mark.pipeline

CASE = diverging.published()
ENOUGH_S = 120.0


@pytest.fixture(scope="module")
def rows():
    """Fleets around the least stable one, a shorter run each."""
    fleets = {"mean": (3, 5), "azure": (5, 6)}
    return diverging.fleet_rows(3, ENOUGH_S, replications=4, fleets=fleets)


def test_the_published_answer_follows_from_its_rules() -> None:
    """Its TTFT, TPOT and capacity are its own formulas at its own constants."""
    answer = CASE.answer
    ttft = CASE.ttft_factor * CASE.prefill_seconds
    assert 1e3 * ttft == pytest.approx(answer["ttft_ms"], abs=0.5)
    assert 1e3 * CASE.decode.full() == pytest.approx(answer["tpot_ms"], abs=0.5)
    capacity = CASE.capacity_as_published(int(answer["decode_replicas"]))
    assert capacity == pytest.approx(answer["capacity_req_per_s"], abs=0.05)


@pytest.mark.parametrize(("lengths", "replicas"), [("mean", 3), ("mean", 4), ("azure", 5)])
def test_a_full_fleet_serves_its_capacity(lengths: str, replicas: int) -> None:
    """Fluid law: with every slot taken n replicas serve n K / (E[L] t(K)) requests/s."""
    log = diverging.run(CASE, lengths, replicas, 2, ENOUGH_S)
    late = (log.finish > 0.5 * ENOUGH_S) & (log.finish <= ENOUGH_S)
    served = late.sum() / (0.5 * ENOUGH_S)
    assert served == pytest.approx(CASE.capacity(lengths, replicas), rel=0.03)


def test_the_backlog_grows_by_what_capacity_leaves(rows) -> None:
    """Fluid law: growth = rate - capacity where it is positive, nothing where it is not."""
    for row in rows:
        expected = max(CASE.rate - CASE.capacity(row["lengths"], row["decode_replicas"]), 0.0)
        allowed = 2.0 * row["growth_half_width_req_per_s"]
        assert row["growth_req_per_s"] == pytest.approx(expected, abs=allowed), row
        assert row["stable"] == (expected == 0.0)


def test_a_stable_fleet_decodes_at_the_batch_law(rows) -> None:
    """Mean TPOT (a + b) / (1 - lambda L b / n) of the batch law, b the slope at mean context;
    joining the least loaded replica stays a few percent below random dispatch.
    """
    row = next(row for row in rows if row["lengths"] == "mean" and row["stable"])
    law, decode = CASE.lengths["mean"], CASE.decode
    context = law.mean_prompt + 0.5 * (law.mean_output - 1.0)
    a, b = decode.base_s, decode.per_context_token * context
    tpot = (a + b) / (1.0 - CASE.rate * law.mean_output * b / row["decode_replicas"])
    assert row["tpot_mean_ms"] == pytest.approx(1e3 * tpot, rel=0.05)


def test_one_prefill_replica_is_enough_at_its_word() -> None:
    """Nobody waits for a prefill slot, so decode sees what the publisher says it sees."""
    log = diverging.run(CASE, "mean", 5, 2, 30.0)
    assert np.all(log.prefill_start == log.arrival)
    delay = log.transfer_end - log.arrival
    assert delay == pytest.approx(CASE.ttft_factor * CASE.prefill_seconds)


def test_a_law_split_by_share_keeps_bins_and_total() -> None:
    """Mass per bin as published; prompt and output add up to totals inside their bins."""
    law = diverging.split_law([4, 100], [0.25, 1.0], 0.75)
    total = law.prompt + law.output
    assert law.weight[total <= 4].sum() == pytest.approx(0.25)
    assert total.max() <= 100
    assert law.mean(law.prompt) / law.mean(total) == pytest.approx(0.75, abs=0.02)


def test_curves_count_requests() -> None:
    """Decoding requests never exceed the slots; the times are the grid that is asked for."""
    rows = diverging.backlog_rows(1, horizon=20.0, fleets={"mean": (3,)})
    assert [row["time_s"] for row in rows] == np.arange(0.0, 20.1, diverging.STEP).tolist()
    assert max(int(row["decoding_requests"] or 0) for row in rows) == 3 * CASE.decode.slots
    assert rows[0]["waiting_requests"] == 0
