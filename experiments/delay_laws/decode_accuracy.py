"""How far the law of a decode pool is from iteration-level simulation.

    python experiments/delay_laws/run.py decode

Makes results/decode_cells.csv (one row per cell: errors in percent, with the simulation's 95 %
half-width) and results/decode_accuracy.csv (by family: cells, share within the bars of 1.5 % on
mean TPOT and 5 % on P99 ITL, worst). Cells without context, dispatch and bursts are those of
tests/data/queueing/decode_grid.csv, simulated before; the others are simulated here. Each
replication is compared with the law at the load that its own arrivals and lengths realised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from experiments.delay_laws.decode_runs import lengths, measure
from experiments.results import Row, Value, read_csv

from pdalloc.fleet import Dispatch
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, DecodeWork, decode_work
from pdalloc.queueing.decode.fluid import FluidLaw
from pdalloc.queueing.decode.multi_token import FixedTokens, GeometricTokens, TokensPerStep
from pdalloc.simulation.options import MultiToken, SimulationOptions
from pdalloc.simulation.statistics import interval

ROOT = Path(__file__).resolve().parents[2]
GRID = ROOT / "tests" / "data" / "queueing" / "decode_grid.csv"
SEED = 20261129
REPLICATIONS = 4
BARS = {"mean_tpot": 1.5, "itl_p99": 5.0}
"""Percent."""
GRID_LENGTHS = {"D": "fixed", "geom": "geometric", "LN2": "lognormal"}
GRID_COLUMNS = {
    "mean_tpot": "tpot_mean_sim", "mean_itl": "itl_mean_sim", "itl_p99": "itl_p99_sim",
    "tpot_p50": "req_p50_sim", "tpot_p99": "req_p99_sim", "p_wait": "pwait_sim",
    "mean_slot_wait": "wait_mean_sim",
}  # fmt: skip
POOLED: tuple[Dispatch, ...] = ("least_loaded", "round_robin", "central_queue")
LEAST_WAIT = 0.01
"""P(wait) from which waits are compared."""


@dataclass(frozen=True)
class Cell:
    """A decode pool at utilisation ``rho`` with t = a + b B + c S, b + c ctx = 1 s/request.

    ``context_share`` = c ctx; ``output`` and ``prompt`` name laws of lengths; ``tokens`` per step.
    """

    family: str
    base: float
    rho: float
    output: str = "geometric"
    mean_output: float = 200.0
    prompt: str = "fixed"
    context_share: float = 0.0
    replicas: int = 1
    dispatch: Dispatch = "random"
    arrival_scv: float = 1.0
    slots: float = math.inf
    tokens: float = 1.0
    tokens_law: str = "fixed"


def cells() -> Iterator[Cell]:
    """Every simulated cell."""
    for base, rho in product((10.0, 40.0), (0.3, 0.6, 0.8)):
        for output, prompt, share in (
            ("geometric", "fixed", 0.9),
            ("lognormal", "lognormal", 0.5),
            ("lognormal", "lognormal", 0.9),
            ("fixed", "lognormal", 0.9),
            ("lognormal", "same", 0.9),
        ):
            yield Cell("context", base, rho, output, prompt=prompt, context_share=share)
        for output, scv in product(("fixed", "geometric"), (0.25, 4.0)):
            yield Cell("arrivals", base, rho, output, arrival_scv=scv)
    for base, rho, r in product((10.0, 40.0), (0.3, 0.8), (2, 4, 16)):
        for dispatch in POOLED:
            yield Cell("dispatch", base, rho, replicas=r, dispatch=dispatch)
        yield Cell("dispatch", base, rho, "fixed", replicas=r, dispatch="least_loaded")
    for base, rho in product((10.0, 40.0), (0.3, 0.6)):
        yield Cell("dispatch", base, rho, replicas=64, dispatch="least_loaded")
    for base, rho in product((10.0, 200.0), (0.3, 0.6)):
        eight = Cell("dispatch", base, rho, "lognormal", replicas=8, dispatch="least_loaded")
        yield eight
        yield replace(eight, prompt="lognormal", context_share=0.9)
        yield replace(eight, arrival_scv=4.0)
    for base, rho, length, output in product(
        (10.0, 40.0), (0.3, 0.8), (2.0, 5.0, 20.0), ("fixed", "geometric")
    ):
        yield Cell("short outputs", base, rho, output, length)
    for base, rho, mean, law in product(
        (10.0, 40.0), (0.3, 0.8), (1.6, 3.0), ("fixed", "geometric")
    ):
        yield Cell("tokens per step", base, rho, tokens=mean, tokens_law=law)
    for base, rho in product((20.0, 100.0), (0.7, 0.9)):
        at = Cell("slots and context", base, rho, "lognormal", slots=32)
        yield replace(at, prompt="lognormal", context_share=0.5)
        for dispatch in POOLED:
            at = Cell("slots and dispatch", base, rho, replicas=4, slots=32)
            yield replace(at, dispatch=dispatch)
        yield Cell("slots and arrivals", base, rho, arrival_scv=4.0, slots=32)


@cache
def work_of(cell: Cell) -> DecodeWork:
    """The law of its requests."""
    law = lengths(cell.output, cell.mean_output, cell.prompt)
    tokens: TokensPerStep | None = None
    if cell.tokens > 1.0:
        kind = FixedTokens if cell.tokens_law == "fixed" else GeometricTokens
        tokens = kind(cell.tokens)
    return decode_work(law.prompt, law.output, law.weight, True, tokens)


def coefficients(cell: Cell) -> tuple[float, float, float]:
    """(a, b, c) in s, s/request, s/token."""
    share = cell.context_share
    return cell.base, 1.0 - share, share / work_of(cell).mean_context


def station_of(cell: Cell) -> DecodeStation:
    """The station of ``cell``."""
    a, b, c = coefficients(cell)
    still = DecodeStation(
        0.0, lambda batch, held: a + b * batch + c * held, work_of(_shared(cell)),
        cell.replicas, cell.slots, cell.dispatch, cell.arrival_scv,
    )  # fmt: skip
    return still.at(cell.rho * still.capacity)


def _shared(cell: Cell) -> Cell:
    """Cells with the same requests share what is worked out of them."""
    return replace(
        Cell("", 0.0, 0.0), output=cell.output, mean_output=cell.mean_output,
        prompt=cell.prompt, tokens=cell.tokens, tokens_law=cell.tokens_law,
    )  # fmt: skip


def requests(cell: Cell) -> int:
    """Per replication: many times the requests of a pool, times its memory."""
    batch = cell.replicas * (cell.base + 1.0) * cell.rho / (1.0 - cell.rho)
    if cell.slots < math.inf:
        batch = cell.replicas * cell.slots
    heavy = cell.output == "lognormal" or cell.prompt == "lognormal"
    share = 0.7 if cell.tokens > 1.0 else 3.0 if heavy else 1.0  # every gap is listed; long tails
    return int(min(max(200.0 * batch / (1.0 - cell.rho), 60_000.0), 200_000.0) * share)


def row(cell: Cell) -> Row:
    """Errors of the law over replications, percent, and their half-widths."""
    station = station_of(cell)
    options = SimulationOptions(
        multi_token=MultiToken(cell.tokens, cell.tokens_law) if cell.tokens > 1.0 else None  # type: ignore[arg-type]
    )
    found: dict[str, list[float]] = {}
    for i in range(REPLICATIONS):
        law_lengths = lengths(cell.output, cell.mean_output, cell.prompt)
        run = measure(station, coefficients(cell), law_lengths, requests(cell), SEED + i, options)
        law = DecodeLaw(station.at(min(run.load, 0.999) * station.capacity))
        for key, value in errors(law, asdict(run)).items():
            found.setdefault(key, []).append(value)
    values: dict[str, Value] = asdict(cell)
    for key, sample in found.items():
        values[f"{key}_error_percent"], values[f"{key}_half_width_percent"] = _interval(sample)
    return values


def _interval(sample: list[float]) -> tuple[float, float]:
    return (math.nan, math.nan) if np.isnan(sample).any() else interval(sample)


def errors(law: DecodeLaw, simulated: Mapping[str, float]) -> dict[str, float]:
    """Law over ``simulated``, percent; NaN where it says nothing, or where too few wait."""
    predicted = {
        "mean_tpot": law.mean_tpot,
        "fluid_mean_tpot": FluidLaw(law.station).mean_tpot,
        "mean_itl": law.mean_itl,
        "itl_p99": law.itl.quantile(0.99),
        "tpot_p50": law.tpot().quantile(0.5),
        "tpot_p99": law.tpot().quantile(0.99),
        "mean_boundary_wait": law.mean_boundary_wait,
        "p_wait": law.wait_probability,
        "mean_slot_wait": law.mean_slot_wait,
    }
    known = dict(simulated)
    known["fluid_mean_tpot"] = known["mean_tpot"]
    if law.station.slots < math.inf:
        known["mean_boundary_wait"] = math.nan
    if known["p_wait"] < LEAST_WAIT:
        known["p_wait"] = known["mean_slot_wait"] = math.nan
    return {k: 100.0 * (v / known.get(k, math.nan) - 1.0) for k, v in predicted.items()}


def grid_rows() -> list[Row]:
    """The cells of the reference grid: t = a + B, 200 tokens on average."""
    rows: list[Row] = []
    for r in read_csv(GRID):
        slots, base = float(r["K"]), float(r["a_over_b"])
        family = "affine" if slots == math.inf else "slots"
        rho = float(r["rho_realised"])
        cell = Cell(family, base, round(rho, 2), GRID_LENGTHS[r["Ldist"]], slots=slots)
        station = station_of(cell)
        known = {key: float(r[column]) for key, column in GRID_COLUMNS.items()}
        values: dict[str, Value] = asdict(cell)
        for key, error in errors(DecodeLaw(station.at(rho * station.capacity)), known).items():
            values[f"{key}_error_percent"], values[f"{key}_half_width_percent"] = error, None
        width = 100.0 * float(r["tpot_mean_ci"]) / float(r["tpot_mean_sim"])
        values["mean_tpot_half_width_percent"] = width
        rows.append(values)
    return rows


def table(rows: list[Row]) -> list[Row]:
    """By family and statistic: cells, median, 95th percentile, worst error, share in the bar."""
    families = list(dict.fromkeys(str(r["family"]) for r in rows))
    keys = [k.removesuffix("_error_percent") for k in rows[0] if k.endswith("_error_percent")]
    result: list[Row] = []
    for family, key in product([*families, "all"], keys):
        mine = [r for r in rows if family in ("all", r["family"])]
        found = np.array([float(r[f"{key}_error_percent"] or 0.0) for r in mine])
        found = found[~np.isnan(found)]
        if not len(found):
            continue
        size, bar = np.abs(found), BARS.get(key)
        result.append(
            {
                "family": family,
                "statistic": key,
                "cells": len(size),
                "median_percent": float(np.median(size)),
                "p95_percent": float(np.quantile(size, 0.95)),
                "worst_percent": float(found[int(np.argmax(size))]),
                "bar_percent": bar,
                "share_within_bar": None if bar is None else float(np.mean(size <= bar)),
            }
        )
    return result


def tables() -> dict[str, list[Row]]:
    """Errors by cell, and by family of cells."""
    rows = [*grid_rows(), *(row(cell) for cell in cells())]
    return {"decode_cells": rows, "decode_accuracy": table(rows)}
