r"""What a run comes to: latencies, attainment, goodput, utilisation, queues, cost.

Everything is read in the steady part of a run (:func:`pdalloc.simulation.statistics.steady`:
the first and last tenth of the requests by order of arrival are left out); the *window* goes
from its first arrival to its last. Numbers carry their unit in their name:

=============================  ===========================================================
``ttft_mean_s`` ...            also ``tpot``, ``itl``, ``e2e``; also p50, p90, p95, p99;
                               of requests that got their whole answer
``offered_req_per_s``          arrivals in the window per second
``attainment``                 share of requests that finish and meet every bound
``goodput_req_per_s``          attainment times offered
``timeout_share``              share that gave up for good; ``rejected_share`` were refused
``retries_per_request``        mean
``recomputes_per_request``     mean times that a KV cache was lost at decode
``utilisation prefill/x``      share of the window a replica of the pool works, mean
``queue_prefill`` ...          mean number of requests in each stage over the window
``usd_per_mtoken``             per million prompt and output tokens of requests that finish;
                               ``usd_per_mtoken_output`` per million output tokens
``littles_law_gap``            N / (lambda T) - 1
=============================  ===========================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, ROLES, Fleet, Role
from pdalloc.records import REJECTED, TIMED_OUT, RequestLog, sample_of
from pdalloc.simulation.attainment import PER_REQUEST, Bound, attained
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.simulation.reference import Progress, replay
from pdalloc.simulation.statistics import (
    Array,
    Mask,
    Run,
    covered,
    interval,
    littles_law,
    steady,
    window,
)
from pdalloc.simulation.traffic import Draws, Rates, Seed, child_seed, draw
from pdalloc.system import System

PERCENTS = (50, 90, 95, 99)
STAGES = {
    "queue_prefill": ("arrival", "prefill_start"),
    "in_prefill": ("prefill_start", "prefill_end"),
    "in_transfer": ("prefill_end", "transfer_end"),
    "queue_decode": ("transfer_end", "decode_start"),
    "in_decode": ("decode_start", "finish"),
}
"""Stages of a request by the times at which it comes and goes.

A wait for KV space counts as transfer; between retries a request counts as queued; while its
KV cache is recomputed it counts as decoding.
"""
Measured = Callable[[Run, int], Mapping[str, float]]
"""What to read of a run; its second argument numbers the replication."""
Simulate = Callable[[System, Fleet, Draws, Progress | None, SimulationOptions], Run]


@dataclass(frozen=True)
class Estimate:
    """``value`` +- ``half_width`` (95 %) over independent replications, in one unit."""

    value: float
    half_width: float


@dataclass(frozen=True)
class Summary:
    """Numbers with their intervals, over ``replications`` runs of ``asked``.

    ``samples`` has each number's values, one per run. Fewer runs than asked were done where
    somebody pressed ^C.
    """

    numbers: Mapping[str, Estimate]
    samples: Mapping[str, Sequence[float]]
    replications: int
    asked: int


def replicate(
    system: System,
    fleet: Fleet,
    rates: Rates,
    requests: int,
    replications: int,
    seed: Seed,
    options: SimulationOptions = PLAIN,
    measured: Measured | None = None,
    progress: Progress | None = None,
    simulate: Simulate = replay,
) -> Summary:
    """``measured(run, replication)``, numbers by name, with intervals over independent runs.

    By default every number of the module docstring. ``requests`` per replication;
    ``progress(done, total)`` counts those of all replications. ^C ends it with what the runs
    that were done came to, when they are two or more. Raises InputError for fewer than two
    replications, and as ``measured`` and the simulator do.
    """
    if replications < 2:
        raise InputError(f"intervals need at least 2 replications, got {replications}")
    read = measured or (lambda run, _: measure(run, fleet))
    found: list[Mapping[str, float]] = []
    try:
        for i in range(replications):
            draws = draw(system.workload, fleet, rates, requests, child_seed(seed, i))
            run = simulate(system, fleet, draws, part_of(progress, i, replications), options)
            found.append(read(run, i))
    except KeyboardInterrupt:
        if len(found) < 2:
            raise
    shared = [name for name in found[0] if all(name in run for run in found)]
    samples = {name: [run[name] for run in found] for name in shared}
    return Summary(combined(found), samples, len(found), replications)


def part_of(progress: Progress | None, done: int, replications: int) -> Progress | None:
    """``progress`` as one of ``replications`` runs sees it, ``done`` of them before it."""
    if progress is None:
        return None
    return lambda gone, total: progress(done * total + gone, replications * total)


def combined(measured: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    """An interval per number, over replications; those that one of them lacks are left out."""

    def everywhere(name: str) -> bool:
        return all(math.isfinite(run.get(name, math.nan)) for run in measured)

    names = filter(everywhere, measured[0])
    return {name: Estimate(*interval([run[name] for run in measured])) for name in names}


def measure(
    run: Run, fleet: Fleet, bounds: Sequence[Bound] = (), usd_per_hour: float | None = None
) -> dict[str, float]:
    """Every number of the module docstring, from one run.

    Raises InputError for a run too short to have a window.
    """
    log = run.log
    keep = steady(log)
    kept = log.select(keep)
    start, end = window(log)
    offered = (len(kept) - 1) / (end - start)
    met = float(attained(run, bounds)[keep].mean())
    values = {
        **latencies(run),
        "offered_req_per_s": offered,
        "attainment": met,
        "goodput_req_per_s": met * offered,
        **_departures(kept),
        **utilisation(run, fleet),
        **_mean_numbers(log),
        "littles_law_gap": littles_law(log)[2],
    }
    if usd_per_hour is not None:
        values |= _cost(log, start, end, usd_per_hour)
    return values


def latencies(run: Run, keep: Mask | None = None) -> dict[str, float]:
    """Mean and percentiles of each latency, s, of the requests in ``keep`` (n,).

    By default those of the steady part that finished. None of a latency that nobody has.
    """
    if keep is None:
        keep = steady(run.log) & run.log.finished
    kept = run.log.select(keep)
    samples = {name: sample_of(getattr(kept, name)) for name in PER_REQUEST}
    values = {}
    for name, sample in (samples | {"itl": run.gap_sample(keep)}).items():
        if sample.size:
            values[f"{name}_mean_s"] = sample.mean
            found = sample.percentiles(PERCENTS)
            values |= {f"{name}_p{p}_s": x for p, x in zip(PERCENTS, found, strict=True)}
    return values


def _departures(kept: RequestLog) -> dict[str, float]:
    """Shares and means over requests of what options make happen; zeros in a plain run."""
    none = np.zeros(len(kept), np.int64)
    status = none if kept.status is None else kept.status
    retries = none if kept.retries is None else kept.retries
    recomputes = none if kept.recomputes is None else kept.recomputes
    return {
        "timeout_share": float((status == TIMED_OUT).mean()),
        "rejected_share": float((status == REJECTED).mean()),
        "retries_per_request": float(retries.mean()),
        "recomputes_per_request": float(recomputes.mean()),
    }


def utilisation(run: Run, fleet: Fleet) -> dict[str, float]:
    """``utilisation <role>/<type>``: share of the window that a replica works, pool mean.

    A replica that does both roles works while it prefills, decodes or both.
    """
    start, end = window(run.log)
    values = {}
    for role in ROLES:
        first = 0
        for pool in fleet.in_role(role):
            busy = 0.0
            for r in range(first, first + pool.replicas):
                busy += _busy(run, role, r, start, end)
            first += pool.replicas
            values[f"utilisation {pool.label}"] = busy / (pool.replicas * (end - start))
    return values


def _busy(run: Run, role: Role, replica: int, start: float, end: float) -> float:
    """Seconds of [start, end] in which a replica works, at anything that it does."""
    if run.both_roles:
        return covered([*_passes(run, replica), *run.decode_work(replica)], start, end)
    if role == DECODE:
        return run.decode_busy(replica, start, end)
    return covered(_passes(run, replica), start, end)


def _passes(run: Run, replica: int) -> list[tuple[Array, Array]]:
    """(starts, seconds) of its prefill passes; a plain run may lack them: its log has them."""
    if run.pass_starts:
        return [(run.pass_starts[replica], run.pass_seconds[replica])]
    mine = run.log.prefill_replica == replica
    start = run.log.prefill_start[mine]
    return [(start, run.log.prefill_end[mine] - start)]


def queue_lengths(log: RequestLog, at: Array) -> dict[str, np.ndarray]:
    """Number of requests in each stage (STAGES) at the times ``at`` (s, any shape)."""
    series = {}
    for stage, (came, went) in _visits(log).items():
        came, went = np.sort(came), np.sort(went)
        series[stage] = np.searchsorted(came, at, "right") - np.searchsorted(went, at, "right")
    return series


def _visits(log: RequestLog) -> dict[str, tuple[Array, Array]]:
    """When requests come to and go from each stage, s; those that never came are left out."""
    gone = log.finish if log.left is None else log.left
    visits = {}
    for stage, names in STAGES.items():
        came, went = (getattr(log, name) for name in names)
        here = np.isfinite(came)
        visits[stage] = came[here], np.where(np.isnan(went), gone, went)[here]
    return visits


def _mean_numbers(log: RequestLog) -> dict[str, float]:
    """Mean number of requests in each stage over the window."""
    start, end = window(log)
    return {
        stage: float(np.maximum(np.minimum(went, end) - np.maximum(came, start), 0.0).sum())
        / (end - start)
        for stage, (came, went) in _visits(log).items()
    }


def _cost(log: RequestLog, start: float, end: float, usd_per_hour: float) -> dict[str, float]:
    """Cost of the window [start, end] (s) per million tokens of the requests it finishes."""
    with np.errstate(invalid="ignore"):
        done = log.select(log.finished & (log.finish >= start) & (log.finish <= end))
    usd = usd_per_hour * (end - start) / 3600.0
    output = int(done.output_tokens.sum())
    tokens = {"usd_per_mtoken": output + int(done.prompt_tokens.sum())}
    tokens |= {"usd_per_mtoken_output": output}
    return {name: 1e6 * usd / count for name, count in tokens.items() if count}
