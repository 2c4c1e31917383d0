"""Decode with KV memory counted by token, and shared links: laws against simulation.

One decode replica, t = 20 + B seconds, memory of a few mean contexts; recompute passes as long as
``recompute`` seconds a token. One prefill replica, or several on one fabric, and their link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product

import numpy as np
from experiments.delay_laws.decode_runs import INSTANT, lengths
from experiments.results import Row, Value

from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.prediction import Predictor, predict
from pdalloc.simulation import fast
from pdalloc.simulation.options import KvMemory, Network, SimulationOptions
from pdalloc.simulation.statistics import interval, steady
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import LengthLaw
from pdalloc.workload.traffic import TrafficClass, Workload

SEED = 20261201
REPLICATIONS = 3
REQUESTS = 40_000
BASE, SLOPE = 20.0, 1.0
LEAST_WAIT = 0.05
"""P(wait) from which waits are compared."""


@dataclass(frozen=True)
class MemoryCell:
    """Memory of ``contexts`` mean contexts, at utilisation ``rho`` by the law."""

    output: str
    prompt: str
    mean_output: float
    reserve: str
    recompute: float
    contexts: float
    rho: float


def cells() -> Iterator[MemoryCell]:
    """Every simulated cell."""
    kinds = (
        ("fixed", "fixed", 200.0), ("geometric", "fixed", 200.0), ("lognormal", "lognormal", 200.0),
        ("lognormal", "lognormal", 30.0), ("lognormal", "same", 200.0),
    )  # fmt: skip
    rules = (("full", 0.0), ("context", 0.0), ("context", 0.15))
    for kind, rule, m, rho in product(kinds, rules, (12.0, 32.0), (0.6, 0.75, 0.9)):
        yield MemoryCell(*kind, *rule, m, rho)


@cache
def law_of(cell: MemoryCell) -> LengthLaw:
    """The law of its requests."""
    return lengths(cell.output, cell.mean_output, cell.prompt)


def system_of(cell: MemoryCell, rate: float) -> System:
    """Prefill takes no time, but on the decode replica, which recomputes."""
    law, decode = law_of(cell), AffineDecode(BASE, SLOPE)
    weight = law.output * (law.prompt + 0.5 * law.output)
    tokens = cell.contexts * law.mean(weight) / law.mean(law.output)
    tokens = max(tokens, 1.05 * float((law.prompt + law.output).max()))
    slow = Latency(AffinePrefill(0.0, max(cell.recompute, INSTANT)), decode)
    quick = Latency(AffinePrefill(0.0, INSTANT), decode)
    gpu = Gpu("gpu", "GPU")
    types = {
        "p": ReplicaType("p", gpu, 1, (PREFILL,), quick, 1.0),
        "d": ReplicaType("d", gpu, 1, (DECODE,), slow, 1.0, kv_tokens=tokens),
    }
    traffic = Workload((TrafficClass("all", rate, law),))
    random = dict.fromkeys(ROLES, "random")
    return System(Llm("m", "M", 1, 1.0, 1e9, 1), traffic, types, Link(), random, "decode")  # type: ignore[arg-type]


def memory_row(cell: MemoryCell) -> Row:
    """Errors of the law, percent, and their half-widths."""
    options = SimulationOptions(kv=KvMemory(cell.reserve))  # type: ignore[arg-type]
    fleet = Fleet.of({(PREFILL, "p"): 1, (DECODE, "d"): 1})
    still = Predictor(system_of(cell, 1.0), options)
    rate = cell.rho * still.decode(still.system.replica_types["d"], 0.0).law.station.limit
    found: dict[str, list[float]] = {}
    for i in range(REPLICATIONS):
        system = system_of(cell, rate)
        rates = dict.fromkeys(fleet.counts, rate)
        log = fast.simulate(system, fleet, rates, REQUESTS, SEED + i, options=options)
        log = log.select(steady(log))
        assert log.transfer_start is not None
        waits = log.transfer_start - log.prefill_end
        span = float(log.arrival[-1] - log.arrival[0])
        offered = (len(log) - 1) / span * float(log.output_tokens.mean()) / still.mean_steps
        law = still.decode(system.replica_types["d"], min(offered, rate / cell.rho * 0.99)).law
        compared = {
            "mean_tpot": (law.mean_tpot, float(np.nanmean(log.tpot))),
            "p_wait": (law.wait_probability, float((waits > 1e-6).mean())),
            "mean_wait": (law.mean_slot_wait, float(waits.mean())),
        }
        rare = compared["p_wait"][1] < LEAST_WAIT
        for key, (predicted, simulated) in compared.items():
            error = math.nan if rare and "wait" in key else 100.0 * (predicted / simulated - 1.0)
            found.setdefault(key, []).append(error)
    return {**asdict(cell), **_columns(found)}


@dataclass(frozen=True)
class LinkCell:
    """``replicas`` of prefill at utilisation ``rho``; the link is used ``used`` of the time."""

    prompt: str
    sharing: str
    scope: str
    replicas: int
    rho: float
    used: float


def link_cells() -> Iterator[LinkCell]:
    """Every simulated cell."""
    for prompt, sharing, rho in product(
        ("fixed", "lognormal"), ("fcfs", "processor_sharing"), (0.5, 0.8)
    ):
        for used in (0.3, 0.8):
            yield LinkCell(prompt, sharing, "replica", 1, rho, used * rho)
            yield LinkCell(prompt, sharing, "fabric", 8, rho, used)


def link_row(cell: LinkCell) -> Row:
    """Mean delay that sharing adds over the mean work of a transfer: law, simulated, error."""
    law = lengths("fixed", 10.0, cell.prompt)
    seconds, mean = 1e-3, law.mean(law.prompt)
    rate = cell.rho * cell.replicas / (seconds * mean)
    work = cell.used / (rate * mean) * (1 if cell.scope == "fabric" else cell.replicas)
    latency = Latency(AffinePrefill(0.0, seconds), AffineDecode(1e-6, 0.0))
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0)
    system = System(
        Llm("m", "M", 1, 1.0, 1e9, 1), Workload((TrafficClass("all", rate, law),)), {"r": kind},
        Link(0.0, 1.0 / work), dict.fromkeys(ROLES, "random"), "transfer",
    )  # fmt: skip
    fleet = Fleet.of({(PREFILL, "r"): cell.replicas, (DECODE, "r"): 1})
    options = SimulationOptions(network=Network(cell.sharing, cell.scope))  # type: ignore[arg-type]
    rates = dict.fromkeys(fleet.counts, rate)
    (link,) = predict(Predictor(system, options), fleet, rates).links()
    added = []
    for i in range(REPLICATIONS):
        log = fast.simulate(system, fleet, rates, REQUESTS, SEED + i, options=options)
        log = log.select(steady(log))
        delay = log.transfer_end - log.prefill_end - work * log.prompt_tokens
        added.append(max(float(delay.mean()), 0.0) / (work * mean))
    simulated, half_width = interval(added)
    predicted = link.mean_delay / (work * mean)
    return {
        **asdict(cell),
        "predicted": predicted,
        "simulated": simulated,
        "half_width": half_width,
        "error": predicted - simulated,
    }


def _columns(found: dict[str, list[float]]) -> Row:
    values: dict[str, Value] = {}
    for key, sample in found.items():
        known = not np.isnan(sample).any()
        mean, half_width = interval(sample) if known else (math.nan, math.nan)
        values[f"{key}_error_percent"] = mean if known else None
        values[f"{key}_half_width_percent"] = half_width if known else None
    return values


def tables() -> dict[str, list[Row]]:
    """Errors with memory counted by token, and of shared links."""
    return {
        "memory": [memory_row(cell) for cell in cells()],
        "links": [link_row(cell) for cell in link_cells()],
    }
