"""Warnings and estimates: each appears exactly when its cause is there, and names the type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import nbinom

from pdalloc.allocation.certify import certify
from pdalloc.fleet import ROLES, Dispatch, parse_fleet
from pdalloc.planning import evaluate
from pdalloc.planning.caveats import estimates_of, warnings_of
from pdalloc.scenario import Scenario, scenario_from_mapping

A, B = 10e-3, 0.5e-3
"""Decode step of the made-up replica, s and s/request."""
WINDOW = 4096
"""Context window of Llama 2 70B, tokens (prompt plus output)."""
CALIBRATED = {"source": "three runs of our own"}


def replica(name: str, measured: int = 8192, batch: int = 1000, **more: Any) -> dict[str, Any]:
    """Prefill measured up to ``measured`` tokens, decode up to ``batch`` requests."""
    prefill = {"prompt": f"1 {measured} tokens", "time": f"1 {measured / 50} ms"}
    step = f"{1e3 * (A + B)} {1e3 * (A + B * batch)} ms"
    service = {
        "source": "made up",
        "prefill": prefill,
        "decode": {"batch": [1, batch], "step": step},
    }
    block = {"name": name, "gpu": "h100", "gpus": 8, "service": service}
    return block | {"calibration": CALIBRATED} | more


def question(*replicas: dict[str, Any], rule: str = "transfer", **traffic: Any) -> Scenario:
    block: dict[str, Any] = {
        "rate": "4 req/s",
        "prompt": "1000 tokens",
        "output": "100 tokens",
        "slo": {"ttft": {"mean": "90 s"}, "tpot": {"mean": "9 s"}},
    }
    return scenario_from_mapping(
        {
            "name": "caveats",
            "llm": "llama2-70b",
            "traffic": [block | traffic],
            "replicas": list(replicas) or [replica("r")],
            "prices": {"h100": "2 USD/GPU/hour", "a100": "1 USD/GPU/hour"},
            "first_token": rule,
        }
    )


def warned(scenario: Scenario, fleet: str = "9P9D") -> list[str]:
    """The warnings of ``fleet``."""
    parsed = parse_fleet(fleet, scenario.system.type_names)
    problem = scenario.problem()
    check = certify(problem, parsed)
    return warnings_of(problem.capacity.predictor, check.prediction, parsed)


def estimated(scenario: Scenario, fleet: str = "9P9D") -> list[str]:
    return estimates_of(scenario.system, parse_fleet(fleet, scenario.system.type_names))


def test_nothing_to_doubt_is_an_empty_list() -> None:
    scenario = question()
    assert warned(scenario) == [] and estimated(scenario) == []


def test_the_answer_carries_them() -> None:
    scenario = question(replica("r", calibration={}), arrival_scv=2.0)
    answer = evaluate(scenario, "9P9D")
    assert answer.warnings == warned(scenario) and len(answer.warnings) == 2


@pytest.mark.parametrize(("over", "of"), [(1, 4), (1, 2), (3, 3), (1, 999)])
def test_window_warning_states_the_share(over: int, of: int) -> None:
    prompts = [f"{WINDOW} tokens"] * over + ["1000 tokens"] * (of - over)
    (line,) = warned(question(prompt=prompts))
    assert line.startswith(f"{over / of:.1%} of requests")
    assert f"{WINDOW}-token window of llama2-70b" in line


@pytest.mark.parametrize(
    "prompt",
    [
        f"{WINDOW - 100} tokens",  # with 100 output tokens it fits exactly
        [f"{WINDOW} tokens"] + ["1000 tokens"] * 1023,  # below one in a thousand
    ],
)
def test_no_window_warning(prompt: Any) -> None:
    assert warned(question(prompt=prompt)) == []


def test_the_window_holds_prompt_and_output() -> None:
    (line,) = warned(question(prompt="2000 tokens", output="2097 tokens"))
    assert line.startswith("100.0%") and "window" in line
    assert warned(question(prompt="2000 tokens", output="2096 tokens")) == []


@pytest.mark.parametrize("scv", [0.0, 0.5, 0.999, 1.001, 4.0, 25.0])
def test_bursts_are_warned_of(scv: float) -> None:
    (line,) = warned(question(arrival_scv=scv))
    assert line.startswith(f"arrival SCV {scv:g}:")


@pytest.mark.parametrize(
    ("rule", "words"),
    [("random", "exact"), ("central_queue", "within 15 %"), ("least_loaded", "up to 30 %")],
)
def test_bursts_cost_accuracy_by_dispatch(rule: Dispatch, words: str) -> None:
    """As measured: experiments/delay_laws/results/accuracy.csv."""
    scenario = question(arrival_scv=4.0)
    dispatch = dict.fromkeys(ROLES, rule)
    scenario = replace(scenario, system=replace(scenario.system, dispatch=dispatch))
    (line,) = warned(scenario)
    assert f"under {rule}" in line and words in line


def test_prompts_beyond_the_profile() -> None:
    """A quarter of the prompts is longer than the type was measured to."""
    prompts = ["500 tokens", "800 tokens", "1000 tokens", "1001 tokens"]
    (line,) = warned(question(replica("short", measured=1000), prompt=prompts))
    assert line.startswith("short: 25.0% of prompts are longer than the 1000 tokens")
    assert warned(question(replica("long", measured=1001), prompt=prompts)) == []


def test_rare_long_prompts_are_not_worth_a_line() -> None:
    few = ["2000 tokens"] + ["500 tokens"] * 2047
    assert warned(question(replica("r", measured=1000), prompt=few)) == []


def test_cached_tokens_are_not_prefilled() -> None:
    """2000 tokens, half of them cached: 1000 are computed."""
    for measured, lines in ((1000, 0), (999, 1)):
        scenario = question(
            replica("r", measured=measured), prompt="2000 tokens", prefix_hit_rate=0.5
        )
        assert len(warned(scenario)) == lines


def test_only_types_that_prefill_are_asked_for_their_prompts() -> None:
    scenario = question(replica("old", measured=600, max_batch=99), replica("new", max_batch=99))
    assert warned(scenario, "prefill/new=9,decode/old=9,decode/new=1") == []
    (line,) = warned(scenario, "prefill/old=2,prefill/new=9,decode/new=9")
    assert line.startswith("old: 100.0% of prompts")


def test_affine_coefficients_have_no_end() -> None:
    service = {
        "source": "made up",
        "prefill": {"per_token": "0.02 ms/token"},
        "decode": {"base": "10 ms", "per_request": "0.5 ms/request"},
    }
    scenario = question(replica("r", service=service), prompt="3900 tokens")
    assert warned(scenario, "9P1D") == []


@pytest.mark.parametrize("rho", [0.4, 0.7])
def test_batches_beyond_the_table(rho: float) -> None:
    """With t = a + b k the batch is negative binomial, shape a/b + 1 and p = 1 - rho.

    The line comes once the table ends before its P99, and not when it ends there.
    """
    rate = rho / (99 * B)  # lambda (L - 1) b = rho: the prefill side makes the first token
    p99 = int(nbinom.ppf(0.99, A / B + 1, 1 - rho))
    mean = rho * (A / B + 1) / (1 - rho)
    for batch, lines in ((p99, 0), (p99 + 1, 0), (p99 - 1, 1), (p99 // 2, 1)):
        scenario = question(replica("r", batch=batch), rate=f"{rate} req/s")
        found = warned(scenario, "99P1D")
        assert len(found) == lines
        for line in found:
            assert line.startswith(f"r: its batch passes the {batch} requests")
            assert f"(mean {mean:.0f}, P99 {p99})" in line


def test_a_limit_on_the_batch_keeps_it_in_the_table() -> None:
    rate = f"{0.7 / (99 * B)} req/s"
    (line,) = warned(question(replica("r", batch=40), rate=rate), "99P1D")
    assert "batch passes" in line
    assert warned(question(replica("r", batch=200, max_batch=200), rate=rate), "99P1D") == []


def test_an_overloaded_fleet_has_no_batch_to_speak_of() -> None:
    scenario = question(replica("r", batch=40, calibration={}), rate="400 req/s")
    (line,) = warned(scenario, "99P1D")
    assert "not calibrated" in line


def test_calibration_needs_a_source() -> None:
    """Factors of which nobody says where they come from are no calibration."""
    for calibration in ({}, {"decode": 1.04}, {"source": ""}):
        (line,) = warned(question(replica("r", calibration=calibration)))
        assert line.startswith("r: service times are a benchmark's word")
    assert warned(question(replica("r", calibration={"source": "our cluster"}))) == []


def test_one_line_names_every_uncalibrated_type_that_is_used() -> None:
    scenario = question(
        replica("b", calibration={}, max_batch=99), replica("a", calibration={}, max_batch=99),
        replica("c"), replica("unused", calibration={}),
    )  # fmt: skip
    (line,) = warned(scenario, "prefill/b=5,prefill/c=5,decode/a=5,decode/b=5")
    assert line.startswith("a, b: ") and "unused" not in line


def test_several_doubts_are_several_lines_and_none_twice() -> None:
    """Both roles use the type; each reason is given once, in one line each."""
    scenario = question(
        replica("r", measured=600, batch=30, calibration={}),
        prompt=["3000 tokens", "5000 tokens"],
        rate=f"{0.7 / (99 * B)} req/s",
        arrival_scv=3.0,
    )
    found = warned(scenario, "99P1D")
    words = ["window", "arrival SCV 3", "of prompts are longer", "batch passes", "not calibrated"]
    assert [sum(word in line for line in found) for word in words] == [1] * len(words)
    assert len(found) == len(set(found)) == len(words)
    assert all(len(line.splitlines()) == 1 for line in found)


ROOFLINE: dict[str, Any] = {
    "name": "paper", "gpu": "h100", "gpus": 8, "service": "roofline", "calibration": CALIBRATED
}  # fmt: skip
PROFILE: dict[str, Any] = {
    "name": "prof", "gpu": "a100", "gpus": 8, "profile": "splitwise/llama2-70b/a100-tp8",
    "calibration": CALIBRATED,
}  # fmt: skip


def test_a_roofline_is_an_estimate_in_every_answer() -> None:
    """Prefill, decode and memory all rest on the datasheet; both roles use it, listed once."""
    found = estimated(question(ROOFLINE))
    assert len(found) == len(set(found)) == 3
    assert all(line.startswith("paper: ") and "no measurement" in line for line in found)
    for word in ("prefill", "decode", "kv_tokens"):
        assert sum(word in line for line in found) == 1
    answer = evaluate(question(ROOFLINE), "9P9D")
    assert answer.estimates == found


def test_a_profile_lists_what_it_estimates_itself() -> None:
    (line,) = estimated(question(PROFILE))
    assert line.startswith("prof: kv_tokens")


def test_estimates_of_types_that_are_not_used_are_left_out() -> None:
    scenario = question(ROOFLINE, PROFILE, replica("r"))
    assert estimated(scenario, "prefill/r=9,decode/r=9") == []
    used = estimated(scenario, "prefill/r=9,prefill/prof=1,decode/paper=9")
    assert {line.split(":")[0] for line in used} == {"prof", "paper"} and len(used) == 4
