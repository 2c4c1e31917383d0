"""Which classes share pools: prompt-length buckets, groups, and each group's own question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pdalloc.errors import InputError, UnsupportedError, located
from pdalloc.fleet import DECODE
from pdalloc.scenario.schema import ScenarioSpec
from pdalloc.system import ReplicaType, System
from pdalloc.units import parse_quantities
from pdalloc.workload.buckets import candidate_edges, split_by_prompt
from pdalloc.workload.traffic import TrafficClass, Workload

if TYPE_CHECKING:
    from pdalloc.scenario.build import Scenario

AUTO, TRIED = "auto", 8
"""Buckets that the planner looks for: no edge, and those at eighths of the requests."""
Promise = TypeVar("Promise")
"""An SLO or a best-effort SLO: has a ``traffic_class``."""


def divided(spec: ScenarioSpec) -> bool:
    """Whether pools are anything but shared; InputError for buckets where they are."""
    if spec.pools != "shared":
        return True
    for i, t in enumerate(spec.traffic):
        if t.buckets is not None:
            raise InputError(
                f"traffic.{i}.buckets: shared pools serve every length; set pools: dedicated"
            )
    return False


def with_parts(shared: Scenario, spec: ScenarioSpec) -> Scenario:
    """``shared`` with a part per group of classes: the same question about their traffic alone.

    Parts keep stock and limits, which the planner divides. Replica types whose KV memory does
    not hold the longest request of a part do not decode it. Where a class asks for ``auto``
    buckets, ``choices`` are the questions to choose from. Raises InputError for groups that do
    not name every class once, UnsupportedError where parts would meet in a link.
    """
    network = shared.options.network
    if network is not None and network.sharing != "none" and network.scope != "replica":
        raise UnsupportedError(
            f"pools: dedicated pools would share the links of scope {network.scope}, which no "
            "formula divides; set simulation.transfers.scope: replica, or pools: shared"
        )
    edges: dict[int, Sequence[float]] = {}
    for i, t in enumerate(spec.traffic):
        if t.buckets is not None and t.buckets != AUTO:
            edges[i] = parse_quantities(t.buckets, "tokens", f"traffic.{i}.buckets")
    auto = [i for i, t in enumerate(spec.traffic) if t.buckets == AUTO]
    if not auto:
        return _parted(shared, spec.pools, edges)
    where = f"traffic.{auto[-1]}.buckets"
    if len(auto) > 1 or spec.pools != "dedicated":
        raise UnsupportedError(
            f"{where}: auto is for one class, under pools: dedicated; give edges, e.g. 2048 tokens"
        )
    c = shared.system.workload.classes[auto[0]]
    tried = [(), *((edge,) for edge in candidate_edges(c, TRIED))]
    choices = [
        _parted(shared, spec.pools, edges | ({auto[0]: each} if each else {})) for each in tried
    ]
    return replace(choices[0], choices=tuple(choices))


def _parted(
    shared: Scenario, pools: str | Sequence[Sequence[str]], edges: Mapping[int, Sequence[float]]
) -> Scenario:
    """``shared`` with its parts; ``edges`` in tokens by the index of a class."""
    buckets: dict[str, str] = {}
    classes: list[TrafficClass] = []
    for i, c in enumerate(shared.system.workload.classes):
        with located(f"traffic.{i}.buckets"):
            mine = split_by_prompt(c, edges[i]) if i in edges else (c,)
        buckets |= {each.name: c.name for each in mine}
        classes += mine
    groups = [[name] for name in buckets]
    if not isinstance(pools, str):
        groups = _checked(pools, buckets)
    _check_together(groups, buckets, {c.name: c for c in classes})
    return replace(shared, parts=tuple(_part(shared, group, classes, buckets) for group in groups))


def check_shared(scenario: Scenario) -> None:
    """Raise UnsupportedError for a question with pools per class, outside of its own answer."""
    if scenario.parts:
        raise UnsupportedError(
            "pools: this scenario gives classes pools of their own, which only pdalloc plan "
            "answers; ask about one class, or set pools: shared and leave buckets out"
        )


def fitting(system: System) -> System:
    """``system`` without the decode role of types whose KV memory is too small for a request."""
    points = [c.points() for c in system.workload.classes]
    longest = max(float((p.prompt + p.output).max()) for p in points)
    types: dict[str, ReplicaType] = {}
    for name, r in system.replica_types.items():
        roles = tuple(s for s in r.roles if s != DECODE or r.kv_tokens >= longest)
        if roles:
            types[name] = replace(r, roles=roles)
    found = replace(system, replica_types=types)
    if not found.types_for(DECODE):
        names = ", ".join(c.name for c in system.workload.classes)
        raise InputError(
            f"replicas: no type's KV tokens hold a request of {longest:g} tokens of {names}; use "
            "more GPUs per replica"
        )
    return found


def together(scenario: Scenario) -> Scenario | None:
    """Shared pools under the promises of ``scenario``'s parts; None where no formula knows them.

    Buckets of a class that is not Poisson come together again in shared pools, and are not
    independent streams there.
    """
    classes = [c for part in scenario.parts for c in part.system.workload.classes]
    whole = scenario.system.workload.classes
    if len(classes) > len(whole) and not all(map(_poisson, classes)):
        return None
    system = scenario.system.with_workload(Workload(tuple(classes)))
    return replace(
        scenario,
        parts=(),
        system=fitting(system),
        slos=tuple(slo for part in scenario.parts for slo in part.slos),
        best_effort=tuple(x for part in scenario.parts for x in part.best_effort),
    )


def _checked(groups: Sequence[Sequence[str]], buckets: dict[str, str]) -> list[list[str]]:
    """``groups`` if they name every class, or bucket, once."""
    seen: set[str] = set()
    known = ", ".join(buckets)
    for i, group in enumerate(groups):
        where = f"pools.{i}"
        if not group:
            raise InputError(f"{where}: the group is empty; name a class, or leave it out")
        for name in group:
            if name not in buckets:
                raise InputError(f"{where}: no traffic class {name!r}; known: {known}")
            if name in seen:
                raise InputError(f"{where}: {name} is in two groups, or twice in one; keep one")
            seen.add(name)
    missing = [name for name in buckets if name not in seen]
    if missing:
        raise InputError(f"pools: {', '.join(missing)} is in no group; add it to one")
    return [list(group) for group in groups]


def _check_together(
    groups: Sequence[Sequence[str]], buckets: dict[str, str], classes: dict[str, TrafficClass]
) -> None:
    """Refuse two buckets of a class that is not Poisson in one pool: they are not independent."""
    for i, group in enumerate(groups):
        bursty = [buckets[n] for n in group if n != buckets[n] and not _poisson(classes[n])]
        if len(set(bursty)) < len(bursty):
            raise UnsupportedError(
                f"pools.{i}: buckets of one class that is not Poisson are not independent streams; "
                "give each pools of its own"
            )


def _poisson(c: TrafficClass) -> bool:
    return c.arrivals is None and c.arrival_scv == 1.0


def _part(
    shared: Scenario,
    group: Sequence[str],
    classes: Sequence[TrafficClass],
    buckets: dict[str, str],
) -> Scenario:
    """The question about the classes of ``group`` alone."""
    mine = tuple(c for c in classes if c.name in group)
    slos = tuple(s for s in _renamed(shared.slos, group, buckets))
    if not slos:
        raise InputError(
            f"pools: best effort alone sizes no fleet for {', '.join(group)}; give it an SLO that "
            "must be met, or pools with another class"
        )
    return replace(
        shared,
        title=", ".join(c.name for c in mine),
        system=fitting(shared.system.with_workload(Workload(mine))),
        slos=slos,
        best_effort=tuple(_renamed(shared.best_effort, group, buckets)),
    )


def _renamed(
    promises: Sequence[Promise], group: Sequence[str], buckets: dict[str, str]
) -> list[Promise]:
    """The promises of the classes of ``group``; a bucket's are those of its class."""
    return [
        replace(cast(Any, promise), traffic_class=name)
        for promise in promises
        for name in group
        if buckets[name] == cast(Any, promise).traffic_class
    ]
