"""KV memory: reservation, preemption by recompute, back-pressure."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.errors import InputError
from pdalloc.hardware.link import Link
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.simulation.decode_replica import DecodeReplica
from pdalloc.simulation.options import KvMemory
from pdalloc.simulation.statistics import littles_law
from pdalloc.workload.lengths import fixed, joint_table

FULL, GROWING = KvMemory("full"), KvMemory("context")
BUSY = Latency(AffinePrefill(0.01, 2e-4), AffineDecode(0.01, 1e-3, 1e-6))
MIXED = joint_table(np.array([50.0, 20.0]), np.array([20.0, 60.0]), np.ones(2))


def test_full_reservation_admits_a_request_when_all_of_it_fits(lab) -> None:
    """5 tokens each, 8 in all: the second moves when the first is done (3 steps, 2.8125 s)."""
    s = lab.system(dispatch="round_robin", kv_tokens=8)
    run = lab.run(s, lab.draws([0.0, 0.0], [2, 2], [3, 3]), (2, 1), kv=FULL)
    assert run.log.transfer_start.tolist() == run.log.decode_start.tolist() == [1.0, 3.8125]
    assert run.log.finish.tolist() == [3.8125, 6.625]


def test_memory_is_reserved_while_the_cache_moves(lab) -> None:
    """The same with transfers of 1 s: the second starts to move at 4.8125, not at 1."""
    s = lab.system(dispatch="round_robin", kv_tokens=8, link=Link(1.0))
    log = lab.run(s, lab.draws([0.0, 0.0], [2, 2], [3, 3]), (2, 1), kv=FULL).log
    assert log.transfer_start.tolist() == [1.0, 4.8125]
    assert log.decode_start.tolist() == [2.0, 5.8125]


def test_a_batch_that_outgrows_the_memory_preempts_who_joined_last(lab) -> None:
    """7 tokens. Steps of two: 1.25 (4 tokens), 1.375 (6); then 8 > 7: request 1 is out. Alone: 1
    s (4 tokens), done at 4.625. Recompute of 4 tokens: 1.5 s; its last step: 1 s.
    """
    s = lab.system(dispatch="round_robin", kv_tokens=7)
    run = lab.run(s, lab.draws([0.0, 0.0], [2, 2], [3, 3]), (2, 1), kv=GROWING)
    assert run.step_starts[0].tolist() == [1.0, 2.25, 3.625, 6.125]
    assert run.recompute_starts[0].tolist() == [4.625]
    assert run.recompute_seconds[0].tolist() == [1.5]
    assert run.log.finish.tolist() == [4.625, 7.125]
    assert run.log.recomputes.tolist() == [0, 1]
    assert [t.tolist() for t in run.token_times] == [[2.25, 3.625, 4.625], [2.25, 3.625, 7.125]]


def test_who_must_recompute_goes_before_who_has_not_come(lab) -> None:
    """As above, and a third request is ready at 4 s: it gets space after the second is back."""
    s = lab.system(dispatch="round_robin", kv_tokens=7)
    draws = lab.draws([0.0, 0.0, 3.0], [2, 2, 2], [3, 3, 1])
    log = lab.run(s, draws, (3, 1), kv=GROWING).log
    assert log.prefill_end[2] == 4.0
    assert log.transfer_start[2] == 6.125  # 4 + 2 <= 7, once the recompute pass is over
    assert log.finish.tolist() == [4.625, 7.5, 7.5]


def test_the_watermark_is_kept_free_on_admission_only(lab) -> None:
    """8 tokens, a quarter kept free: 2 + 2 <= 6 are admitted and may grow to 8."""
    s = lab.system(dispatch="round_robin", kv_tokens=8)
    draws = lab.draws([0.0, 0.0, 0.0], [2, 2, 3], [3, 3, 1])
    log = lab.run(s, draws, (3, 1), kv=KvMemory("context", 0.25)).log
    assert log.transfer_start.tolist() == [1.0, 1.0, 5.125]
    assert not log.recomputes.any()


def test_back_pressure_blocks_the_prefill_replica(lab) -> None:
    """One request fits: the second waits for KV at 2 s, and the third for the replica."""
    s = lab.system(kv_tokens=5)
    draws = lab.draws([0.0, 0.0, 0.0], [2, 2, 2], [3, 3, 3])
    held = lab.run(s, draws, kv=KvMemory("full", back_pressure=True)).log
    free = lab.run(s, draws, kv=FULL).log
    assert held.prefill_start.tolist() == [0.0, 1.0, 3.8125]
    assert free.prefill_start.tolist() == [0.0, 1.0, 2.0]
    assert held.transfer_start.tolist() == free.transfer_start.tolist() == [1.0, 3.8125, 6.625]


def test_a_blocked_prefill_and_one_decode_slot_pass_the_greater_of_two_services(lab) -> None:
    """Tandem without room between: a cycle is max(S1, D), E = D + e^-D for S1 ~ Exp(1)."""
    d, n = 1.0, 3000
    latency = Latency(AffinePrefill(1.0, 0.0), AffineDecode(d / 4, 0.0), "exponential")
    s = lab.system(latency, fixed(2, 4), 1e6, kv_tokens=6)
    cycles = lab.replicate(
        lambda run, log: (log.decode_start[-1] - log.decode_start[0]) / (len(log) - 1),
        s,
        n,
        kv=KvMemory("full", back_pressure=True),
    )
    lab.confirm(cycles, d + math.exp(-d), width=0.03)


def test_memory_for_one_request_is_m_d_1(lab) -> None:
    """E[wait for KV space] = rho D / (2 (1 - rho)), D = L a."""
    rho, d = 0.7, 1.0
    latency = Latency(lab.INSTANT, AffineDecode(d / 4, 0.0))
    s = lab.system(latency, fixed(2, 4), rho / d, kv_tokens=6)
    waits = lab.replicate(
        lambda run, log: (log.transfer_start - log.prefill_end).mean(), s, 3000, kv=FULL
    )
    lab.confirm(waits, rho * d / (2 * (1 - rho)), width=0.2)


@pytest.mark.parametrize("dispatch", ["least_loaded", "central_queue"])
@pytest.mark.parametrize("kv", [FULL, GROWING, KvMemory("context", 0.1, True)])
def test_memory_is_never_exceeded_and_no_token_is_lost(
    lab, monkeypatch: pytest.MonkeyPatch, dispatch: str, kv: KvMemory
) -> None:
    """At every turn: used <= M, and used is what requests hold; at the end all tokens are there."""
    turn, used = DecodeReplica.turn, []

    def watched(replica: DecodeReplica, now: float) -> float | None:
        end = turn(replica, now)
        here = sum(r.held for r in [*replica.batch, *replica.queue])
        assert here <= replica.used <= replica.memory
        if kv.reserve == "context" and end is not None and replica.recomputing is None:
            assert sum(r.context for r in replica.batch) <= replica.used
        used.append(replica.used)
        return end

    monkeypatch.setattr(DecodeReplica, "turn", watched)
    s = lab.system(BUSY, MIXED, 12.0, dispatch, kv_tokens=300)
    run = lab.simulate(s, 1500, 3, (2, 2), kv=kv)
    assert max(used) > 260
    assert run.log.recomputes.any() == (kv.reserve == "context")
    gaps = run.gap_sample(np.ones(len(run.log), bool))
    assert gaps.size == (run.log.output_tokens - 1).sum()
    recomputed = sum(len(starts) for starts in run.recompute_starts)
    assert recomputed == run.log.recomputes.sum()
    assert abs(littles_law(run.log)[2]) < 0.2


@pytest.mark.parametrize("kv", [FULL, GROWING])
@pytest.mark.parametrize("first_token", ["prefill", "transfer", "decode"])
def test_memory_without_end_changes_nothing(lab, kv: KvMemory, first_token: str) -> None:
    s = lab.system(BUSY, MIXED, 40.0, "least_loaded", first_token, max_batch=8)
    plain, counted = (lab.simulate(s, 400, 3, (2, 2), **o).log for o in ({}, {"kv": kv}))
    for name in ("decode_start", "first_token", "finish", "decode_replica"):
        assert np.array_equal(getattr(plain, name), getattr(counted, name))


def test_the_central_queue_goes_where_most_memory_is_free(lab) -> None:
    """9 tokens on replica 0 of 12; the next goes to replica 1, and so does the one after."""
    s = lab.system(dispatch="central_queue", kv_tokens=12)
    draws = lab.draws([0.0, 2.0, 2.0], [6, 2, 2], [3, 3, 3])
    log = lab.run(s, draws, (3, 2), kv=FULL).log
    assert log.decode_replica.tolist() == [0, 1, 1]
    assert log.transfer_start.tolist() == log.prefill_end.tolist()


def test_a_request_that_never_fits_is_refused(lab) -> None:
    s = lab.system(kv_tokens=5)
    with pytest.raises(InputError, match="never hold a request of 6 tokens"):
        lab.run(s, lab.draws([0.0, 0.0], [2, 3], [3, 3]), kv=GROWING)
