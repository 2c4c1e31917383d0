"""The closed forms: the paper's numbers, edges and errors, and the laws they invert."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.closed_forms import (
    PaperCounts,
    decode_count,
    effective_prefill_throughput,
    mm1_count,
    mm1_count_percentile,
    mm1_count_wait_percentile,
    paper_counts,
)
from pdalloc.errors import InfeasibleError, InputError, PdallocError
from pdalloc.laws import Exponentials, total
from pdalloc.queueing.batch import BatchLaw
from pdalloc.queueing.single_server import SingleServerWait

RATE = 5e6 / 60 / (6144 + 512)
"""5 Mtoken/min of 6144 + 512 tokens, requests/s."""
PEAK, PROMPT, OUTPUT = 28309.0, 6144.0, 512.0
DECODE_BATCH, TPOT = 34.2857, 0.02
"""The batch at which the measured steps, interpolated, take 20 ms."""


def paper() -> PaperCounts:
    throughput = effective_prefill_throughput(PEAK, PROMPT, 2.0, 0.1)
    return paper_counts(RATE, PROMPT, OUTPUT, throughput, DECODE_BATCH / TPOT)


def test_the_papers_throughputs() -> None:
    assert round(paper().prefill_throughput) == 25075
    assert round(paper().decode_throughput) == 1714


def test_the_papers_counts_ratio_and_deployment() -> None:
    assert round(paper().prefill, 2) == 3.07
    assert round(paper().decode, 2) == 3.74
    assert round(paper().ratio, 2) == 0.82
    assert paper().rounded == (3, 4)


def test_the_papers_own_quadratic_needs_a_little_more_decode() -> None:
    quadratic = paper_counts(RATE, PROMPT, OUTPUT, 25075, 1691)
    assert round(quadratic.decode, 2) == 3.79
    assert quadratic.rounded == (3, 4)


def test_prefill_count_is_the_mm1_count() -> None:
    """TP_P and lambda/(mu - 1/tau) are one formula."""
    assert paper().prefill == pytest.approx(mm1_count(RATE, PEAK / PROMPT, 1.9), rel=1e-14)


def test_rounding_down_breaks_the_papers_own_bound() -> None:
    """Three prefill replicas at 5 M: TTFT 2.40 s by the same M/M/1, above the 2 s bound."""
    ttft = 1.0 / (PEAK / PROMPT - RATE / 3) + 0.1
    assert round(ttft, 2) == 2.40


def test_rounding_never_deploys_nothing() -> None:
    assert paper_counts(0.01, PROMPT, OUTPUT, 25075, 1714).rounded == (1, 1)


@given(st.floats(0.1, 100), st.floats(0.1, 50), st.floats(1.01, 100))
def test_mm1_count_inverts_the_mean_sojourn(rate: float, mu: float, room: float) -> None:
    tau = room / mu
    n = mm1_count(rate, mu, tau)
    assert n > rate / mu
    assert 1.0 / (mu - rate / n) == pytest.approx(tau, rel=1e-9)


@given(st.floats(0.1, 100), st.floats(0.1, 50), st.floats(1.01, 50), st.floats(0.05, 0.999))
def test_percentile_count_inverts_the_exponential_law(
    rate: float, mu: float, room: float, p: float
) -> None:
    tau = room * -math.log1p(-p) / mu
    n = mm1_count_percentile(rate, mu, tau, p)
    assert math.exp(-(mu - rate / n) * tau) == pytest.approx(1.0 - p, rel=1e-8)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_percentile_count_keeps_the_queueing_law_at_its_bound(p: float) -> None:
    """Wait plus service of an M/M/1 replica at lambda/n, from the laws the planner uses."""
    mu, tau, rate = 4.6, 2.5, 20.0
    n = mm1_count_percentile(rate, mu, tau, p)
    service = Exponentials(np.array([1 / mu]), np.ones(1), np.zeros(1))
    sojourn = total([SingleServerWait(rate / n, service), service])
    assert sojourn.quantile(p) == pytest.approx(tau, rel=2e-3)
    assert sojourn.mean == pytest.approx(tau / math.log(1 / (1 - p)), rel=1e-9)


@given(st.floats(0.1, 100), st.floats(0.1, 50), st.floats(0, 200), st.floats(0.05, 0.999))
def test_wait_percentile_count_solves_its_equation(
    rate: float, mu: float, room: float, p: float
) -> None:
    """(x/mu) exp(-(mu - x) t) = 1 - p at x = lambda/n, t = 0 included."""
    n = mm1_count_wait_percentile(rate, mu, room / mu, p)
    x = rate / n
    assert 0.0 < x < mu
    assert math.log(x / mu) - room * (1 - x / mu) == pytest.approx(math.log(1 - p), rel=1e-7)


@pytest.mark.parametrize("p", [0.9, 0.99])
def test_wait_percentile_count_keeps_the_queueing_law_at_its_bound(p: float) -> None:
    mu, t, rate = 4.6, 0.8, 20.0
    n = mm1_count_wait_percentile(rate, mu, t, p)
    service = Exponentials(np.array([1 / mu]), np.ones(1), np.zeros(1))
    assert SingleServerWait(rate / n, service).quantile(p) == pytest.approx(t, rel=2e-3)


def test_a_wait_alone_asks_for_less_than_the_whole_sojourn() -> None:
    assert mm1_count_wait_percentile(20, 4.6, 0.8, 0.9) < mm1_count_percentile(20, 4.6, 0.8, 0.9)


def test_the_percentile_of_the_mean_is_the_mean() -> None:
    """An exponential sojourn is below its mean with probability 1 - 1/e."""
    mean, percentile = mm1_count(7, 3, 1), mm1_count_percentile(7, 3, 1, 1 - math.exp(-1))
    assert percentile == pytest.approx(mean, rel=1e-12)


@given(
    st.floats(0.5, 40),
    st.floats(20, 2000),
    st.floats(0.002, 0.05),
    st.floats(2e-5, 2e-3),
    st.floats(1.1, 6.0),
)
def test_decode_count_inverts_the_batch_law(
    rate: float, steps: float, base: float, per_request: float, room: float
) -> None:
    tau = room * (base + per_request)
    n = decode_count(rate, steps, base, per_request, tau)
    law = BatchLaw(rate / n, steps, lambda k: base + per_request * k)
    assert law.mean_step == pytest.approx(tau, rel=1e-8)


def test_decode_count_exceeds_the_fluid_count() -> None:
    """The fluid law a/(1 - rho) leaves out the request's own share of the step."""
    fluid = 10 * 400 * 4e-4 / (1 - 0.011 / 0.02)
    assert decode_count(10, 400, 0.011, 4e-4, 0.02) > fluid


def test_decode_count_needs_no_base() -> None:
    """a = 0: pure processor sharing, TPOT = b/(1 - rho)."""
    assert decode_count(10, 100, 0.0, 1e-3, 2e-3) == pytest.approx(2.0)


UNREACHABLE: list[tuple[Callable[[], object], str]] = [
    (lambda: effective_prefill_throughput(PEAK, PROMPT, 0.3, 0.1), "0.317"),
    (lambda: effective_prefill_throughput(1000, 1000, 1.1, 0.1), "at or below"),
    (lambda: mm1_count(1, 4, 0.25), "0.25 s"),
    (lambda: mm1_count_percentile(1, 4, 0.5, 0.9), "one service"),
    (lambda: decode_count(1, 100, 0.01, 0.001, 0.011), "0.011 s of one request"),
]


@pytest.mark.parametrize(("call", "words"), UNREACHABLE)
def test_a_bound_below_the_floor_is_infeasible_and_names_it(
    call: Callable[[], object], words: str
) -> None:
    with pytest.raises(InfeasibleError, match=words):
        call()


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: mm1_count(-1, 4, 1), "rate"),
    (lambda: mm1_count(math.nan, 4, 1), "rate"),
    (lambda: mm1_count(1, math.inf, 1), "service_rate"),
    (lambda: mm1_count(1, 4, 0), "sojourn"),
    (lambda: mm1_count_percentile(1, 4, 1, 1.0), "strictly between 0 and 1"),
    (lambda: mm1_count_percentile(1, 4, 1, 0.0), "strictly between 0 and 1"),
    (lambda: mm1_count_percentile(1, 4, 1, math.nan), "strictly between 0 and 1"),
    (lambda: mm1_count_wait_percentile(1, 4, 1, 1.0), "strictly between 0 and 1"),
    (lambda: mm1_count_wait_percentile(1, 4, -1, 0.5), "wait"),
    (lambda: decode_count(1, 0, 0.01, 0.001, 0.1), "steps"),
    (lambda: decode_count(1, 100, 0.01, -0.001, 0.1), "per_request"),
    (lambda: effective_prefill_throughput(0, 100, 1, 0), "peak"),
    (lambda: paper_counts(1, 100, 100, math.nan, 1), "prefill_throughput"),
    (lambda: paper_counts(1, 100, -3, 1, 1), "output"),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_bad_numbers_are_refused_in_one_line(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


NEGATIVE_EXTRAS: list[Callable[[], object]] = [
    lambda: effective_prefill_throughput(PEAK, PROMPT, 2.0, -1.0),
    lambda: effective_prefill_throughput(PEAK, PROMPT, 2.0, math.nan),
    lambda: decode_count(1, 100, -0.01, 0.001, 0.1),
    lambda: decode_count(1, 100, math.nan, 0.001, 0.1),
]


@pytest.mark.parametrize("call", NEGATIVE_EXTRAS)
def test_overhead_and_base_must_not_be_negative(call: Callable[[], object]) -> None:
    with pytest.raises(PdallocError):
        call()
