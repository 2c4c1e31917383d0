"""Predictions beside the paper's measured points, and the decode factor fitted on some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from experiments.results import Row, read_csv
from scipy.optimize import minimize_scalar

from pdalloc.allocation.certify import certify
from pdalloc.fleet import parse_fleet
from pdalloc.scenario import Scenario, load_scenario

FOLDER = Path(__file__).resolve().parent
SCENARIO = FOLDER / "scenario.yaml"
FITTED = "3P3D"
"""The decode factor is fitted on this fleet's points, and checked on the others."""
VARIANTS = {"uncalibrated": "bench_curve", "calibrated": "calibrated"}
DETERMINISTIC = "replicas.0.service.prefill.noise=none"
FACTOR_RANGE, FACTOR_ACCURACY = (0.8, 1.25), 1e-6


@dataclass(frozen=True)
class Point:
    """A measured load: ``fleet`` at ``demand`` Mtoken/min; ``ttft`` and ``tpot`` in seconds."""

    fleet: str
    demand: float
    ttft: float
    tpot: float

    @property
    def key(self) -> dict[str, str | float]:
        """The columns that name the point."""
        return {"fleet": self.fleet, "demand_mtoken_per_min": self.demand}


def measured_points(path: Path = FOLDER / "measured.csv") -> list[Point]:
    """The points of the paper's Figure 3."""
    return [
        Point(
            row["fleet"],
            float(row["demand_mtoken_per_min"]),
            float(row["ttft_mean_s"]),
            float(row["tpot_mean_ms"]) / 1e3,
        )
        for row in read_csv(path)
    ]


def at_demand(demand: float, variant: str | None = None, *overrides: str) -> Scenario:
    """The paper's scenario at ``demand`` Mtoken/min."""
    rate = f"traffic.0.rate={float(demand)!r} Mtoken/min"
    return load_scenario(SCENARIO, variant, [rate, *overrides])


@cache
def predicted(fleet: str, demand: float, variant: str | None, *overrides: str) -> dict[str, float]:
    """Mean seconds by metric of ``fleet`` at ``demand`` Mtoken/min."""
    scenario = at_demand(demand, variant, *overrides)
    check = certify(scenario.problem(), parse_fleet(fleet, scenario.system.type_names))
    return {c.slo.metric: float("nan") if c.predicted is None else c.predicted for c in check.slos}


def percent(value: float, reference: float) -> float:
    """Relative difference to ``reference`` in percent."""
    return 100.0 * (value / reference - 1.0)


def service_law(points: Iterable[Point]) -> list[Row]:
    """M/M/1 and M/D/1 (both plus the overhead) beside each measured TTFT."""
    rows: list[Row] = []
    for point in points:
        mm1 = predicted(point.fleet, point.demand, "bench_curve")["ttft"]
        md1 = predicted(point.fleet, point.demand, "bench_curve", DETERMINISTIC)["ttft"]
        rows.append(
            point.key
            | {
                "utilisation": prefill_utilisation(point),
                "keeps_ttft_slo": point.ttft <= bound("ttft"),
                "measured_ttft_mean_s": point.ttft,
                "mm1_ttft_mean_s": mm1,
                "mm1_error_percent": percent(mm1, point.ttft),
                "md1_ttft_mean_s": md1,
                "md1_error_percent": percent(md1, point.ttft),
            }
        )
    return rows


def prefill_utilisation(point: Point) -> float:
    """Share of time that a prefill replica is busy at ``point``."""
    scenario = at_demand(point.demand, "bench_curve")
    check = certify(scenario.problem(), parse_fleet(point.fleet, scenario.system.type_names))
    states = [] if check.prediction is None else [*check.prediction.prefill.values()]
    return max((state.utilisation for state in states), default=float("nan"))


def bound(metric: str) -> float:
    """The scenario's bound on the mean of ``metric``, seconds."""
    return min(slo.bound for slo in load_scenario(SCENARIO).slos if slo.metric == metric)


def predictions(points: Sequence[Point]) -> list[Row]:
    """TTFT and TPOT of each point in both variants, beside the measured ones."""
    rows: list[Row] = []
    for (label, variant), metric, point in product(VARIANTS.items(), ("ttft", "tpot"), points):
        value = predicted(point.fleet, point.demand, variant)[metric]
        seen: float = getattr(point, metric)
        rows.append(
            {"variant": label, "metric": metric}
            | point.key
            | {
                "keeps_ttft_slo": point.ttft <= bound("ttft"),
                "measured_mean_s": seen,
                "predicted_mean_s": value,
                "error_percent": percent(value, seen),
            }
        )
    return rows


def worst_errors(points: Sequence[Point]) -> list[Row]:
    """Greatest absolute error per variant, metric and fleet, over points that keep the TTFT SLO.

    A TPOT is judged at every point; a TTFT near saturation says little about the law.
    """
    rows: list[Row] = []
    fleets = dict.fromkeys(point.fleet for point in points)
    for (label, variant), metric, fleet in product(VARIANTS.items(), ("ttft", "tpot"), fleets):
        judged = [
            p for p in points if p.fleet == fleet and (metric == "tpot" or p.ttft <= bound("ttft"))
        ]
        errors = [
            percent(predicted(fleet, p.demand, variant)[metric], getattr(p, metric)) for p in judged
        ]
        worst = max(abs(error) for error in errors)
        rows.append(
            {"variant": label, "metric": metric, "fleet": fleet, "points": len(judged)}
            | {"max_abs_error_percent": worst}
        )
    return rows


def decode_factor(points: Iterable[Point]) -> float:
    """Factor on decode step times with the least sum of squared relative TPOT errors.

    The batch grows with the factor, so the prediction is made anew for each factor tried.
    """
    fitted = list(points)

    def misfit(factor: float) -> float:
        override = f"replicas.0.calibration.decode={float(factor)!r}"
        errors = [predicted(p.fleet, p.demand, None, override)["tpot"] / p.tpot for p in fitted]
        return sum((error - 1.0) ** 2 for error in errors)

    found = minimize_scalar(
        misfit, bounds=FACTOR_RANGE, method="bounded", options={"xatol": FACTOR_ACCURACY}
    )
    return float(found.x)


def calibration(points: Sequence[Point]) -> list[Row]:
    """The factor fitted on FITTED's points, and the TPOTs it gives at all of them."""
    factor = decode_factor(point for point in points if point.fleet == FITTED)
    override = f"replicas.0.calibration.decode={float(factor)!r}"
    rows: list[Row] = []
    for point in points:
        before = predicted(point.fleet, point.demand, "bench_curve")["tpot"]
        after = predicted(point.fleet, point.demand, None, override)["tpot"]
        rows.append(
            point.key
            | {
                "used_in_fit": point.fleet == FITTED,
                "decode_factor": factor,
                "measured_tpot_mean_ms": 1e3 * point.tpot,
                "uncalibrated_tpot_mean_ms": 1e3 * before,
                "uncalibrated_error_percent": percent(before, point.tpot),
                "calibrated_tpot_mean_ms": 1e3 * after,
                "calibrated_error_percent": percent(after, point.tpot),
            }
        )
    return rows
