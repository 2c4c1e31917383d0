"""Second moments of a self-exciting step time, against closed forms and the time domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pdalloc.queueing.decode import DecodeWork, decode_work
from pdalloc.queueing.decode.fluctuations import Moments, Transforms, transforms

Array = NDArray[np.float64]
BASE = 10.0


def moments(work: DecodeWork, rho: float, slopes: tuple[float, float] = (1.0, 0.0)) -> Moments:
    t = Transforms(work)
    rate = rho / t.load(slopes)
    return t.at(BASE / (1.0 - rho), rate, slopes, None).moments


@pytest.mark.parametrize("law", ["fixed", "geometric", "two"])
@pytest.mark.parametrize("rho", [0.2, 0.6, 0.95])
def test_negative_binomial_for_every_law_of_lengths(law: str, rho: float, pools: Any) -> None:
    """Reference notes 2: over steps the batch is NB(a/b, 1 - rho), Var B / E B = 1/(1-rho)
    whatever the lengths, up to the step boundary (of order rho/E[n])."""
    m = moments(pools.work(law), rho)
    assert m.batch == pytest.approx(BASE * rho / (1.0 - rho), rel=1e-9)
    assert m.var_batch / m.batch == pytest.approx(1.0 / (1.0 - rho), rel=0.006)
    assert m.var_step == pytest.approx(m.var_batch, rel=1e-6)  # t = a + B
    assert m.batch_step == pytest.approx(m.var_batch, rel=1e-6)
    assert m.step + m.itl_lift == pytest.approx((BASE + 1.0) / (1.0 - rho), rel=0.006)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_one_step_answers(rho: float) -> None:
    """n = 1: B' ~ Poisson(lambda (a + b B)), so Var B = E B + rho^2 Var B."""
    m = moments(decode_work(np.zeros(1), np.ones(1), np.ones(1)), rho)
    assert m.var_batch == pytest.approx(m.batch / (1.0 - rho**2), rel=1e-4)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_two_step_answers(rho: float) -> None:
    """B(s) = A(s-1) + A(s-2), A ~ Poisson(lambda t): an AR(2) with weights x = rho/2; its
    variance by Yule and Walker: g1 = x/(1-x) g0 ..., Var A = E A / (1 - x r1 - x r2)."""
    m = moments(decode_work(np.zeros(1), np.full(1, 2.0), np.ones(1)), rho)
    x = rho / 2.0
    # counts A: autoregression A(s) = const + x A(s-1) + x A(s-2) + noise of variance E A
    r1 = x / (1.0 - x)
    r2 = x * r1 + x
    var_a = (m.batch / 2.0) / (1.0 - x * r1 - x * r2)
    assert m.var_batch == pytest.approx(var_a * (2.0 + 2.0 * r1), rel=1e-4)
    # second steps: Cov(A(s-2), t(s)) / E A = itl_lift with t = a + B
    assert m.itl_lift == pytest.approx(var_a * (1.0 + r1) / (m.batch / 2.0), rel=1e-4)


def time_domain(
    work: DecodeWork, rho: float, slopes: tuple[float, float], steps: int = 6000
) -> tuple[float, float, float]:
    """(Var t, Var B, Cov(B, t)) from the response of t and B to one more request.

    T_j(k) = h_j(k) + lambda sum_i h_j(i) R(k - i), R = E[T] (the mean cluster); variances of a
    Poisson cluster process are lambda E[t] E sum T_j^2 (Hawkes and Oakes 1974).
    """
    b, c = slopes
    rate = rho / Transforms(work).load(slopes)
    k = np.arange(1, steps + 1)
    alive = (k[None, :] <= work.steps[:, None]).astype(float)
    h = alive * (b + c * (work.context[:, None] + work.growth[:, None] * (k[None, :] - 1.0)))
    size = 2 * steps

    def through(x: Array, y: Array) -> Array:
        """(x * y)(k), both starting at lag 1."""
        product = np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(y, size), size)
        shifted: Array = np.concatenate([[0.0], product[: steps - 1]])
        return shifted

    mean_h, mean_u = work.weight @ h, work.weight @ alive
    cluster, count = np.zeros(steps), np.zeros(steps)
    for _ in range(400):
        cluster, count = (
            mean_h + rate * through(mean_h, cluster),
            mean_u + rate * through(mean_h, count),
        )
    var_t = var_b = cov = 0.0
    for w, h_j, u_j in zip(work.weight, h, alive, strict=True):
        t_j, b_j = h_j + rate * through(h_j, cluster), u_j + rate * through(h_j, count)
        var_t += w * float(t_j @ t_j)
        var_b += w * float(b_j @ b_j)
        cov += w * float(t_j @ b_j)
    arrivals = rate * BASE / (1.0 - rho)
    return arrivals * var_t, arrivals * var_b, arrivals * cov


@pytest.mark.parametrize("rho", [0.3, 0.8])
@pytest.mark.parametrize("slopes", [(1.0, 0.0), (0.2, 0.02), (0.0, 0.03)])
def test_frequency_equals_time_domain(rho: float, slopes: tuple[float, float]) -> None:
    """Parseval: the spectrum's integrals are the sums over responses, contexts included."""
    work = decode_work(
        np.array([5.0, 80.0, 20.0]), np.array([3.0, 12.0, 60.0]), np.array([0.5, 0.3, 0.2])
    )
    m = moments(work, rho, slopes)
    exact = time_domain(work, rho, slopes)
    assert (m.var_step, m.var_batch, m.batch_step) == pytest.approx(exact, rel=2e-3)


def test_light_traffic_is_a_poisson_sum() -> None:
    """rho -> 0: Var t = arrivals x E sum h^2; a gap's step is longer by what its own adds."""
    work = decode_work(np.array([10.0, 70.0]), np.array([8.0, 30.0]), np.array([0.4, 0.6]))
    b, c = 0.5, 0.01
    m = moments(work, 1e-6, (b, c))
    mean = b + c * work.mean_context
    square = mean**2 + c**2 * work.context_variance
    assert m.var_step / m.batch == pytest.approx(square, rel=1e-4)
    assert m.batch_step / m.batch == pytest.approx(mean, rel=1e-4)


def test_gap_counts_of_requests() -> None:
    """Counting each request once weighs short answers more: with contexts that grow, their
    steps are shorter."""
    work = decode_work(np.zeros(2), np.array([5.0, 100.0]), np.array([0.5, 0.5]))
    m = moments(work, 0.3, (0.1, 0.02))
    assert m.tpot_lift < m.itl_lift


@pytest.mark.parametrize("rho", [0.2, 0.7, 0.95])
def test_averaging_over_a_stay(rho: float, pools: Any) -> None:
    """Reference notes 2: Var(TPOT | L) / Var = g((1-rho) L/E[L]), g(x) = 2(x-1+e^-x)/x^2, for
    geometric lengths, whose step times have exponential autocorrelation."""
    work = pools.work("geometric")
    t = transforms(work)
    fluctuation = t.at(BASE / (1.0 - rho), rho / t.load((1.0, 0.0)), (1.0, 0.0), None)
    steps = np.array([1.0, 50.0, 200.0, 1000.0])
    x = (1.0 - rho) * steps / work.mean_steps
    expected = 2.0 * (x - 1.0 + np.exp(-x)) / x**2
    assert fluctuation.averaging(steps) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("rho", [0.2, 0.8])
def test_amplification_runs_from_one_to_the_whole_cluster(rho: float, pools: Any) -> None:
    """A second longer in one step brings no more requests into that step; in a very long stay
    it brings rho seconds a second, and so on: 1/(1-rho)."""
    t = transforms(pools.work("geometric"))
    fluctuation = t.at(BASE / (1.0 - rho), rho / t.load((1.0, 0.0)), (1.0, 0.0), None)
    values = fluctuation.amplification(np.array([1.0, 100.0, 1e5]))
    assert values[0] == pytest.approx(1.0, abs=0.02)
    assert np.all(np.diff(values) > 0)
    assert values[2] == pytest.approx(1.0 / (1.0 - rho), rel=0.02)


def test_merging_of_many_lengths_loses_nothing_to_speak_of() -> None:
    """5000 lengths against their 256 groups: every moment within 1e-3."""
    rng = np.random.default_rng(3)
    output = np.rint(np.exp(rng.normal(4.5, 1.0, 5000))) + 1.0
    prompt = np.rint(np.exp(rng.normal(6.0, 0.7, 5000)))
    weight = np.full(5000, 1.0 / 5000)
    work = decode_work(prompt, output, weight)
    m = moments(work, 0.6, (0.2, 0.001))
    t = Transforms(work)
    rate = 0.6 / t.load((0.2, 0.001))
    light = rate * m.step * work.mean_steps
    assert m.batch == pytest.approx(light, rel=1e-9)
    few = moments(work, 1e-6, (0.2, 0.001))
    square = (0.2 + 0.001 * work.mean_context) ** 2 + 1e-6 * work.context_variance
    assert few.var_step / few.batch == pytest.approx(square, rel=2e-3)
