"""The state before the first event, from system, fleet, draws and options."""

from __future__ import annotations

import numpy as np

from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.records import Array, Ints
from pdalloc.simulation import hashing
from pdalloc.simulation.kernels.chance import NOISES, multiply_by_noise
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.pools import knots_and_servers
from pdalloc.simulation.kernels.full.servers import (
    LINK_STATE,
    LIST,
    LISTS_PER_SERVER,
    ONE_EACH,
    RULES,
    Servers,
)
from pdalloc.simulation.kernels.full.state import NOBODY, State
from pdalloc.simulation.kernels.heap import empty_heap
from pdalloc.simulation.kernels.plain.decode import empty_ring
from pdalloc.simulation.kernels.plain.table import FIRST_TOKENS
from pdalloc.simulation.kernels.step_table import base_table
from pdalloc.simulation.options import Clients, KvMemory, Network, Noise, SimulationOptions
from pdalloc.simulation.setup import paths
from pdalloc.simulation.traffic import Draws
from pdalloc.system import System


def state_of(
    system: System,
    fleet: Fleet,
    draws: Draws,
    options: SimulationOptions,
    same_run: Servers | None = None,
) -> State:
    """The state of a run in which nothing has happened yet.

    ``same_run``: the servers at the end of the same run, which say how long its diary is; the
    run is then written down.
    """
    stream, requests = draws.stream, len(draws.stream)
    knots, servers = knots_and_servers(system, fleet, options, requests)
    times, whole = table(system, fleet, draws, options)
    rules = rules_of(system, fleet, draws, options)
    writes = same_run is not None and not options.steps_tell
    rules["walk"] = int(writes or rules["tokens_law"][0] != ONE_EACH)
    lists = np.zeros(1 + LISTS_PER_SERVER * len(servers), LIST)
    lists["head"] = lists["tail"] = NOBODY
    links = np.zeros(max(len(servers), int(whole[rows.LINK].max()) + 1), LINK_STATE)
    links["root"], links["due"] = NOBODY, np.nan
    decodes = len(servers) - int(rules["prefills"][0])
    most = int(servers["limit"].max())
    role = PREFILL if options.colocated is not None else DECODE
    latencies = [system.replica_types[p.replica_type].latency for p in fleet.in_role(role)]
    return State(
        times=times,
        whole=whole,
        servers=servers,
        rules=rules,
        links=links,
        lists=lists,
        events=empty_heap(2 * most_events(requests, len(servers))),
        ring=empty_ring(decodes, int(whole[rows.TO_GO].max())),
        base=base_table(latencies, most),
        knots=knots,
        diary=np.zeros((2, 0)) if same_run is None else with_diary(servers, same_run),
        tokens=np.empty(int(stream.output.sum()) if writes else 0),
        first_of=np.cumsum(stream.output) - stream.output if writes else np.zeros(0, np.int64),
    )


def most_events(requests: int, servers: int) -> int:
    """How many events one event may schedule at most."""
    return requests + 4 * servers + 64


def with_diary(servers: Servers, same_run: Servers) -> Array:
    """Room for the passes and steps that ``same_run`` counted; ``servers`` learn their places."""
    ends = np.cumsum(np.concatenate([same_run["begun"], same_run["recomputes"]]))
    starts = np.concatenate([[0], ends[:-1]])
    servers["diary"], servers["recompute_diary"] = starts.reshape(2, -1)
    return np.empty((2, max(int(ends[-1]), 1)))


def table(
    system: System, fleet: Fleet, draws: Draws, options: SimulationOptions
) -> tuple[Array, Ints]:
    """(times, whole) of requests that have not arrived yet."""
    stream, requests = draws.stream, len(draws.stream)
    times = np.empty((rows.TIMES, requests))
    whole = np.empty((rows.WHOLE, requests), np.int64)
    times[: rows.LOGGED] = times[rows.DEADLINE] = times[rows.DUE] = np.nan
    whole[rows.PREFILL_REPLICA :] = 0
    for row in (rows.PREFILL_REPLICA, rows.DECODE_REPLICA, rows.STATUS, rows.HOME):
        whole[row] = NOBODY
    times[rows.ARRIVAL] = stream.arrival
    times[rows.CACHED] = times[rows.AT] = stream.cached
    whole[rows.PROMPT], whole[rows.OUTPUT] = stream.prompt, stream.output
    whole[rows.TO_GO] = stream.output - int(system.first_token != "decode")
    for role, pool, pick in (
        (PREFILL, rows.PREFILL_POOL, rows.PREFILL_PICK),
        (DECODE, rows.DECODE_POOL, rows.DECODE_PICK),
    ):
        sizes = [p.replicas for p in fleet.in_role(role)]
        first = np.cumsum([0, *sizes[:-1]])
        if role == DECODE:
            first += sum(p.replicas for p in fleet.in_role(PREFILL))
        whole[pool], times[pick] = first[draws.pool[role]], draws.pick[role]
    prefill_times(times, system, fleet, draws, options.prefill_noise)
    transfer_times(times, whole, system, fleet, draws, options)
    return times, whole


def noise_factors(noise: Noise | None, draws: Draws, kind: int) -> Array:
    """A factor per request of the random numbers ``kind``; ones without noise; (n,)."""
    factors = np.ones(len(draws.stream))
    if noise is not None:
        law = NOISES.index(noise.law)
        multiply_by_noise(factors, law, noise.scv, np.uint64(draws.key), kind)
    return factors


def prefill_times(
    times: Array, system: System, fleet: Fleet, draws: Draws, noise: Noise | None
) -> None:
    """Write FACTOR and SECONDS of every request in its prefill pool."""
    stream, pool = draws.stream, draws.pool[PREFILL]
    extra = noise_factors(noise, draws, hashing.PREFILL_NOISE)
    for p, each in enumerate(fleet.in_role(PREFILL)):
        latency = system.replica_types[each.replica_type].latency
        mine = np.flatnonzero(pool == p)
        noisy = latency.prefill_noise == "exponential"
        factors = (draws.noise[mine] if noisy else np.ones(len(mine))) * extra[mine]
        mean = latency.prefill_seconds(stream.prompt[mine].astype(float), stream.cached[mine])
        times[rows.FACTOR, mine], times[rows.SECONDS, mine] = factors, mean * factors


def transfer_times(
    times: Array,
    whole: Ints,
    system: System,
    fleet: Fleet,
    draws: Draws,
    options: SimulationOptions,
) -> None:
    """Write LATENCY, WORK and LINK of every request's transfer."""
    network, way = options.network or Network(), paths(system, fleet, options)
    between = draws.pool[PREFILL], draws.pool[DECODE]
    jitter = noise_factors(network.jitter, draws, hashing.JITTER)
    times[rows.LATENCY] = way.latency[between] * jitter
    size = system.llm.kv_bytes_per_token * draws.stream.prompt.astype(float)
    times[rows.WORK] = size / way.bandwidth[between]
    whole[rows.LINK] = way.site_pair[between] if network.scope == "sites" else 0


def rules_of(system: System, fleet: Fleet, draws: Draws, options: SimulationOptions) -> Servers:
    """The options as numbers; shape (1,)."""
    network, clients = options.network or Network(), options.clients or Clients()
    kv, several = options.kv or KvMemory(), options.multi_token
    rules = np.zeros(1, RULES)
    values: dict[str, float] = {
        "prefills": sum(p.replicas for p in fleet.in_role(PREFILL)),
        "requests": len(draws.stream),
        "key": draws.key,
        "first_token": FIRST_TOKENS.index(system.first_token),
        "sharing": ("none", "fcfs", "processor_sharing").index(network.sharing),
        "per_replica": network.scope == "replica",
        "kv": options.kv is not None,
        "full": kv.reserve == "full",
        "watermark": kv.watermark,
        "back_pressure": kv.back_pressure,
        "timeout": clients.timeout,
        "max_queue": clients.max_queue,
        "retries": clients.retries,
        "retry_delay": clients.retry_delay,
    }
    if options.prefill_budget is not None:
        values |= {
            "budget": options.prefill_budget.tokens,
            "split": options.prefill_budget.split,
        }
    if options.colocated is not None:
        both = options.colocated
        values |= {"prefills": 0, "budget": both.tokens, "split": both.policy == "chunked"}
    if options.step_noise is not None:
        noise = options.step_noise
        values |= {"step_noise": NOISES.index(noise.law), "step_scv": noise.scv}
    if several is not None and several.mean > 1.0:
        law = ("one each", "fixed", "geometric").index(several.law)
        values |= {"tokens_law": law, "tokens_mean": several.mean}
    if options.failures is not None:
        values |= {"mtbf": options.failures.mtbf, "mttr": options.failures.mttr}
    for name, value in values.items():
        rules[name] = value
    return rules
