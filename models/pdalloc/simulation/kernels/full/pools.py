"""The servers of a fleet before the first event: pools, times, limits, lists."""

from __future__ import annotations

import numpy as np

from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet, Role
from pdalloc.latency.affine import AffinePrefill
from pdalloc.latency.measured import MeasuredPrefill
from pdalloc.latency.service import Latency
from pdalloc.records import Array
from pdalloc.simulation.kernels.full.servers import LISTS_PER_SERVER, SERVER, Servers
from pdalloc.simulation.kernels.full.state import NOBODY
from pdalloc.simulation.kernels.plain.replica import RULES
from pdalloc.simulation.kernels.step_table import slope_of
from pdalloc.simulation.options import SimulationOptions
from pdalloc.simulation.pools import batch_memory
from pdalloc.simulation.setup import slow_factors
from pdalloc.system import System


def knots_and_servers(
    system: System, fleet: Fleet, options: SimulationOptions, requests: int
) -> tuple[Array, Servers]:
    """Measured prefill curves of all pools, shape (2, knots), and the servers, idle and up.

    Raises UnsupportedError for latencies of a kind that kernels cannot evaluate.
    """
    knots: list[Array] = []
    parts: list[Servers] = []
    both_roles = options.colocated is not None
    roles = (PREFILL,) if both_roles else ROLES
    for role in roles:
        for p, pool in enumerate(fleet.in_role(role)):
            kind = system.replica_types[pool.replica_type]
            servers = np.zeros(pool.replicas, SERVER)
            begin = sum(map(len, parts))
            servers["pool"], servers["rule"] = p, RULES[system.dispatch[role]]
            servers["first"], servers["after"] = begin, begin + pool.replicas
            servers["turn"] = begin + pool.replicas - 1
            set_pass_times(servers, kind.latency, knots, needs_passes(role, options))
            if role == DECODE or both_roles:
                limit, memory = batch_memory(system, kind, options)
                servers["limit"], servers["memory"] = int(min(limit, requests)), memory
                servers["factor"] = kind.latency.calibration.decode
                servers["slope"] = slope_of(kind.latency)
            parts.append(servers)
    servers = np.concatenate(parts)
    servers["up"], servers["due"] = 1, np.nan
    servers["partial"] = servers["recomputing"] = NOBODY
    servers["slow"] = [f for role in roles for f in slow_factors(fleet, role, options)]
    number_lists(servers, system, fleet, options)
    return np.concatenate([np.zeros((2, 0)), *knots], axis=1), servers


def needs_passes(role: Role, options: SimulationOptions) -> bool:
    """Whether servers of ``role`` have passes whose length is not known beforehand."""
    if role == PREFILL:
        return options.prefill_budget is not None or options.colocated is not None
    return options.kv is not None or options.failures is not None


def set_pass_times(servers: Servers, latency: Latency, knots: list[Array], needed: bool) -> None:
    """Write the prefill time of a type into its servers; a curve's points join ``knots``."""
    prefill = latency.prefill
    servers["pass_factor"] = latency.calibration.prefill
    if isinstance(prefill, AffinePrefill):
        servers["pass_base"], servers["floor"] = prefill.base, prefill.floor
        servers["per_token"] = prefill.per_token
        servers["per_token_sq"] = prefill.per_token_sq
    elif isinstance(prefill, MeasuredPrefill):
        x, y = prefill.curve.x, prefill.curve.monotone
        begin = sum(part.shape[1] for part in knots)
        servers["from_knot"], servers["to_knot"] = begin, begin + len(x)
        servers["tail"] = (y[-1] - y[-2]) / (x[-1] - x[-2])
        knots.append(np.array([x, y]))
    elif needed:
        raise UnsupportedError(
            f"the fast simulator knows no passes of {type(prefill).__name__}; "
            "use engine='reference'"
        )


def number_lists(
    servers: Servers, system: System, fleet: Fleet, options: SimulationOptions
) -> None:
    """Give every server its lists; those of a central queue share some of them."""
    own = 1 + LISTS_PER_SERVER * np.arange(len(servers))
    names = ("waiting", "members", "lost", "pending", "moving")
    for j, name in enumerate(names):
        servers[name] = own + j
    prefills = sum(p.replicas for p in fleet.in_role(PREFILL))
    of_decode = ("lost", "pending") if options.kv is not None else ("waiting", "lost")
    for role, part, shared in (
        (PREFILL, slice(None, prefills), ("waiting",)),
        (DECODE, slice(prefills, None), of_decode),
    ):
        if system.dispatch[role] == "central_queue":
            for name in shared:
                servers[name][part] = servers[name][servers["first"][part]]
