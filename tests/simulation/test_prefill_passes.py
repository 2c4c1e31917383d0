"""Prefill passes over several prompts, chunks, noise and slow replicas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.fleet import PREFILL
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredPrefill
from pdalloc.latency.service import Calibration, Latency
from pdalloc.simulation.options import Noise, PassBudget
from pdalloc.workload.lengths import fixed, joint_table

DECODE_FAST = AffineDecode(1e-6, 0.0)


def test_whole_prompts_share_a_pass_up_to_its_budget(lab) -> None:
    """Pass 1: the first alone, 1/2 + 2/4. Pass 2: 2 + 2 tokens of at most 4, 1/2 + 1 s."""
    draws = lab.draws([0.0, 0.125, 0.25, 0.375], [2, 2, 2, 3], [1] * 4)
    run = lab.run(lab.system(), draws, prefill_budget=PassBudget(4))
    assert run.log.prefill_start.tolist() == [0.0, 1.0, 1.0, 2.5]
    assert run.log.prefill_end.tolist() == [1.0, 2.5, 2.5, 3.75]
    assert run.pass_starts[0].tolist() == [0.0, 1.0, 2.5]
    assert run.pass_seconds[0].tolist() == [1.0, 1.5, 1.25]


def test_a_prompt_above_the_budget_goes_alone_and_nobody_overtakes(lab) -> None:
    """Waiting: 3, 9, 1, 1 tokens, budget 4. The 1s fit beside the 3 but come after the 9."""
    draws = lab.draws([0.0, 0.0, 0.0, 0.0, 0.0], [1, 3, 9, 1, 1], [1] * 5)
    run = lab.run(lab.system(), draws, prefill_budget=PassBudget(4))
    assert run.log.prefill_start.tolist() == [0.0, 0.75, 2.0, 4.75, 4.75]
    assert run.log.prefill_end.tolist() == [0.75, 2.0, 4.75, 5.75, 5.75]


def test_chunks_fill_every_pass_and_the_cut_prompt_goes_on_first(lab) -> None:
    """6 and 3 tokens, 4 a pass: [4], [2 + 2], [1]: 1.5, 1.5 and 0.75 s."""
    draws = lab.draws([0.0, 0.125], [6, 3], [1, 1])
    run = lab.run(lab.system(), draws, prefill_budget=PassBudget(4, split=True))
    assert run.pass_seconds[0].tolist() == [1.5, 1.5, 0.75]
    assert run.log.prefill_start.tolist() == [0.0, 1.5]
    assert run.log.prefill_end.tolist() == [3.0, 3.75]


def test_a_pass_reads_a_measured_table_at_its_summed_tokens(lab) -> None:
    curve = Curve("p", np.array([1.0, 5.0]), np.array([1.0, 3.0]))
    s = lab.system(Latency(MeasuredPrefill(curve), AffineDecode(0.5, 0.25)))
    draws = lab.draws([0.0, 0.5, 0.5], [1, 1, 2], [1] * 3)
    run = lab.run(s, draws, prefill_budget=PassBudget(100))
    assert run.pass_seconds[0].tolist() == [1.0, 2.0]  # 1 token, then 3: half way from 1 to 5


@pytest.mark.parametrize("chunk", [1.0, 3.0, 7.0])
def test_chunks_of_a_prompt_add_up_to_the_prompt(lab, chunk: float) -> None:
    """Without a fixed cost: sum b k + c ((at + k)^2 - at^2) = b (n - h) + c (n^2 - h^2)."""
    latency = Latency(AffinePrefill(0.0, 0.25, 0.125), AffineDecode(0.5, 0.25))
    draws = lab.draws([0.0], [20], [1], cached=[5.5])
    whole, cut = (
        lab.run(lab.system(latency), draws, prefill_budget=budget)
        for budget in (None, PassBudget(chunk, split=True))
    )
    assert len(cut.pass_starts[0]) == math.ceil(14.5 / chunk)
    assert cut.log.prefill_end[0] == pytest.approx(whole.log.prefill_end[0])


def test_a_budget_of_one_prompt_changes_nothing(lab) -> None:
    latency = Latency(AffinePrefill(0.1, 1e-3, 1e-6), DECODE_FAST, "exponential")
    s = lab.system(latency, fixed(100, 1), 3.0)
    plain, one = (lab.simulate(s, 400, 3, prefill_budget=b) for b in (None, PassBudget(100)))
    assert one.log.prefill_end == pytest.approx(plain.log.prefill_end, rel=1e-12)


def test_without_a_limit_a_pass_takes_all_who_wait(lab) -> None:
    """Bulk service of D s whoever many: from an idle moment, passes follow each other until one
    sees no arrival (each with probability e^(-l D)), so e^(l D) of them on average; who comes
    during a pass waits D / 2 on average, who comes at an idle moment does not wait.
    """
    rate, seconds = 1.5, 1.0
    busy = seconds * math.exp(rate * seconds)
    expected = busy / (busy + 1 / rate) * seconds / 2
    s = lab.system(Latency(AffinePrefill(seconds, 0.0), DECODE_FAST), fixed(5, 1), rate)
    waits = lab.replicate(
        lambda run, log: (log.prefill_start - log.arrival).mean(),
        s,
        3000,
        prefill_budget=PassBudget(math.inf),
    )
    lab.confirm(waits, expected)


@pytest.mark.parametrize("noise", [Noise("gamma", 2.0), Noise("lognormal", 0.5)])
def test_prefill_noise_makes_an_m_g_1(lab, noise: Noise) -> None:
    """Pollaczek-Khinchine: E[W] = rho (1 + SCV) / (2 (1 - rho)) E[S]."""
    rho = 0.6
    s = lab.system(Latency(AffinePrefill(0.0, 0.01), DECODE_FAST), fixed(100, 1), rho)
    waits = lab.replicate(
        lambda run, log: (log.prefill_start - log.arrival).mean(),
        s,
        6000,
        prefill_noise=noise,
    )
    lab.confirm(waits, rho * (1 + noise.scv) / (2 * (1 - rho)), width=0.2)


def test_noise_is_a_request_s_own_whoever_serves_it(lab) -> None:
    """The same factors under another dispatch; a pass takes the factor of its first prompt."""
    s = lab.system(Latency(AffinePrefill(0.0, 0.01), DECODE_FAST), fixed(100, 1), 2.0)
    runs = [lab.simulate(s, 50, 3, (p, 1), prefill_noise=Noise("gamma", 0.5)).log for p in (2, 4)]
    seconds = [log.prefill_end - log.prefill_start for log in runs]
    assert seconds[0] == pytest.approx(seconds[1])
    draws = lab.draws([0.0] * 4, [100] * 4, [1] * 4)
    run = lab.run(s, draws, prefill_noise=Noise("gamma", 0.5), prefill_budget=PassBudget(300))
    factors = lab.run(s, draws, prefill_noise=Noise("gamma", 0.5)).pass_seconds[0]
    assert run.pass_seconds[0] == pytest.approx([factors[0], 3 * factors[1]])


def test_a_slow_replica_takes_its_factor_longer(lab) -> None:
    draws = lab.draws([0.0, 0.0, 10.0, 10.0], [2] * 4, [1] * 4)
    run = lab.run(
        lab.system(dispatch="round_robin"),
        draws,
        (2, 2),
        slow={(PREFILL, 1): 2.0, ("decode", 0): 4.0},
    )
    assert (run.log.prefill_end - run.log.prefill_start).tolist() == [1.0, 2.0, 1.0, 2.0]
    assert (run.log.finish - run.log.decode_start).tolist() == [3.5, 0.875, 3.5, 0.875]


def test_batching_serves_more_than_one_at_a_time(lab) -> None:
    """Load 2 with a fixed cost that dominates: one at a time diverges, passes keep up."""
    law = joint_table(np.array([5.0, 30.0]), np.ones(2), np.ones(2))
    s = lab.system(Latency(AffinePrefill(1.0, 1e-3), DECODE_FAST), law, 2.0)
    alone, together = (
        lab.simulate(s, 1000, 2, prefill_budget=b).log for b in (None, PassBudget(500))
    )
    wait = [(log.prefill_start - log.arrival).mean() for log in (alone, together)]
    assert wait[0] > 50 * wait[1]


@pytest.mark.parametrize(
    "prefill",
    [
        AffinePrefill(0.01, 1e-3, 1e-6),
        AffinePrefill(0.0, 1e-3, 0.0, 0.25),
        MeasuredPrefill(Curve("p", np.array([10.0, 100.0]), np.array([0.02, 0.09]))),
    ],
)
def test_a_pass_of_one_prompt_takes_its_prefill_time(prefill) -> None:
    """Whatever the source, its floor and its calibration."""
    latency = Latency(prefill, DECODE_FAST, calibration=Calibration(1.3))
    n, h = np.array([5.0, 80.0, 400.0]), np.array([0.0, 12.5, 300.0])
    alone = latency.prefill_seconds(n, h)
    assert latency.pass_seconds(n - h, n**2 - h**2) == pytest.approx(alone, rel=1e-12)


def test_the_floor_is_that_of_the_pass() -> None:
    """Two prompts below the floor share it: 0.25 s, not twice."""
    latency = Latency(AffinePrefill(0.0, 1e-3, 0.0, 0.25), DECODE_FAST)
    tokens = np.array([100.0, 200.0, 300.0])
    assert latency.pass_seconds(tokens, tokens**2).tolist() == [0.25, 0.25, 0.3]
