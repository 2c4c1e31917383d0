r"""The simulator as a queue whose answers are known: M/G/c, GI/G/c and the decode batch.

*Prefill*: replicas that share one queue are the c servers, prompts of one output token the
customers, and the service law is made of prompt lengths and noise of mean 1:

=========  =================================================================
``D``      one length
``M``      one length, exponential noise
``E4``     one length, gamma noise of SCV 1/4; likewise ``E2``
``LN_2``   one length, lognormal noise of SCV 2
``H2_4``   two lengths, exponential noise: hyperexponential of SCV 4, balanced means
``EMP``    4096 lengths, no noise
=========  =================================================================

Arrivals are Poisson, gamma renewal (Erlang-4) or a Poisson stream switched on and off, which
is a renewal process of hyperexponential gaps (Kuczura 1973, "The interrupted Poisson process
as an overflow process", section 2).

*Decode*: t = a + b k seconds a step of k requests, L steps each, K slots or as many as come.

A row is a measure of a cell: ``reference``, ``simulated``, its 95 % half-width over
replications, and whether they differ by no more than both half-widths together (root of the
sum of squares; the reference has one where it was itself simulated).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from experiments.results import Row, Value, read_csv
from scipy.special import ndtr, ndtri

from pdalloc.fleet import ROLES, Dispatch, Fleet, Role
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency import service
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.records import Array, RequestLog
from pdalloc.simulation.fast import simulate
from pdalloc.simulation.options import PLAIN, Noise, SimulationOptions
from pdalloc.simulation.statistics import interval, steady
from pdalloc.simulation.traffic import child_seed
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.arrivals import ArrivalProcess, MarkovModulated, Renewal
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

Cell = Mapping[str, str]
Measure = Callable[[RequestLog], dict[str, float]]

TOKENS = 1_000_000
"""Prompt tokens that take 1 s, so that whole lengths come near any law."""
LEAST_WAITING = 0.01
"""Cells where fewer customers wait are left out: relative errors mean nothing there."""
MOST_SERVERS, MOST_LOAD = 16, 0.95
PER_GAP, REPLICATIONS = 30_000, 10
"""Requests of a replication times 1 - rho, and replications."""
POINTS = 4096
"""Equally likely points of EMP, and most of a decode length law."""


@dataclass(frozen=True)
class Service:
    """A law of mean 1 s: prompt lengths, the type's noise, the option's noise."""

    lengths: LengthLaw
    noise: service.Noise = "none"
    options: SimulationOptions = PLAIN


def service_of(name: str, scv: float) -> Service:
    """The law that a grid calls ``name``, of squared coefficient of variation ``scv``."""
    one = fixed(TOKENS, 1)
    if name == "D":
        return Service(one)
    if name == "M":
        return Service(one, "exponential")
    if name == "EMP":
        tokens = TOKENS * empirical()
        return Service(joint_table(tokens, np.ones(POINTS), np.ones(POINTS)))
    if name.startswith("H2"):
        share, means = hyperexponential(scv)
        return Service(joint_table(TOKENS * means, np.ones(2), share), "exponential")
    noise = Noise("lognormal" if name.startswith("LN") else "gamma", scv)
    return Service(one, options=SimulationOptions(prefill_noise=noise))


def hyperexponential(scv: float) -> tuple[Array, Array]:
    """(shares, means) of two exponentials of mean 1 together, half of it from each."""
    first = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
    share = np.array([first, 1.0 - first])
    return share, 0.5 / share


def empirical() -> Array:
    """EMP: 0.15 + 0.85 L / E[L]; L of 75 % lognormal(400, 0.8) and 25 % lognormal(2500, 0.9),
    (median, sigma), at most 16000; POINTS quantiles at equal steps.
    """
    parts = ((0.75, 400.0, 0.8), (0.25, 2500.0, 0.9))
    x = np.geomspace(1.0, 1e6, 100 * POINTS)
    below = sum(share * ndtr(np.log(x / median) / sigma) for share, median, sigma in parts)
    level = (np.arange(POINTS) + 0.5) / POINTS
    lengths = np.minimum(np.interp(level, below, x), 16_000.0)
    return np.asarray(0.15 + 0.85 * lengths / lengths.mean())


def arrivals_of(name: str, scv: float, rate: float) -> ArrivalProcess:
    """The arrivals that a grid calls ``name``, at ``rate`` requests/s."""
    if not name.startswith("H2"):
        return Renewal(rate, scv)
    share, means = hyperexponential(scv)
    fast, slow = rate / means
    on_rate = float(share @ (rate / means))
    to_off = float(share.prod() * (fast - slow) ** 2 / on_rate)
    to_on = fast * slow / on_rate
    return MarkovModulated((on_rate, 0.0), (1.0 / to_off, 1.0 / to_on))


def prefill_queue(law: Service, arrivals: ArrivalProcess) -> System:
    """Prefill replicas ``r`` that share one queue and serve ``law``; nothing is decoded."""
    per_token = 1.0 / law.lengths.mean_prompt
    latency = service.Latency(AffinePrefill(0.0, per_token), AffineDecode(1.0, 0.0), law.noise)
    traffic = TrafficClass("all", arrivals.rate, law.lengths, arrivals=arrivals)
    return _system(latency, traffic, math.inf, "prefill")


def decode_batch(law: LengthLaw, a: float, b: float, slots: float, rho: float) -> System:
    """A decode replica ``r`` with steps of a + b k s: rho = rate E[L] t(K) / K, b for t(K) / K
    without a limit.
    """
    per_step = b if slots == math.inf else (a + b * slots) / slots
    rate = rho / (law.mean_output * per_step)
    instant = AffinePrefill(1e-9, 0.0)
    latency = service.Latency(instant, AffineDecode(a, b))
    return _system(latency, TrafficClass("all", rate, law), slots, "decode")


def _system(
    latency: service.Latency, traffic: TrafficClass, slots: float, first_token: FirstToken
) -> System:
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, latency, 0.0, max_batch=slots)
    rules: dict[Role, Dispatch] = dict.fromkeys(ROLES, "central_queue")
    llm = Llm("m", "M", 1.0, 1.0, 1e9, 1.0)
    return System(llm, Workload((traffic,)), {"r": kind}, Link(), rules, first_token)


def decode_lengths(name: str, mean: float) -> LengthLaw:
    """Output lengths ``D``, ``geom`` (from 1 on) or ``LN2`` (lognormal of SCV 2), tokens."""
    if name == "D":
        return fixed(1, mean)
    if name == "geom":
        n = np.arange(1.0, 20.0 * mean)
        return joint_table(np.ones_like(n), n, (1.0 - 1.0 / mean) ** n)
    level = (np.arange(POINTS) + 0.5) / POINTS
    sigma = math.sqrt(math.log(3.0))
    output = np.maximum(np.rint(mean * np.exp(sigma * ndtri(level) - 0.5 * sigma**2)), 1.0)
    return joint_table(np.ones(POINTS), output, np.ones(POINTS))


def waits(log: RequestLog) -> dict[str, float]:
    """EW (s), PW and P99 (s) of the wait for prefill."""
    wait = log.prefill_start - log.arrival
    return {
        "EW": float(wait.mean()),
        "PW": float((wait > 0).mean()),
        "P99": float(np.percentile(wait, 99)),
    }


def decoding(log: RequestLog) -> dict[str, float]:
    """Mean time per token from slot to end, and mean wait for a slot, s."""
    tokens = (log.finish - log.decode_start) / log.output_tokens
    return {
        "tpot_mean": float(tokens.mean()),
        "wait_mean": float((log.decode_start - log.transfer_end).mean()),
    }


@dataclass(frozen=True)
class Effort:
    """Requests of a replication times 1 - rho, and replications."""

    per_gap: float = PER_GAP
    replications: int = REPLICATIONS

    def samples(
        self,
        system: System,
        servers: tuple[int, int],
        rho: float,
        measure: Measure,
        seed: int,
        options: SimulationOptions = PLAIN,
    ) -> dict[str, list[float]]:
        """``measure`` of the steady part of each replication, by name."""
        fleet = Fleet.of(dict(zip(((role, "r") for role in ROLES), servers, strict=True)))
        rates, n = dict.fromkeys(fleet.counts, 1.0), math.ceil(self.per_gap / (1.0 - rho))
        found = []
        for i in range(self.replications):
            log = simulate(system, fleet, rates, n, child_seed(seed, i), options=options)
            found.append(measure(log.select(steady(log))))
        return {name: [values[name] for values in found] for name in found[0]}


def queue_rows(cell: Cell, seed: int, effort: Effort = Effort()) -> list[Row]:
    """EW, PW and P99 of a cell of mgc_grid.csv or gigc_grid.csv, service law of mean 1 s."""
    poisson = "arr" not in cell
    name, scv = (cell["dist"], cell["scv"]) if poisson else (cell["svc"], cell["cs2"])
    gaps, gaps_scv = ("M", 1.0) if poisson else (cell["arr"], float(cell["ca2"]))
    servers, rho = int(cell["c"]), float(cell["rho"])
    law = service_of(name, float(scv))
    system = prefill_queue(law, arrivals_of(gaps, gaps_scv, rho * servers))
    found = effort.samples(system, (servers, 1), rho, waits, seed, law.options)
    exact = cell.get("method") == "exact"
    names: dict[str, Value] = {"arrivals": gaps, "law": name, "servers": servers, "load": rho}
    # The general grid gives intervals of the mean only.
    measures = ("EW", "PW", "P99") if poisson else ("EW",)
    return [
        {**names, **_compared(measure, float(cell[measure]), ci, found[measure], exact)}
        for measure in measures
        for ci in [float(cell[f"{measure}_ci"])]
    ]


def decode_rows(cell: Cell, seed: int, effort: Effort = Effort()) -> list[Row]:
    """Mean time per token of a cell of decode_grid.csv, step times in units of b."""
    a, b, slots = float(cell["a_over_b"]) * float(cell["b"]), float(cell["b"]), float(cell["K"])
    rho, law = float(cell["rho"]), decode_lengths(cell["Ldist"], float(cell["meanL"]))
    system = decode_batch(law, a, b, slots, rho)
    found = effort.samples(system, (1, 1), rho, decoding, seed)
    reference, ci = float(cell["tpot_mean_sim"]), float(cell["tpot_mean_ci"])
    names: dict[str, Value] = {
        "lengths": cell["Ldist"],
        "slots": cell["K"],
        "a_over_b": a / b,
        "load": rho,
    }
    return [{**names, **_compared("tpot_mean", reference, ci, found["tpot_mean"], False)}]


def _compared(
    measure: str, reference: float, ci: float, samples: list[float], exact: bool
) -> dict[str, Value]:
    mean, half_width = interval(samples)
    return {
        "measure": measure,
        "exact": exact,
        "reference": reference,
        "reference_half_width": ci,
        "simulated": mean,
        "half_width": half_width,
        "error_percent": 100.0 * (mean / reference - 1.0),
        "inside": abs(mean - reference) <= math.hypot(half_width, ci),
    }


def chosen(cells: Iterable[Cell]) -> list[Cell]:
    """Cells of at most MOST_SERVERS servers and load MOST_LOAD in which some customers wait."""
    return [
        cell
        for cell in cells
        if int(cell.get("c", 1)) <= MOST_SERVERS
        and float(cell["rho"]) <= MOST_LOAD
        and float(cell.get("PW", 1.0)) >= LEAST_WAITING
    ]


def rows(folder: Path, seed: int, effort: Effort = Effort()) -> dict[str, list[Row]]:
    """Rows by grid (``mgc``, ``gigc``, ``decode``) of the CSVs in ``folder``."""
    makers = {"mgc": queue_rows, "gigc": queue_rows, "decode": decode_rows}
    return {
        grid: [
            row
            for i, cell in enumerate(chosen(read_csv(folder / f"{grid}_grid.csv")))
            for row in make(cell, seed + 1000 * i, effort)
        ]
        for grid, make in makers.items()
    }


def summary_rows(grids: Mapping[str, list[Row]]) -> list[Row]:
    """Per grid, measure and kind of reference: cells, share inside, and errors."""
    out: list[Row] = []
    for grid, found in grids.items():
        kinds = dict.fromkeys((str(row["measure"]), bool(row["exact"])) for row in found)
        for measure, exact in kinds:
            mine = [r for r in found if (r["measure"], r["exact"]) == (measure, exact)]
            errors = np.abs([float(row["error_percent"] or 0.0) for row in mine])
            out.append(
                {
                    "grid": grid,
                    "measure": measure,
                    "exact": exact,
                    "cells": len(mine),
                    "inside_percent": 100.0 * sum(bool(row["inside"]) for row in mine) / len(mine),
                    "median_error_percent": float(np.median(errors)),
                    "greatest_error_percent": float(errors.max()),
                }
            )
    return out
