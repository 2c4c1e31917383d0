"""The SLOs of traffic classes, from a scenario file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pdalloc.errors import InputError, located
from pdalloc.scenario.schema import TrafficSpec
from pdalloc.slo.interface import Objective
from pdalloc.slo.joint import BestEffort, JointSlo, Within, within
from pdalloc.slo.objective import METRICS, Slo
from pdalloc.slo.shed import Shed
from pdalloc.slo.statistics import parse_statistic
from pdalloc.units import parse_quantity


def build_slos(traffic: Sequence[TrafficSpec]) -> tuple[Objective, ...]:
    """What must be met: SLOs on one latency first, then joint ones, each by class.

    Raises InputError for a class without any objective, and where nothing must be met.
    """
    slos: list[Objective] = []
    joint: list[Objective] = []
    for i, t in enumerate(traffic):
        mine, together = _slos(t, f"traffic.{i}.slo"), _joint(t, f"traffic.{i}.attainment")
        if not (mine or together or t.best_effort):
            raise InputError(
                f"traffic.{i}.slo: give at least one SLO, e.g. {{ttft: {{mean: 2 s}}}}"
            )
        slos += mine
        joint += together
    if not slos and not joint:
        raise InputError(
            "traffic.0.slo: best effort alone sizes no fleet; give at least one SLO that must be "
            "met, e.g. {ttft: {mean: 2 s}}"
        )
    return (*slos, *joint)


def build_best_effort(traffic: Sequence[TrafficSpec]) -> tuple[BestEffort, ...]:
    """What is paid for where it is missed, by class; InputError where it cannot be."""
    found: list[BestEffort] = []
    for i, t in enumerate(traffic):
        for k, spec in enumerate(t.best_effort):
            where = f"traffic.{i}.best_effort.{k}"
            limits = _within(spec.within, f"{where}.within")
            price = parse_quantity(spec.price, "price_per_request", f"{where}.price")
            with located(f"{where}.price"):
                effort = BestEffort(t.name, limits, price)
            if any((o.traffic_class, o.within) == (t.name, limits) for o in found):
                raise InputError(f"{where}.within: priced twice; keep one")
            found.append(effort)
    return tuple(found)


def build_shed(traffic: Sequence[TrafficSpec]) -> tuple[Shed, ...]:
    """What need not be served, by class; InputError where it cannot be."""
    found = []
    for i, t in enumerate(traffic):
        if t.shed is not None:
            where = f"traffic.{i}.shed"
            price = parse_quantity(t.shed.price, "price_per_request", f"{where}.price")
            with located(where):
                found.append(Shed(t.name, price, t.shed.most))
    return tuple(found)


def _slos(t: TrafficSpec, where: str) -> list[Slo]:
    slos: list[Slo] = []
    for metric, statistics in t.slo.items():
        if not statistics:
            raise InputError(f"{where}.{metric}: give a bound, e.g. {{mean: 2 s}}, or leave it out")
        _check_metric(metric, where)
        for statistic, bound in statistics.items():
            place = f"{where}.{metric}.{statistic}"
            seconds = _seconds(bound, place)
            with located(place):
                slo = Slo(t.name, metric, parse_statistic(str(statistic)), seconds)
            if any(slo.name == other.name for other in slos):
                raise InputError(f"{place}: {slo.name} is given twice; keep one")
            slos.append(slo)
    return slos


def _joint(t: TrafficSpec, where: str) -> list[JointSlo]:
    slos: list[JointSlo] = []
    for k, spec in enumerate(t.attainment):
        limits = _within(spec.within, f"{where}.{k}.within")
        with located(f"{where}.{k}.share"):
            slo = JointSlo(t.name, spec.share, limits)
        if any(slo.name == other.name for other in slos):
            raise InputError(f"{where}.{k}.within: asked twice; keep the greater share")
        slos.append(slo)
    return slos


def _within(limits: Mapping[str, Any], where: str) -> Within:
    for metric in limits:
        _check_metric(metric, where)
    with located(where):
        return within({m: _seconds(x, f"{where}.{m}") for m, x in limits.items()})


def _check_metric(metric: str, where: str) -> None:
    if metric not in METRICS:
        near = difflib.get_close_matches(metric, METRICS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(METRICS)}"
        raise InputError(f"{where}.{metric}: unknown metric; {hint}")


def _seconds(bound: Any, where: str) -> float:
    seconds = parse_quantity(bound, "time", where)
    if seconds <= 0:
        raise InputError(f"{where}: the bound must be positive, got {bound}")
    return seconds
