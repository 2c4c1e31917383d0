"""The pools of a fleet as the reference simulator sees them: replicas under dispatchers."""

from __future__ import annotations

import math

from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.simulation.decode_replica import (
    DecodeReplica,
    DecodeTimes,
    recompute_time,
    step_time,
)
from pdalloc.simulation.dispatch import Dispatcher
from pdalloc.simulation.options import SimulationOptions
from pdalloc.simulation.prefill_replica import PrefillReplica, PrefillTimes, pass_time
from pdalloc.simulation.setup import prefill_factors, slow_factors
from pdalloc.simulation.traffic import Draws
from pdalloc.system import ReplicaType, System


def prefill_times(kind: ReplicaType, draws: Draws, options: SimulationOptions) -> PrefillTimes:
    """Prefill times of every request of ``draws`` on ``kind``."""
    stream, latency = draws.stream, kind.latency
    factors = prefill_factors(latency, draws, options)
    seconds = latency.prefill_seconds(stream.prompt.astype(float), stream.cached) * factors
    return PrefillTimes(seconds.tolist(), factors.tolist(), pass_time(latency))


def decode_times(kind: ReplicaType) -> DecodeTimes:
    """Step and recompute times of ``kind``."""
    return DecodeTimes(step_time(kind.latency), recompute_time(kind.latency))


def batch_memory(
    system: System, kind: ReplicaType, options: SimulationOptions
) -> tuple[float, float]:
    """(requests, KV tokens) that a replica of ``kind`` holds at most.

    Without the KV option tokens are not counted: the mean context limits the batch.
    """
    if options.kv is None:
        return kind.batch_limit(system.mean_context), math.inf
    return kind.max_batch, kind.kv_tokens


def prefill_pools(
    system: System, fleet: Fleet, draws: Draws, options: SimulationOptions
) -> list[Dispatcher[PrefillReplica]]:
    """One dispatcher per prefill pool, in fleet order; replicas numbered over the fleet."""
    slow = slow_factors(fleet, PREFILL, options)
    pools: list[Dispatcher[PrefillReplica]] = []
    count = 0
    for pool in fleet.in_role(PREFILL):
        times = prefill_times(system.replica_types[pool.replica_type], draws, options)
        replicas = []
        for index in range(count, count + pool.replicas):
            replicas.append(PrefillReplica(times, options.prefill_budget, slow[index]))
            replicas[-1].index = index
        count += pool.replicas
        pools.append(Dispatcher(system.dispatch[PREFILL], replicas))
        if system.dispatch[PREFILL] == "central_queue":
            for replica in replicas:
                replica.group = replicas
    return pools


def decode_pools(
    system: System, fleet: Fleet, draws: Draws, options: SimulationOptions
) -> list[Dispatcher[DecodeReplica]]:
    """One dispatcher per decode pool, in fleet order; replicas numbered over the fleet."""
    slow = slow_factors(fleet, DECODE, options)
    pools: list[Dispatcher[DecodeReplica]] = []
    count = 0
    shared = ("queue", "lost") if options.kv is None else ("lost", "pending")
    for pool in fleet.in_role(DECODE):
        kind = system.replica_types[pool.replica_type]
        times = decode_times(kind)
        limit, memory = batch_memory(system, kind, options)
        replicas = []
        for index in range(count, count + pool.replicas):
            replicas.append(DecodeReplica(times, limit, memory, options, draws.key, slow[index]))
            replicas[-1].index = index
        count += pool.replicas
        pools.append(Dispatcher(system.dispatch[DECODE], replicas, shared))
        if system.dispatch[DECODE] == "central_queue":
            for replica in replicas:
                replica.group = replicas
    return pools
