"""What the solvers answer in the paper's case, and how the fleets in question behave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from experiments.paper_2603_04716.predictions import FOLDER, SCENARIO
from experiments.results import Row, read_csv

from pdalloc.fleet import parse_fleet
from pdalloc.planning import Answer, evaluate, plan
from pdalloc.planning.sweeps import latency_sweep
from pdalloc.scenario import load_scenario

BENCH, CALIBRATED = "bench_curve", "calibrated"
IN_QUESTION = ("3P4D", "4P4D", "4P5D")
"""The fleet deployed, and the two answers."""
DRAWN = ("3P3D", *IN_QUESTION)
DETAILS = {
    "prefill_throughput": "prefill_tokens_per_s_per_replica",
    "decode_throughput": "decode_tokens_per_s_per_replica",
    "prefill_replicas": "prefill_replicas",
    "decode_replicas": "decode_replicas",
    "ratio": "ratio",
    "deployed": "rounds_to",
}
"""Names in published.csv -> names in the answer of solver ``paper``."""
SWEEP_RANGE, SWEEP_POINTS = (2.5, 6.5), 81
"""Demands of the sweep, Mtoken/min."""


def fleet_rows() -> list[Row]:
    """Every solver's answer in every variant, then the fleets in question as they are."""
    rows: list[Row] = []
    for variant in (None, BENCH, CALIBRATED):
        rows.append(_row("plan exact", plan(load_scenario(SCENARIO, variant))))
    for variant in (BENCH, CALIBRATED):
        rows.append(_row("plan paper", plan(load_scenario(SCENARIO, variant), solver="paper")))
    for variant in (BENCH, CALIBRATED):
        scenario = load_scenario(SCENARIO, variant)
        rows += [_row("evaluate", evaluate(scenario, fleet)) for fleet in IN_QUESTION]
    return rows


def _row(made_by: str, answer: Answer) -> Row:
    values = {slo.metric: slo.predicted_s for slo in answer.slos}
    limit = answer.demand_limit_tokens_per_minute
    margin = answer.margin
    return {
        "variant": answer.variant or "base",
        "made_by": made_by,
        "fleet": answer.xpyd,
        "keeps_slos": all(slo.kept for slo in answer.slos),
        "gpus": answer.gpus,
        "cost_usd_per_hour": answer.cost_usd_per_hour,
        "bound_usd_per_hour": answer.bound_usd_per_hour,
        "cost_usd_per_mtoken": answer.cost_usd_per_million_tokens,
        "ttft_mean_s": values["ttft"],
        "tpot_mean_ms": None if values["tpot"] is None else 1e3 * values["tpot"],
        "demand_mtoken_per_min": answer.demand_tokens_per_minute / 1e6,
        "demand_limit_mtoken_per_min": None if limit is None else limit / 1e6,
        "margin_demand_percent": _percent(margin.demand if margin else None),
        "margin_decode_percent": _percent(margin.decode if margin else None),
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def paper_rows() -> list[Row]:
    """The paper's own numbers beside those of solver ``paper``."""
    details = plan(load_scenario(SCENARIO), solver="paper").details
    return [
        {
            "quantity": fact["quantity"],
            "unit": fact["unit"],
            "published_low": fact["published_low"],
            "published_high": fact["published_high"],
            "reproduced": details[DETAILS[fact["quantity"]]],
        }
        for fact in read_csv(FOLDER / "published.csv")
    ]


def sweep_demands() -> list[float]:
    """Demands of the paper's figure, Mtoken/min."""
    return [float(demand) for demand in np.linspace(*SWEEP_RANGE, SWEEP_POINTS)]


def sweep_rows(demands: Iterable[float], fleets: Sequence[str] = DRAWN) -> list[Row]:
    """Mean TTFT and TPOT of ``fleets`` against demand (Mtoken/min); empty where unstable."""
    wanted = list(demands)
    rows: list[Row] = []
    for variant in (BENCH, CALIBRATED):
        scenario = load_scenario(SCENARIO, variant)
        per_mtoken = scenario.demand / (60e-6 * scenario.system.workload.tokens_per_second)
        parsed = [parse_fleet(fleet, scenario.system.type_names) for fleet in fleets]
        curves = latency_sweep(scenario, parsed, [demand * per_mtoken for demand in wanted])
        order = [slo.metric for slo in scenario.slos]
        for curve in curves:
            ttft, tpot = (curve.seconds[order.index(metric)] for metric in ("ttft", "tpot"))
            rows += [
                {
                    "variant": variant,
                    "fleet": curve.fleet.xpyd,
                    "demand_mtoken_per_min": float(demand / per_mtoken),
                    "ttft_mean_s": float(x),
                    "tpot_mean_ms": 1e3 * float(y),
                }
                for demand, x, y in zip(curve.demands, ttft, tpot, strict=True)
            ]
    return rows
