"""One simulated decode pool: lengths, a run of the fast simulator, and what is read off it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri

from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.laws import Array
from pdalloc.queueing.decode import DecodeStation
from pdalloc.simulation import fast
from pdalloc.simulation.options import SimulationOptions
from pdalloc.simulation.statistics import Run, steady
from pdalloc.simulation.traffic import draw
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import LengthLaw
from pdalloc.workload.traffic import TrafficClass, Workload

POINTS = 400
SCV = 2.0
"""Of lognormal lengths."""
MEAN_PROMPT = 1000.0
INSTANT = 1e-15
"""Seconds of prefill per token: none to speak of."""


@dataclass(frozen=True)
class Measured:
    """What one run says, steady part only; seconds. ``load`` is what its requests offered."""

    load: float
    mean_tpot: float
    mean_itl: float
    itl_p99: float
    tpot_p50: float
    tpot_p99: float
    mean_boundary_wait: float
    p_wait: float
    mean_slot_wait: float


@cache
def lengths(output: str, mean_output: float = 200.0, prompt: str = "fixed") -> LengthLaw:
    """Equally likely points; ``prompt`` ``same`` grows with the output (full correlation)."""
    out = np.maximum(np.rint(_quantiles(output, mean_output, POINTS)), 1.0)
    if prompt == "same":
        held = _quantiles(output, MEAN_PROMPT, POINTS)
    else:
        held = _quantiles(prompt, MEAN_PROMPT, 20)
        out, held = np.repeat(out, len(held)), np.tile(held, len(out))
    n = len(out)
    return LengthLaw(np.maximum(np.rint(held), 1.0), out, np.full(n, 1.0 / n))


def _quantiles(law: str, mean: float, points: int) -> Array:
    level = (np.arange(points) + 0.5) / points
    if law == "fixed":
        return np.full(1, mean)
    if law == "geometric":
        return np.asarray(1.0 + np.floor(np.log1p(-level) / math.log1p(-1.0 / mean)))
    values = np.exp(math.sqrt(math.log1p(SCV)) * ndtri(level))
    return np.asarray(values * mean / values.mean())


def measure(
    station: DecodeStation,
    coefficients: tuple[float, float, float],
    law: LengthLaw,
    requests: int,
    seed: int,
    options: SimulationOptions,
) -> Measured:
    """One run of ``station`` with t = a + b B + c S and requests of ``law``."""
    decode = AffineDecode(*coefficients)
    kind = ReplicaType(
        "r", Gpu("gpu", "GPU"), 1, ROLES, Latency(AffinePrefill(0.0, INSTANT), decode), 1.0,
        max_batch=station.slots,
    )  # fmt: skip
    system = System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload((TrafficClass("all", station.rate, law, station.arrival_scv),)),
        {"r": kind},
        Link(),
        {PREFILL: "random", DECODE: station.dispatch},
        "decode",
    )
    fleet = Fleet.of({(PREFILL, "r"): 1, (DECODE, "r"): station.replicas})
    draws = draw(system.workload, fleet, dict.fromkeys(fleet.counts, 1.0), requests, seed)
    return read(fast.replay(system, fleet, draws, options=options), station, coefficients)


def read(run: Run, station: DecodeStation, coefficients: tuple[float, float, float]) -> Measured:
    """What ``run`` measured."""
    log = run.log
    keep = steady(log)
    seconds, weight = _gaps(run, keep)
    order = np.argsort(seconds)
    cumulated = np.cumsum(weight[order])
    p99 = seconds[order][np.searchsorted(cumulated, 0.99 * cumulated[-1])]
    tpot = log.tpot[keep & (log.output_tokens > 1)]
    wait = (log.decode_start - log.transfer_end)[keep]
    queued, slot_wait = _slot_waits(run, keep, station)
    return Measured(
        load=_load(run, keep, station, coefficients),
        mean_tpot=float(tpot.mean()),
        mean_itl=float(seconds @ weight / weight.sum()),
        itl_p99=float(p99),
        tpot_p50=float(np.quantile(tpot, 0.5)),
        tpot_p99=float(np.quantile(tpot, 0.99)),
        mean_boundary_wait=float(wait.mean()),
        p_wait=float(queued.mean()),
        mean_slot_wait=float((slot_wait * queued).mean()),
    )


def _gaps(run: Run, keep: np.ndarray) -> tuple[Array, Array]:
    """(seconds, how many gaps) of every kind of gap of the kept requests."""
    if run.token_times is not None:
        gaps = run.gaps(keep)
        return gaps, np.ones_like(gaps)
    log, seconds, weights = run.log, [], []
    for d, (starts, lasts) in enumerate(zip(run.step_starts, run.step_seconds, strict=True)):
        mine = keep & (log.decode_replica == d)
        first = np.searchsorted(starts, log.decode_start[mine])
        last = first + log.output_tokens[mine]
        joins, leaves = (np.bincount(i, minlength=len(starts) + 2) for i in (first + 1, last))
        seconds.append(lasts)
        weights.append(np.cumsum(joins - leaves)[: len(starts)].astype(float))
    return np.concatenate(seconds), np.concatenate(weights)


def _slot_waits(run: Run, keep: np.ndarray, station: DecodeStation) -> tuple[np.ndarray, Array]:
    """(who found every slot taken, waits in s); central_queue: every slot of the pool."""
    log = run.log
    wait = log.decode_start - log.transfer_end
    if station.slots == math.inf:
        return np.zeros(int(keep.sum()), bool), wait[keep]
    central = station.dispatch == "central_queue"
    group = np.zeros(len(log), int) if central else log.decode_replica
    slots = station.slots * (station.replicas if central else 1)
    found = np.zeros(len(log))
    for d in np.unique(group):
        mine = group == d
        arrived = log.transfer_end[mine]  # in order: prefill takes no time
        found[mine] = np.arange(len(arrived)) - np.searchsorted(np.sort(log.finish[mine]), arrived)
    return (found >= slots)[keep], wait[keep]


def _load(
    run: Run, keep: np.ndarray, station: DecodeStation, coefficients: tuple[float, float, float]
) -> float:
    """Utilisation that the kept requests offered: what they ask for over what they could have."""
    log, work = run.log, station.work
    span = float(log.arrival[keep][-1] - log.arrival[keep][0])
    rate = (int(keep.sum()) - 1) / span
    _, b, c = coefficients
    n = log.output_tokens[keep].astype(float)
    asked = n * (b + c * (log.prompt_tokens[keep] + (n - 1.0) / 2.0))
    if station.slots < math.inf or work.zero_gaps > 0.0:
        asked = n
    factor = float(asked.mean()) / _expected(station, coefficients)
    return rate * factor / station.capacity


def _expected(station: DecodeStation, coefficients: tuple[float, float, float]) -> float:
    """Mean of the same over the law of requests."""
    work, (_, b, c) = station.work, coefficients
    if station.slots < math.inf or work.zero_gaps > 0.0:
        return float(work.weight @ (work.gaps + 1.0))
    return work.mean_steps * (b + c * work.mean_context)
