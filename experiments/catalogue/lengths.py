"""A request trace -> joint table of prompt and output lengths, with the trace's statistics.

Requests are sorted by prompt and cut into bins of equal count, finer in the upper tail; each
bin's outputs are cut the same way. A cell keeps its mean prompt, mean output and count, so the
dependence of output on prompt survives and a mean is kept exactly before rounding.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from experiments.catalogue.documents import significant
from experiments.catalogue.tables import READ_ON, read_rows
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PROMPT_BINS = 32
PROMPT_EXTRA = (
    0.4925, 0.5075, 0.885, 0.895, 0.905, 0.9155,
    0.979, 0.985, 0.9885, 0.9915, 0.995, 0.9975, 0.999, 0.9995,
)  # fmt: skip
"""Extra cuts: narrow bins around P50, P90 and P99, and a tail halved again and again."""
OUTPUT_CELLS = 8
OUTPUT_EXTRA = (0.9, *(1 - 2.0**-k for k in range(4, 9)))


@dataclass(frozen=True)
class Trace:
    """One trace to reduce: its catalogue name, title and file under the reference folder."""

    name: str
    title: str
    file: str


AZURE = (
    Trace(
        "azure-2023-conversation",
        "Azure LLM inference trace 2023, conversation",
        "traces/azure2023_conv/AzureLLMInferenceTrace_conv.csv",
    ),
    Trace(
        "azure-2023-code",
        "Azure LLM inference trace 2023, code",
        "traces/azure2023_code/AzureLLMInferenceTrace_code.csv",
    ),
)


def lengths_table(root: Path, trace: Trace) -> tuple[dict[str, Any], list[list[int]]]:
    """Catalogue length law of ``trace``, whose CSV lies under ``root``: description and rows."""
    records = read_rows(root / trace.file, ("ContextTokens", "GeneratedTokens"))
    prompt = np.array([int(record["ContextTokens"]) for record in records])
    output = np.array([int(record["GeneratedTokens"]) for record in records])
    file = Path(trace.file).name
    law = {
        "name": trace.name,
        "title": trace.title,
        "columns": ["prompt_tokens", "output_tokens", "count"],
        "trace": summary(prompt, output, np.ones(len(prompt), np.int64)),
        "provenance": {
            "source": f"github.com/Azure/AzurePublicDataset @b469a11, data/{file}",
            "date": READ_ON,
            "licence": "CC-BY-4.0",
            "attribution": (
                f"{trace.title}, Microsoft Azure Public Dataset, CC-BY 4.0, described in Patel et"
                " al., Splitwise: Efficient Generative LLM Inference Using Phase Splitting, ISCA"
                " 2024; reduced here to a table of binned means"
            ),
            "note": (
                "Weight of a row = count / sum of counts. Lengths only: arrival times are not"
                " kept. The block 'trace' describes the whole trace; a percentile there is the"
                " least length that at least that share of requests does not exceed."
            ),
        },
    }
    return law, joint_rows(prompt, output)


def joint_rows(prompt: Ints, output: Ints) -> list[list[int]]:
    """Rows [mean prompt, mean output, count] of all cells; ``prompt``, ``output`` are (n,)."""
    order = np.lexsort((output, prompt))
    prompt, output = prompt[order], output[order]
    cells: Counter[tuple[int, int]] = Counter()
    for first, last in _cuts(len(prompt), PROMPT_BINS, PROMPT_EXTRA):
        tokens = max(1, round(float(prompt[first:last].mean())))
        outputs = np.sort(output[first:last])
        for low, high in _cuts(len(outputs), OUTPUT_CELLS, OUTPUT_EXTRA):
            cells[tokens, max(1, round(float(outputs[low:high].mean())))] += high - low
    return [[tokens, out, cells[tokens, out]] for tokens, out in sorted(cells)]


def _cuts(n: int, equal: int, extra: tuple[float, ...]) -> list[tuple[int, int]]:
    """Index ranges that cut n sorted items into ``equal`` parts and at the ``extra`` shares."""
    shares = [i / equal for i in range(equal + 1)] + list(extra)
    edges = sorted({round(share * n) for share in shares})
    return list(pairwise(edges))


def summary(prompt: Ints, output: Ints, count: Ints) -> dict[str, Any]:
    """Statistics of (prompt, output) points (n,) that each stand for ``count`` requests."""
    weight = count / count.sum()
    cross = float(weight @ (prompt * output)) / float((weight @ prompt) * (weight @ output))
    return {
        "requests": int(count.sum()),
        "prompt": _one(prompt, weight),
        "output": _one(output, weight),
        "mean_of_product_over_product_of_means": significant(cross),
    }


def _one(values: Ints, weight: Floats) -> dict[str, float | int]:
    """Mean, SCV and percentiles (inverted distribution function) of weighted ``values``."""
    mean = float(weight @ values)
    scv = float(weight @ (values / mean - 1.0) ** 2)
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    result: dict[str, float | int] = {"mean": significant(mean, 7), "scv": significant(scv)}
    for level in (50, 90, 99):
        place = int(np.searchsorted(share, level / 100 - 1e-9))
        result[f"p{level}"] = int(values[order[place]])
    return result
