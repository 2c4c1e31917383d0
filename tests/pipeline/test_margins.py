"""Margins: each is the change at which the fleet stops keeping its SLOs.

Oracles are closed forms: an M/M/1 prefill replica under a mean TTFT admits mu - 1/tau'
requests/s (tau' = bound less transfer), a decode replica with step a + b k under a mean TPOT
admits (1 - (a + b)/tau) / (L b) (design 3.7, items 1 and 5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.capacity import Capacity
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning import evaluate, margins
from pdalloc.scenario import Scenario, scenario_from_mapping
from pdalloc.system import System

pytestmark = pytest.mark.pipeline
PROMPT, OUTPUT = 1000.0, 200.0
MU, A, B = 20.0, 8e-3, 1e-4
"""Prefill requests/s and decode step of the fast type; the slow one takes twice as long."""
TTFT, TPOT, MOVE = 0.45, 20e-3, 0.05
RATE = 40.0
CLOSE = 2 * margins.ACCURACY


def replica(name: str, slower: float) -> dict[str, Any]:
    decode = {
        "base": f"{1e3 * A * slower} ms",
        "per_request": f"{1e3 * B * slower} ms/request",
    }
    prefill = {"throughput": f"{MU * PROMPT / slower} token/s", "noise": "exponential"}
    service = {"source": "made up", "prefill": prefill, "decode": decode}
    # a limit no batch comes near (at rho 0.7 the mean is 190): the laws are computed faster
    return {"name": name, "gpu": "h100", "gpus": 1, "service": service, "max_batch": 2048}


def question(rule: str = "transfer", rate: float = RATE, **slo: float) -> Scenario:
    """Fast and slow types; mean SLOs in seconds by metric."""
    bounds = slo or {"ttft": TTFT, "tpot": TPOT}
    traffic = {
        "rate": f"{rate} req/s",
        "prompt": f"{PROMPT} tokens",
        "output": f"{OUTPUT} tokens",
        "slo": {metric: {"mean": f"{bound} s"} for metric, bound in bounds.items()},
    }
    return scenario_from_mapping(
        {
            "name": "margins",
            "llm": "llama-3.1-8b",
            "traffic": [traffic],
            "replicas": [replica("fast", 1.0), replica("slow", 2.0)],
            "prices": {"h100": "2 USD/GPU/hour"},
            "network": {"latency": f"{MOVE} s"},
            "first_token": rule,
        }
    )


def fleet_of(text: str) -> Fleet:
    """``"3,0/4,0"``: fast and slow replicas for prefill, then for decode."""
    prefill, decode = (part.split(",") for part in text.split("/"))
    names = ["fast", "slow"]
    items = [f"prefill/{t}={n}" for t, n in zip(names, prefill, strict=True)]
    items += [f"decode/{t}={n}" for t, n in zip(names, decode, strict=True)]
    return parse_fleet(",".join(items), {"prefill": names, "decode": names})


def kappa_prefill(slower: float) -> float:
    """mu - 1/tau': mean M/M/1 sojourn at the bound less the transfer."""
    return MU / slower - 1 / (TTFT - MOVE)


def kappa_decode(slower: float) -> float:
    """(1 - (a + b)/tau) / (L b) with every output token made by decode."""
    return (1 - (A + B) * slower / TPOT) / (OUTPUT * B * slower)


def kept(scenario: Scenario, system: System, fleet: Fleet, demand: float) -> bool:
    """Whether the plain re-check certifies ``fleet`` on a changed system."""
    problem = replace(scenario.problem(Capacity(system, scenario.slos)), demand=demand)
    return certify(problem, fleet).certified


CASES = [
    ("4,0/5,0", "transfer"),
    ("3,3/2,8", "transfer"),
    ("4,0/3,0", "decode"),
    ("3,2/3,0", "decode"),
]


@pytest.mark.parametrize(("text", "rule"), [*CASES, ("4,0/3,1", "decode")])
def test_demand_margin_is_where_the_fleet_stops_fitting(text: str, rule: str) -> None:
    scenario, fleet = question(rule), fleet_of(text)
    margin = margins.demand_margin(scenario.problem(), fleet)
    assert margin is not None and margin < margins.MOST
    limit = RATE * (1 + margin)
    assert kept(scenario, scenario.system, fleet, 0.999 * limit)
    assert not kept(scenario, scenario.system, fleet, 1.001 * limit)


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(("text", "rule"), CASES)
def test_slow_down_margins_are_where_the_fleet_stops_fitting(
    text: str, role: str, rule: str
) -> None:
    """The re-check runs on the same system with that role's times multiplied."""
    scenario, fleet = question(rule), fleet_of(text)
    of = {"prefill": margins.prefill_margin, "decode": margins.decode_margin}[role]
    margin = of(scenario.problem(), fleet)
    assert margin is not None and margin < margins.MOST
    for factor, fits in ((0.999, True), (1.001, False)):
        change = (1 + margin) * factor
        slower = scenario.system.slowed(**{role: change})
        assert kept(scenario, slower, fleet, RATE) is fits


@pytest.mark.parametrize(("text", "rule"), CASES)
def test_output_margin_is_where_the_fleet_stops_fitting(text: str, rule: str) -> None:
    scenario, fleet = question(rule), fleet_of(text)
    margin = margins.output_margin(scenario.problem(), fleet)
    assert margin is not None and margin < margins.MOST
    for factor, fits in ((0.999, True), (1.001, False)):
        workload = scenario.system.workload.with_longer_outputs((1 + margin) * factor)
        longer = scenario.system.with_workload(workload)
        assert kept(scenario, longer, fleet, RATE) is fits


@pytest.mark.parametrize("counts", [(3, 3, 9, 9), (5, 0, 4, 0), (0, 9, 0, 9), (2, 1, 1, 1)])
def test_demand_margin_closed_form(counts: tuple[int, int, int, int]) -> None:
    """Without coupling a role admits sum n kappa; the lesser role limits.

    Under ``prefill`` and no network, TPOT also holds the wait for a step boundary; the mean
    of a uniform share of one step over L - 1 gaps, at most 1/(L - 1) of the TPOT.
    """
    p, q, d, e = counts
    scenario = question()
    fleet = fleet_of(f"{p},{q}/{d},{e}")
    margin = margins.demand_margin(scenario.problem(), fleet)
    assert margin is not None
    prefill = p * kappa_prefill(1.0) + q * kappa_prefill(2.0)
    decode = d * kappa_decode(1.0) + e * kappa_decode(2.0)
    accuracy = 1e-9 if prefill < 0.95 * decode else 2 / (OUTPUT - 1)
    assert 1 + margin == pytest.approx(min(prefill, decode) / RATE, rel=accuracy)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("f_rate", [0.3, 0.6])
def test_prefill_margin_closed_form(n: int, f_rate: float) -> None:
    """n = lambda / (mu/f - 1/tau') solved for the slow-down f."""
    rate = f_rate * n * MU
    scenario = question(rate=rate)
    margin = margins.prefill_margin(scenario.problem(), fleet_of(f"{n},0/99,0"))
    f = MU / (rate / n + 1 / (TTFT - MOVE))
    assert margin == pytest.approx(f - 1, abs=CLOSE)


@pytest.mark.parametrize(("n", "rho"), [(1, 0.2), (2, 0.4), (4, 0.55), (1, 0.7)])
def test_decode_margin_closed_form(n: int, rho: float) -> None:
    """(a + b) f / (1 - rho f) = tau, rho = lambda L b / n: f = tau / (a + b + rho tau)."""
    rate = rho * n / (OUTPUT * B)
    scenario = question("decode", rate, tpot=TPOT)
    margin = margins.decode_margin(scenario.problem(), fleet_of(f"99,0/{n},0"))
    assert margin == pytest.approx(TPOT / (A + B + rho * TPOT) - 1, abs=CLOSE)


@pytest.mark.parametrize(("rule", "accuracy"), [("decode", CLOSE), ("transfer", 0.02)])
@pytest.mark.parametrize("decodes", [2, 3, 5])
def test_output_margin_is_decodes_part_of_the_demand_margin(
    decodes: int, rule: str, accuracy: float
) -> None:
    """Decode's load is lambda E[L]: where decode binds, longer outputs are more demand."""
    scenario = question(rule, tpot=TPOT)
    problem, fleet = scenario.problem(), fleet_of(f"99,0/{decodes},0")
    demand = margins.demand_margin(problem, fleet)
    output = margins.output_margin(problem, fleet)
    assert demand is not None and output is not None
    assert output == pytest.approx(demand, rel=accuracy, abs=accuracy)
    assert 1 + demand == pytest.approx(decodes * kappa_decode(1.0) / RATE, rel=accuracy)


def test_longer_outputs_never_touch_prefill() -> None:
    """Where prefill binds alone, twice as many prefill replicas change no output margin."""
    scenario = question()
    problem = scenario.problem()
    few, many = (margins.output_margin(problem, fleet_of(text)) for text in ("3,0/5,0", "6,0/5,0"))
    assert few == many


@pytest.mark.parametrize("text", ["2,0/9,0", "9,0/1,0", "2,0/1,0"])
def test_a_broken_fleet_has_negative_demand_margin(text: str) -> None:
    """By how much demand must fall; the closed form still says so."""
    fleet = fleet_of(text)
    margin = margins.demand_margin(question().problem(), fleet)
    most = min(
        fleet.count("prefill", "fast") * kappa_prefill(1.0),
        fleet.count("decode", "fast") * kappa_decode(1.0),
    )
    assert margin is not None and margin < 0
    assert 1 + margin == pytest.approx(most / RATE, rel=2 / (OUTPUT - 1))


def test_a_broken_fleet_needs_faster_prefill() -> None:
    """2 replicas at 20 requests/s each need mu/f - 1/tau' = 20: f = 20 / 22.5."""
    problem, fleet = question().problem(), fleet_of("2,0/9,0")
    margin = margins.prefill_margin(problem, fleet)
    assert margin == pytest.approx(MU / (RATE / 2 + 1 / (TTFT - MOVE)) - 1, abs=CLOSE)
    # decode cannot mend what prefill breaks, and with transfer-made tokens longer outputs neither
    assert margins.decode_margin(problem, fleet) is None
    assert margins.output_margin(problem, fleet) is None


def test_a_bound_below_the_service_time() -> None:
    """tau' = 40 ms < 1/mu = 50 ms: no demand is small enough, but a faster prefill is."""
    problem, fleet = question(ttft=MOVE + 0.04, tpot=TPOT).problem(), fleet_of("9,0/9,0")
    assert margins.demand_margin(problem, fleet) is None
    margin = margins.prefill_margin(problem, fleet)
    assert margin == pytest.approx(MU / (RATE / 9 + 1 / 0.04) - 1, abs=CLOSE)


def test_a_bound_below_the_transfer_cannot_be_mended() -> None:
    problem, fleet = question(ttft=0.8 * MOVE, tpot=TPOT).problem(), fleet_of("9,0/9,0")
    for of in (
        margins.demand_margin,
        margins.prefill_margin,
        margins.decode_margin,
        margins.output_margin,
    ):
        assert of(problem, fleet) is None


def test_margins_are_capped() -> None:
    """At one request/s 99 replicas of each role survive more than is searched."""
    scenario = question(rate=1.0, ttft=9.0, tpot=0.9)
    answer = evaluate(scenario, fleet_of("99,0/99,0"))
    assert answer.margin is not None
    assert answer.margin.demand == pytest.approx(margins.MOST, rel=1e-12)
    assert answer.margin.prefill == answer.margin.decode == margins.MOST
    assert answer.margin.output_length == margins.MOST
    assert answer.demand_limit_tokens_per_minute is None


def test_outputs_that_outgrow_the_kv_memory_end_the_margin() -> None:
    """Context P + f L/2 must fit the KV tokens of a replica: f = 2 (KV - P) / L = 2.

    1000 prompt and 2000 output tokens, 3000 KV tokens, load far below every other limit.
    """
    scenario = question("decode", 0.01, tpot=1.0)
    system = scenario.system
    types = {name: replace(r, kv_tokens=3000.0) for name, r in system.replica_types.items()}
    long = system.workload.with_longer_outputs(2000 / OUTPUT)
    capacity = Capacity(replace(system, replica_types=types, workload=long), scenario.slos)
    margin = margins.output_margin(scenario.problem(capacity), fleet_of("9,0/9,0"))
    assert margin == pytest.approx(1.0, abs=CLOSE)


def test_more_of_everything_never_lowers_a_margin() -> None:
    problem = question("decode").problem()
    fleets = [fleet_of(text) for text in ("4,0/4,0", "5,0/4,0", "5,0/6,0", "7,0/7,0")]
    for of in (margins.demand_margin, margins.prefill_margin, margins.decode_margin):
        found = [of(problem, fleet) or -1.0 for fleet in fleets]
        assert found == sorted(found)
