"""The catalogue's YAML: parses, has a provenance for every number, and keeps its own claims.

The second half runs the generator (experiments/catalogue) on made-up tables with known answers.
"""

from __future__ import annotations

import csv
import datetime
import math
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pdalloc.errors import InputError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.catalogue import aiconfigurator, lengths, run, splitwise
from experiments.catalogue.documents import text, write
from experiments.catalogue.profiles import Target, decode_block, prefill_block

KINDS = ("gpus", "llms", "prices", "profiles", "lengths")
PROMPT_TOLERANCE = {"mean": 0.005, "second_moment": 0.005, "p50": 0.01, "p90": 0.01, "p99": 0.02}
OUTPUT_TOLERANCE = {"mean": 0.005, "second_moment": 0.02, "p50": 0.06, "p90": 0.02, "p99": 0.05}


def load(kind: str) -> dict[str, dict[str, Any]]:
    folder = files("pdalloc") / "catalog" / kind
    return {
        entry.name: yaml.safe_load(entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    }


CATALOG = {kind: load(kind) for kind in KINDS}
FILES = [(kind, name) for kind in KINDS for name in sorted(CATALOG[kind])]
PROFILES = {name: CATALOG["profiles"][name] for name in sorted(CATALOG["profiles"])}
LENGTHS = {name: CATALOG["lengths"][name] for name in sorted(CATALOG["lengths"])}


def names(kind: str) -> list[str]:
    return [entry["name"] for entry in CATALOG[kind].values()]


def sourced_blocks(kind: str, entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The blocks of ``entry`` that must say where their numbers come from."""
    if kind == "prices":
        yield from entry["prices"]
    else:
        yield entry[{"gpus": "datasheet", "llms": "architecture"}.get(kind, "provenance")]


def quantity(text: str, unit: str) -> float:
    number, found = text.split()
    assert found == unit
    return float(number)


def test_every_kind_has_entries() -> None:
    assert all(CATALOG[kind] for kind in KINDS)


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_every_number_has_source_date_and_licence(kind: str, name: str) -> None:
    blocks = list(sourced_blocks(kind, CATALOG[kind][name]))
    assert blocks
    for block in blocks:
        assert isinstance(block["source"], str) and block["source"].strip()
        assert isinstance(block["licence"], str) and block["licence"].strip()
        assert datetime.date.fromisoformat(block["date"]) <= datetime.date.today()


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_unique_and_name_their_file(kind: str) -> None:
    assert len(set(names(kind))) == len(names(kind))
    for file, entry in CATALOG[kind].items():
        assert file == entry["name"].replace("/", "-") + ".yaml"


def test_gpu_aliases_name_one_gpu() -> None:
    every = [name for gpu in CATALOG["gpus"].values() for name in [gpu["name"], *gpu["aliases"]]]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("name", sorted(CATALOG["gpus"]))
def test_datasheets_carry_units(name: str) -> None:
    sheet = CATALOG["gpus"][name]["datasheet"]
    assert 16 <= quantity(sheet["memory"], "GB") <= 1000
    assert 100 <= quantity(sheet["memory_bandwidth"], "GB/s") <= 20_000
    assert 50 <= quantity(sheet["bf16_dense"], "TFLOP/s") <= 10_000


@pytest.mark.parametrize("name", sorted(CATALOG["llms"]))
def test_kv_bytes_follow_from_the_architecture(name: str) -> None:
    """GQA caches K and V of every head; MLA caches one latent vector per layer."""
    arch = CATALOG["llms"][name]["architecture"]
    vectors = {"gqa": 2, "mla": 1}[arch["attention"]]
    elements = vectors * arch["layers"] * arch["kv_heads"] * arch["head_dim"]
    assert arch["kv_bytes_per_token"] == elements * arch["kv_bytes_per_element"]
    assert 0 < arch["active_parameters"] <= arch["parameters"]
    assert arch["context_window_tokens"] >= 4096


def test_kv_bytes_known_by_hand() -> None:
    known = {"llama2-70b": 327_680, "llama-3.1-8b": 131_072, "deepseek-v3.1-terminus": 70_272}
    for name, value in known.items():
        architecture = CATALOG["llms"][f"{name}.yaml"]["architecture"]
        assert architecture["kv_bytes_per_token"] == value


@pytest.mark.parametrize("name", sorted(CATALOG["prices"]))
def test_prices_are_positive_for_known_gpus_named_once(name: str) -> None:
    prices = CATALOG["prices"][name]["prices"]
    gpus = [price["gpu"] for price in prices]
    assert set(gpus) <= set(names("gpus")) and len(set(gpus)) == len(gpus)
    assert all(0 < price["usd_per_gpu_hour"] < 100 and price["basis"] for price in prices)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_profiles_name_known_things(profile: dict[str, Any]) -> None:
    assert profile["llm"] in names("llms") and profile["gpu"] in names("gpus")
    assert isinstance(profile["gpus"], int) and profile["gpus"] >= 1
    assert profile["engine"] and profile["kv_source"]
    assert set(profile["estimates"]) <= set(profile)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_profile_curves_are_usable(profile: dict[str, Any]) -> None:
    prefill, decode = profile["prefill"], profile["decode"]
    assert prefill["kind"] == "measured" and decode["kind"] == "affine"
    tokens, seconds = np.array(prefill["prompt_tokens"]), np.array(prefill["seconds"])
    assert len(tokens) == len(seconds) >= 3 and tokens[0] > 0 and seconds[0] > 0
    assert np.all(np.diff(tokens) > 0) and np.all(np.diff(seconds) >= 0)
    coefficients = [decode[key] for key in ("base_s", "per_request_s", "per_context_token_s")]
    assert all(isinstance(c, float) and math.isfinite(c) and c >= 0 for c in coefficients)
    assert coefficients[0] > 0
    for key in ("batch_range", "context_range_tokens"):
        least, greatest = decode[key]
        assert 0 < least < greatest
    assert 0 < decode["worst_relative_error"] <= 0.15


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_kv_tokens_fit_beside_the_weights(profile: dict[str, Any]) -> None:
    """KV plus BF16 weights stay below the memory; Splitwise's estimate is exactly its formula."""
    arch = CATALOG["llms"][f"{profile['llm']}.yaml"]["architecture"]
    sheet = CATALOG["gpus"][f"{profile['gpu']}.yaml"]["datasheet"]
    memory = quantity(sheet["memory"], "GB") * 1e9 * profile["gpus"]
    kv = profile["kv_tokens"] * arch["kv_bytes_per_token"]
    assert 0 < kv < memory - 2 * arch["parameters"]
    if profile["name"].startswith("splitwise/"):
        estimate = (0.9 * memory - 2 * arch["parameters"]) / arch["kv_bytes_per_token"]
        assert profile["kv_tokens"] == math.floor(estimate)


def statistics(values: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """Mean, second moment and percentiles by the inverted distribution function; arrays (n,)."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    return {
        "mean": float(weight @ values),
        "second_moment": float(weight @ values**2),
        **{
            f"p{p}": float(values[order][np.searchsorted(share, p / 100 - 1e-9)])
            for p in (50, 90, 99)
        },
    }


@pytest.mark.parametrize("law", LENGTHS.values(), ids=LENGTHS.keys())
def test_length_tables_match_their_trace(law: dict[str, Any]) -> None:
    assert law["columns"] == ["prompt_tokens", "output_tokens", "count"]
    assert all(type(number) is int and number >= 1 for row in law["rows"] for number in row)
    prompt, output, count = np.array(law["rows"], float).T
    assert count.sum() == law["trace"]["requests"]
    weight = count / count.sum()
    sides = (("prompt", prompt, PROMPT_TOLERANCE), ("output", output, OUTPUT_TOLERANCE))
    for side, values, tolerance in sides:
        trace = law["trace"][side]
        wanted = {**trace, "second_moment": trace["mean"] ** 2 * (1 + trace["scv"])}
        for key, value in statistics(values, weight).items():
            assert value == pytest.approx(wanted[key], rel=tolerance[key]), f"{side} {key}"
    cross = (weight @ (prompt * output)) / ((weight @ prompt) * (weight @ output))
    wanted_cross = law["trace"]["mean_of_product_over_product_of_means"]
    assert cross == pytest.approx(wanted_cross, rel=0.005)


@pytest.mark.parametrize("law", LENGTHS.values(), ids=LENGTHS.keys())
def test_length_tables_have_no_cell_twice(law: dict[str, Any]) -> None:
    cells = [tuple(row[:2]) for row in law["rows"]]
    assert len(set(cells)) == len(cells)
    assert law["provenance"]["attribution"]


def test_azure_statistics_known_from_elsewhere() -> None:
    """Means and SCVs of the two traces, worked out before and apart from this generator."""
    code = LENGTHS["azure-2023-code.yaml"]["trace"]
    conversation = LENGTHS["azure-2023-conversation.yaml"]["trace"]
    assert (code["requests"], conversation["requests"]) == (8819, 19366)
    assert code["prompt"]["mean"] == pytest.approx(2047.8483, rel=1e-6)
    assert code["output"]["scv"] == pytest.approx(4.6089, rel=1e-4)
    assert conversation["prompt"]["scv"] == pytest.approx(0.9221, rel=1e-3)
    assert conversation["output"]["mean"] == pytest.approx(211.1259, rel=1e-6)


# The generator, on made-up tables.

A, B, C = 0.03, 2e-4, 1e-7
REFERENCE = run.VARIABLE


def save(path: Path, header: tuple[str, ...], rows: list[list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([header, *rows])


def splitwise_rows(hardware: str, gpus: int) -> list[list[Any]]:
    """Steps on A + B batch + C context; 128 tokens slower than 256; one row that lies."""
    rows: list[list[Any]] = []
    points = [(prompt, 1) for prompt in (128, 256, 512, 1024, 4096)] + [(512, 8), (512, 64)]
    for prompt, batch in points:
        step = 1e3 * (A + B * batch + C * batch * (prompt + 64))
        first = {128: 60.0, 256: 50.0}.get(prompt, prompt / 8)
        for noise in (0.0, 0.0, 5.0):
            end = first + noise + 128 * step
            cells = [prompt, batch, 128, first + noise, step, end, gpus]
            rows.append(["llama2-70b", hardware, *cells])
    rows.append(["llama2-70b", hardware, 512, 128, 128, 1.0, 1.0, 9e5, gpus])
    rows.append(["llama2-70b", hardware, 512, 1, 8192, 1.0, 1.0, 130.0, gpus])
    return rows


SPLITWISE_HEADER = (
    "model", "hardware", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time",
    "e2e_time", "tensor_parallel",
)  # fmt: skip


def curve_rows(gpu: str, gpus: int) -> list[list[Any]]:
    """Steps on A + B batch + C context, and nonsense wherever the generator must not look."""
    shared = [gpu, aiconfigurator.MODEL, f"tp{gpus}", "0.24.0"]
    rows = [[*shared, "prefill", 1, n, "", n / 10, "True"] for n in (128, 1024, 8192)]
    rows.append([*shared, "prefill", 2, 128, "", 1e9, "True"])
    for batch in (1, 16, 256):
        for context in (256, 4096, 16384):
            ms = 1e3 * (A + B * batch + C * batch * context)
            rows.append([*shared, "decode", batch, "", context, ms, "True"])
    for batch, context, fits in ((256, 16384, "False"), (512, 256, "True"), (1, 32768, "True")):
        rows.append([*shared, "decode", batch, "", context, 1e9, fits])
    return rows


CURVE_HEADER = (
    "gpu", "model", "parallel", "backend_version", "phase", "batch", "input_tokens",
    "context_tokens", "latency_ms", "fits_kv_memory",
)  # fmt: skip


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """A folder with every table the generator reads."""
    root = tmp_path / "reference"
    rows = [row for t in splitwise.TARGETS for row in splitwise_rows(t.source_gpu, t.gpus)]
    save(root / "profiles" / "splitwise" / "perf_model.csv", SPLITWISE_HEADER, rows)
    workers = []
    for gpu in ("a100_sxm", "h100_sxm"):
        save(
            root / "curves" / f"{gpu}_vllm.csv",
            CURVE_HEADER,
            curve_rows(gpu, 4) + curve_rows(gpu, 8),
        )
        for tp in ("tp4", "tp8"):
            workers.append([gpu, aiconfigurator.MODEL, "sglang", tp, "1.0"])
            workers.append([gpu, aiconfigurator.MODEL, "vllm", tp, "123456.0"])
    save(root / "curves" / "workers.csv", aiconfigurator.WORKER_COLUMNS, workers)
    draw = np.random.default_rng(1)
    for trace in lengths.AZURE:
        pairs = draw.integers(3, 4000, (1500, 2)).tolist()
        stamped = [["2023-11-16 18:17:03.9799600", *pair] for pair in pairs]
        save(root / trace.file, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), stamped)
    return root


def known_decode(block: dict[str, Any]) -> None:
    got = [block[key] for key in ("base_s", "per_request_s", "per_context_token_s")]
    assert got == pytest.approx([A, B, C], rel=1e-4)
    assert block["worst_relative_error"] < 1e-9


def test_splitwise_generator_takes_medians_and_drops_rows_that_lie(reference: Path) -> None:
    profile = splitwise.profile(reference, Target("h100", 8, "h100-80gb"))
    known_decode(profile["decode"])
    assert profile["decode"]["batch_range"] == [1, 64]
    assert profile["decode"]["context_range_tokens"] == [192, 4160]
    assert profile["prefill"]["prompt_tokens"] == [128, 256, 512, 1024, 4096]
    assert profile["prefill"]["seconds"] == pytest.approx([0.055, 0.055, 0.064, 0.128, 0.512])
    assert "1 decode point(s) left out" in profile["provenance"]["note"]


def test_aiconfigurator_generator_keeps_to_what_fits_and_is_in_range(reference: Path) -> None:
    profile = aiconfigurator.profile(reference, Target("a100", 4, "a100_sxm"))
    known_decode(profile["decode"])
    assert profile["prefill"]["seconds"] == pytest.approx([0.0128, 0.1024, 0.8192])
    assert profile["kv_tokens"] == 123456 and profile["engine"] == "vLLM 0.24.0"


def test_lengths_generator_counts_every_request_once(reference: Path) -> None:
    law, rows = lengths.lengths_table(reference, lengths.AZURE[0])
    assert sum(count for *_, count in rows) == law["trace"]["requests"] == 1500
    prompt, output, count = np.array(rows).T
    reduced = lengths.summary(prompt, output, count)
    for side in ("prompt", "output"):
        assert reduced[side]["mean"] == pytest.approx(law["trace"][side]["mean"], rel=0.002)
        assert reduced[side]["p99"] == pytest.approx(law["trace"][side]["p99"], rel=0.02)


def test_length_summary_by_hand() -> None:
    """Prompts 1, 1, 4 with outputs 2, 2, 8: mean 2, E[x^2] 6, SCV 1/2; product ratio 3/2."""
    got = lengths.summary(np.array([4, 1]), np.array([8, 2]), np.array([1, 2]))
    assert got["prompt"] == {"mean": 2.0, "scv": 0.5, "p50": 1, "p90": 4, "p99": 4}
    assert got["mean_of_product_over_product_of_means"] == 1.5


def test_tables_are_written_one_prompt_a_line_and_read_back(tmp_path: Path) -> None:
    rows = [[5, 1, 2], [5, 3, 4], [7, 1, 1]]
    path = write(tmp_path / "deep" / "law.yaml", {"name": "x"}, rows)
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == {"name": "x", "rows": rows}
    assert text({"name": "x"}, rows).endswith("rows: [\n  [5,1,2], [5,3,4],\n  [7,1,1],\n]\n")


def test_a_poor_decode_fit_is_refused_and_a_falling_table_is_mended() -> None:
    bent = [(b, c, float(b * c) ** 0.5) for b in (1, 8, 64) for c in (128, 1024, 8192)]
    with pytest.raises(InputError, match="narrow the range"):
        decode_block(bent)
    assert prefill_block({512: 30.0, 128: 20.0, 256: 10.0})["seconds"] == [0.015, 0.015, 0.03]


def test_run_writes_the_same_bytes_twice(reference: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        assert run.main({REFERENCE: str(reference)}, folder) == 0
    first, second = (
        {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*.yaml"))}
        for folder in folders
    )
    assert first == second and len(first) == 12
    generated = {path.name for path in first}
    assert generated == set(PROFILES) | set(LENGTHS)


@pytest.mark.parametrize("environ", [{}, {REFERENCE: ""}, {REFERENCE: "no/such/folder"}])
def test_run_without_reference_data_is_one_line_and_exit_2(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(environ, tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and not captured.out
    assert REFERENCE in captured.err or "no/such/folder" in captured.err
    assert not list(tmp_path.iterdir())


def test_a_table_without_the_row_says_which(reference: Path) -> None:
    with pytest.raises(InputError, match="tensor_parallel=16"):
        splitwise.profile(reference, Target("h100", 16, "h100-80gb"))
