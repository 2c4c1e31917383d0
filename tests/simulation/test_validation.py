"""Validation: it confirms theorems of queueing, and refuses what they do not say.

The theorems are the predictions here, so this also tests the simulator against theory. They
must lie within two 95 % half-widths (a right simulator fails one such test in thousands),
and the intervals must be narrow enough to notice a fault.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from pdalloc import validation
from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.simulation.options import Clients, SimulationOptions
from pdalloc.simulation.reference import replay
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import parse_statistic
from pdalloc.system import ReplicaType, System
from pdalloc.validation import Comparison, validate
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

PER_TOKEN = AffinePrefill(0.0, 0.01)
"""A prompt of 100 tokens takes 1 s."""
NOISY = Latency(PER_TOKEN, AffineDecode(0.01, 0.001), "exponential")
STEADY = replace(NOISY, prefill_noise="none")
PROMPT = fixed(100, 1)
TWO_PROMPTS = joint_table(np.array([50.0, 300.0]), np.ones(2), np.array([0.8, 0.2]))


def slo(metric: str, statistic: str = "mean", bound: float = 1.0, name: str = "all") -> Slo:
    return Slo(name, metric, parse_statistic(statistic), bound)


def system(
    lengths: LengthLaw, rate: float, latency: Latency, dispatch: Dispatch = "random"
) -> System:
    """First tokens from prefill; transfers take no time."""
    return System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload((TrafficClass("all", rate, lengths),)),
        {"r": ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0)},
        Link(),
        dict.fromkeys(ROLES, dispatch),
        "prefill",
    )


def fleet_of(s: System, prefills: int = 1) -> tuple[Fleet, dict[tuple[str, str], float]]:
    counts = {(PREFILL, "r"): prefills, (DECODE, "r"): 1}
    return Fleet.of(counts), dict.fromkeys(counts, s.workload.rate)


def confirmed(comparison: Comparison, width: float = 0.05) -> None:
    assert comparison.half_width < width * comparison.simulated
    gap = abs(comparison.predicted - comparison.simulated)
    assert gap <= 2.0 * comparison.half_width, comparison.statement


def erlang_c(c: int, a: float) -> float:
    """P(wait) in M/M/c with load a."""
    top = a**c / math.factorial(c) / (1 - a / c)
    return top / (sum(a**k / math.factorial(k) for k in range(c)) + top)


def round_robin_wait(c: int, rho: float) -> float:
    """E_c/M/1: sigma/(1 - sigma) mean services, sigma = A*(1 - sigma)."""
    rate = c * rho  # of an Erlang phase: each replica gets every c-th arrival
    sigma = brentq(lambda x: (rate / (rate + 1 - x)) ** c - x, 0.01, 0.999)
    return float(sigma / (1 - sigma))


def test_the_theorems_below_have_their_textbook_values() -> None:
    assert erlang_c(10, 8.0) == pytest.approx(0.40918015, abs=1e-8)
    assert round_robin_wait(4, 0.8) == pytest.approx(2.267, abs=5e-4)


@pytest.mark.parametrize(
    ("what", "s", "replicas", "wait", "requests"),
    [
        ("M/M/1, Kleinrock 1975 eq. 3.26", system(PROMPT, 0.7, NOISY), 1, 0.7 / 0.3, 30_000),
        ("M/D/1, Pollaczek-Khinchine", system(PROMPT, 0.8, STEADY), 1, 0.8 / 0.4, 40_000),
        (
            "M/G/1 of .5 and 3 s, Pollaczek-Khinchine",
            system(TWO_PROMPTS, 0.7, STEADY),
            1,
            0.7 * (0.8 * 0.5**2 + 0.2 * 3.0**2) / (2 * 0.3),
            30_000,
        ),
        ("random split: M/M/1 each", system(PROMPT, 2.1, NOISY), 3, 0.7 / 0.3, 30_000),
        (
            "central queue: M/M/3, Erlang C",
            system(PROMPT, 2.1, NOISY, "central_queue"),
            3,
            erlang_c(3, 2.1) / (3 - 2.1),
            30_000,
        ),
        (
            "round robin: E_4/M/1 each",
            system(PROMPT, 3.2, NOISY, "round_robin"),
            4,
            round_robin_wait(4, 0.8),
            40_000,
        ),
        (  # Equal prompts: least tokens is fewest requests.
            "fewest requests, c = 4 at .8: simulated elsewhere, .947",
            system(PROMPT, 3.2, NOISY, "least_loaded"),
            4,
            0.947,
            40_000,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mean_waits(what: str, s: System, replicas: int, wait: float, requests: int) -> None:
    mean_ttft = slo("ttft")
    (comparison,) = validate(
        s, (mean_ttft,), *fleet_of(s, replicas), {mean_ttft: wait + 1.0}, requests, 12, 1
    )
    confirmed(comparison)


def test_mm1_percentiles() -> None:
    """The sojourn is exponential: -ln(1 - p) / (mu - lambda)."""
    s = system(PROMPT, 0.7, NOISY)
    theory = {slo("ttft", f"p{p}"): -math.log(1 - p / 100) / 0.3 for p in (50, 90, 99)}
    for c in validate(s, tuple(theory), *fleet_of(s), theory, 40_000, 12, 2):
        confirmed(c, width=0.08)


def decode_only(outputs: LengthLaw, rho: float = 0.5) -> tuple[System, float]:
    """One decode replica fed by Poisson arrivals, and the batch law's (a + b) / (1 - rho)."""
    a, b = 0.01, 0.001
    latency = Latency(AffinePrefill(0.0, 1e-15), AffineDecode(a, b))
    s = system(outputs, rho / (b * outputs.mean_output), latency)
    return replace(s, first_token="decode"), (a + b) / (1 - rho)


@pytest.mark.parametrize("output", [(60, 60, 60), (20, 50, 250)])
def test_mean_tpot_is_that_of_the_batch_law_whatever_the_lengths(output: list[float]) -> None:
    """The theorem is confirmed; the mean-field a / (1 - rho), 9 % less, is refused.

    Steps make time discrete, hence the small allowance.
    """
    law = joint_table(np.ones(3), np.array(output, float), np.array([0.3, 0.5, 0.2]))
    s, theory = decode_only(law)
    predicted = {slo("tpot"): theory, slo("itl"): theory}
    tpot, itl = validate(s, tuple(predicted), *fleet_of(s), predicted, 8000, 8, 3)
    for c in (tpot, itl):
        assert c.half_width < 0.03 * theory
        assert c.simulated == pytest.approx(theory, abs=2 * c.half_width + 0.002 * theory)
        mean_field = replace(c, predicted=theory * 10 / 11)
        assert not mean_field.within
        assert mean_field.relative_gap < -0.05
    if len(set(output)) == 1:  # as many gaps each: the mean of means is the mean
        assert itl.simulated == pytest.approx(tpot.simulated, rel=1e-9)


def two_types(slow: float = 0.2) -> tuple[System, Fleet, dict[tuple[str, str], float]]:
    """Prefill takes .1 s on r and ``slow`` s on b, at loads so low that nobody waits."""
    s = system(fixed(10, 1), 0.001, Latency(AffinePrefill(0.1, 0.0), AffineDecode(0.01, 0.0)))
    r = s.replica_types["r"]
    b = replace(r, name="b", latency=Latency(AffinePrefill(slow, 0.0), r.latency.decode))
    rates = {(PREFILL, "r"): 0.0005, (PREFILL, "b"): 0.0005, (DECODE, "r"): 0.001}
    return replace(s, replica_types={"r": r, "b": b}), Fleet.of(dict.fromkeys(rates, 1)), rates


def test_the_worst_path_is_judged() -> None:
    s, fleet, rates = two_types()
    predicted = {slo("ttft"): 0.2, slo("ttft", "p99"): 0.2}
    for c in validate(s, tuple(predicted), fleet, rates, predicted, 4000, 2, 4):
        assert c.simulated == pytest.approx(0.2, rel=0.01)


def test_a_path_with_few_requests_leaves_the_slo_open() -> None:
    """Of 1000 requests 800 are kept, of those about 16 take the slow pool: who knows?"""
    s, fleet, rates = two_types()
    rates |= {(PREFILL, "r"): 0.00098, (PREFILL, "b"): 0.00002}
    (c,) = validate(s, (slo("ttft"),), fleet, rates, {slo("ttft"): 0.1}, 1000, 2, 4)
    assert c.verdict == "too few to judge" and math.isnan(c.simulated)
    assert "too few requests to judge it; simulate more" in c.statement and c.doubt == ""
    broken = slo("ttft", bound=0.05)  # the other path breaks it for certain
    (c,) = validate(s, (broken,), fleet, rates, {broken: 0.1}, 1000, 2, 4)
    assert c.verdict == "breaks" and c.simulated == pytest.approx(0.1, rel=0.01)


def test_an_undecided_path_is_worse_than_a_slower_one_that_keeps() -> None:
    sure, open_ = [0.949, 0.951, 0.950], [0.827, 1.027, 0.927]
    samples = [{("a", "r"): x, ("b", "r"): y} for x, y in zip(sure, open_, strict=True)]
    mean, half_width = validation._worst(slo("ttft"), samples)
    assert mean == pytest.approx(0.927) and half_width > 0.1


def test_a_percentile_needs_requests_beyond_it() -> None:
    """A P99.9 of 800 requests is their greatest: its bias is in no interval."""
    s = system(PROMPT, 0.5, NOISY)
    high, low = slo("ttft", "p99.9"), slo("ttft", "p90")
    one, two = validate(s, (high, low), *fleet_of(s), {high: 1.0, low: 1.0}, 1000, 3, 9)
    assert one.verdict == "too few to judge" and two.verdict != "too few to judge"


def test_who_gets_no_answer_is_later_than_any() -> None:
    """M/M/1/1 at rho = 1 refuses half (Erlang B): no mean, no P90; its P40 is the others' P80."""
    s = system(PROMPT, 1.0, NOISY)
    mean, high, low = slo("ttft"), slo("ttft", "p90"), slo("ttft", "p40")
    options = SimulationOptions(clients=Clients(max_queue=0))
    args = s, (mean, high, low), *fleet_of(s), dict.fromkeys((mean, high, low), 1.0)
    one, two, three = validate(*args, 8000, 8, 9, options=options)
    for c in (one, two):
        assert math.isinf(c.simulated) and c.verdict == "breaks" and c.doubt == ""
        assert "got no answer" in c.statement
    # those served never wait: exponential of mean 1 s
    assert three.simulated == pytest.approx(-math.log(0.2), abs=2 * three.half_width)


def test_a_value_at_the_bound_is_too_close_to_call() -> None:
    assert validation.verdict(slo("ttft"), 1.0, 0.0) == "too close to call"


def test_classes_are_judged_by_themselves() -> None:
    s, _, _ = two_types()
    long = TrafficClass("long", 0.001, fixed(100, 1))
    short = TrafficClass("short", 0.001, fixed(10, 1))
    r = replace(s.replica_types["r"], latency=Latency(PER_TOKEN, AffineDecode(0.01, 0.0)))
    s = replace(s, workload=Workload((long, short)), replica_types={"r": r})
    predicted = {slo("ttft", name="long"): 1.0, slo("ttft", name="short"): 0.1}
    one, two = validate(s, tuple(predicted), *fleet_of(s), predicted, 1000, 2, 4)
    assert one.simulated == pytest.approx(1.0, rel=0.01)
    assert two.simulated == pytest.approx(0.1, rel=0.05)


def test_one_token_answers_have_no_gap() -> None:
    s, fleet, rates = two_types()
    predicted = {slo("tpot"): 0.0, slo("itl", "p99"): 0.0}
    for c in validate(s, tuple(predicted), fleet, rates, predicted, 500, 2, 4):
        assert (c.simulated, c.relative_gap, c.within) == (0.0, 0.0, True)


def test_same_seed_same_comparison_and_progress_counts_all() -> None:
    s = system(PROMPT, 0.5, NOISY)
    seen: list[tuple[int, int]] = []
    question = slo("ttft")
    args = s, (question,), *fleet_of(s), {question: 2.0}, 500, 3
    one = validate(*args, 9, lambda done, total: seen.append((done, total)))
    assert one == validate(*args, 9)
    assert one != validate(*args, 10)
    assert {total for _, total in seen} == {1500} and seen[-1] == (1500, 1500)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_statement_says_what_the_simulation_knows() -> None:
    question = slo("ttft", "p90")
    kept, close, broken = (
        Comparison(question, 0.7, simulated, half_width)
        for simulated, half_width in ((0.75, 0.1), (0.75, 0.5), (1.75, 0.1))
    )
    assert kept.statement == "all: TTFT P90 simulated 0.75 s +- 0.1 s keeps 1 s"
    assert close.statement.endswith("too close to call against 1 s")
    assert broken.statement.endswith("breaks 1 s")
    verdicts = [c.verdict for c in (kept, close, broken)]
    assert verdicts == ["keeps", "too close to call", "breaks"]


def test_a_formula_outside_the_interval_is_told_plainly() -> None:
    question = slo("ttft", "p90")
    low, high = (Comparison(question, predicted, 1.0, 0.05) for predicted in (0.8, 1.2))
    assert "outside the simulated 1 s +- 0.05 s: the formula is 20.0% optimistic" in low.doubt
    assert "20.0% pessimistic" in high.doubt
    assert Comparison(question, 1.04, 1.0, 0.05).doubt == ""  # inside
    assert Comparison(question, 1.009, 1.0, 0.005).doubt == ""  # outside, by under a percent


def test_the_fast_engine_is_the_reference() -> None:
    s = system(PROMPT, 0.5, NOISY)
    question = slo("ttft")
    args = s, (question,), *fleet_of(s), {question: 2.0}, 500, 3, 9
    assert validate(*args) == validate(*args, simulate=replay)


def test_within_and_gap() -> None:
    c = Comparison(slo("e2e"), 1.1, 1.0, 0.2)
    assert c.within and c.relative_gap == pytest.approx(0.1)
    assert not Comparison(slo("e2e"), 1.3, 1.0, 0.2).within
    assert Comparison(slo("e2e"), 1.0, 0.0, 0.0).relative_gap == math.inf


def test_too_little_to_judge_is_refused() -> None:
    s = system(PROMPT, 0.5, NOISY)
    question = slo("ttft")
    with pytest.raises(InputError, match="at least 2 replications"):
        validate(s, (question,), *fleet_of(s), {question: 2.0}, 500, 1, 9)
    (c,) = validate(s, (question,), *fleet_of(s), {question: 2.0}, 100, 2, 9)
    assert c.verdict == "too few to judge"


def test_rates_of_another_demand_are_refused() -> None:
    """The prediction was for other traffic than the workload's: nothing to compare."""
    s = system(PROMPT, 0.5, NOISY)
    fleet, rates = fleet_of(s)
    with pytest.raises(InputError, match=r"prefill pools are offered 1 req/s.*workload 0.5"):
        validate(s, (), fleet, {key: 2 * y for key, y in rates.items()}, {}, 500, 2, 9)
