"""Seconds to a proven optimum: the exact search beside HiGHS and SCIP, in one run."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from experiments.results import Row
from experiments.solvers.instances import SEEDS, Instance, instance
from experiments.solvers.rivals import RIVALS

from pdalloc.allocation.tables import cheapest
from pdalloc.allocation.tables.build import NEED
from pdalloc.allocation.tables.tree import Proof
from pdalloc.errors import InputError

POOLED_RIVALS = (0, 1, 2)
"""Pooled instances that the MILP solvers are given; each takes them to LIMIT_S."""
LIMIT_S = 15.0
LARGE_STOCK, LARGE_SEEDS = 5000, tuple(range(10))
SAME_USD = 1e-6
T = TypeVar("T")


def exact(one: Instance) -> tuple[Proof, float]:
    """The proof and wall seconds, tables included."""
    started = time.perf_counter()
    proof = cheapest(one.tables(), NEED)
    return proof, time.perf_counter() - started


def speed_rows() -> list[Row]:
    """Per instance and solver: USD/hour, proven bound, seconds, ratio to the exact search."""
    exact(instance(len(SEEDS), pooled=True))  # compiled code is loaded
    rows: list[Row] = []
    for pooled in (False, True):
        for seed in SEEDS:
            one = instance(seed, pooled)
            (proof, took), cpu = _with_cpu(exact, one)
            rows.append(_row(one, "exact", proof.usd, proof.bound, took, cpu, took, proof.nodes))
            if pooled and seed not in POOLED_RIVALS:
                continue
            for name, solve in RIVALS.items():
                (cost, bound, theirs), cpu = _with_cpu(solve, one.linear(), LIMIT_S)
                if cost < proof.usd - SAME_USD or bound > proof.usd + SAME_USD:
                    raise InputError(f"{name} contradicts the exact search on seed {seed}")
                rows.append(_row(one, name, cost, bound, theirs, cpu, took, None))
    return rows


def _with_cpu(call: Callable[..., T], *arguments: object) -> tuple[T, float]:
    """What ``call`` returns, and the CPU seconds of this process that it took."""
    started = time.process_time()
    return call(*arguments), time.process_time() - started


def _row(
    one: Instance,
    solver: str,
    cost: float,
    bound: float,
    seconds: float,
    cpu_seconds: float,
    exact_seconds: float,
    nodes: int | None,
) -> Row:
    return {
        "tables": "pooled" if one.pooled else "linear",
        "seed": one.seed,
        "stock_gpus_per_type": max(one.stock.values()),
        "solver": solver,
        "cost_usd_per_hour": cost if math.isfinite(cost) else None,
        "bound_usd_per_hour": bound,
        "proven": bool(bound >= cost - SAME_USD),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "times_exact": seconds / exact_seconds,
        "nodes": nodes,
    }


def summary_rows(rows: list[Row]) -> list[Row]:
    """Median and worst seconds, and how many were proven, per kind of table and solver."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = (row["tables"], row["stock_gpus_per_type"], row["solver"])
        groups.setdefault(key, []).append(row)
    found: list[Row] = []
    for (kind, stock, solver), group in groups.items():
        seconds, cpu = (
            [float(row[name] or 0.0) for row in group] for name in ("seconds", "cpu_seconds")
        )
        found.append(
            {
                "tables": str(kind),
                "stock_gpus_per_type": int(str(stock)),
                "solver": str(solver),
                "instances": len(group),
                "proven": sum(bool(row["proven"]) for row in group),
                "median_s": float(np.median(seconds)),
                "worst_s": max(seconds),
                "median_cpu_s": float(np.median(cpu)),
                "worst_cpu_s": max(cpu),
                "median_times_exact": float(np.median([row["times_exact"] or 0 for row in group])),
            }
        )
    return found


def large_stock_rows() -> list[Row]:
    """The exact search with LARGE_STOCK GPUs of each type."""
    rows: list[Row] = []
    for pooled in (False, True):
        for seed in LARGE_SEEDS:
            one = instance(seed, pooled, LARGE_STOCK)
            (proof, took), cpu = _with_cpu(exact, one)
            rows.append(_row(one, "exact", proof.usd, proof.bound, took, cpu, took, proof.nodes))
    return rows


def cold_start_rows() -> list[Row]:
    """A fresh process: import, load or compile the kernels, solve one instance."""
    code = (
        "import time; a = time.perf_counter();"
        "from experiments.solvers.speed import exact; from experiments.solvers.instances import"
        " instance; b = time.perf_counter(); exact(instance(0)); c = time.perf_counter();"
        "print(b - a, c - b)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    imported, first = (float(word) for word in done.stdout.split())
    return [{"import_s": imported, "first_solve_s": first}]
