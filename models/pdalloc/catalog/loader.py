"""The catalogue: GPUs, models, measured profiles, price lists and length tables.

One YAML file per entry, each number with source, date and licence beside it; adding an
entry is adding a file. Entries are found by their ``name`` (GPUs also by alias).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import yaml

from pdalloc.errors import InputError
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode
from pdalloc.latency.measured import Curve, MeasuredPrefill
from pdalloc.latency.service import Latency
from pdalloc.units import parse_quantity
from pdalloc.workload.lengths import LengthLaw, joint_table

KINDS = ("gpus", "llms", "profiles", "prices", "lengths")
Entry = dict[str, Any]


@cache
def entries(kind: str) -> Mapping[str, Entry]:
    """Every entry of ``kind`` (one of KINDS) by name, as read from its file."""
    found: dict[str, Entry] = {}
    folder = resources.files("pdalloc.catalog") / kind
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            entry = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)
            found[entry["name"]] = entry
    return found


def entry(kind: str, name: str, where: str) -> Entry:
    """One entry by name or alias, in any case; InputError names the nearest and the rest."""
    known = entries(kind)
    if name in known:
        return known[name]
    for candidate in known.values():
        names = [candidate["name"], *candidate.get("aliases", [])]
        if name.lower() in [str(other).lower() for other in names]:
            return candidate
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(
        f"{where}: no {kind[:-1] if kind != 'lengths' else 'length table'} called {name!r} in the "
        f"catalogue; {hint}known: {', '.join(known)}"
    )


def gpu(name: str, where: str = "gpu") -> Gpu:
    """A GPU by name or alias."""
    found = entry("gpus", name, where)
    sheet = found["datasheet"]

    def number(key: str, dimension: str) -> float | None:
        return parse_quantity(sheet[key], dimension, f"gpu {name}") if key in sheet else None

    return Gpu(
        name=found["name"],
        title=found["title"],
        memory_bytes=number("memory", "bytes"),
        memory_bandwidth=number("memory_bandwidth", "bandwidth"),
        flops=number("bf16_dense", "flops"),
        aliases=tuple(found.get("aliases", ())),
        node_label=found.get("node_label", {}),
        aiconfigurator_system=found.get("aiconfigurator_system"),
    )


def llm(name: str, where: str = "llm") -> Llm:
    """A language model by name."""
    found = entry("llms", name, where)
    facts = found["architecture"]
    return Llm(
        name=found["name"],
        title=found["title"],
        parameters=float(facts["parameters"]),
        kv_bytes_per_token=float(facts["kv_bytes_per_token"]),
        context_window=float(facts["context_window_tokens"]),
        active_parameters=float(facts.get("active_parameters", facts["parameters"])),
    )


def profile_latency(found: Entry) -> Latency:
    """Service times of a measured profile entry (seconds inside, as the file has them)."""
    prefill, decode = found["prefill"], found["decode"]
    curve = Curve(
        f"prefill of profile {found['name']}",
        np.array(prefill["prompt_tokens"], float),
        np.array(prefill["seconds"], float),
    )
    low, high = decode["batch_range"]
    step = AffineDecode(
        decode["base_s"],
        decode["per_request_s"],
        decode["per_context_token_s"],
        range_batch=(float(low), float(high)),
    )
    return Latency(
        prefill=MeasuredPrefill(curve),
        decode=step,
        source=f"{found['name']} ({found['provenance']['source']})",
        estimates=tuple(found.get("estimates", ())),
    )


def usd_per_gpu_hour(price_list: str, gpu_name: str, where: str) -> float:
    """Price of one GPU in USD/hour on a list; InputError when the list has no such GPU."""
    found = entry("prices", price_list, where)
    for price in found["prices"]:
        if price["gpu"] == gpu_name:
            return float(price["usd_per_gpu_hour"])
    raise InputError(f"{where}: price list {price_list!r} has no price for {gpu_name!r}; give one")


def length_law(name: str, where: str) -> LengthLaw:
    """A joint prompt/output length table."""
    found = entry("lengths", name, where)
    rows = np.array(found["rows"], float)
    return joint_table(rows[:, 0], rows[:, 1], rows[:, 2])
