"""An arrival process from its block; its mean rate is the class's."""

from __future__ import annotations

import numpy as np

from pdalloc.errors import InputError
from pdalloc.hardware.llm import Llm
from pdalloc.scenario.schema import TrafficSpec
from pdalloc.scenario.simulation_schema import ArrivalsSpec
from pdalloc.units import parse_quantities, parse_quantity
from pdalloc.workload.arrivals import (
    ArrivalProcess,
    MarkovModulated,
    Renewal,
    Sessions,
    TimeVarying,
    Trace,
)

KEYS = {
    "renewal": {"law"},
    "bursts": {"levels", "lasts"},
    "profile": {"levels", "lasts", "repeats"},
    "sessions": {"turns", "think", "context_limit"},
    "trace": {"at"},
}
"""Keys that each process reads; others beside it are a mistake."""


def build_arrivals(t: TrafficSpec, rate: float, llm: Llm, where: str) -> ArrivalProcess | None:
    """The process that ``t`` names, at ``rate`` requests/s; None where it names none."""
    spec = t.arrivals
    if spec is None:
        return None
    stray = spec.model_fields_set - KEYS[spec.process] - {"process"}
    if stray:
        known = ", ".join(sorted(KEYS[spec.process]))
        raise InputError(f"{where}.{sorted(stray)[0]}: {spec.process} arrivals read {known} only")
    if spec.process == "renewal":
        return Renewal(rate, 1.0 if t.arrival_scv is None else t.arrival_scv, spec.law)
    if spec.process == "sessions":
        return _sessions(spec, rate, llm, where)
    if spec.process == "trace":
        at = parse_quantities(_given(spec.at, "at", where), "time", f"{where}.at")
        recorded = Trace(tuple(at))
        return recorded.scaled(rate / recorded.rate)
    return _levels(spec, rate, where)


def _given(value: str | float | None, key: str, where: str) -> str | float:
    if value is None:
        raise InputError(f"{where}.{key}: this key is missing; add it")
    return value


def _sessions(spec: ArrivalsSpec, rate: float, llm: Llm, where: str) -> Sessions:
    if spec.turns is None:
        raise InputError(f"{where}.turns: this key is missing; add the mean turns of a session")
    if spec.turns < 1:
        raise InputError(f"{where}.turns: a session has at least 1 turn, got {spec.turns:g}")
    limit = llm.context_window
    if spec.context_limit is not None:
        limit = parse_quantity(spec.context_limit, "tokens", f"{where}.context_limit")
    think = parse_quantity(_given(spec.think, "think", where), "time", f"{where}.think")
    return Sessions(rate / spec.turns, spec.turns, think, limit)


def _levels(spec: ArrivalsSpec, rate: float, where: str) -> MarkovModulated | TimeVarying:
    """Levels are relative, so that the mean over time is the class's rate."""
    if not spec.levels:
        raise InputError(f"{where}.levels: give the relative rates, e.g. [1, 5]")
    lasts = parse_quantities(_given(spec.lasts, "lasts", where), "time", f"{where}.lasts")
    if len(lasts) == 1:
        lasts *= len(spec.levels)
    if len(lasts) != len(spec.levels):
        raise InputError(
            f"{where}.lasts: give one time, or one per level; got {len(lasts)} for "
            f"{len(spec.levels)} levels"
        )
    levels = np.array(spec.levels)
    if not np.all(levels >= 0) or not levels.any() or min(lasts) <= 0:
        raise InputError(f"{where}: levels must not be negative, nor all 0; times must be positive")
    rates = tuple((levels * rate * sum(lasts) / float(levels @ lasts)).tolist())
    if spec.process == "bursts":
        return MarkovModulated(rates, tuple(lasts))
    return TimeVarying(rates, tuple(lasts), spec.repeats)
