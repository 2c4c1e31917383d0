"""Profiles of Llama-3.1-70B from AIConfigurator's measured kernel tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.catalogue.profiles import Target, decode_block, prefill_block
from experiments.catalogue.tables import READ_ON, Row, read_rows, select

MODEL = "meta-llama/Meta-Llama-3.1-70B"
COLUMNS = (
    "gpu", "model", "parallel", "phase", "batch", "input_tokens", "context_tokens",
    "latency_ms", "backend_version", "fits_kv_memory",
)  # fmt: skip
WORKER_COLUMNS = ("gpu", "model", "backend", "parallel", "kv_tokens_max")
MAX_BATCH, MAX_CONTEXT = 256, 16384

TARGETS = tuple(Target(gpu, tp, f"{gpu}_sxm") for gpu in ("a100", "h100") for tp in (4, 8))


def profile(root: Path, target: Target) -> dict[str, Any]:
    """Llama-3.1-70B (BF16, vLLM) on ``target`` from the curves/ tables under ``root``."""
    folder, parallel = root / "curves", f"tp{target.gpus}"
    of_model = {"gpu": target.source_gpu, "model": MODEL}
    path = folder / f"{target.source_gpu}_vllm.csv"
    rows = select(read_rows(path, COLUMNS), str(path), parallel=parallel, **of_model)
    workers = folder / "workers.csv"
    worker = select(
        read_rows(workers, WORKER_COLUMNS),
        str(workers),
        backend="vllm",
        parallel=parallel,
        **of_model,
    )[0]
    single = {
        int(row["input_tokens"]): float(row["latency_ms"])
        for row in select(rows, str(path), phase="prefill", batch="1")
    }
    version = rows[0]["backend_version"]
    return {
        "name": f"aiconfigurator/llama-3.1-70b/{target.gpu}-{parallel}",
        "llm": "llama-3.1-70b",
        "gpu": target.gpu,
        "gpus": target.gpus,
        "engine": f"vLLM {version}",
        "prefill": prefill_block(single),
        "decode": decode_block(_curve_steps(select(rows, str(path), phase="decode"))),
        "kv_tokens": int(float(worker["kv_tokens_max"])),
        "kv_source": "AIConfigurator's own capacity model (0.12.0); not read from a running engine",
        "estimates": ["kv_tokens"],
        "provenance": {
            "source": "aiconfigurator-core 0.12.0, kernel tables as collected (silicon)",
            "date": READ_ON,
            "licence": "Apache-2.0, Copyright (c) 2025 NVIDIA CORPORATION & AFFILIATES",
            "note": (
                "Each time is the sum of measured kernels for one forward pass, interpolated by"
                " AIConfigurator: no scheduling overhead, no queueing. The engine version differs"
                " by GPU (vLLM 0.14.0 on A100, 0.24.0 on H100), so a comparison of the two also"
                " compares engines. Decode points are those AIConfigurator says fit in KV memory."
            ),
        },
    }


def _curve_steps(rows: list[Row]) -> list[tuple[int, int, float]]:
    """(batch, context per request, ms) of the rows that fit in memory and in our range."""
    return [
        (int(row["batch"]), int(row["context_tokens"]), float(row["latency_ms"]))
        for row in rows
        if row["fits_kv_memory"] == "True"
        and int(row["batch"]) <= MAX_BATCH
        and int(row["context_tokens"]) <= MAX_CONTEXT
    ]
