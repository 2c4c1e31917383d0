"""Failures and repairs: hand computation with given outages, availability, nothing lost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.hardware.link import Link
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.simulation import outages
from pdalloc.simulation.options import Failures, KvMemory, PassBudget
from pdalloc.simulation.setup import down_seconds, up_seconds
from pdalloc.simulation.statistics import littles_law
from pdalloc.workload.lengths import fixed

SOME = Failures(1.0, 1.0)


def script(monkeypatch: pytest.MonkeyPatch, **at: tuple[float, float]) -> None:
    """Server s<i> fails once, at at[0], for at[1] seconds; nobody else ever does."""

    def up(key: int, rule: Failures, server: int, k: int) -> float:
        return at.get(f"s{server}", (math.inf, 0.0))[0] if k == 0 else math.inf

    def down(key: int, rule: Failures, server: int, k: int) -> float:
        return at[f"s{server}"][1]

    monkeypatch.setattr(outages, "up_seconds", up)
    monkeypatch.setattr(outages, "down_seconds", down)


def test_prompts_of_a_failed_replica_go_to_another(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running and waiting prompts of replica 0 come to replica 1 at 0.5, in order."""
    script(monkeypatch, s0=(0.5, 100.0))
    draws = lab.draws([0.0, 0.25, 0.75], [2, 2, 2], [1, 1, 1])
    run = lab.run(lab.system(), draws, (2, 1), failures=SOME)
    assert run.log.prefill_replica.tolist() == [1, 1, 1]
    assert run.log.prefill_start.tolist() == [0.5, 1.5, 2.5]
    assert run.pass_seconds[0].tolist() == [0.5]  # what it did before it failed


@pytest.mark.parametrize(
    ("budget", "end"), [(PassBudget(9), 5.0), (PassBudget(5, split=True), 3.0 + 1.75 + 0.75)]
)
def test_parts_that_were_done_are_done_again(
    lab, monkeypatch: pytest.MonkeyPatch, budget: PassBudget, end: float
) -> None:
    """The replica is down from 1.9 s, in the only pass of 6 tokens (2 s) or in the second of two
    (5 tokens 1.75 s, 1 token 0.75 s), to 3 s: all 6 tokens are computed again.
    """
    script(monkeypatch, s0=(1.9, 1.1))
    log = lab.run(
        lab.system(), lab.draws([0.0], [6], [1]), failures=SOME, prefill_budget=budget
    ).log
    assert log.prefill_start.tolist() == [3.0]
    assert log.prefill_end.tolist() == [end]


def test_where_nobody_is_up_prompts_wait_for_the_repair(
    lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, s0=(0.5, 2.0))
    draws = lab.draws([0.0, 0.25, 1.0], [2, 2, 2], [1, 1, 1])
    log = lab.run(lab.system(), draws, failures=SOME).log
    assert log.prefill_start.tolist() == [2.5, 3.5, 4.5]


def test_a_central_queue_takes_the_prompt_back_in_front(
    lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replica 1 takes the lost prompt at 1, before the one that waited."""
    script(monkeypatch, s0=(0.5, 100.0))
    draws = lab.draws([0.0, 0.0, 0.25], [2, 2, 2], [1, 1, 1])
    log = lab.run(lab.system(dispatch="central_queue"), draws, (2, 1), failures=SOME).log
    assert log.prefill_start.tolist() == [1.0, 0.0, 2.0]


def test_a_lost_cache_is_recomputed_elsewhere_and_tokens_are_kept(
    lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token 1 at 1.875; at 2 decode replica 0 fails with 3 tokens of context: recompute 1.25 s at
    replica 1, then steps of 15/16 and 1 s.
    """
    script(monkeypatch, s1=(2.0, 100.0))
    run = lab.run(lab.system(), lab.draws([0.0], [2], [3]), (1, 2), failures=SOME)
    assert run.token_times[0].tolist() == [1.875, 4.1875, 5.1875]
    assert run.recompute_starts[1].tolist() == [2.0]
    assert run.step_seconds[0].tolist() == [0.875, 0.125]
    assert run.log.decode_replica.tolist() == run.log.recomputes.tolist() == [1]


@pytest.mark.parametrize("kv", [None, KvMemory("full"), KvMemory("context")])
def test_a_transfer_to_a_failed_replica_is_cut(
    lab, monkeypatch: pytest.MonkeyPatch, kv: KvMemory | None
) -> None:
    """In transfer from 1 to 6, cut at 2: recompute of 2 tokens, 1 s, then three steps."""
    script(monkeypatch, s1=(2.0, 100.0))
    s = lab.system(link=Link(5.0), kv_tokens=50)
    log = lab.run(s, lab.draws([0.0], [2], [3]), (1, 2), failures=SOME, kv=kv).log
    assert log.transfer_end.tolist() == [2.0]
    assert log.decode_start.tolist() == [3.0]
    assert log.finish.tolist() == [3.0 + 2.8125]


def test_who_waits_for_memory_of_a_failed_replica_moves_without_recompute(
    lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Request 1 waits for KV of replica 0 from 2 to 2.5 and starts to move to replica 1 then."""
    script(monkeypatch, s1=(2.5, 100.0))
    s = lab.system(kv_tokens=10)
    draws = lab.draws([0.0, 0.0], [2, 2], [6, 6])
    log = lab.run(s, draws, (1, 2), failures=SOME, kv=KvMemory("full")).log
    assert log.recomputes.tolist() == [1, 0]
    assert log.transfer_start[1] > 2.5  # who lost its cache goes first
    assert log.decode_replica.tolist() == [1, 1]


def test_outages_are_exponential() -> None:
    rule = Failures(20.0, 5.0)
    for seconds, mean in ((up_seconds, 20.0), (down_seconds, 5.0)):
        sample = np.array([seconds(3, rule, 2, k) for k in range(4000)])
        assert sample.mean() == pytest.approx(mean, rel=5 / math.sqrt(4000))
        assert sample.var() == pytest.approx(mean**2, rel=0.2)
        assert sample[0] != seconds(3, rule, 1, 0)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_saturated_replica_works_for_its_availability(lab, role: str) -> None:
    """Its rate is MTBF / (MTBF + MTTR) of what it would be, less half a pass a failure: the work
    of W s takes W / A in the mean; each of its W / MTBF cycles has the variance of two
    exponentials, seen as MTBF / (MTBF + MTTR) to first order.
    """
    mtbf, mttr, n, a = 5.0, 2.0, 4000, 0.25
    work = n * a
    fast, slow = AffinePrefill(1e-9, 0.0), AffinePrefill(a, 0.0)
    prefill, decode = (slow, 1e-9) if role == "prefill" else (fast, a)
    s = lab.system(Latency(prefill, AffineDecode(decode, 0.0)), max_batch=1)
    draws = lab.draws([0.0] * n, [1] * n, [1] * n)
    pool = lab.run(s, draws, failures=Failures(mtbf, mttr)).log
    took = pool.finish.max()
    # The other replica fails as often but has nothing to do.
    lost = work / mtbf * 0.5 * a
    error = mttr * math.sqrt(2.0 * work / mtbf)
    assert took == pytest.approx((work + lost) * (mtbf + mttr) / mtbf, abs=5 * error)
    assert error < 0.04 * took


@pytest.mark.parametrize("dispatch", ["random", "round_robin", "least_loaded", "central_queue"])
@pytest.mark.parametrize("kv", [None, KvMemory("context", back_pressure=True)])
def test_failures_lose_no_request_and_no_token(lab, dispatch: str, kv: KvMemory | None) -> None:
    latency = Latency(AffinePrefill(0.01, 2e-4), AffineDecode(0.01, 1e-3, 1e-6))
    s = lab.system(latency, fixed(50, 20), 12.0, dispatch, link=Link(0.05), kv_tokens=800)
    run = lab.simulate(s, 1500, 4, (2, 3), failures=Failures(10.0, 2.0), kv=kv)
    assert run.log.finished.all()
    assert run.log.recomputes.max() >= 1
    assert [len(times) for times in run.token_times] == run.log.output_tokens.tolist()
    assert abs(littles_law(run.log)[2]) < 0.1
