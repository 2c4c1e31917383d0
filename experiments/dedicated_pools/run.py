"""When do pools per class, or per prompt-length bucket, pay?

    python experiments/dedicated_pools/run.py

Writes results/*.csv and results/manifest.json in about a minute and a half: buckets under one SLO
against rate, edge and SLO, and with the best edge; the price of an L4 at which short prompts move
to it; two classes with SLOs of their own; few large GPUs in stock; and the plan of every variant
simulated, the only part with random numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.manifest import write_manifest
from experiments.results import Row, Value, write_csv

from pdalloc.allocation.dedicated import solve_dedicated
from pdalloc.catalog import loader as catalog
from pdalloc.planning import Effort
from pdalloc.planning.dedicated import (
    chosen_buckets,
    dedicated_problem,
    plan_dedicated,
    shared_pools,
)
from pdalloc.planning.effort import SEED
from pdalloc.scenario import load_scenario

FOLDER = Path(__file__).resolve().parent
SCENARIO, RESULTS = FOLDER / "scenario.yaml", FOLDER / "results"
RATES = (2, 10, 50, 200)
EDGES = ("1024 tokens", "2048 tokens")
SLOS: Mapping[str, str] = {"p99 1 s": "{p99: 1 s}", "mean 300 ms": "{mean: 300 ms}"}
L4_SHARES = (1.0, 0.75, 0.5, 0.35, 0.25)
"""Of the list price of an L4."""
GPUS = ("l4", "l40s", "a100", "h100")
STOCKS = (
    {"h100": 2, "a100": 4},
    {"h100": 1, "a100": 4},
    {"h100": 2, "a100": 3, "l40s": 2},
    {"h100": 2, "a100": 2, "l40s": 2},
)
"""GPUs that can be had; L4, and what is not named, without end."""
VARIANTS = (None, "classes", "stock")
EFFORT = Effort(20_000, 8)


def compared(variant: str | None, overrides: Sequence[str]) -> dict[str, Value]:
    """Dedicated pools beside shared ones, whose SLOs hold per class or per bucket."""
    scenario, _ = chosen_buckets(load_scenario(SCENARIO, variant, overrides))
    found = solve_dedicated(dedicated_problem(scenario))
    row: dict[str, Value] = {
        "status": found.status,
        "proof": found.method,
        "parts": " | ".join(part.title for part in scenario.parts),
        "dedicated_fleet": " | ".join(str(fleet) for fleet in found.fleets),
        "dedicated_usd_per_hour": found.cost,
        "dedicated_bound_usd_per_hour": found.bound,
    }
    beside = {shared.promise: shared for shared in shared_pools(scenario, found.cost)}
    for promise in ("class", "bucket"):  # the latter only where there are buckets
        shared = beside.get(promise)
        change = None if shared is None else shared.dedicated_change
        row[f"shared_{promise}_fleet"] = None if shared is None else shared.fleet
        cost = None if shared is None else shared.cost_usd_per_hour
        row[f"shared_{promise}_usd_per_hour"] = cost
        row[f"change_{promise}_percent"] = None if change is None else 100.0 * change
    return row


def bucket_rows(rates: Sequence[float] = RATES, edges: Sequence[str] = EDGES) -> list[Row]:
    """One class in two buckets under the same SLO: type matching against pooling loss."""
    rows: list[Row] = []
    for (name, slo), rate, edge in product(SLOS.items(), rates, edges):
        overrides = [f"traffic.0.rate={rate} req/s", f"traffic.0.buckets={edge}"]
        row: dict[str, Value] = {
            "ttft_slo": name,
            "rate_per_s": rate,
            "edge_tokens": int(edge[:-7]),
        }
        rows.append(row | compared(None, [*overrides, f"traffic.0.slo.ttft={slo}"]))
    return rows


def auto_rows(rates: Sequence[float] = RATES[1:]) -> list[Row]:
    """The best of eight choices of one edge, or of none."""
    rows: list[Row] = []
    for rate in rates:
        overrides = [f"traffic.0.rate={rate} req/s", "traffic.0.buckets=auto"]
        rows.append({"rate_per_s": rate} | compared(None, overrides))
    return rows


def price_rows(
    shares: Sequence[float] = L4_SHARES, rates: Sequence[float] = (50, 200)
) -> list[Row]:
    """The same with an edge of 1024 tokens as an L4 becomes cheaper."""
    usd = {gpu: catalog.usd_per_gpu_hour("list-2026-11", gpu, "prices") for gpu in GPUS}
    rows: list[Row] = []
    for rate, share in product(rates, shares):
        prices = usd | {"l4": usd["l4"] * share}
        listed = ", ".join(f"{gpu}: {price!r} USD/GPU/hour" for gpu, price in prices.items())
        overrides = [f"traffic.0.rate={rate} req/s", f"prices={{{listed}}}"]
        row: dict[str, Value] = {"rate_per_s": rate, "l4_usd_per_hour": prices["l4"]}
        rows.append(row | compared(None, overrides))
    return rows


def class_rows(rates: Sequence[float] = RATES) -> list[Row]:
    """A class in a hurry and one that is not, at half its rate."""
    rows: list[Row] = []
    for rate in rates:
        overrides = [f"traffic.0.rate={rate} req/s", f"traffic.1.rate={rate / 2} req/s"]
        rows.append({"chat_per_s": rate, "batch_per_s": rate / 2} | compared("classes", overrides))
    return rows


def stock_rows(stocks: Sequence[Mapping[str, int]] = STOCKS) -> list[Row]:
    """The base case where few of the large GPUs can be had."""
    rows: list[Row] = []
    for stock in stocks:
        listed = ", ".join(f"{gpu}: {count}" for gpu, count in stock.items())
        rows.append({"stock": listed} | compared(None, [f"stock={{{listed}}}"]))
    return rows


def simulated_rows(
    variants: Sequence[str | None] = VARIANTS, effort: Effort = EFFORT, seed: int = SEED
) -> list[Row]:
    """Each part of the plan of every variant: predicted beside simulated."""
    rows: list[Row] = []
    for variant in variants:
        scenario = load_scenario(SCENARIO, variant)
        answer = plan_dedicated(scenario, simulate=True, effort=effort, seed=seed)
        for part in answer.parts:
            rows += [
                {
                    "variant": variant or "base",
                    "part": ", ".join(part.classes),
                    "fleet": part.answer.fleet,
                    "metric": slo.metric,
                    "statistic": slo.statistic,
                    "bound_s": slo.bound_s,
                    "predicted_s": slo.predicted_s,
                    "simulated_s": slo.simulated_s,
                    "simulated_half_width_s": slo.simulated_half_width_s,
                    "verdict": slo.simulated_verdict,
                }
                for slo in part.answer.slos
            ]
    return rows


def tables() -> dict[str, list[Row]]:
    """Every table by name."""
    return {
        "buckets": bucket_rows(),
        "auto": auto_rows(),
        "l4_price": price_rows(),
        "classes": class_rows(),
        "stock": stock_rows(),
        "simulated": simulated_rows(),
    }


def main(folder: Path = RESULTS) -> None:
    """Write every table, then the manifest, to ``folder``."""
    started = time.perf_counter()
    for name, rows in tables().items():
        print(write_csv(folder / f"{name}.csv", rows).name)
    write_manifest(folder, SEED, started, {"random_numbers": ["simulated.csv"]})


if __name__ == "__main__":
    main()
