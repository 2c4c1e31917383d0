"""Co-located serving against hand computation, theory and the disaggregated simulator."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.records import TIMED_OUT
from pdalloc.simulation.options import (
    Clients,
    Colocated,
    Failures,
    KvMemory,
    Network,
    PassBudget,
    SimulationOptions,
)
from pdalloc.simulation.reference import replay
from pdalloc.simulation.statistics import littles_law
from pdalloc.workload.lengths import fixed, joint_table

FIRST = Colocated("prefill_first")
BUSY = Latency(AffinePrefill(0.01, 2e-4), AffineDecode(0.01, 1e-3, 1e-6))
MIXED = joint_table(np.array([50.0, 20.0]), np.array([20.0, 60.0]), np.ones(2))


def test_prefill_first_makes_those_who_decode_wait(lab) -> None:
    """Request 0: prefill 0-1. Request 1 comes at 1, in time: prefill 1-2. Step of two, 3 + 3
    tokens: 1.375 s. Request 0 alone, 4 tokens: 1 s.
    """
    s = lab.system(first_token="prefill")
    run = lab.run(s, lab.draws([0.0, 1.0], [2, 2], [3, 2]), colocated=FIRST)
    assert run.log.prefill_end.tolist() == run.log.first_token.tolist() == [1.0, 2.0]
    assert run.log.transfer_end.tolist() == [1.0, 2.0]
    assert run.log.decode_start.tolist() == [2.0, 2.0]
    assert run.log.finish.tolist() == [4.375, 3.375]
    assert run.token_times[0].tolist() == [1.0, 3.375, 4.375]
    assert run.log.prefill_replica.tolist() == run.log.decode_replica.tolist() == [0, 0]


def test_prefill_first_takes_prompts_up_to_its_budget_and_slots(lab) -> None:
    """Three prompts of 2 tokens wait at 1: budget 4 takes two, 1.5 s; two slots take one."""
    draws = lab.draws([0.0, 0.5, 0.5, 0.5], [2] * 4, [1] * 4)
    s = lab.system(first_token="prefill")
    run = lab.run(s, draws, colocated=Colocated("prefill_first", 4))
    assert run.log.prefill_end.tolist() == [1.0, 2.5, 2.5, 3.5]
    s = lab.system(first_token="decode", max_batch=1)
    run = lab.run(s, draws, colocated=FIRST)
    assert run.log.prefill_start.tolist() == [0.0, 1.875, 3.75, 5.625]


def test_chunked_mixes_decode_with_prompt_parts(lab) -> None:
    """2 tokens a pass. Request 0 is prefilled in 1 s; then each pass is its token and one of
    request 1's two: step 15/16 + 1/4 = 1.1875 s, then 1 + 1/4; then request 1 alone, 15/16.
    """
    s = lab.system(first_token="prefill")
    run = lab.run(s, lab.draws([0.0, 0.5], [2, 2], [3, 2]), colocated=Colocated("chunked", 2))
    assert run.log.prefill_start.tolist() == [0.0, 1.0]
    assert run.log.first_token.tolist() == [1.0, 3.4375]
    assert run.log.finish.tolist() == [3.4375, 4.375]
    assert run.pass_starts[0].tolist() == [0.0, 1.0, 2.1875]
    assert run.step_starts[0].tolist() == [1.0, 2.1875, 3.4375]


def test_chunked_without_room_only_decodes(lab) -> None:
    """One token a pass goes to the request that decodes; the prompt waits for its end at 2.875."""
    s = lab.system(first_token="decode")
    draws = lab.draws([0.0, 0.0], [1, 1], [2, 1])
    run = lab.run(s, draws, colocated=Colocated("chunked", 1))
    assert run.log.finish[0] == 0.75 + 0.8125 + 0.875
    assert run.log.prefill_start[1] == run.log.finish[0]


def test_who_outgrows_the_memory_is_prefilled_again(lab) -> None:
    """7 tokens: prompts of 2 in one pass, 1.5 s; two steps, 1.25 and 1.375 s; then 8 > 7 and the
    second waits; the first is done at 5.125; 4 tokens anew, 1.5 s; last step, 1 s.
    """
    s = lab.system(kv_tokens=7)
    draws = lab.draws([0.0, 0.0], [2, 2], [3, 3])
    run = lab.run(s, draws, colocated=FIRST, kv=KvMemory())
    assert run.log.prefill_end.tolist() == [1.5, 1.5]
    assert run.log.finish.tolist() == [5.125, 7.625]
    assert run.log.recomputes.tolist() == [0, 1]
    assert run.token_times[1].tolist() == [2.75, 4.125, 7.625]
    assert run.pass_starts[0].tolist() == [0.0, 5.125]


@pytest.mark.parametrize("policy", [FIRST, Colocated("chunked", 1000)])
def test_prefill_alone_is_m_g_1(lab, policy: Colocated) -> None:
    """One prompt a pass, one token each, Pollaczek-Khinchine: rho (1 + s) / (2 (1 - rho))."""
    rho = 0.6
    latency = Latency(AffinePrefill(1.0, 0.0), AffineDecode(1e-9, 0.0), "exponential")
    s = lab.system(latency, fixed(600, 1), rho, first_token="prefill")
    one = Colocated(policy.policy, 600)
    waits = lab.replicate(
        lambda run, log: (log.prefill_start - log.arrival).mean(), s, 6000, colocated=one
    )
    lab.confirm(waits, rho / (1 - rho), width=0.15)


@pytest.mark.parametrize("dispatch", ["random", "round_robin", "central_queue"])
def test_prompts_that_cost_nothing_leave_the_disaggregated_fleet(lab, dispatch: str) -> None:
    """Decode is then all there is: both simulators give the same times."""
    s = lab.system(Latency(lab.INSTANT, BUSY.decode), MIXED, 15.0, dispatch, max_batch=4)
    apart = lab.simulate(s, 500, 3, (2, 2)).log
    together = lab.simulate(s, 500, 3, (2, 2), colocated=FIRST).log
    if dispatch != "random":  # which draws another replica per role
        assert together.finish == pytest.approx(apart.finish, rel=1e-9)
    else:
        assert together.e2e.mean() == pytest.approx(apart.e2e.mean(), rel=0.3)


def test_decoding_suffers_from_prefills_when_together(lab) -> None:
    """Why one disaggregates: at equal load TPOT is longer where prefills come between, by the time
    that they take. In a gap of mean g, prefills of p s begin at rate r: g = step + r g p.
    """
    step, prefill, rate = 0.05, 0.1, 2.0
    latency = Latency(AffinePrefill(prefill, 0.0), AffineDecode(step, 0.0))
    s = lab.system(latency, fixed(5, 60), rate, first_token="decode")
    gaps = lab.replicate(
        lambda run, log: log.tpot.mean(), s, 1200, colocated=Colocated("prefill_first", 5)
    )
    lab.confirm(gaps, step / (1 - rate * prefill), width=0.02)
    apart = lab.replicate(lambda run, log: log.tpot.mean(), s, 300)
    assert np.mean(apart) == pytest.approx(step)


@pytest.mark.parametrize("policy", [Colocated("prefill_first", 200), Colocated("chunked", 64)])
@pytest.mark.parametrize("kv", [None, KvMemory("context"), KvMemory("full", 0.1)])
def test_no_token_is_lost(lab, policy: Colocated, kv: KvMemory | None) -> None:
    s = lab.system(BUSY, MIXED, 8.0, "least_loaded", max_batch=16, kv_tokens=300)
    run = lab.simulate(s, 800, 3, (2, 2), colocated=policy, kv=kv)
    assert run.log.finished.all()
    assert [len(times) for times in run.token_times] == run.log.output_tokens.tolist()
    assert run.log.recomputes.any() == (kv is not None and kv.reserve == "context")
    assert abs(littles_law(run.log)[2]) < 0.2
    assert run.both_roles


def test_clients_of_a_colocated_pool_give_up_too(lab) -> None:
    draws = lab.draws([0.0, 0.0], [8, 2], [1, 1])
    log = lab.run(lab.system(max_batch=1), draws, colocated=FIRST, clients=Clients(timeout=1.0)).log
    assert log.status.tolist() == [0, TIMED_OUT]
    assert log.left[1] == 1.0


def test_what_does_not_go_together_is_refused(lab) -> None:
    plain = SimulationOptions(colocated=FIRST)
    for other in (
        {"prefill_budget": PassBudget(5)},
        {"network": Network()},
        {"failures": Failures(1.0, 1.0)},
        {"kv": KvMemory(back_pressure=True)},
    ):
        with pytest.raises(InputError, match="co-located serving has no"):
            replace(plain, **other)
    fleet = Fleet.of({(PREFILL, "r"): 1, (DECODE, "r"): 2})
    with pytest.raises(InputError, match="same pools in both roles"):
        replay(
            lab.system(),
            fleet,
            lab.draws([0.0], [1], [1]),
            options=SimulationOptions(colocated=FIRST),
        )
    assert math.isinf(FIRST.tokens)
