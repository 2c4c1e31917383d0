"""The numbers of a run against hand computation and queueing identities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.records import FINISHED, TIMED_OUT, RequestLog
from pdalloc.simulation import fast
from pdalloc.simulation.attainment import Bound
from pdalloc.simulation.options import Clients, Colocated, KvMemory, SimulationOptions
from pdalloc.simulation.reference import replay
from pdalloc.simulation.statistics import Run, covered, littles_law, steady
from pdalloc.simulation.summary import (
    combined,
    latencies,
    measure,
    queue_lengths,
    replicate,
    utilisation,
)
from pdalloc.workload.lengths import fixed

MM1 = Latency(AffinePrefill(1.0, 0.0), AffineDecode(1e-9, 0.0), "exponential")


def clockwork(lab, n: int = 50, every: float = 4.0, **options):
    """A request every 4 s: prefill 1 s, steps 0.875, 0.9375 and 1 s, one at a time."""
    draws = lab.draws(np.arange(n) * every, [2] * n, [3] * n)
    return lab.run(lab.system(), draws, **options)


def test_latencies_of_a_clockwork(lab) -> None:
    values = latencies(clockwork(lab))
    assert values["ttft_mean_s"] == values["ttft_p99_s"] == 1.875
    assert values["tpot_mean_s"] == 1.9375 / 2
    assert values["itl_mean_s"] == pytest.approx(1.9375 / 2)
    assert values["itl_p50_s"] == pytest.approx(1.9375 / 2)
    assert values["itl_p99_s"] == pytest.approx(1.0)
    assert values["e2e_p90_s"] == 3.8125


def test_rates_shares_and_cost_of_a_clockwork(lab) -> None:
    """0.25 req/s; 3.6 USD/h is 1e-3 USD/s, 4e-3 USD a request of 5 tokens, 3 of them output.

    In a window of 39 gaps 39 requests finish.
    """
    values = measure(clockwork(lab), lab.fleet(), [Bound("ttft", 1.875), Bound("e2e", 3.9)], 3.6)
    assert values["offered_req_per_s"] == values["goodput_req_per_s"] == 0.25
    assert values["attainment"] == 1.0
    assert values["usd_per_mtoken"] == pytest.approx(4e3 / 5)
    assert values["usd_per_mtoken_output"] == pytest.approx(4e3 / 3)
    assert values["timeout_share"] == values["rejected_share"] == 0.0
    assert values["utilisation prefill/r"] == pytest.approx(0.25)
    assert values["utilisation decode/r"] == pytest.approx(2.8125 / 4)
    assert values["in_prefill"] == pytest.approx(0.25)
    assert values["in_decode"] == pytest.approx(2.8125 / 4)
    assert values["queue_prefill"] == values["queue_decode"] == values["in_transfer"] == 0.0
    assert values["littles_law_gap"] == pytest.approx(0.0, abs=1e-12)


def test_queue_lengths_over_time(lab) -> None:
    """Three prompts at 0, 1 s each; one answer of a step, 0.875 s, each."""
    run = lab.run(lab.system(), lab.draws([0.0] * 3, [2] * 3, [1] * 3))
    series = queue_lengths(run.log, np.array([0.0, 0.5, 1.5, 2.5, 3.5, 9.0]))
    assert series["queue_prefill"].tolist() == [2, 2, 1, 0, 0, 0]
    assert series["in_prefill"].tolist() == [1, 1, 1, 1, 0, 0]
    assert series["in_decode"].tolist() == [0, 0, 1, 1, 1, 0]


def test_who_gave_up_no_longer_waits(lab) -> None:
    """The third waits from 0.25 s to 1.25 s: over the time it counts in the queue, not after."""
    draws = lab.draws([0.0, 0.125, 0.25], [2, 2, 2], [1, 1, 1])
    log = lab.run(lab.system(), draws, clients=Clients(timeout=1.0)).log
    series = queue_lengths(log, np.array([0.5, 1.125, 1.5, 9.0]))
    assert series["queue_prefill"].tolist() == [2, 1, 0, 0]
    assert series["in_decode"].tolist()[-1] == 0


def test_who_gives_up_attains_nothing_and_is_counted(lab) -> None:
    """M/M/1 with patience: attainment under a bound never met by timeouts is 1 - their share."""
    s = lab.system(MM1, fixed(1, 1), 0.9, first_token="prefill")
    run = lab.simulate(s, 3000, 1, clients=Clients(timeout=1.0))
    values = measure(run, lab.fleet(), [Bound("ttft", 1e9)])
    kept = run.log.select(steady(run.log))
    assert values["timeout_share"] == (kept.status == TIMED_OUT).mean() > 0.1
    assert values["attainment"] == (kept.status == FINISHED).mean()
    assert values["attainment"] + values["timeout_share"] == pytest.approx(1.0)
    assert abs(values["littles_law_gap"]) < 0.05


def test_utilisation_is_rho_and_numbers_obey_little(lab) -> None:
    """M/M/2, rho = 0.7: busy share rho, E[N in service] = c rho, L_q = lambda W_q."""
    rho, c = 0.7, 2
    s = lab.system(MM1, fixed(1, 1), rho * c, "central_queue", "prefill")
    fleet = lab.fleet(c)
    found = replicate(s, fleet, dict.fromkeys(fleet.counts, 1.0), 8000, 8, 3).numbers
    for name, expected in (
        ("utilisation prefill/r", rho),
        ("in_prefill", c * rho),
        ("offered_req_per_s", c * rho),
        ("queue_prefill", c * rho * 2 * rho**3 / (1 - rho**2) / (2 * rho)),
    ):
        estimate = found[name]
        assert estimate.value == pytest.approx(expected, abs=2 * estimate.half_width), name
        assert estimate.half_width < 0.12 * expected
    assert abs(found["littles_law_gap"].value) < 0.01


def test_both_roles_count_once(lab) -> None:
    """Prefill 1 s and three steps, 2.8125 s, every 4 s on one machine."""
    run = clockwork(lab, colocated=Colocated("prefill_first"))
    values = utilisation(run, lab.fleet())
    expected = pytest.approx(3.8125 / 4)
    assert values == {"utilisation prefill/r": expected, "utilisation decode/r": expected}


def test_recompute_passes_are_work(lab) -> None:
    s = lab.system(dispatch="round_robin", kv_tokens=7)
    n = 40
    arrival = np.repeat(np.arange(n // 2) * 16.0, 2)
    run = lab.run(s, lab.draws(arrival, [2] * n, [3] * n), (2, 1), kv=KvMemory())
    busy = utilisation(run, lab.fleet(2))["utilisation decode/r"]
    assert busy == pytest.approx((7.125 - 1.0) / 16.0, rel=0.1)
    assert run.log.recomputes.sum() == n / 2
    assert measure(run, lab.fleet(2))["recomputes_per_request"] == 0.5


def test_a_run_without_passes_reads_them_off_its_log(lab) -> None:
    run = clockwork(lab)
    bare = Run(run.log, run.step_starts, run.step_seconds)
    assert utilisation(bare, lab.fleet()) == pytest.approx(utilisation(run, lab.fleet()))


def test_covered_counts_overlaps_once() -> None:
    work = [
        (np.array([0.0, 4.0]), np.array([2.0, 1.0])),
        (np.array([1.0, 1.5, 2.5, 9.0]), np.array([2.0, 0.5, 0.25, 5.0])),
    ]
    assert covered(work, 0.0, 10.0) == 3.0 + 1.0 + 1.0
    assert covered(work, 1.0, 4.5) == 2.0 + 0.5
    assert covered([(np.empty(0), np.empty(0))], 0.0, 1.0) == 0.0


def test_combined_gives_student_intervals_of_what_all_runs_have() -> None:
    runs = [{"a": 1.0, "b": 1.0}, {"a": 2.0}, {"a": 3.0, "b": 1.0}]
    found = combined(runs)
    assert set(found) == {"a"}
    assert found["a"].value == 2.0
    assert found["a"].half_width == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)


def test_replications_are_independent_reproducible_and_counted(lab) -> None:
    s, fleet, calls = lab.system(rate=0.2), lab.fleet(), []
    rates = {(PREFILL, "r"): 1.0, (DECODE, "r"): 1.0}

    def told(done: int, total: int) -> None:
        calls.append((done, total))

    options = SimulationOptions(clients=Clients(timeout=50.0))
    one, two = (
        replicate(s, fleet, rates, 60, 3, 7, options, progress=told, simulate=engine)
        for engine in (replay, fast.replay)
    )
    assert one == two and one.replications == one.asked == 3
    assert one.numbers["ttft_mean_s"].half_width > 0
    assert calls[-1] == (180, 180)
    with pytest.raises(InputError, match="at least 2 replications"):
        replicate(s, fleet, rates, 60, 1, 7)


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_an_interrupted_study_keeps_the_runs_that_were_done(lab, done: int) -> None:
    """^C in run ``done``: with two or more before it there is an interval over those."""
    s, fleet, rates = lab.system(rate=0.2), lab.fleet(), {(PREFILL, "r"): 1.0, (DECODE, "r"): 1.0}
    runs: list[Run] = []

    def until_interrupted(*arguments):
        if len(runs) == done:
            raise KeyboardInterrupt
        runs.append(replay(*arguments))
        return runs[-1]

    if done < 2:
        with pytest.raises(KeyboardInterrupt):
            replicate(s, fleet, rates, 60, 5, 7, simulate=until_interrupted)
        return
    part = replicate(s, fleet, rates, 60, 5, 7, simulate=until_interrupted)
    assert (part.replications, part.asked) == (done, 5)
    assert part.numbers == replicate(s, fleet, rates, 60, done, 7).numbers


def test_little_counts_the_time_of_who_left() -> None:
    """A clock of 1 req/s: half finish after 2 s, half leave after 1 s: N = 1.5."""
    n = 100
    arrival = np.arange(float(n))
    gone = arrival + np.where(np.arange(n) % 2, 1.0, 2.0)
    finish = np.where(np.arange(n) % 2, np.nan, gone)
    ones, zero = np.ones(n, np.int64), np.zeros(n, np.int64)
    log = RequestLog(
        arrival,
        arrival,
        arrival,
        arrival,
        arrival,
        finish,
        finish,
        ones,
        ones,
        zero,
        zero,
        zero,
        status=np.arange(n) % 2 * TIMED_OUT,
        left=gone,
    )
    assert littles_law(log)[0] == pytest.approx(1.5, rel=0.02)
    assert littles_law(log)[1] == pytest.approx(1.5, rel=0.02)
    assert log.finished.sum() == n / 2
    assert log.select(log.finished).retries is None
