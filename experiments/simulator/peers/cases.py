"""The cases that peers are asked, for the fast simulator: same fleet, lengths and load.

Times are like the peer's own, so that batches, and with them the events per request, are.
"""

from __future__ import annotations

import math
from dataclasses import replace

from experiments.simulator.speed import Case

from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed
from pdalloc.workload.traffic import TrafficClass, Workload

PROMPT, OUTPUT = 1024, 128
"""Tokens of every request of the P/D cases; OPT's window is 2048."""


def fleet_case(
    prefills: int,
    decodes: int,
    rate: float,
    prefill_s: float,
    step: AffineDecode,
    options: SimulationOptions = PLAIN,
) -> Case:
    """``rate`` requests/s; a prompt takes ``prefill_s`` seconds; least loaded dispatch."""
    latency = Latency(AffinePrefill(0.0, prefill_s / PROMPT), step)
    lengths = fixed(float(PROMPT), float(OUTPUT))
    case = _case((prefills, decodes), rate, lengths, latency, "least_loaded", "prefill")
    return replace(case, options=options)


def queue_case(servers: int, utilisation: float) -> Case:
    """M/M/c: exponential prefills of mean 1 s under a central queue, and nothing to decode."""
    latency = Latency(AffinePrefill(1.0, 0.0), AffineDecode(1.0, 0.0), "exponential")
    rate = utilisation * servers
    return _case((servers, 1), rate, fixed(1.0, 1.0), latency, "central_queue", "prefill")


def _case(
    replicas: tuple[int, int],
    rate: float,
    lengths: LengthLaw,
    latency: Latency,
    dispatch: Dispatch,
    first_token: FirstToken,
) -> Case:
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0, math.inf)
    system = System(
        Llm("m", "M", 1, 1.0, 1e9, 1),
        Workload((TrafficClass("all", rate, lengths),)),
        {"r": kind},
        Link(),
        dict.fromkeys(ROLES, dispatch),
        first_token,
    )
    return Case(system, Fleet.of(dict(zip([(PREFILL, "r"), (DECODE, "r")], replicas, strict=True))))


def poisson_arrivals(rate: float, requests: int) -> list[float]:
    """Arrival times in s, for peers that want a trace."""
    import numpy as np

    gaps = np.random.default_rng(1).exponential(1.0 / rate, requests)
    return [float(t) for t in np.cumsum(gaps)]
