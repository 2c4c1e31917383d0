"""Waits under each dispatch rule, simulated: the reference values of tests/data/queueing.

    python experiments/delay_laws/dispatch_grid.py

Prefill only: prompts of one output token through pdalloc.simulation.fast. Every cell under
``least_loaded`` also runs under a central queue with the same draws; the ratio of the two mean
waits has a far smaller error than either. Writes tests/data/queueing/dispatch_grid.csv, one
row per cell, times in mean services; ``_ci`` are 95 % half-widths over replications. Cells that
the file holds already are kept; all of them take a quarter of an hour.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.delay_laws.services import HELD_OUT, tokens
from experiments.results import Row, read_csv, write_csv

from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.laws import Array
from pdalloc.simulation import fast
from pdalloc.simulation.statistics import interval, steady
from pdalloc.simulation.traffic import child_seed
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import LengthLaw
from pdalloc.workload.traffic import TrafficClass, Workload

ROOT = Path(__file__).resolve().parents[2]
GRID = ROOT / "tests" / "data" / "queueing" / "dispatch_grid.csv"
SEED = 20261129
REPLICATIONS = 8
REQUESTS = 400_000
LEVELS = (0.9, 0.95, 0.99)

Cell = tuple[Dispatch, str, int, float, float]


def cells() -> Iterator[Cell]:
    """(dispatch, service, servers, utilisation, arrival SCV) of every cell."""
    for name, c, rho in product(
        ("D", "E4", "M", "EMP", "H2_4"), (2, 4, 16, 64), (0.5, 0.7, 0.8, 0.9, 0.95)
    ):
        if c * (1.0 - rho) < 8.0:  # beyond, next to nobody waits
            yield "least_loaded", name, c, rho, 1.0
    for name, rho in product(("D", "E4", "M", "EMP", "H2_4"), (0.95, 0.98)):
        yield "least_loaded", name, 200, rho, 1.0
    for name, c, rho in product(HELD_OUT, (3, 12, 48), (0.7, 0.85, 0.95)):
        yield "central_queue", name, c, rho, 1.0
    for scv, dispatch, name, c, rho in product(
        (1.0, 4.0), get_args(Dispatch), ("D", "M", "EMP"), (4, 16), (0.5, 0.8, 0.9)
    ):
        if scv != 1.0 or dispatch in ("random", "round_robin"):
            yield dispatch, name, c, rho, scv


def system(dispatch: Dispatch, name: str, rate: float, arrival_scv: float) -> System:
    """Prompts of law ``name``, prefilled in 1 s on average, answered at once."""
    prompts, _ = tokens(name)
    n = len(prompts)
    lengths = LengthLaw(prompts, np.ones(n), np.full(n, 1.0 / n))
    latency = Latency(AffinePrefill(0.0, 1.0 / prompts.mean()), AffineDecode(1e-6, 0.0))
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0)
    return System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload((TrafficClass("all", rate, lengths, arrival_scv),)),
        {"r": kind},
        Link(),
        dict.fromkeys(ROLES, dispatch),
        "prefill",
    )


def waits(cell: Cell, requests: int, replication: int) -> Array:
    """Waits of steady requests of one replication, seconds."""
    dispatch, name, c, rho, scv = cell
    fleet = Fleet.of({(PREFILL, "r"): c, (DECODE, "r"): 1})
    seed = child_seed(SEED, replication)
    s = system(dispatch, name, rho * c, scv)
    log = fast.simulate(s, fleet, dict.fromkeys(fleet.counts, 1.0), requests, seed)
    keep = steady(log)
    return (log.prefill_start - log.arrival)[keep]


def row(cell: Cell) -> Row:
    """Means, percentiles and their intervals for one cell."""
    dispatch, name, c, rho, scv = cell
    # slow to mix at high load: more requests
    requests = REQUESTS * (3 if rho >= 0.9 else 1)
    numbers: list[list[float]] = []
    for i in range(REPLICATIONS):
        w = waits(cell, requests, i)
        central = w
        if dispatch == "least_loaded":
            central = waits(("central_queue", *cell[1:]), requests, i)
        wait, pooled = float(w.mean()), float(central.mean())
        ratio = wait / pooled if pooled > 0 else 1.0
        # starts are sums of many doubles: a wait below 1e-6 is rounding
        numbers.append([wait, float((w > 1e-6).mean()), *np.quantile(w, LEVELS), ratio])
    columns = ("EW", "PW", "P90", "P95", "P99", "ratio")
    found = dict(zip(columns, np.array(numbers).T, strict=True))
    result: dict[str, str | int | float] = {
        "dispatch": dispatch, "dist": name, "ca2": scv, "c": c, "rho": rho,
        "requests": requests * REPLICATIONS, "seed": SEED,
    }  # fmt: skip
    for column, values in found.items():
        result[column], result[f"{column}_ci"] = interval(values)
    return result


def main(path: Path = GRID) -> None:
    """Simulate the cells that ``path`` does not hold yet."""
    done = {key(r): r for r in read_csv(path)} if path.is_file() else {}
    rows: list[Row] = []
    for cell in cells():
        rows.append(done.get(cell) or row(cell))
        print(len(rows), *cell, flush=True)
    write_csv(path, rows)


def key(r: Mapping[str, str]) -> Cell:
    """The cell of a row."""
    dispatch: Dispatch = r["dispatch"]  # type: ignore[assignment]
    return dispatch, r["dist"], int(r["c"]), float(r["rho"]), float(r["ca2"])


if __name__ == "__main__":
    main()
