"""What a scenario says of arrivals and of the simulator: each block, and each mistake in it."""

from __future__ import annotations

import copy
import importlib
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pdalloc.hardware.link import Link
from pdalloc.scenario import Scenario, load_scenario, scenario_from_mapping
from pdalloc.scenario.schema import ScenarioSpec
from pdalloc.simulation.options import (
    PLAIN,
    Clients,
    Colocated,
    Failures,
    KvMemory,
    MultiToken,
    Network,
    Noise,
    PassBudget,
    SimulationOptions,
)
from pdalloc.workload.arrivals import MarkovModulated, Renewal, Sessions, TimeVarying, Trace
from pdalloc.workload.traffic import TrafficClass

JSONSCHEMA: Any = importlib.import_module("jsonschema")  # the package has no annotations
PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper_2603_04716" / "scenario.yaml"
RATE = 12.5
"""Requests/s of the class in these tests."""


@cache
def paper() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(PAPER.read_text(encoding="utf-8"))
    return found


def raw(arrivals: object = None, simulation: object = None, **traffic: Any) -> dict[str, Any]:
    """The paper's scenario with these blocks."""
    found = copy.deepcopy(paper())
    found["traffic"][0] |= {"rate": f"{RATE} req/s"} | traffic
    if arrivals is not None:
        found["traffic"][0]["arrivals"] = copy.deepcopy(arrivals)
    if simulation is not None:
        found["simulation"] = copy.deepcopy(simulation)
    return found


def built(*blocks: object, **traffic: Any) -> Scenario:
    return scenario_from_mapping(raw(*blocks, **traffic))


def traffic(arrivals: object, **keys: Any) -> TrafficClass:
    return built(arrivals, **keys).system.workload.classes[0]


def options(block: object) -> SimulationOptions:
    return built(None, block).options


# Arrivals.

ARRIVALS: dict[str, dict[str, Any]] = {
    "renewal": {"process": "renewal"},
    "weibull": {"process": "renewal", "law": "weibull"},
    "bursts": {"process": "bursts", "levels": [1, 5], "lasts": "60 5 s"},
    "bursts of one length": {"process": "bursts", "levels": [0, 1, 7.5], "lasts": "0.5 min"},
    "profile": {"process": "profile", "levels": [3, 1, 2], "lasts": "8 8 8 hour"},
    "once": {"process": "profile", "levels": [3, 1], "lasts": "1 2 hour", "repeats": False},
    "sessions": {"process": "sessions", "turns": 4.5, "think": "30 s"},
    "trace": {"process": "trace", "at": "3 3 5 5.5 9 s"},
}


@pytest.mark.parametrize("block", ARRIVALS.values(), ids=ARRIVALS)
@pytest.mark.parametrize("rate", [f"{RATE} req/s", "5 Mtoken/min", "0.01 req/s"])
def test_the_mean_rate_is_always_the_class_s(block: dict[str, Any], rate: str) -> None:
    """Levels, sessions and traces say how requests come, not how many."""
    c, plain = traffic(block, rate=rate), traffic(None, rate=rate)
    # tokens of a session's prompts are all that it has said so far
    if "token" in rate:
        assert c.rate * c.mean_tokens == pytest.approx(plain.rate * plain.mean_tokens)
    else:
        assert c.rate == plain.rate
    assert c.process.rate == pytest.approx(c.rate, rel=1e-12)
    assert c.scaled(1.7).process.rate == pytest.approx(1.7 * c.rate, rel=1e-12)


@pytest.mark.parametrize("block", ARRIVALS.values(), ids=ARRIVALS)
def test_formulas_read_the_dispersion_unless_the_file_says_better(block: dict[str, Any]) -> None:
    c = traffic(block)
    assert c.arrival_scv == pytest.approx(c.process.dispersion)
    assert traffic(block, arrival_scv=3.0).arrival_scv == 3.0


def test_known_dispersions() -> None:
    """Geometric sessions 2 m - 1; a rate that follows the clock is Poisson at any time of day.

    A trace: gaps 0, 2, 0.5 and 3.5 s have mean 1.5 and variance 16.5/4 - 1.5^2 = 1.875 s^2.
    """
    found = {name: traffic(block).arrival_scv for name, block in ARRIVALS.items()}
    assert found["renewal"] == found["profile"] == found["once"] == 1.0
    assert found["sessions"] == pytest.approx(8.0)
    assert found["trace"] == pytest.approx(1.875 / 1.5**2)
    assert found["bursts"] > 1.0


def test_without_a_block_gaps_are_gamma() -> None:
    assert traffic(None).arrivals is None
    assert traffic(None, arrival_scv=2.0).process == Renewal(RATE, 2.0)


def test_renewal_takes_its_spread_from_arrival_scv() -> None:
    assert traffic(ARRIVALS["renewal"]).arrivals == Renewal(RATE, 1.0)
    assert traffic(ARRIVALS["weibull"], arrival_scv=4.0).arrivals == Renewal(RATE, 4.0, "weibull")


@pytest.mark.parametrize("name", ["bursts", "bursts of one length", "profile", "once"])
def test_levels_keep_their_ratio_and_last_as_told(name: str) -> None:
    block, process = ARRIVALS[name], traffic(ARRIVALS[name]).arrivals
    assert isinstance(process, MarkovModulated | TimeVarying)
    levels = np.array(block["levels"])
    assert np.array(process.rates) / max(process.rates) == pytest.approx(levels / levels.max())
    seconds = process.dwell if isinstance(process, MarkovModulated) else process.seconds
    expected = {
        "bursts": [60.0, 5.0],
        "bursts of one length": [30.0] * 3,
        "profile": [28800.0] * 3,
        "once": [3600.0, 7200.0],
    }[name]
    assert list(seconds) == pytest.approx(expected)


def test_a_profile_repeats_unless_told_otherwise() -> None:
    for name, repeats in (("profile", True), ("once", False)):
        process = traffic(ARRIVALS[name]).arrivals
        assert isinstance(process, TimeVarying) and process.periodic is repeats


def test_sessions_per_second_are_turns_per_second_over_turns() -> None:
    scenario = built(ARRIVALS["sessions"])
    window = scenario.system.llm.context_window
    assert scenario.system.workload.classes[0].arrivals == Sessions(RATE / 4.5, 4.5, 30.0, window)
    limited = traffic(ARRIVALS["sessions"] | {"context_limit": "8 ktokens"}).arrivals
    assert isinstance(limited, Sessions) and limited.context_limit == 8000.0


def test_a_trace_keeps_its_rhythm() -> None:
    """Gaps 0, 2, 0.5 and 3.5 s of 1.5 s on average, at RATE; the unit written is no matter."""
    process = traffic(ARRIVALS["trace"]).arrivals
    assert isinstance(process, Trace)
    times = process.times(5, np.random.default_rng(0))
    assert np.diff(times) * RATE == pytest.approx(np.array([0.0, 2.0, 0.5, 3.5]) / 1.5)
    other = traffic({"process": "trace", "at": "3000 3000 5000 5500 9000 ms"}).arrivals
    assert other is not None
    assert other.times(5, np.random.default_rng(0)) == pytest.approx(times)


# Options.

SITES = {"prefill/h200x8": "east", "decode/h200x8": "west"}
OPTIONS: list[tuple[dict[str, Any], SimulationOptions]] = [
    ({"prefill_budget": {"tokens": "8 ktokens"}}, SimulationOptions(PassBudget(8000.0))),
    (
        {"prefill_budget": {"tokens": "512 tokens", "split": True}},
        SimulationOptions(PassBudget(512.0, True)),
    ),
    (
        {"prefill_noise": {"law": "exponential"}},
        SimulationOptions(prefill_noise=Noise("exponential")),
    ),
    (
        {"step_noise": {"law": "lognormal", "scv": 0.25}},
        SimulationOptions(step_noise=Noise("lognormal", 0.25)),
    ),
    ({"transfers": {}}, SimulationOptions(network=Network())),
    (
        {"transfers": {"sharing": "fcfs", "scope": "fabric", "jitter": {"law": "gamma"}}},
        SimulationOptions(network=Network("fcfs", "fabric", Noise("gamma"))),
    ),
    (
        {
            "transfers": {
                "sharing": "processor_sharing",
                "scope": "sites",
                "sites": SITES,
                "links": [
                    {"from": "east", "to": "west", "latency": "30 ms", "bandwidth": "100 Gbit/s"},
                    {"from": "west", "to": "east"},
                ],
            }
        },
        SimulationOptions(
            network=Network(
                "processor_sharing",
                "sites",
                None,
                {("prefill", "h200x8"): "east", ("decode", "h200x8"): "west"},
                {("east", "west"): Link(0.03, 12.5e9), ("west", "east"): Link(0.0, math.inf)},
            )
        ),
    ),
    (
        {"kv": {"reserve": "full", "watermark": 0.05, "back_pressure": True}},
        SimulationOptions(kv=KvMemory("full", 0.05, True)),
    ),
    (
        {"multi_token": {"mean": 1.8, "law": "geometric"}},
        SimulationOptions(multi_token=MultiToken(1.8, "geometric")),
    ),
    (
        {"clients": {"timeout": "1 min", "max_queue": 40, "retries": 2, "retry_delay": "500 ms"}},
        SimulationOptions(clients=Clients(60.0, 40, 2, 0.5)),
    ),
    ({"clients": {}}, SimulationOptions(clients=Clients())),
    (
        {"failures": {"mtbf": "30 days", "mttr": "10 min"}},
        SimulationOptions(failures=Failures(30 * 86400.0, 600.0)),
    ),
    (
        {"colocated": {"policy": "prefill_first"}},
        SimulationOptions(colocated=Colocated("prefill_first")),
    ),
    (
        {"colocated": {"policy": "chunked", "tokens": "2048 tokens"}},
        SimulationOptions(colocated=Colocated("chunked", 2048.0)),
    ),
    (
        {
            "slow": [
                {"role": "prefill", "replica": 0, "factor": 1.5},
                {"role": "decode", "replica": 3, "factor": 2},
            ]
        },
        SimulationOptions(slow={("prefill", 0): 1.5, ("decode", 3): 2.0}),
    ),
]


@pytest.mark.parametrize(("block", "expected"), OPTIONS, ids=lambda x: str(x)[:40])
def test_each_block_is_an_option_in_si_units(
    block: dict[str, Any], expected: SimulationOptions
) -> None:
    found = options(block)
    assert found == expected
    assert not found.off


def test_blocks_that_get_along_are_all_there() -> None:
    together: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for block, one in OPTIONS:
        if "colocated" not in block:
            together |= block
            expected |= {k: v for k, v in vars(one).items() if v is not None and v != {}}
    assert options(together) == SimulationOptions(**expected)


@pytest.mark.parametrize("block", [None, {}, {"slow": []}, {"kv": None}])
def test_what_is_left_out_is_off(block: object) -> None:
    assert options(block) == PLAIN and options(block).off


def test_formulas_do_not_see_the_options() -> None:
    """The system, its prediction and the SLOs are the same; only what is simulated differs."""
    plain = built()
    for block, _ in OPTIONS:
        other = built(None, block)
        assert (repr(other.system), other.slos) == (repr(plain.system), plain.slos)


def test_variants_and_overrides_reach_the_blocks(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    base = raw(None, {"transfers": {"sites": SITES, "links": [{"from": "east", "to": "west"}]}})
    base["variants"] = {
        "noisy": {"set": {"simulation.step_noise": {"law": "gamma", "scv": 2.0}}},
        "bursty": {"set": {"traffic.0.arrivals": ARRIVALS["bursts"]}},
    }
    file.write_text(yaml.safe_dump(base))
    assert load_scenario(file, "noisy").options.step_noise == Noise("gamma", 2.0)
    bursty = load_scenario(file, "bursty").system.workload.classes[0].arrivals
    assert isinstance(bursty, MarkovModulated)
    set_ = ["simulation.kv.watermark=0.1", "simulation.transfers.links.0.latency=5 ms"]
    found = load_scenario(file, overrides=set_).options
    assert found.kv == KvMemory(watermark=0.1)
    assert found.network is not None and found.network.links["east", "west"].latency == 0.005


def test_the_json_schema_knows_every_block() -> None:
    """It accepts what is accepted, says ``from`` as files do, and refuses strangers."""
    schema = ScenarioSpec.model_json_schema()
    links = schema["$defs"]["SiteLinkSpec"]
    assert set(links["required"]) == {"from", "to"} and "origin" not in links["properties"]
    assert schema["$defs"]["ArrivalsSpec"]["required"] == ["process"]
    judge = JSONSCHEMA.Draft202012Validator(schema)
    right = [raw(block) for block in ARRIVALS.values()] + [raw(None, block) for block, _ in OPTIONS]
    assert all(judge.is_valid(scenario) for scenario in right)
    for wrong in (raw({"process": "bursts", "level": [1]}), raw(None, {"kvv": {}})):
        assert not judge.is_valid(wrong)
