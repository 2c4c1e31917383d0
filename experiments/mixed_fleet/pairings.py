"""Which GPU prefills and which decodes: the optimum under each pair of bounds, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from experiments.results import Row, Value

from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.planning import Answer, plan
from pdalloc.scenario import load_scenario

FOLDER = Path(__file__).resolve().parent
SPLITWISE, LLAMA31 = FOLDER / "scenario.yaml", FOLDER / "llama31.yaml"
TRACES: Mapping[str, str | None] = {"conversation": None, "code": "code"}
"""Trace -> variant of scenario.yaml."""
MEAN_TTFT_S, P90_TTFT_S = (0.4, 1.0, 2.0), (1.0, 2.0, 4.0)
TPOT_S = (0.06, 0.1)
LLAMA31_TTFT_S, LLAMA31_TPOT_S = (0.4, 1.0, 2.0), (0.03, 0.05, 0.08)


def bounds(statistic: str, ttft: float, tpot: float) -> list[str]:
    """Overrides: ``statistic`` of TTFT and the mean of TPOT, in seconds."""
    return [
        f"traffic.0.slo.ttft={{{statistic}: {ttft!r} s}}",
        f"traffic.0.slo.tpot={{mean: {tpot!r} s}}",
    ]


def pairing_rows(
    statistic: str,
    ttfts: Iterable[float],
    tpots: Sequence[float] = TPOT_S,
    traces: Mapping[str, str | None] = TRACES,
    scenario: Path = SPLITWISE,
) -> list[Row]:
    """The cheapest fleet for every trace and every pair of bounds (seconds)."""
    rows: list[Row] = []
    for (trace, variant), ttft, tpot in product(traces.items(), ttfts, tpots):
        answer = plan(load_scenario(scenario, variant, bounds(statistic, ttft, tpot)))
        row: dict[str, Value] = {
            "trace": trace,
            "ttft_statistic": statistic,
            "ttft_bound_s": ttft,
            "tpot_mean_bound_ms": 1e3 * tpot,
        }
        rows.append(row | answer_columns(answer))
    return rows


def answer_columns(answer: Answer) -> dict[str, Value]:
    """The fleet, who leads each role, its cost, and the best fleet of one GPU type."""
    cost, singles = answer.cost_usd_per_hour, answer.single_type
    known = [single for single in singles.values() if single is not None]
    best = min(known, default=None)
    saving = None if best is None or cost is None else 100.0 * (1.0 - cost / best)
    return {
        "status": answer.status,
        "fleet": answer.fleet,
        **leaders(answer),
        "gpus": answer.gpus,
        "cost_usd_per_hour": cost,
        "bound_usd_per_hour": answer.bound_usd_per_hour,
        "cost_usd_per_mtoken": answer.cost_usd_per_million_tokens,
        **{f"{gpu}_alone_usd_per_hour": single for gpu, single in singles.items()},
        "best_single_usd_per_hour": best,
        "saving_percent": None if saving is None else max(saving, 0.0),
        **{f"predicted_{s.metric}_{s.statistic}_s": s.predicted_s for s in answer.slos},
        "warnings": "; ".join(answer.warnings),
    }


def leaders(answer: Answer) -> dict[str, Value]:
    """Per role the GPU that carries most of its requests, and the share that it carries."""
    found: dict[str, Value] = {}
    for role in ROLES:
        shares = gpu_shares(answer, role)
        gpu = max(shares, key=lambda name: shares[name]) if shares else None
        found[f"{role}_gpu"] = gpu
        found[f"{role}_share_percent"] = None if gpu is None else 100.0 * shares[gpu]
    both = found[f"{PREFILL}_gpu"], found[f"{DECODE}_gpu"]
    return {"pairing": None if None in both else f"{both[0]}/{both[1]}", **found}


def gpu_shares(answer: Answer, role: str) -> dict[str, float]:
    """Share of the requests that each GPU type carries in ``role``."""
    shares: dict[str, float] = {}
    for pool in answer.pools:
        if pool.role == role:
            shares[pool.gpu] = shares.get(pool.gpu, 0.0) + (pool.rate_share or 0.0)
    return shares
