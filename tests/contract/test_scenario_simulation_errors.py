"""Mistakes in a scenario's arrivals and simulation blocks: one line that names the field."""

from __future__ import annotations

import copy
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdalloc.errors import PdallocError, UnitError
from pdalloc.scenario import scenario_from_mapping

PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper_2603_04716" / "scenario.yaml"
NAN = math.nan
SITES = {"prefill/h200x8": "east", "decode/h200x8": "west"}
LINK = {"from": "east", "to": "west"}


@cache
def paper() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(PAPER.read_text(encoding="utf-8"))
    return found


def refused(place: str, block: object) -> PdallocError:
    """The error of the paper's scenario with ``block`` as ``arrivals`` or ``simulation``."""
    raw = copy.deepcopy(paper())
    where = raw["traffic"][0] if place == "arrivals" else raw
    where[place] = copy.deepcopy(block)
    with pytest.raises(PdallocError) as caught:
        scenario_from_mapping(raw, origin="file.yaml")
    message = str(caught.value)
    assert message.startswith("file.yaml: ")
    assert len(message.splitlines()) == 1
    for pythonic in ("instance of", "Spec", ".str:", "validation", "NoneType", "e+"):
        assert pythonic not in message
    return caught.value


def arrivals(process: str, **keys: Any) -> dict[str, Any]:
    return {"process": process, **keys}


BURSTS = arrivals("bursts", levels=[1, 2], lasts="5 s")
SESSIONS = arrivals("sessions", turns=3, think="30 s")

ARRIVALS: list[tuple[object, list[str]]] = [  # the block, words of the message
    ({}, ["process", "missing"]),
    ("bursts", ["arrivals", "block", "levels"]),
    (arrivals("burst"), ["process", "'bursts'"]),
    (arrivals("renewal", law="gama"), ["law", "'gamma' or 'weibull'"]),
    # a key of another process
    (arrivals("renewal", levels=[1, 2]), ["arrivals.levels", "renewal", "law"]),
    (BURSTS | {"law": "weibull"}, ["arrivals.law", "bursts", "lasts, levels"]),
    (BURSTS | {"repeats": False}, ["arrivals.repeats", "bursts"]),
    (SESSIONS | {"at": "1 2 s"}, ["arrivals.at", "sessions", "think, turns"]),
    (arrivals("trace", at="0 1 s", think="1 s"), ["arrivals.think", "trace"]),
    # bursts and profiles
    (arrivals("bursts", lasts="5 s"), ["arrivals.levels", "[1, 5]"]),
    (BURSTS | {"levels": []}, ["arrivals.levels", "[1, 5]"]),
    (BURSTS | {"levels": "1 2"}, ["arrivals.levels", "list"]),
    (BURSTS | {"levels": [1, "2"]}, ["arrivals.levels.1"]),
    (BURSTS | {"levels": [1, NAN]}, ["arrivals.levels.1", "finite"]),
    (BURSTS | {"levels": [1, -2]}, ["arrivals", "negative"]),
    (BURSTS | {"levels": [0, 0]}, ["arrivals", "all 0"]),
    (BURSTS | {"levels": [1]}, ["arrivals", "two states"]),
    (arrivals("bursts", levels=[1, 2]), ["arrivals.lasts", "missing"]),
    (BURSTS | {"lasts": "1 2 3 s"}, ["arrivals.lasts", "3 for 2 levels"]),
    (BURSTS | {"lasts": "0 s"}, ["arrivals", "positive"]),
    (BURSTS | {"lasts": "5 -5 s"}, ["arrivals", "positive"]),
    (BURSTS | {"process": "profile", "levels": [1, 0], "repeats": False}, ["arrivals", "rate 0"]),
    # sessions
    (arrivals("sessions", think="30 s"), ["arrivals.turns", "missing"]),
    (arrivals("sessions", turns=3), ["arrivals.think", "missing"]),
    (SESSIONS | {"turns": 0.5}, ["arrivals.turns", "at least 1"]),
    (SESSIONS | {"turns": NAN}, ["arrivals.turns", "finite"]),
    (SESSIONS | {"turns": "3"}, ["arrivals.turns"]),
    (SESSIONS | {"think": "0 s"}, ["arrivals", "think time", "positive"]),
    (SESSIONS | {"context_limit": "0 tokens"}, ["arrivals", "context limit", "positive"]),
    # traces
    (arrivals("trace"), ["arrivals.at", "missing"]),
    (arrivals("trace", at="1 s"), ["arrivals", "two"]),
    (arrivals("trace", at="0 2 1 s"), ["arrivals", "go back"]),
    (arrivals("trace", at="1 1 s"), ["arrivals", "same"]),
    (arrivals("trace", at=[0, 1]), ["arrivals.at"]),
]


@pytest.mark.parametrize(("block", "words"), ARRIVALS, ids=lambda x: str(x)[:50])
def test_arrivals(block: object, words: list[str]) -> None:
    message = str(refused("arrivals", block))
    assert all(word in message for word in ["traffic.0.arrivals", *words]), message


def site_link(**keys: Any) -> dict[str, Any]:
    return {"transfers": {"sites": SITES, "links": [LINK | keys]}}


def slow(*replicas: dict[str, Any]) -> dict[str, Any]:
    return {"slow": [{"role": "prefill", "replica": 0, "factor": 2.0} | r for r in replicas]}


OPTIONS: list[tuple[object, list[str]]] = [  # the block, words of the message
    ([], ["block", "prefill_budget"]),
    ("off", ["block", "prefill_budget"]),
    ({"prefill_budget": {}}, ["prefill_budget.tokens", "missing"]),
    ({"prefill_budget": {"tokens": "0 tokens"}}, ["prefill_budget", "at least 1"]),
    ({"prefill_noise": "exponential"}, ["prefill_noise", "block", "law"]),
    ({"prefill_noise": {"law": "gauss"}}, ["prefill_noise.law", "lognormal"]),
    ({"prefill_noise": {"law": "gamma", "scv": 0}}, ["prefill_noise", "positive"]),
    ({"prefill_noise": {"law": "gamma", "scv": NAN}}, ["prefill_noise.scv", "finite"]),
    ({"step_noise": {"law": "exponential", "scv": 2}}, ["step_noise", "SCV 1"]),
    ({"transfers": {"sharing": "fcsf"}}, ["transfers.sharing", "fcfs"]),
    ({"transfers": {"scope": "host"}}, ["transfers.scope", "fabric"]),
    ({"transfers": {"jitter": {"law": "gamma", "scv": -1}}}, ["transfers.jitter", "positive"]),
    ({"transfers": {"sites": ["east"]}}, ["transfers.sites", "block"]),
    ({"transfers": {"sites": {"prefill/h200": "a"}}}, ["transfers.sites", "prefill/h200x8"]),
    ({"transfers": {"sites": {"h200x8": "a"}}}, ["transfers.sites", "decode/h200x8"]),
    ({"transfers": {"sites": {"prefil/h200x8": "a"}}}, ["transfers.sites", "prefill/h200x8"]),
    ({"transfers": {"links": LINK}}, ["transfers.links", "list"]),
    ({"transfers": {"links": [{"to": "west"}]}}, ["transfers.links.0.from", "missing"]),
    ({"transfers": {"links": [LINK]}}, ["transfers", "no pool stands at site east, west"]),
    (
        {"transfers": {"sites": SITES, "links": [LINK, LINK | {"latency": "1 s"}]}},
        ["transfers.links.1", "east to west is given twice"],
    ),
    (site_link(latency="-1 s"), ["transfers.links.0", "latency"]),
    (site_link(bandwidth="0 GB/s"), ["transfers.links.0", "bandwidth", "positive"]),
    ({"kv": {"reserve": "all"}}, ["kv.reserve", "'context' or 'full'"]),
    ({"kv": {"watermark": 1.0}}, ["kv", "[0, 1)"]),
    ({"kv": {"watermark": NAN}}, ["kv.watermark", "finite"]),
    ({"kv": {"watermark": True}}, ["kv.watermark"]),
    ({"multi_token": {}}, ["multi_token.mean", "missing"]),
    ({"multi_token": {"mean": 0.5}}, ["multi_token", "at least 1"]),
    ({"multi_token": {"mean": 2, "law": "poisson"}}, ["multi_token.law", "geometric"]),
    ({"clients": {"timeout": "0 s"}}, ["clients", "timeout", "positive"]),
    ({"clients": {"max_queue": -1}}, ["clients", "max_queue", "negative"]),
    ({"clients": {"max_queue": 2.5}}, ["clients.max_queue", "integer"]),
    ({"clients": {"retries": -1}}, ["clients", "retries", "negative"]),
    ({"clients": {"retry_delay": "-1 s"}}, ["clients", "retry_delay", ">= 0"]),
    ({"failures": {"mtbf": "1 day"}}, ["failures.mttr", "missing"]),
    ({"failures": {"mtbf": "0 s", "mttr": "1 s"}}, ["failures", "mtbf", "positive"]),
    ({"failures": {"mtbf": "1 s", "mttr": "-1 s"}}, ["failures", "mttr", "positive"]),
    ({"colocated": {}}, ["colocated.policy", "missing"]),
    ({"colocated": {"policy": "chunk"}}, ["colocated.policy", "chunked"]),
    ({"colocated": {"policy": "chunked", "tokens": "0 tokens"}}, ["colocated", "at least 1"]),
    (slow({"role": "prefil"}), ["slow.0.role", "'prefill'"]),
    (slow({"factor": 0}), ["slow", "prefill replica 0", "positive"]),
    (slow({"replica": 0.5}), ["slow.0.replica", "integer"]),
    (slow({}, {"factor": 3.0}), ["slow.1", "given twice"]),
    ({"slow": [{"role": "prefill", "replica": 0}]}, ["slow.0.factor", "missing"]),
    ({"slow": {"role": "prefill"}}, ["slow", "list"]),
]
COLOCATED = {"colocated": {"policy": "chunked"}}
TOGETHER: list[tuple[object, list[str]]] = [  # options that have no rule together
    (COLOCATED | {"failures": {"mtbf": "1 day", "mttr": "1 s"}}, ["co-located", "failures"]),
    (COLOCATED | {"transfers": {}}, ["co-located"]),
    (COLOCATED | {"prefill_budget": {"tokens": "1 ktokens"}}, ["co-located", "prefill_budget"]),
    (COLOCATED | {"kv": {"back_pressure": True}}, ["co-located", "back-pressure"]),
]


@pytest.mark.parametrize(("block", "words"), OPTIONS + TOGETHER, ids=lambda x: str(x)[:50])
def test_options(block: object, words: list[str]) -> None:
    message = str(refused("simulation", block))
    assert all(word in message for word in ["simulation", *words]), message


UNITS = [  # place, the block, the field
    ("arrivals", BURSTS | {"lasts": "5 tokens"}, "lasts"),
    ("arrivals", BURSTS | {"lasts": 5}, "lasts"),
    ("arrivals", BURSTS | {"lasts": "1 nan s"}, "lasts"),
    ("arrivals", SESSIONS | {"think": "3 req"}, "think"),
    ("arrivals", SESSIONS | {"context_limit": "8 GB"}, "context_limit"),
    ("arrivals", arrivals("trace", at="0 1 tokens"), "at"),
    ("simulation", {"prefill_budget": {"tokens": "5 s"}}, "prefill_budget.tokens"),
    ("simulation", {"prefill_budget": {"tokens": "nan tokens"}}, "prefill_budget.tokens"),
    ("simulation", {"colocated": {"policy": "chunked", "tokens": "2 GB"}}, "colocated.tokens"),
    ("simulation", {"clients": {"timeout": 5}}, "clients.timeout"),
    ("simulation", {"clients": {"retry_delay": "1 token"}}, "clients.retry_delay"),
    ("simulation", {"failures": {"mtbf": "1 day", "mttr": "1 req"}}, "failures.mttr"),
    ("simulation", {"failures": {"mtbf": "1 daay", "mttr": "1 s"}}, "failures.mtbf"),
    ("simulation", site_link(latency="3 tokens"), "transfers.links.0.latency"),
    ("simulation", site_link(bandwidth="25 GB"), "transfers.links.0.bandwidth"),
]


@pytest.mark.parametrize(("place", "block", "field"), UNITS)
def test_units(place: str, block: dict[str, Any], field: str) -> None:
    """Without a unit, of another dimension, unknown, not finite: the full path is named."""
    error = refused(place, block)
    assert isinstance(error, UnitError)
    start = "traffic.0.arrivals" if place == "arrivals" else "simulation"
    assert f"file.yaml: {start}.{field}: " in str(error)


TYPOS = [  # place, the block, path of the misspelt key, the key meant
    ("arrivals", arrivals("sessions", trns=3, think="1 s"), "trns", "turns"),
    ("arrivals", BURSTS | {"last": "5 s"}, "last", "lasts"),
    ("simulation", {"kvv": {}}, "kvv", "kv"),
    ("simulation", {"step_nose": {}}, "step_nose", "step_noise"),
    ("simulation", {"colocate": {}}, "colocate", "colocated"),
    ("simulation", {"prefill_budget": {"token": "5 tokens"}}, "prefill_budget.token", "tokens"),
    ("simulation", {"step_noise": {"law": "gamma", "svc": 2}}, "step_noise.svc", "scv"),
    (
        "simulation",
        {"transfers": {"jitter": {"lw": "gamma"}}},
        "transfers.jitter.lw",
        "law",
    ),
    ("simulation", {"transfers": {"site": {}}}, "transfers.site", "sites"),
    ("simulation", {"kv": {"back_presure": True}}, "kv.back_presure", "back_pressure"),
    ("simulation", {"clients": {"retry": 3}}, "clients.retry", "retries"),
    ("simulation", {"failures": {"mtfb": "1 s"}}, "failures.mtfb", "mtbf"),
    ("simulation", slow({"fctor": 2}), "slow.0.fctor", "factor"),
    (
        "simulation",
        {"transfers": {"links": [{"frm": "east", "to": "west"}]}},
        "transfers.links.0.frm",
        "from",
    ),
]


@pytest.mark.parametrize(("place", "block", "path", "meant"), TYPOS)
def test_misspelt_keys_name_the_nearest(
    place: str, block: dict[str, Any], path: str, meant: str
) -> None:
    message = str(refused(place, block))
    start = "traffic.0.arrivals" if place == "arrivals" else "simulation"
    assert f"{start}.{path}: unknown key; did you mean {meant!r}?" in message


def test_files_say_from_and_not_what_the_code_says() -> None:
    """``from`` is a word of the language, so the schema has another name for it inside."""
    message = str(refused("simulation", {"transfers": {"links": [{"origin": "a", "to": "b"}]}}))
    assert "transfers.links.0.origin: unknown key; known keys: from, to, latency" in message
