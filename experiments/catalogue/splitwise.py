"""Profiles of Llama2-70B from the Splitwise measurements (Mutinifni/splitwise-sim)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.catalogue.profiles import Target, decode_block, prefill_block
from experiments.catalogue.tables import READ_ON, medians, read_rows, select

COLUMNS = (
    "model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size",
    "prompt_time", "token_time", "e2e_time",
)  # fmt: skip
STEPS = 128
"""Output tokens of the rows that are used; many longer runs stopped early."""
HONEST = 0.05
"""Greatest gap between a row's own end-to-end time and prompt + steps x step time."""
MEMORY_SHARE = 0.9
GPU_BYTES = 80e9
PARAMETERS = 68_976_648_192
KV_BYTES_PER_TOKEN = 327_680

TARGETS = tuple(Target(gpu, tp, f"{gpu}-80gb") for gpu in ("a100", "h100") for tp in (2, 4, 8))


def profile(root: Path, target: Target) -> dict[str, Any]:
    """Llama2-70B on ``target`` from ``profiles/splitwise/perf_model.csv`` under ``root``."""
    path = root / "profiles" / "splitwise" / "perf_model.csv"
    rows = select(
        read_rows(path, COLUMNS),
        str(path),
        model="llama2-70b",
        hardware=target.source_gpu,
        tensor_parallel=str(target.gpus),
        token_size=str(STEPS),
    )
    prompt_ms, step_ms, total_ms = (
        medians(((int(r["prompt_size"]), int(r["batch_size"])), float(r[name])) for r in rows)
        for name in ("prompt_time", "token_time", "e2e_time")
    )
    kept = [
        key
        for key in step_ms
        if abs((total_ms[key] - prompt_ms[key]) / (STEPS * step_ms[key]) - 1) <= HONEST
    ]
    single = {prompt: ms for (prompt, batch), ms in prompt_ms.items() if batch == 1}
    kv_bytes = MEMORY_SHARE * GPU_BYTES * target.gpus - 2 * PARAMETERS
    return {
        "name": f"splitwise/llama2-70b/{target.gpu}-tp{target.gpus}",
        "llm": "llama2-70b",
        "gpu": target.gpu,
        "gpus": target.gpus,
        "engine": "vLLM (late 2023; version not recorded)",
        "prefill": prefill_block(single),
        "decode": decode_block(
            [(batch, prompt + STEPS // 2, step_ms[prompt, batch]) for prompt, batch in kept]
        ),
        "kv_tokens": int(kv_bytes // KV_BYTES_PER_TOKEN),
        "kv_source": (
            "estimate: (0.9 x 80 GB x GPUs - 2 bytes x parameters) / KV bytes per token; 0.9 is"
            " vLLM's default share of memory, and activations are not taken off"
        ),
        "estimates": ["kv_tokens"],
        "provenance": {
            "source": "github.com/Mutinifni/splitwise-sim @8f99e7d, data/perf_model.csv",
            "date": READ_ON,
            "licence": "MIT, Copyright (c) 2024 Pratyush Patel",
            "note": _note(len(step_ms) - len(kept)),
        },
    }


def _note(dropped: int) -> str:
    note = (
        "Medians over the repeats of one prompt length and batch, 128 output tokens. Context while"
        " measured is taken as the prompt plus 64. Batches above 1 were measured at 512 prompt"
        " tokens only and other prompts at batch 1 only: the context coefficient rests on batch 1,"
        " and a large batch of long contexts is extrapolated (probably too slow)."
    )
    if dropped:
        note += (
            f" {dropped} decode point(s) left out: their end-to-end time is not prompt + 128 steps,"
            " as when the batch does not fit in memory."
        )
    return note
