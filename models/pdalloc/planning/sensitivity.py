"""Which assumption a plan leans on most: the least change of each that breaks an SLO, or
moves the cheapest fleet."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.serving import serves
from pdalloc.allocation.solvers import solver_named
from pdalloc.errors import InputError
from pdalloc.fleet import Fleet
from pdalloc.planning import margins
from pdalloc.scenario import Scenario
from pdalloc.system import System
from pdalloc.workload.traffic import Workload

PRICE_RANGE = (0.5, 2.0)
"""Factors on a price that are looked at."""
PRICE_HALVINGS = 9
TIE = 1e-6
"""Relative difference of costs that is none."""
Changed = Callable[[float], AllocationProblem]


@dataclass(frozen=True)
class Assumption:
    """``margin``: relative change up to which the fleet stands; None: it does not even mend.

    ``effect`` says what comes just beyond. At margins.MOST: "at least that".
    """

    name: str
    margin: float | None
    effect: str


def assumptions(scenario: Scenario, fleet: Fleet) -> list[Assumption]:
    """Speed, lengths, demand and bursts, and what breaks first; the least margin first."""
    found = [_margin(name, changed, fleet) for name, changed in _changes(scenario).items()]
    return sorted(found, key=lambda a: math.inf if a.margin is None else abs(a.margin))


def _changes(scenario: Scenario) -> dict[str, Changed]:
    """By name: the problem when something is ``factor`` times as great."""
    problem, system = scenario.problem(), scenario.system

    def on(changed: System) -> AllocationProblem:
        return replace(scenario, system=changed).problem()

    changes: dict[str, Changed] = {
        "demand": lambda f: replace(problem, demand=f * problem.demand),
        "prefill times": lambda f: on(system.slowed(prefill=f)),
        "decode step times": lambda f: on(system.slowed(decode=f)),
        "output lengths": lambda f: on(
            system.with_workload(system.workload.with_longer_outputs(f))
        ),
    }
    if system.workload.arrival_scv > 0.0:
        changes["burstiness (arrival SCV)"] = lambda f: on(
            system.with_workload(_burstier(system.workload, f))
        )
    return changes


def _burstier(workload: Workload, factor: float) -> Workload:
    classes = (replace(c, arrival_scv=factor * c.arrival_scv) for c in workload.classes)
    return Workload(tuple(classes))


def _margin(name: str, changed: Changed, fleet: Fleet) -> Assumption:
    def holds(factor: float) -> bool:
        at = changed(factor)
        return serves(at, fleet)

    margin = margins.greatest_change(holds)
    if margin is None or margin >= margins.MOST:
        return Assumption(name, margin, "")
    return Assumption(name, margin, _broken(changed, 1.0 + margin + 2.0 * margins.ACCURACY, fleet))


def _broken(changed: Changed, factor: float, fleet: Fleet) -> str:
    """Which SLOs break at ``factor``, in words."""
    try:
        check = certify(changed(factor), fleet)
    except InputError:
        return "KV memory does not hold a request"
    if check.prediction is None:
        return "no steady state"
    several = len({c.slo.traffic_class for c in check.slos}) > 1
    names = [
        f"{c.slo.traffic_class} {c.slo.title}" if several else c.slo.title
        for c in check.slos
        if not c.kept
    ]
    return ", ".join(names)


def price_assumptions(problem: AllocationProblem, fleet: Fleet) -> list[Assumption]:
    """For each of several GPU types: the price changes at which ``fleet`` is no longer cheapest.

    ``fleet`` is the optimum of ``problem``. A fleet's cost is linear in a price, so it stays
    cheapest on an interval around the present one.
    """
    gpus = list(dict.fromkeys(o.gpu for o in problem.options))
    if len(gpus) < 2:
        return []
    found = []
    for gpu in gpus:
        for end, word in zip(PRICE_RANGE, ("cheaper", "dearer"), strict=True):
            edge, other = _price_edge(problem, fleet, gpu, end)
            if other is not None:
                effect = f"{other.xpyd} becomes cheapest: {other}"
                found.append(Assumption(f"price of {gpu} ({word})", edge - 1.0, effect))
    return sorted(found, key=lambda a: abs(a.margin or 0.0))


def _price_edge(
    problem: AllocationProblem, fleet: Fleet, gpu: str, end: float
) -> tuple[float, Fleet | None]:
    """(factor on the price up to which ``fleet`` is cheapest, the fleet that then is)."""

    def cheaper(factor: float) -> Fleet | None:
        options = tuple(
            replace(o, usd_per_hour=factor * o.usd_per_hour) if o.gpu == gpu else o
            for o in problem.options
        )
        at = replace(problem, options=options)
        best = solver_named("exact").solve(at)
        own = at.cost(fleet)
        return best.fleet if best.cost is not None and best.cost < own * (1.0 - TIE) else None

    other = cheaper(end)
    if other is None:
        return end, None
    good, bad = 1.0, end
    for _ in range(PRICE_HALVINGS):
        middle = 0.5 * (good + bad)
        fleet_there = cheaper(middle)
        if fleet_there is None:
            good = middle
        else:
            bad, other = middle, fleet_there
    return good, other
