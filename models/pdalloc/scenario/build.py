"""From a scenario file to typed objects, with one clear line for whatever is wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pdalloc.allocation.problem import AllocationProblem, Option, SloScope
from pdalloc.capacity import Capacity
from pdalloc.catalog import loader as catalog
from pdalloc.errors import InputError, located
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet, Role, parse_fleet
from pdalloc.hardware.llm import Llm
from pdalloc.scenario.arrivals import build_arrivals
from pdalloc.scenario.loader import UniqueKeyLoader
from pdalloc.scenario.messages import validated
from pdalloc.scenario.overrides import parse_assignment, with_overrides
from pdalloc.scenario.periods import Periods, build_periods
from pdalloc.scenario.replicas import build_replica_type
from pdalloc.scenario.schema import ScenarioSpec, TrafficSpec
from pdalloc.scenario.simulation import build_link, build_options
from pdalloc.scenario.slos import build_best_effort, build_slos
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.slo.interface import Objective
from pdalloc.slo.joint import BestEffort
from pdalloc.system import ReplicaType, System
from pdalloc.units import parse_quantity
from pdalloc.workload.lengths import LengthLaw, fixed, independent
from pdalloc.workload.traffic import TrafficClass, Workload

NOTHING = Fleet(())


@dataclass(frozen=True)
class Scenario:
    """A question, ready to be answered.

    ``limits`` holds the most replicas per (role, replica type); ``stock`` GPUs by name;
    ``owned`` replicas cost nothing. ``options`` are what a simulation knows beside. ``slos``
    must be met: those on one latency first, then the joint ones; ``best_effort`` binds nothing.
    ``headroom``, ``redundancy``, ``compatible`` and ``slo_scope`` as in
    :class:`~pdalloc.allocation.problem.AllocationProblem`.
    """

    name: str
    title: str
    variant: str | None
    system: System
    slos: tuple[Objective, ...]
    stock: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[tuple[Role, str], int] = field(default_factory=dict)
    owned: Fleet = NOTHING
    options: SimulationOptions = PLAIN
    headroom: float = 0.0
    redundancy: int = 0
    compatible: frozenset[tuple[str, str]] | None = None
    slo_scope: SloScope = "pool"
    best_effort: tuple[BestEffort, ...] = ()
    periods: Periods | None = None

    @property
    def demand(self) -> float:
        """Offered requests/s."""
        return self.system.workload.rate

    def owning(self, fleet: str) -> Scenario:
        """The same question when the replicas of ``fleet`` are owned already and cost nothing."""
        return replace(self, owned=parse_fleet(fleet, self.system.type_names))

    def capacity(self) -> Capacity:
        """What its replicas admit, by the formulas."""
        return Capacity(self.system, self.slos, self.options)

    def problem(self, capacity: Capacity | None = None) -> AllocationProblem:
        """The allocation problem; ``capacity`` may be shared between demands."""
        options = [
            Option(
                role,
                r.name,
                r.gpu.name,
                r.gpus,
                r.usd_per_hour,
                owned=self.owned.count(role, r.name),
                most=self.limits.get((role, r.name), float("inf")),
            )
            for role in ROLES
            for r in self.system.types_for(role)
        ]
        shared = capacity or self.capacity()
        stock = dict(self.stock)  # what can be had beside what is owned
        for o in options:
            if o.gpu in stock:
                stock[o.gpu] += o.owned * o.gpus
        return AllocationProblem(
            shared,
            self.demand,
            tuple(options),
            stock,
            headroom=self.headroom,
            redundancy=self.redundancy,
            compatible=self.compatible,
            slo_scope=self.slo_scope,
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"{file}: cannot read the scenario: {reason}") from None
    try:
        raw = yaml.load(text, Loader=UniqueKeyLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{file}: not valid YAML{line}: {problem}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{file}: a scenario is a mapping of keys, this file is empty or a list")
    return raw


def variant_names(path: str | Path) -> list[str]:
    """The variants a scenario file names."""
    return list(validated(_read(Path(path)), str(path)).variants)


def load_scenario(
    path: str | Path, variant: str | None = None, overrides: Sequence[str] = ()
) -> Scenario:
    """Read a scenario file, apply a variant and ``path=value`` overrides, and build it.

    Raises InputError (or UnitError) naming the file, the field and how to mend it.
    """
    file = Path(path)
    pairs = dict(parse_assignment(item) for item in overrides)
    return scenario_from_mapping(_read(file), variant, pairs, str(file))


def scenario_from_mapping(
    raw: dict[str, Any],
    variant: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    origin: str = "scenario",
) -> Scenario:
    """Like :func:`load_scenario`, from a mapping such as YAML gives; ``origin`` for messages."""
    spec = validated(raw, origin)
    if variant is not None:
        if variant not in spec.variants:
            known = ", ".join(spec.variants) or "none"
            raise InputError(f"{origin}: no variant {variant!r}; known: {known}")
        raw = with_overrides(raw, spec.variants[variant].set, f"{origin} variant {variant}")
    if overrides:
        raw = with_overrides(raw, overrides, "--set")
    spec = validated(raw, origin)
    with located(origin):
        return _build(spec, variant)


def _build(spec: ScenarioSpec, variant: str | None) -> Scenario:
    llm = catalog.llm(spec.llm)
    if not spec.traffic:
        raise InputError("traffic: give at least one traffic class")
    classes = [_traffic_class(t, llm, f"traffic.{i}") for i, t in enumerate(spec.traffic)]
    types = [
        build_replica_type(r, llm, spec.prices, f"replicas.{i}")
        for i, r in enumerate(spec.replicas)
    ]
    names = [t.name for t in types]
    for i, name in enumerate(names):
        if not re.fullmatch(r"[A-Za-z0-9_.+-]+", name):
            raise InputError(f"replicas.{i}.name: use letters, digits and _.+- only, got {name!r}")
    if len(set(names)) < len(names):
        raise InputError(f"replicas: names must differ, got {', '.join(names)}; set name:")
    for role in ROLES:
        if not any(role in t.roles for t in types):
            raise InputError(f"replicas: no type may serve {role}; add it to a type's roles")
    dispatch: dict[Role, Dispatch] = dict.fromkeys(ROLES, "random")
    for role in ROLES:
        if isinstance(spec.dispatch, str):
            dispatch[role] = spec.dispatch
        elif role in spec.dispatch:
            dispatch[role] = spec.dispatch[role]
    link = build_link(spec.network.latency, spec.network.bandwidth, "network.")
    system = System(
        llm,
        Workload(tuple(classes)),
        dict(zip(names, types, strict=True)),
        link,
        dispatch,
        spec.first_token,
    )
    _check_limits(spec)
    _check_memory(types, classes)
    limits: dict[tuple[Role, str], int] = {
        (role, t.name): most
        for t, r in zip(types, spec.replicas, strict=True)
        for role, most in r.limits.items()
    }
    return Scenario(
        spec.name,
        spec.title or spec.name,
        variant,
        system,
        build_slos(spec.traffic),
        _stock(spec),
        limits,
        options=build_options(spec.simulation, system),
        headroom=spec.headroom,
        slo_scope=spec.slo_scope,
        redundancy=spec.redundancy,
        compatible=_compatible(spec, types),
        best_effort=build_best_effort(spec.traffic),
        periods=build_periods(spec.periods, system),
    )


def _compatible(
    spec: ScenarioSpec, types: Sequence[ReplicaType]
) -> frozenset[tuple[str, str]] | None:
    """(prefill type, decode type) pairs that fit each other; None: all do."""
    if spec.compatible is None:
        return None
    serving = {role: [t for t in types if role in t.roles] for role in ROLES}
    if spec.compatible == "equal_gpus":
        pairs = itertools.product(serving[PREFILL], serving[DECODE])
        return frozenset((p.name, d.name) for p, d in pairs if p.gpus == d.gpus)
    for i, pair in enumerate(spec.compatible):
        for role, name in zip((PREFILL, DECODE), pair, strict=True):
            known = [t.name for t in serving[role]]
            if name not in known:
                raise InputError(
                    f"compatible.{i}: no {role} type {name!r}; known: {', '.join(known)}"
                )
    return frozenset(spec.compatible)


def _check_limits(spec: ScenarioSpec) -> None:
    for i, r in enumerate(spec.replicas):
        for role, most in r.limits.items():
            if most < 0:
                raise InputError(f"replicas.{i}.limits.{role}: must not be negative, got {most}")


def _check_memory(types: Sequence[ReplicaType], classes: Sequence[TrafficClass]) -> None:
    """The longest request's KV must fit every replica that may decode it."""
    points = [c.points() for c in classes]
    longest = max(float((p.prompt + p.output).max()) for p in points)
    for i, r in enumerate(types):
        if DECODE in r.roles and r.kv_tokens < longest:
            raise InputError(
                f"replicas.{i}: the {r.kv_tokens:g} KV tokens do not hold one request of "
                f"{longest:g} tokens; use more GPUs per replica, or roles: [prefill]"
            )


def _stock(spec: ScenarioSpec) -> dict[str, int]:
    stock = {}
    for name, count in spec.stock.items():
        if count < 0:
            raise InputError(f"stock.{name}: must not be negative, got {count}")
        gpu = catalog.gpu(name, f"stock.{name}").name
        if gpu in stock:
            raise InputError(f"stock.{name}: {gpu} is given twice; keep one")
        stock[gpu] = count
    return stock


def _traffic_class(t: TrafficSpec, llm: Llm, where: str) -> TrafficClass:
    lengths = _lengths(t, where)
    if "tok" not in str(t.rate):
        rate = parse_quantity(t.rate, "requests_rate", f"{where}.rate")
        return _class_at(rate, t, lengths, llm, where)
    tokens = parse_quantity(t.rate, "tokens_rate", f"{where}.rate")
    per_request = _class_at(1.0, t, lengths, llm, where).mean_tokens
    return _class_at(tokens / per_request, t, lengths, llm, where)


def _class_at(
    rate: float, t: TrafficSpec, lengths: LengthLaw, llm: Llm, where: str
) -> TrafficClass:
    with located(where):
        scv = 1.0 if t.arrival_scv is None else t.arrival_scv
        plain = TrafficClass(t.name, rate, lengths, scv, t.prefix_hit_rate)
    with located(f"{where}.arrivals"):
        arrivals = build_arrivals(t, rate, llm, f"{where}.arrivals")
        if arrivals is None:
            return plain
        # Formulas read one number of a process: its dispersion, unless the file has a better one.
        scv = arrivals.dispersion if t.arrival_scv is None else t.arrival_scv
        return replace(plain, arrivals=arrivals, arrival_scv=scv)


def _lengths(t: TrafficSpec, where: str) -> LengthLaw:
    if t.lengths is not None:
        if t.prompt is not None or t.output is not None:
            raise InputError(f"{where}: give either lengths or prompt and output, not both")
        return catalog.length_law(t.lengths, f"{where}.lengths")
    if t.prompt is None or t.output is None:
        raise InputError(f"{where}: give lengths, or both prompt and output")
    prompts = _token_values(t.prompt, f"{where}.prompt")
    outputs = _token_values(t.output, f"{where}.output")
    with located(where):
        if len(prompts) == len(outputs) == 1:
            return fixed(prompts[0], outputs[0])
        return independent(np.array(prompts), np.array(outputs))


def _token_values(value: Any, where: str) -> list[float]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InputError(f"{where}: give at least one length")
    return [parse_quantity(v, "tokens", where) for v in values]
