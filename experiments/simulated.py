"""A plan's latencies beside those of the reference simulator, as rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments.results import Row, Value

from pdalloc.planning import Answer, plan
from pdalloc.planning.answer import SloAnswer
from pdalloc.planning.effort import SEED
from pdalloc.scenario import load_scenario


def simulated_rows(scenario: Path, variants: Iterable[str | None], seed: int = SEED) -> list[Row]:
    """Each SLO of each variant's plan: bound, predicted, simulated and its half-width, seconds."""
    answers = [
        plan(load_scenario(scenario, variant), simulate=True, seed=seed) for variant in variants
    ]
    return [_row(answer, slo) for answer in answers for slo in answer.slos]


def _row(answer: Answer, slo: SloAnswer) -> Row:
    row: dict[str, Value] = {
        "scenario": answer.scenario,
        "variant": answer.variant or "base",
        "fleet": answer.fleet,
        "metric": slo.metric,
        "statistic": slo.statistic,
        "bound_s": slo.bound_s,
        "predicted_s": slo.predicted_s,
        "simulated_s": slo.simulated_s,
        "simulated_half_width_s": slo.simulated_half_width_s,
        "error_percent": None,
        "within_interval": None,
    }
    if slo.predicted_s is not None and slo.simulated_s and slo.simulated_half_width_s is not None:
        gap = slo.predicted_s - slo.simulated_s
        row["error_percent"] = 100.0 * gap / slo.simulated_s
        row["within_interval"] = abs(gap) <= slo.simulated_half_width_s
    return row
