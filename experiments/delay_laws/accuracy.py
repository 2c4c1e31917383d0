"""How far each delay law is from the reference grids, per kind of station.

    python experiments/delay_laws/run.py prefill

Makes results/cells.csv (law x cell, errors in percent), results/accuracy.csv (law x kind x
statistic: median, 95th percentile and worst of |error|), and the copy of accuracy.csv that the
package reads its defaults from. No random numbers; a few minutes.
Errors count where P(W > 0) >= .01 (mean, P(W > 0)) or .02 (P99): below, they mean nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import numpy as np
from experiments.delay_laws.services import HELD_OUT, service, tokens
from experiments.results import Row, Value, read_csv

from pdalloc.queueing.accuracy import regime
from pdalloc.queueing.delay_law import DelayLaw
from pdalloc.queueing.delay_laws import all_laws
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Gaps, Station

ROOT = Path(__file__).resolve().parents[2]
GRIDS = ROOT / "tests" / "data" / "queueing"
SHIPPED = ROOT / "models" / "pdalloc" / "queueing" / "accuracy.csv"
WHOLE = "whole M/G/c grid"
UNSEEN = "held-out service laws"
LEAST = {"mean_wait": 0.01, "p_wait": 0.01, "p99_wait": 0.02}
"""P(W > 0) from which each statistic's relative error is counted."""

Case = tuple[str, str, Station, dict[str, float]]


def cases() -> Iterator[Case]:
    """(grid, service name, station, reference values) of every cell of the three grids."""
    for r in read_csv(GRIDS / "mgc_grid.csv"):
        yield "mgc", r["dist"], station(r, service(r["dist"])), known(r)
    for r in read_csv(GRIDS / "gigc_grid.csv"):
        at = station(r, service(r["svc"]))
        gaps: Gaps = "hyperexponential" if at.arrival_scv > 1.0 else "gamma"
        yield "gigc", r["svc"], replace(at, gaps=gaps), known(r)
    for r in read_csv(GRIDS / "dispatch_grid.csv"):
        yield "dispatch", r["dist"], station(r, tokens(r["dist"])[1]), known(r)


def station(r: Mapping[str, str], law: Service) -> Station:
    """The station of a row; mean service 1 s, so the rate is rho c."""
    c, dispatch = int(r["c"]), r.get("dispatch", "central_queue")
    return Station(float(r["rho"]) * c, law, c, float(r.get("ca2", 1.0)), dispatch)  # type: ignore[arg-type]


def known(r: Mapping[str, str]) -> dict[str, float]:
    """Reference values by statistic, NaN where too few wait."""
    values = {"mean_wait": r["EW"], "p_wait": r["PW"], "p99_wait": r["P99"]}
    enough = float(r["PW"])
    return {k: float(v) if enough >= LEAST[k] else math.nan for k, v in values.items()}


def errors(law: DelayLaw, reference: Mapping[str, float]) -> dict[str, float]:
    """Relative error of each statistic, percent."""
    found = {
        "mean_wait": law.mean_wait,
        "p_wait": law.p_wait,
        "p99_wait": law.wait.quantile(0.99),
    }
    return {k: 100.0 * (v / reference[k] - 1.0) for k, v in found.items()}


def cell_rows() -> list[Row]:
    """Every law on every cell that it claims."""
    rows: list[Row] = []
    for grid, name, at, reference in cases():
        for law in all_laws().values():
            if not law.claim.holds(at):
                continue
            row: dict[str, Value] = {
                "law": law.name, "regime": regime(at), "grid": grid, "service": name,
                "servers": at.servers, "utilisation": at.utilisation,
                "arrival_scv": at.arrival_scv,
            }  # fmt: skip
            found = errors(law(at), reference)
            rows.append(row | {f"{k}_error_percent": round(v, 3) for k, v in found.items()})
    return rows


def table(cells: Iterable[Row]) -> list[Row]:
    """Median, 95th percentile and worst |error| by law, kind of station and statistic."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for cell in cells:
        for statistic in LEAST:
            error = abs(float(cell[f"{statistic}_error_percent"] or 0.0))
            kinds = [str(cell["regime"])]
            if cell["grid"] == "mgc" and cell["servers"] != 1:
                kinds.append(WHOLE)
            if cell["service"] in HELD_OUT:
                kinds.append(UNSEEN)
            for kind in kinds if not math.isnan(error) else ():
                groups[str(cell["law"]), kind, statistic].append(error)
    return [
        {
            "law": law,
            "regime": kind,
            "statistic": statistic,
            "cells": len(found),
            "median_percent": float(np.median(found)),
            "p95_percent": float(np.quantile(found, 0.95)),
            "worst_percent": max(found),
        }
        for (law, kind, statistic), found in sorted(groups.items())
    ]


def tables() -> dict[str, list[Row]]:
    """Errors by cell, and by law and kind of station."""
    cells = cell_rows()
    return {"cells": cells, "accuracy": table(cells)}


def ship(folder: Path) -> None:
    """Give the package the table that was made in ``folder``: laws are ranked by it."""
    copyfile(folder / "accuracy.csv", SHIPPED)
