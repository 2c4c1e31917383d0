"""TTFT and E2E of whole fleets, predicted against simulated: the tandem put to the test.

    python experiments/delay_laws/run.py end_to_end

A fleet of four prefill and three decode replicas under each dispatch rule, Poisson and bursty
arrivals, four laws of lengths, loads from half to 95 %: results/end_to_end.csv, errors in percent
of the mean and P99, and results/end_to_end_summary.csv by rule and burstiness. About eight
minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import get_args

import numpy as np
from experiments.results import Row, Value

from pdalloc.catalog.loader import length_law
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.prediction import Predictor, predict
from pdalloc.simulation import fast
from pdalloc.simulation.statistics import interval, steady
from pdalloc.simulation.traffic import child_seed
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

SEED = 20261130
REQUESTS = 400_000
REPLICATIONS = 6
FLEET = Fleet.of({(PREFILL, "a"): 4, (DECODE, "a"): 3})
LOADS = ((0.5, 0.4), (0.8, 0.6), (0.9, 0.75), (0.95, 0.85))
"""Utilisation of prefill and of decode."""
BURSTS = (1.0, 3.0)
PROMPT_SECONDS = 0.25
"""Mean prefill."""
STEP = 0.015
CONTEXT_SHARE = 0.3
"""Of the decode step's slope, due to the context."""
SLOTS = 256.0
METRICS = ("ttft", "e2e")
CORRELATED = joint_table(
    np.array([200.0, 500.0, 1500.0, 4000.0]),
    np.array([60.0, 150.0, 300.0, 700.0]),
    np.array([4.0, 3.0, 2.0, 1.0]),
)


def lengths() -> dict[str, LengthLaw]:
    """Laws of lengths by name."""
    return {
        "fixed": fixed(1500.0, 200.0),
        "correlated": CORRELATED,
        "azure-2023-code": length_law("azure-2023-code", "experiment"),
        "azure-2023-conversation": length_law("azure-2023-conversation", "experiment"),
    }


def question(
    law: LengthLaw, loads: tuple[float, float], rule: Dispatch, scv: float
) -> tuple[System, float]:
    """(system, requests/s) with these utilisations of FLEET."""
    prompt, output = law.mean(law.prompt), law.mean(law.output)
    rate = loads[0] * FLEET.count(PREFILL, "a") / PROMPT_SECONDS
    # rho = rate per replica x E[n] x slope per request at mean context
    slope = loads[1] * FLEET.count(DECODE, "a") / (rate * output)
    context = law.mean(law.prompt * law.output + 0.5 * law.output**2) / output
    decode = AffineDecode(STEP, (1.0 - CONTEXT_SHARE) * slope, CONTEXT_SHARE * slope / context)
    latency = Latency(AffinePrefill(0.0, PROMPT_SECONDS / prompt), decode)
    types = {"a": ReplicaType("a", Gpu("a", "A"), 1, ROLES, latency, 1.0, max_batch=SLOTS)}
    system = System(
        Llm("m", "M", 70e9, 1e5, 1e6, 70e9),
        Workload((TrafficClass("all", rate, law, arrival_scv=scv),)),
        types,
        Link(0.002, 25e9),
        dict.fromkeys(ROLES, rule),
        "decode",
    )
    return system, rate


def simulated(
    system: System, cell: int, requests: int = REQUESTS
) -> dict[str, tuple[float, float]]:
    """(value, 95 % half-width) in seconds by statistic, e.g. ``e2e_p99``."""
    found: dict[str, list[float]] = {}
    for i in range(REPLICATIONS):
        shares = {(role, "a"): 1.0 for role in ROLES}
        log = fast.simulate(system, FLEET, shares, requests, child_seed(SEED, cell, i))
        keep = steady(log)
        for metric in METRICS:
            values = np.asarray(getattr(log, metric))[keep]
            found.setdefault(f"{metric}_mean", []).append(float(values.mean()))
            found.setdefault(f"{metric}_p99", []).append(float(np.quantile(values, 0.99)))
    return {key: interval(values) for key, values in found.items()}


def predicted(system: System, rate: float) -> dict[str, float]:
    """Seconds by statistic."""
    prediction = predict(Predictor(system), FLEET, {(role, "a"): rate for role in ROLES})
    [(p, d)] = prediction.paths()
    laws = {metric: prediction.predictor.law(metric, 0, p, d) for metric in METRICS}
    means = {f"{metric}_mean": law.mean for metric, law in laws.items()}
    return means | {f"{metric}_p99": law.quantile(0.99) for metric, law in laws.items()}


def cells() -> Iterator[tuple[str, tuple[float, float], Dispatch, float]]:
    """Every (lengths, loads, dispatch rule, arrival SCV)."""
    yield from product(lengths(), LOADS, get_args(Dispatch), BURSTS)


def rows() -> list[Row]:
    """Every cell, errors in percent beside the simulation's half-widths."""
    known, found = lengths(), list[Row]()
    for number, (name, loads, rule, scv) in enumerate(cells()):
        system, rate = question(known[name], loads, rule, scv)
        seen, said = simulated(system, number), predicted(system, rate)
        row: dict[str, Value] = {
            "lengths": name,
            "prefill_utilisation": loads[0],
            "decode_utilisation": loads[1],
            "dispatch": rule,
            "arrival_scv": scv,
        }
        for key, (value, half_width) in seen.items():
            row[f"{key}_s"] = value
            row[f"{key}_error_percent"] = 100.0 * (said[key] / value - 1.0)
            row[f"{key}_ci_percent"] = 100.0 * half_width / value
        found.append(row)
    return found


def summary(table: Sequence[Row]) -> list[Row]:
    """Median, 95th percentile and worst of the absolute errors, by rule and burstiness."""
    found: list[Row] = []
    groups: list[Mapping[str, object]] = [{}, *({"arrival_scv": scv} for scv in BURSTS)]
    groups += [
        {"arrival_scv": scv, "dispatch": rule} for scv in BURSTS for rule in get_args(Dispatch)
    ]
    for group in groups:
        some = [r for r in table if all(r[k] == v for k, v in group.items())]
        if not some:
            continue
        line: dict[str, Value] = {
            "arrival_scv": str(group.get("arrival_scv", "all")),
            "dispatch": str(group.get("dispatch", "all")),
            "cells": len(some),
        }
        for key in (f"{m}_{s}" for m in METRICS for s in ("mean", "p99")):
            error = np.array([abs(float(r[f"{key}_error_percent"] or math.nan)) for r in some])
            line[f"{key}_median_percent"] = float(np.median(error))
            line[f"{key}_95th_percent"] = float(np.quantile(error, 0.95))
            line[f"{key}_worst_percent"] = float(error.max())
            noise = np.array([float(r[f"{key}_ci_percent"] or 0.0) for r in some])
            line[f"{key}_within_3_percent"] = 100.0 * float(np.mean(error <= 3.0))
            line[f"{key}_within_3_and_ci_percent"] = 100.0 * float(np.mean(error <= 3.0 + noise))
        found.append(line)
    return found


def tables() -> dict[str, list[Row]]:
    """Both tables."""
    table = rows()
    return {"end_to_end": table, "end_to_end_summary": summary(table)}
