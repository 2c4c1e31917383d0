"""Re-check of a fleet in plain arithmetic, whatever solver it came from."""

from __future__ import annotations

from dataclasses import dataclass

from pdalloc.allocation.conditions import broken_conditions
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.errors import UnstableError
from pdalloc.fleet import ROLES, Fleet
from pdalloc.prediction import Prediction
from pdalloc.slo.interface import Objective


@dataclass(frozen=True)
class SloCheck:
    """One SLO of a fleet: the worst prediction over the paths, seconds or share late.

    ``predicted`` is None when the fleet has no steady state; ``tolerance`` is relative.
    """

    slo: Objective
    predicted: float | None
    tolerance: float = 1e-9

    @property
    def kept(self) -> bool:
        """Whether the bound holds."""
        return self.predicted is not None and self.slo.keeps(self.predicted, self.tolerance)


@dataclass(frozen=True)
class Certificate:
    """What a fleet does under the problem's demand.

    ``broken`` lists, in words, every constraint that fails; empty when certified. ``loads`` are
    the states of pools where they alone are steady: a link that they share is full.
    """

    fleet: Fleet
    prediction: Prediction | None
    slos: tuple[SloCheck, ...]
    broken: tuple[str, ...]
    loads: Prediction | None = None

    @property
    def certified(self) -> bool:
        """Whether every constraint holds."""
        return not self.broken


def certify(problem: AllocationProblem, fleet: Fleet) -> Certificate:
    """Check stock, limits, stability and every SLO of ``fleet`` by prediction."""
    if problem.slo_scope == "population" and all(fleet.in_role(role) for role in ROLES):
        from pdalloc.allocation.population import certify_population

        return certify_population(problem, fleet)
    broken = resource_violations(problem, fleet)
    capacity = problem.capacity
    missing = [role for role in ("prefill", "decode") if not fleet.in_role(role)]
    if missing:
        broken += [f"no replica serves {role}" for role in missing]
        return Certificate(fleet, None, _unknown(capacity.slos), tuple(broken))
    prediction: Prediction | None = None
    try:
        prediction = capacity.evaluate(fleet, problem.demand)
        prediction.links()
        checks = [
            SloCheck(slo, max(capacity.value(slo, index, p, d) for p, d in prediction.paths()))
            for slo, index in capacity.slo_classes
        ]
    except UnstableError as error:
        why = (*broken, str(error))
        return Certificate(fleet, None, _unknown(capacity.slos), why, prediction)
    broken += [c.slo.broken_text(c.predicted or 0.0) for c in checks if not c.kept]
    return Certificate(fleet, prediction, tuple(checks), tuple(broken))


def _unknown(slos: tuple[Objective, ...]) -> tuple[SloCheck, ...]:
    return tuple(SloCheck(slo, None) for slo in slos)


def resource_violations(problem: AllocationProblem, fleet: Fleet) -> list[str]:
    """Where ``fleet`` exceeds stock or limits or misses a condition, in words."""
    broken = []
    for gpu, used in problem.gpus(fleet).items():
        held = problem.stock.get(gpu)
        if held is not None and used > held:
            broken.append(f"{used} {gpu} GPUs needed, stock has {held}")
    for o in problem.options:
        count = fleet.count(o.role, o.replica_type)
        if count > o.most:
            broken.append(f"{count} replicas of {o.role}/{o.replica_type}, limit {o.most:g}")
    return broken + broken_conditions(problem, fleet)
