"""Options of the simulator from their block."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from pdalloc.errors import InputError, located
from pdalloc.fleet import ROLES, Role
from pdalloc.hardware.link import Link
from pdalloc.scenario.simulation_schema import (
    ClientsSpec,
    ColocatedSpec,
    FailuresSpec,
    NoiseSpec,
    PassBudgetSpec,
    SimulationSpec,
    SlowSpec,
    TransfersSpec,
)
from pdalloc.simulation.options import (
    Clients,
    Colocated,
    Failures,
    KvMemory,
    MultiToken,
    Network,
    Noise,
    PassBudget,
    SimulationOptions,
)
from pdalloc.system import System
from pdalloc.units import parse_quantity

Block = TypeVar("Block")
Option = TypeVar("Option")


def build_options(spec: SimulationSpec, system: System) -> SimulationOptions:
    """The options that ``spec`` describes for the pools of ``system``."""
    kv, tokens = spec.kv, spec.multi_token
    with located("simulation"):
        return SimulationOptions(
            prefill_budget=_option("prefill_budget", spec.prefill_budget, _budget),
            prefill_noise=_option("prefill_noise", spec.prefill_noise, _noise),
            step_noise=_option("step_noise", spec.step_noise, _noise),
            network=_option("transfers", spec.transfers, lambda t: _network(t, system)),
            kv=_option("kv", kv, lambda k: KvMemory(k.reserve, k.watermark, k.back_pressure)),
            multi_token=_option("multi_token", tokens, lambda m: MultiToken(m.mean, m.law)),
            clients=_option("clients", spec.clients, _clients),
            failures=_option("failures", spec.failures, _failures),
            colocated=_option("colocated", spec.colocated, _colocated),
            slow=_slow(spec.slow),
        )


def _option(key: str, block: Block | None, build: Callable[[Block], Option]) -> Option | None:
    if block is None:
        return None
    with located(f"simulation.{key}"):
        return build(block)


def _noise(spec: NoiseSpec) -> Noise:
    return Noise(spec.law, spec.scv)


def _budget(spec: PassBudgetSpec) -> PassBudget:
    return PassBudget(
        parse_quantity(spec.tokens, "tokens", "simulation.prefill_budget.tokens"), spec.split
    )


def _colocated(spec: ColocatedSpec) -> Colocated:
    if spec.tokens is None:
        return Colocated(spec.policy)
    tokens = parse_quantity(spec.tokens, "tokens", "simulation.colocated.tokens")
    return Colocated(spec.policy, tokens)


def _failures(spec: FailuresSpec) -> Failures:
    up, down = (
        parse_quantity(getattr(spec, key), "time", f"simulation.failures.{key}")
        for key in ("mtbf", "mttr")
    )
    return Failures(up, down)


def _clients(spec: ClientsSpec) -> Clients:
    where, patience = "simulation.clients", math.inf
    if spec.timeout is not None:
        patience = parse_quantity(spec.timeout, "time", f"{where}.timeout")
    return Clients(
        patience,
        math.inf if spec.max_queue is None else spec.max_queue,
        spec.retries,
        parse_quantity(spec.retry_delay, "time", f"{where}.retry_delay"),
    )


def _network(spec: TransfersSpec, system: System) -> Network:
    links = {}
    for i, link in enumerate(spec.links):
        where = f"simulation.transfers.links.{i}"
        if (link.origin, link.to) in links:
            raise InputError(f"{where}: {link.origin} to {link.to} is given twice; keep one")
        with located(where):
            links[link.origin, link.to] = build_link(link.latency, link.bandwidth, f"{where}.")
    jitter = _option("transfers.jitter", spec.jitter, _noise)
    sites = {_pool(name, system): site for name, site in spec.sites.items()}
    return Network(spec.sharing, spec.scope, jitter, sites, links)


def _pool(name: str, system: System) -> tuple[Role, str]:
    role, _, kind = name.partition("/")
    if role not in ROLES or kind not in system.type_names[role]:
        known = ", ".join(f"{r}/{n}" for r in ROLES for n in system.type_names[r])
        raise InputError(f"simulation.transfers.sites: no pool {name!r}; known: {known}")
    return role, kind


def _slow(replicas: list[SlowSpec]) -> dict[tuple[Role, int], float]:
    slow: dict[tuple[Role, int], float] = {}
    for i, one in enumerate(replicas):
        if (one.role, one.replica) in slow:
            raise InputError(f"simulation.slow.{i}: {one.role} {one.replica} is given twice")
        slow[one.role, one.replica] = one.factor
    return slow


def build_link(latency: str | float, bandwidth: str | float | None, where: str) -> Link:
    """A link; without ``bandwidth`` it is infinite. ``where`` ends in a dot."""
    width = math.inf
    if bandwidth is not None:
        width = parse_quantity(bandwidth, "bandwidth", f"{where}bandwidth")
    return Link(parse_quantity(latency, "time", f"{where}latency"), width)
