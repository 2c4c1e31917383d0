"""Several tokens per step, noise on steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.latency.affine import AffineDecode
from pdalloc.latency.service import Latency
from pdalloc.simulation import hashing
from pdalloc.simulation.options import MultiToken, Noise
from pdalloc.simulation.setup import noise_factor
from pdalloc.workload.lengths import fixed


def test_two_tokens_per_step_halve_the_steps(lab) -> None:
    """7 tokens, 2 a step: 4 steps, the last gives 1. Contexts 2, 4, 6, 8."""
    run = lab.run(lab.system(), lab.draws([0.0], [2], [7]), multi_token=MultiToken(2.0))
    assert run.step_seconds[0].tolist() == [0.75 + s / 16 for s in (2, 4, 6, 8)]
    ends = (run.step_starts[0] + run.step_seconds[0]).tolist()
    assert run.token_times[0].tolist() == [ends[i // 2] for i in range(7)]
    assert run.log.first_token[0] == ends[0]
    assert run.log.finish[0] == ends[-1]
    assert run.gaps(np.array([True])).tolist()[:3] == [0.0, ends[1] - ends[0], 0.0]


@pytest.mark.parametrize("law", ["fixed", "geometric"])
@pytest.mark.parametrize("mean", [1.0, 1.6, 3.0])
def test_steps_give_their_mean_number_of_tokens(lab, law, mean: float) -> None:
    """A long answer takes L / mean steps: renewal reward, +- 5 standard deviations."""
    tokens, n = 3000, 6
    s = lab.system(Latency(lab.INSTANT, AffineDecode(0.01, 0.0)))
    draws = lab.draws([0.0] * n, [1] * n, [tokens] * n)
    run = lab.run(s, draws, multi_token=MultiToken(mean, law))
    steps = np.array([len(np.unique(times)) for times in run.token_times])
    assert [len(times) for times in run.token_times] == [tokens] * n
    part = mean - math.floor(mean)
    variance = part * (1 - part) if law == "fixed" else mean * (mean - 1)
    error = math.sqrt(tokens * variance / mean**3 / n)
    assert steps.mean() == pytest.approx(tokens / mean, abs=5 * error + 1)
    assert (len(set(steps.tolist())) > 1) == (variance > 0)


def test_one_token_per_step_is_the_plain_run(lab) -> None:
    s = lab.system(rate=0.3)
    plain, one = (
        lab.simulate(s, 200, 3, multi_token=option).log for option in (None, MultiToken(1.0))
    )
    assert np.array_equal(plain.finish, one.finish)


def test_step_noise_is_that_of_the_replica_and_the_step_number(lab) -> None:
    noise = Noise("lognormal", 0.4)
    s = lab.system(rate=0.4, dispatch="round_robin")
    plain, noisy = (lab.simulate(s, 50, 3, (1, 2), step_noise=x) for x in (None, noise))
    single = lab.run(lab.system(), lab.draws([0.0], [2], [4]), step_noise=noise)
    factors = [noise_factor(noise, 0, hashing.STEP_NOISE, 0, k) for k in range(4)]
    plain_steps = np.array([0.75 + s / 16 for s in (2, 3, 4, 5)])
    assert single.step_seconds[0] == pytest.approx(plain_steps * factors)
    assert not np.array_equal(plain.log.finish, noisy.log.finish)


def test_step_noise_keeps_the_mean_time_between_tokens(lab) -> None:
    """One request at a time: TPOT is the mean of independent factors times the step."""
    s = lab.system(Latency(lab.INSTANT, AffineDecode(0.25, 0.0)), fixed(1, 101), 0.001)
    tpot = lab.replicate(lambda run, log: log.tpot.mean(), s, 30, step_noise=Noise("gamma", 0.5))
    lab.confirm(tpot, 0.25)
