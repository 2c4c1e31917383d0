"""Malformed scenarios: one line that names the field and how to mend it, never a traceback."""

from __future__ import annotations

import copy
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdalloc.errors import InputError, PdallocError, UnitError
from pdalloc.planning import evaluate, plan
from pdalloc.scenario import load_scenario, scenario_from_mapping

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml"
GONE = object()
"""As a value: the key is removed."""
NAN = math.nan
DECODE = "replicas.0.service.decode"
PREFILL = "replicas.0.service.prefill"


@cache
def paper_text() -> str:
    return PAPER.read_text(encoding="utf-8")


def changed(path: str, value: object) -> dict[str, Any]:
    """The paper's scenario with one key set or removed; parts of ``path`` between slashes."""
    raw: dict[str, Any] = yaml.safe_load(paper_text())
    where: Any = raw
    *parents, last = path.split("/") if "/" in path else path.split(".")
    for part in parents:
        where = where.setdefault(part, {}) if isinstance(where, dict) else where[int(part)]
    key: Any = int(last) if isinstance(where, list) else last
    if value is GONE:
        del where[key]
    else:
        where[key] = copy.deepcopy(value)
    return raw


def refused(path: str, value: object) -> PdallocError:
    with pytest.raises(PdallocError) as caught:
        scenario_from_mapping(changed(path, value), origin="file.yaml")
    message = str(caught.value)
    assert message.startswith("file.yaml: ")
    assert len(message.splitlines()) == 1
    for pythonic in ("instance of", "Spec", ".str:"):
        assert pythonic not in message
    return caught.value


QUANTITIES = [  # path, value
    ("traffic.0.rate", 5),
    ("traffic.0.rate", NAN),
    ("traffic.0.rate", True),
    ("traffic.0.rate", None),
    ("traffic.0.rate", "nan req/s"),
    ("traffic.0.rate", "1e400 req/s"),
    ("traffic.0.rate", "5,000 req/s"),
    ("traffic.0.rate", "0 req/s"),
    ("traffic.0.rate", "-5 Mtoken/min"),
    ("traffic.0.prompt", 6144),
    ("traffic.0.prompt", "6144 s"),
    ("traffic.0.prompt", "0 tokens"),
    ("traffic.0.prompt", "6,144 tokens"),
    ("traffic.0.prompt", []),
    ("traffic.0.prompt", ["1 token", NAN]),
    ("traffic.0.output", "0.5 tokens"),
    ("traffic.0.slo.ttft.mean", "20 tokens"),
    ("traffic.0.slo.ttft.mean", 20),
    ("traffic.0.slo.ttft.mean", "nan ms"),
    ("traffic.0.slo.ttft.mean", "0 ms"),
    ("traffic.0.slo.ttft.mean", None),
    (f"{PREFILL}.throughput", "0 token/s"),
    (f"{PREFILL}.throughput", "5 req/s"),
    (f"{DECODE}.step", "12.8 16.4 18.8 21.6 23.9 26.2 tokens"),
    (f"{DECODE}.step", "12.8 16.4 nan 21.6 23.9 26.2 ms"),
    ("network.latency", "-1 s"),
    ("network.latency", "nan s"),
    ("network.bandwidth", "0 GB/s"),
    ("network.bandwidth", "25 GB"),
    ("prices", {"h200": "-2 USD/GPU/hour"}),
    ("prices", {"h200": "2 USD"}),
    ("prices", {"h200": NAN}),
]


@pytest.mark.parametrize(("path", "value"), QUANTITIES)
def test_quantities(path: str, value: object) -> None:
    """Zero, negative, NaN, infinite, without a unit, of another dimension."""
    message = str(refused(path, value))
    where = path.replace("network.latency", "network").replace("network.bandwidth", "network")
    for part in where.split("."):
        assert part in message


def test_units_that_fit_are_accepted() -> None:
    scenario = scenario_from_mapping(changed("traffic.0.slo.tpot.mean", "20 msec"))
    assert [s.bound for s in scenario.slos] == [2.0, 0.02]


VALUES = [  # path, value, words of the message
    ("replicas.0.gpu", "h20O", ["replicas.0.gpu", "h200"]),
    ("replicas.0.gpu", "h2000", ["replicas.0.gpu", "did you mean 'h200'"]),
    ("replicas.0.gpus", 0, ["replicas.0.gpus", "at least 1"]),
    ("replicas.0.gpus", 8.5, ["replicas.0.gpus"]),
    ("replicas.0.gpus", True, ["replicas.0.gpus"]),
    ("llm", "deepseek-v3", ["llm", "deepseek-v3.1-terminus"]),
    ("prices", "list-2026", ["prices", "list-2026-11"]),
    ("prices", {}, ["prices", "h200"]),
    ("prices", {"h100": "2 USD/GPU/hour"}, ["prices", "h200"]),
    ("prices", GONE, ["prices", "missing"]),
    ("stock", {"h200": -1}, ["stock.h200", "negative"]),
    ("stock", {"h2000": 1}, ["stock.h2000", "h200"]),
    ("stock", {"h200": True}, ["stock.h200"]),
    ("traffic.0.prefix_hit_rate", 1.0, ["prefix_hit_rate", "[0, 1)"]),
    ("traffic.0.prefix_hit_rate", NAN, ["prefix_hit_rate"]),
    ("traffic.0.arrival_scv", NAN, ["arrival_scv"]),
    ("traffic.0.arrival_scv", -1, ["arrival_scv"]),
    ("traffic/0/slo/ttft/p0", "2 s", ["traffic.0.slo.ttft.p0", "p100"]),
    ("traffic/0/slo/ttft/p100", "2 s", ["traffic.0.slo.ttft.p100", "p0"]),
    ("traffic/0/slo/ttft/abc", "2 s", ["traffic.0.slo.ttft.abc", "p99"]),
    ("traffic.0.slo", {}, ["traffic.0.slo", "at least one SLO"]),
    ("traffic.0.slo.ttft", "2 s", ["traffic.0.slo.ttft"]),
    ("traffic.0.lengths", "azure-2023-code", ["traffic.0", "lengths", "prompt", "not both"]),
    ("traffic.0.output", GONE, ["traffic.0", "output"]),
    ("dispatch", "randm", ["dispatch", "random"]),
    ("dispatch", {"prefill": "rnd"}, ["dispatch", "random"]),
    ("dispatch", {"prefil": "random"}, ["dispatch", "'prefill'"]),
    ("first_token", "decod", ["first_token", "decode"]),
    (f"{PREFILL}.noise", "gaussian", ["noise", "exponential"]),
    (f"{DECODE}", {}, [DECODE, "batch"]),
    (f"{DECODE}", GONE, [DECODE, "missing"]),
    (f"{DECODE}.batch", [], [DECODE, "empty"]),
    (f"{DECODE}", {"batch": [10], "step": "12.8 ms"}, [DECODE, "at least 2 points"]),
    (f"{DECODE}.batch", [10, 20], [DECODE, "2 points but 6 times"]),
    (f"{DECODE}.batch", [10, 20, 30, 40, 60, 50], [DECODE, "increasing"]),
    (f"{DECODE}.batch", [10, 20, 30, 40, 50, NAN], [DECODE, "finite"]),
    (f"{DECODE}.step", "12.8 16.4 0 21.6 23.9 26.2 ms", [DECODE, "positive"]),
    (f"{DECODE}", {"base": "-1 ms", "per_request": "1 ms/request"}, [DECODE, "base"]),
    ("replicas.0.service", "rooflin", ["replicas.0.service", "roofline"]),
    ("replicas.0.service", GONE, ["replicas.0", "profile or service"]),
    ("replicas.0.roles", ["prefill"], ["no type may serve decode"]),
    ("replicas.0.roles", ["prefil", "decode"], ["replicas.0.roles", "'prefill'"]),
    ("replicas.0.roles", "prefill", ["replicas.0.roles", "list"]),
    ("replicas.0.limits", {"prefill": -1}, ["replicas.0.limits", "negative"]),
    ("replicas.0.kv_tokens", 0, ["kv_tokens", "positive"]),
    ("replicas.0.kv_tokens", NAN, ["kv_tokens"]),
    ("replicas.0.max_batch", 0, ["max_batch", "at least 1"]),
    ("replicas.0.max_batch", 2.5, ["max_batch"]),
    ("replicas.0.calibration", {"decode": 0}, ["calibration", "decode", "positive"]),
    ("replicas.0.calibration", {"prefill": NAN}, ["calibration", "prefill"]),
    ("traffic", [], ["traffic", "at least one"]),
    ("traffic", GONE, ["traffic", "missing"]),
    ("traffic", [5], ["traffic.0"]),
    ("replicas", [], ["replicas"]),
    ("name", GONE, ["name", "missing"]),
    ("variants", {"x": None}, ["variants.x"]),
    ("variants", {1: {"set": {}}}, ["variants.1"]),
]


@pytest.mark.parametrize(("path", "value", "words"), VALUES)
def test_values(path: str, value: object, words: list[str]) -> None:
    """Unknown names, wrong types, missing keys, contradictions."""
    message = str(refused(path, value))
    for word in words:
        assert word in message


TYPOS = [  # path of the misspelt key, the key meant
    ("lllm", "llm"),
    ("traffic.0.promt", "prompt"),
    ("traffic.0.slo.tftt", "ttft"),
    ("replicas.0.gpuu", "gpu"),
    ("replicas.0.calibration.decod", "decode"),
    ("replicas.0.service.sorce", "source"),
    ("replicas.0.service.prefill.througput", "throughput"),
    ("replicas.0.service.decode.bacth", "batch"),
    ("network.latncy", "latency"),
    ("variants.calibrated.sett", "set"),
]


@pytest.mark.parametrize(("path", "meant"), TYPOS)
def test_misspelt_keys_name_the_nearest(path: str, meant: str) -> None:
    message = str(refused(path, {"mean": "2 s"} if "slo" in path else "x"))
    assert f"{path}: unknown" in message
    assert f"did you mean {meant!r}?" in message


def test_names_must_differ() -> None:
    raw = yaml.safe_load(paper_text())
    for block in ("traffic", "replicas"):
        twice = {**raw, block: raw[block] * 2}
        with pytest.raises(InputError, match="names must differ"):
            scenario_from_mapping(twice)


def test_memory_that_does_not_hold_one_request() -> None:
    """The request needs 6144 + 512 tokens; its mean context while decoding is less."""
    for tokens in (100, 6000, 6600):
        with pytest.raises(InputError, match="KV tokens do not hold one request") as caught:
            plan(scenario_from_mapping(changed("replicas.0.kv_tokens", tokens)))
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("rule", ["least_loaded", "round_robin", "central_queue"])
def test_every_dispatch_rule_has_a_law(rule: str) -> None:
    """A pool needs no more replicas than as many alone."""
    pooled = plan(scenario_from_mapping(changed("dispatch", rule)))
    alone = plan(scenario_from_mapping(changed("dispatch", "random")))
    assert pooled.cost_usd_per_hour is not None and alone.cost_usd_per_hour is not None
    assert pooled.cost_usd_per_hour <= alone.cost_usd_per_hour


@pytest.mark.parametrize("rule", ["least_loaded", "round_robin", "central_queue"])
def test_a_fleet_is_evaluated_under_every_dispatch_rule(rule: str) -> None:
    """No slower than under random dispatch (reference notes 1, dispatch)."""
    pooled, alone = (
        evaluate(scenario_from_mapping(changed("dispatch", name)), "4P5D")
        for name in (rule, "random")
    )
    assert [s.metric for s in pooled.slos] == [s.metric for s in alone.slos]
    for found, other in zip(pooled.slos, alone.slos, strict=True):
        assert found.predicted_s is not None and other.predicted_s is not None
        assert found.predicted_s < other.predicted_s


def test_unit_errors_are_input_errors() -> None:
    assert isinstance(refused("traffic.0.slo.ttft.mean", "20 tokens"), UnitError)


FILES = [  # content, words of the message
    (b"", ["empty"]),
    (b"- a\n- b\n", ["mapping"]),
    (b"a: [1, 2", ["not valid YAML", "line"]),
    (b"a:\n\t- b", ["not valid YAML", "line 2"]),
    (b"a: *x", ["not valid YAML", "alias"]),
    (b"a: !!python/object:os.system x", ["not valid YAML"]),
    (b"a: 1\n---\nb: 2", ["not valid YAML", "document"]),
    (bytes(range(256)), ["UTF-8"]),
    (b"\x00\x01\x02", ["not valid YAML"]),
    (b"a: " + b"[" * 20_000, ["not valid YAML"]),
    (b"llm: x\nllm: y\n", ["llm"]),
]


@pytest.mark.parametrize(("content", "words"), FILES, ids=lambda x: repr(x)[:24])
def test_files(content: bytes, words: list[str], tmp_path: Path) -> None:
    """Empty, truncated, binary, hostile: the file is named, in one line."""
    file = tmp_path / "s.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_scenario(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert len(message.splitlines()) == 1
    assert all(word in message for word in words)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.55])
def test_truncated_scenario(share: float, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(paper_text()[: int(share * len(paper_text()))])
    with pytest.raises(InputError) as caught:
        load_scenario(file)
    assert len(str(caught.value).splitlines()) == 1


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=reason) as caught:
            load_scenario(path)
        assert str(caught.value).startswith(f"{path}: ")


def test_unknown_variant() -> None:
    with pytest.raises(InputError, match="known: bench_curve, calibrated"):
        load_scenario(PAPER, "calibrate")


SETS = [  # --set, words of the message
    ("foo", ["path=value"]),
    ("=5", ["path=value"]),
    ("traffic.0.rate=5", ["traffic.0.rate", "unit"]),
    ("traffic.0.rate=[1,", ["cannot read the value"]),
    ("traffic.1.rate=5 req/s", ["traffic.1", "1 entries"]),
    ("traffic.².rate=5 req/s", ["traffic.²"]),
    ("traffic.0.rate.x=5", ["traffic.0.rate.x", "plain value"]),
    ("traffic.0.slo.tttf.mean=1 s", ["tttf", "'ttft'"]),
    ("traffic.0.slo.ttft.p100=1 s", ["traffic.0.slo.ttft.p100"]),
    ("a.b.c=1", ["a: unknown key"]),
    ("replicas.0.calibration.decode=.nan", ["calibration", "decode"]),
    ("prices.h200=3 USD/GPU/hour", ["prices.h200", "plain value"]),
]


@pytest.mark.parametrize(("assignment", "words"), SETS)
def test_overrides(assignment: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(PAPER, None, [assignment])
    assert len(str(caught.value).splitlines()) == 1
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("name", ["p99", "p99.9", "P99.9"])
def test_percentiles_with_a_dot_can_be_set(name: str) -> None:
    scenario = load_scenario(PAPER, None, [f"traffic.0.slo.ttft.{name}=5 s"])
    assert f"ttft.{name.lower()}" in [slo.name for slo in scenario.slos]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stock: {h200: 8}\nstock: {h200: 9}\n", ["'stock' is given twice", "line"]),
        ("name: a\nabout: b\nname: c\n", ["'name' is given twice"]),
    ],
)
def test_a_repeated_key_is_no_silent_choice(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_scenario(file)
    assert all(word in str(caught.value) for word in words)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("stock", {"h200": 40, "h200-sxm": 80}, ["given twice"]),
        ("traffic/0/slo/ttft", {"p99": "2 s", "P99": "3 s"}, ["ttft.p99 is given twice"]),
        (f"{PREFILL}.per_token", "1 ms/token", ["throughput", "per_token", "not both"]),
        (f"{DECODE}.base", "1 ms", ["batch", "base", "not both"]),
    ],
)
def test_two_answers_to_one_question_are_refused(
    path: str, value: object, words: list[str]
) -> None:
    message = str(refused(path, value))
    assert all(word in message for word in words)


def test_a_model_that_does_not_fit_the_memory() -> None:
    """671 billion parameters at 2 bytes do not fit one 141 GB GPU."""
    raw = changed("replicas.0.service", "roofline")
    raw["replicas"][0]["gpus"] = 1
    with pytest.raises(InputError, match="use more GPUs per replica"):
        scenario_from_mapping(raw)
