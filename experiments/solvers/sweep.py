"""A thousand demands over four and eight GPU types, each plan proven optimal."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from experiments.results import Row
from experiments.solvers.instances import instance

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.sweep import sweep
from pdalloc.capacity import Capacity

GPU_TYPES, STOCKS, DEMANDS, JOBS, SEED = (4, 8), (64, 512), 1000, 2, 3
LOWEST = 0.02
"""Least demand, relative to the greatest."""


@dataclass(frozen=True)
class FixedRates:
    """Requests/s per replica by (role, type), in the place of a Capacity."""

    rates: dict[tuple[str, str], float]
    linear: bool = True
    coupled: bool = False
    only_by_rule: bool = False

    @cached_property
    def system(self) -> Any:
        """The types by name."""
        return SimpleNamespace(replica_types={n: SimpleNamespace(name=n) for _, n in self.rates})

    def pooled(self, role: str) -> bool:
        """Replicas do not share a queue."""
        return False

    def relaxed_rate(self, role: str, r: Any, demand: float = 0.0) -> float:
        """Requests/s per replica."""
        return self.rates[role, r.name]


def problem(stock: int = STOCKS[-1], gpu_types: int = GPU_TYPES[0]) -> AllocationProblem:
    """The seeded instance as a problem of demand 1."""
    one = instance(SEED, stock=stock, gpu_types=gpu_types)
    rates = {
        (o.role, o.replica_type): float(row[1])
        for o, row in zip(one.options, one.admits, strict=True)
    }
    return AllocationProblem(cast(Capacity, FixedRates(rates)), 1.0, one.options, one.stock)


def sweep_rows(cluster: str | None = None) -> list[Row]:
    """Seconds of the sweep on one process and on JOBS, or on the cluster as well."""
    ways: dict[str, dict[str, Any]] = {
        "one process": {},
        f"joblib, {JOBS} processes": {"jobs": JOBS},
    }
    if cluster is not None:
        ways["dask.distributed"] = {"cluster": cluster}
    cases = itertools.product(GPU_TYPES, STOCKS, ways.items())
    return [_timed(way, types, stock, options) for types, stock, (way, options) in cases]


def _timed(way: str, gpu_types: int, stock: int, options: dict[str, Any]) -> Row:
    p, demands = problem(stock, gpu_types), np.linspace(LOWEST, 1.0, DEMANDS)
    sweep(p, demands[:: DEMANDS // 8].tolist(), **options)  # processes are up, code is loaded
    started = time.perf_counter()
    answers = sweep(p, demands.tolist(), **options)
    return {
        "way": way,
        "gpu_types": gpu_types,
        "stock_gpus_per_type": stock,
        "demands": len(answers),
        "proven": sum(a.status == "optimal" for a in answers),
        "seconds": time.perf_counter() - started,
        "cost_of_all_usd_per_hour": sum(a.cost or 0.0 for a in answers),
    }
