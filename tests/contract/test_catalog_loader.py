"""The catalogue as code sees it: found by name, in SI, as the files say, and fit for a plan."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import yaml

from pdalloc.capacity import Capacity
from pdalloc.catalog import loader
from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.report.catalogue import print_catalogue
from pdalloc.scenario import scenario_from_mapping


def raw(kind: str) -> dict[str, dict[str, Any]]:
    """Entries by name, straight from the files."""
    folder = files("pdalloc") / "catalog" / kind
    read = [
        yaml.safe_load(f.read_text("utf-8")) for f in folder.iterdir() if f.name[-5:] == ".yaml"
    ]
    return {entry["name"]: entry for entry in read}


RAW = {kind: raw(kind) for kind in loader.KINDS}
GPUS, LLMS, PROFILES = (sorted(RAW[kind]) for kind in ("gpus", "llms", "profiles"))


@pytest.mark.parametrize("kind", loader.KINDS)
def test_entries_are_the_files(kind: str) -> None:
    assert dict(loader.entries(kind)) == RAW[kind]
    for name in RAW[kind]:
        assert loader.entry(kind, name, "here")["name"] == name


@pytest.mark.parametrize("name", GPUS)
def test_gpus_are_in_si(name: str) -> None:
    """GB, GB/s and TFLOP/s of the datasheet become bytes, bytes/s and FLOP/s."""
    gpu, sheet = loader.gpu(name), RAW["gpus"][name]["datasheet"]
    for value, text, unit, factor in (
        (gpu.memory_bytes, sheet["memory"], "GB", 1e9),
        (gpu.memory_bandwidth, sheet["memory_bandwidth"], "GB/s", 1e9),
        (gpu.flops, sheet["bf16_dense"], "TFLOP/s", 1e12),
    ):
        number, found = text.split()
        assert found == unit
        assert value == pytest.approx(float(number) * factor, rel=1e-12)
    assert gpu.title == RAW["gpus"][name]["title"]


@pytest.mark.parametrize("name", GPUS)
def test_gpus_are_found_by_every_alias(name: str) -> None:
    gpu = loader.gpu(name)
    for alias in RAW["gpus"][name].get("aliases", []):
        assert loader.gpu(alias) == loader.gpu(alias.upper()) == gpu


@pytest.mark.parametrize("name", LLMS)
def test_models_are_as_the_files_say(name: str) -> None:
    llm, facts = loader.llm(name), RAW["llms"][name]["architecture"]
    assert llm.parameters == facts["parameters"]
    assert 0 < llm.active_parameters <= llm.parameters
    assert llm.kv_bytes_per_token == facts["kv_bytes_per_token"]
    assert llm.kv_bytes(1000.0) == 1000 * facts["kv_bytes_per_token"]
    assert llm.context_window == facts["context_window_tokens"]


NEAR = [  # kind, misspelt, nearest, what the message calls the kind
    ("gpus", "h1000", "h100", "gpu"),
    ("llms", "llama-3.1-8", "llama-3.1-8b", "llm"),
    ("prices", "coreweave-2024", "coreweave-2023", "price"),
    ("profiles", "splitwise/llama2-70b/a100-tp9", "splitwise/llama2-70b/a100-tp8", "profile"),
    ("lengths", "azure-2023-conversations", "azure-2023-conversation", "length table"),
]


@pytest.mark.parametrize(("kind", "name", "nearest", "word"), NEAR)
def test_a_near_miss_names_the_nearest_and_the_rest(
    kind: str, name: str, nearest: str, word: str
) -> None:
    with pytest.raises(InputError) as caught:
        loader.entry(kind, name, "replicas.0.gpu")
    message = str(caught.value)
    assert message.startswith(f"replicas.0.gpu: no {word} called {name!r}")
    assert "did you mean" in message and len(message.splitlines()) == 1
    suggested = message.split("did you mean ")[1].split("?")[0].strip("'")
    assert suggested == nearest or (kind == "profiles" and suggested in RAW[kind])
    assert all(known in message.split("known: ")[1] for known in RAW[kind])


@pytest.mark.parametrize("kind", loader.KINDS)
def test_nothing_near_suggests_nothing(kind: str) -> None:
    for name in ("", "???"):
        with pytest.raises(InputError) as caught:
            loader.entry(kind, name, "here")
        assert "did you mean" not in str(caught.value) and "known: " in str(caught.value)


def test_an_unknown_kind_names_the_kinds() -> None:
    with pytest.raises(InputError) as caught:
        print_catalogue("gpu")
    assert all(kind in str(caught.value) for kind in loader.KINDS)


@pytest.mark.parametrize("price_list", sorted(RAW["prices"]))
def test_prices_are_as_the_lists_say(price_list: str) -> None:
    priced = {p["gpu"]: p["usd_per_gpu_hour"] for p in RAW["prices"][price_list]["prices"]}
    assert set(priced) <= set(GPUS)
    for gpu in GPUS:
        if gpu in priced:
            assert loader.usd_per_gpu_hour(price_list, gpu, "prices") == priced[gpu] > 0
        else:
            with pytest.raises(InputError, match=f"prices: price list '{price_list}'.*'{gpu}'"):
                loader.usd_per_gpu_hour(price_list, gpu, "prices")


@pytest.mark.parametrize("name", sorted(RAW["lengths"]))
def test_length_laws_are_the_tables(name: str) -> None:
    """Weights are counts over their sum; mean and P(prompt <= x) follow."""
    law, rows = loader.length_law(name, "here"), RAW["lengths"][name]["rows"]
    count = sum(row[2] for row in rows)
    assert law.weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert law.weight == pytest.approx([row[2] / count for row in rows])
    assert law.mean_prompt == pytest.approx(sum(row[0] * row[2] for row in rows) / count)
    assert law.mean_output == pytest.approx(sum(row[1] * row[2] for row in rows) / count)
    median = sorted(row[0] for row in rows)[len(rows) // 2]
    below = sum(row[2] for row in rows if row[0] <= median) / count
    assert float(law.weight[law.prompt <= median].sum()) == pytest.approx(below)


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_go_through_their_points(name: str) -> None:
    """Measured prompts give the measured seconds; a step is a + b B + c S."""
    found = RAW["profiles"][name]
    latency = loader.profile_latency(found)
    prompts = np.array(found["prefill"]["prompt_tokens"], float)
    seconds = latency.prefill_seconds(prompts, np.zeros_like(prompts))
    assert seconds == pytest.approx(found["prefill"]["seconds"], rel=1e-9)
    assert latency.prefill.range_tokens == (prompts[0], prompts[-1])
    step = found["decode"]
    batch, context = np.array([1.0, 7.0]), np.array([500.0, 9000.0])
    expected = (
        step["base_s"] + step["per_request_s"] * batch + step["per_context_token_s"] * context
    )
    assert latency.step_seconds(batch, context) == pytest.approx(expected, rel=1e-12)
    assert latency.decode.range_batch == tuple(step["batch_range"])
    assert found["name"] in latency.source and found["provenance"]["source"] in latency.source
    assert latency.estimates == tuple(found["estimates"])


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_positive_and_never_faster_for_more(name: str) -> None:
    """Inside the table, below it and beyond it."""
    latency = loader.profile_latency(RAW["profiles"][name])
    prompts = np.geomspace(1, 65536, 400)
    seconds = latency.prefill_seconds(prompts, np.zeros_like(prompts))
    assert np.all(seconds > 0) and np.all(np.diff(seconds) >= 0)
    batches = np.arange(1.0, 513.0)
    steps = latency.step_seconds(batches, 1000.0 * batches)
    assert np.all(steps > 0) and np.all(np.diff(steps) > 0)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_serves_in_a_system(name: str) -> None:
    """A replica of it admits traffic in both roles, below what keeps it fully busy."""
    found = RAW["profiles"][name]
    slo = {"ttft": {"mean": "9 s"}, "tpot": {"mean": "900 ms"}}
    lengths = {"prompt": "512 tokens", "output": "64 tokens"}
    replica = {key: found[key] for key in ("gpu", "gpus")} | {"profile": name, "max_batch": 64}
    scenario = scenario_from_mapping(
        {
            "name": "profile",
            "llm": found["llm"],
            "traffic": [{"rate": "1 req/s", "slo": slo, **lengths}],
            "replicas": [replica],
            "prices": {found["gpu"]: "3 USD/GPU/hour"},
            "first_token": "transfer",
        }
    )
    (r,) = scenario.system.replica_types.values()
    assert r.usd_per_hour == pytest.approx(3 * found["gpus"])
    assert r.kv_tokens == found["kv_tokens"]
    capacity = Capacity(scenario.system, scenario.slos)
    for role in (PREFILL, DECODE):
        assert 0 < capacity.relaxed_rate(role, r) < capacity.stability_limit(role, r)


def test_a_profile_of_another_replica_is_refused() -> None:
    replica = {"gpu": "a100", "gpus": 4, "profile": "splitwise/llama2-70b/a100-tp8"}
    traffic = {"rate": "1 req/s", "prompt": "9 tokens", "output": "9 tokens",
               "slo": {"ttft": {"mean": "9 s"}}}  # fmt: skip
    base = {"name": "x", "llm": "llama2-70b", "traffic": [traffic], "prices": "coreweave-2023"}
    with pytest.raises(InputError, match="was measured for llama2-70b on 8 x a100"):
        scenario_from_mapping(base | {"replicas": [replica]})
