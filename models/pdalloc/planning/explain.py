"""Why this fleet: what binds, what each SLO costs, what one replica does, what it leans on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pdalloc.allocation.certify import certify, resource_violations
from pdalloc.allocation.problem import Allocation, AllocationProblem, Option
from pdalloc.allocation.solvers import solver_named
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet, Role, parse_fleet
from pdalloc.planning.answer import Answer, SloAnswer
from pdalloc.planning.assembly import answer_of
from pdalloc.planning.effort import SEED
from pdalloc.planning.explain_answer import (
    AssumptionAnswer,
    BoundCost,
    ChangeAnswer,
    ExplainAnswer,
    JointSloExplained,
    SloExplained,
)
from pdalloc.planning.fractions import fractions, merit
from pdalloc.planning.plan import check_apart
from pdalloc.planning.relaxation import price_of_bound, relaxed
from pdalloc.planning.sensitivity import Assumption, assumptions, price_assumptions
from pdalloc.planning.validated import Progress
from pdalloc.scenario import Scenario
from pdalloc.slo.interface import Objective
from pdalloc.slo.joint import JointSlo
from pdalloc.slo.objective import Slo
from pdalloc.version import provenance

BY = 0.10
"""Relative change of a bound whose cost is shown."""


def explain(
    scenario: Scenario, fleet: str | Fleet | None = None, progress: Progress | None = None
) -> ExplainAnswer:
    """Why the cheapest fleet, or the given one, is what it is.

    ^C leaves out the parts that were not done yet. An infeasible question, or a given fleet
    that breaks an SLO, is an answer too (``status``, ``reason``).
    """
    check_apart(scenario)
    problem = scenario.problem()
    best = solver_named("exact").solve(problem)
    if isinstance(fleet, str):
        fleet = parse_fleet(fleet, scenario.system.type_names)
    shown = best if fleet is None else _given(problem, fleet)
    answer = answer_of(scenario, problem, shown, SEED, with_margins=False)
    explained = _frame(scenario, problem, best, answer, given=fleet is not None)
    if not shown.fleet.pools:
        return explained
    explainer = _Explainer(scenario, problem, best, shown.fleet, answer)
    return _with_parts(explained, explainer, progress)


def _given(problem: AllocationProblem, fleet: Fleet) -> Allocation:
    check = certify(problem, fleet)
    status: Literal["feasible", "infeasible"] = "feasible" if check.certified else "infeasible"
    reason = "; ".join(check.broken)
    return Allocation(status, "explain", fleet, problem.cost(fleet), None, reason)


def _frame(
    scenario: Scenario, problem: AllocationProblem, best: Allocation, answer: Answer, given: bool
) -> ExplainAnswer:
    """The explanation without its parts."""
    works = best.status != "infeasible"
    return ExplainAnswer(
        scenario=scenario.name,
        title=scenario.title,
        variant=scenario.variant,
        status=answer.status,
        reason=answer.reason,
        given=given,
        fleet=answer.fleet,
        xpyd=answer.xpyd,
        gpus_by_type=answer.gpus_by_type,
        cost_usd_per_hour=answer.cost_usd_per_hour,
        best_fleet=str(best.fleet) if works else None,
        best_xpyd=best.fleet.xpyd if works else None,
        best_cost_usd_per_hour=best.cost if works else None,
        best_proven=best.status == "optimal",
        demand_requests_per_s=problem.demand,
        demand_tokens_per_minute=answer.demand_tokens_per_minute,
        relaxed_usd_per_hour=None,
        fractions=[],
        merit=[],
        slos=[],
        changes=[],
        assumptions=[],
        prices=[],
        warnings=answer.warnings,
        interrupted=False,
        produced_by=provenance("exact", SEED),
    )


def _with_parts(
    explained: ExplainAnswer, explainer: _Explainer, progress: Progress | None
) -> ExplainAnswer:
    """``explained`` with every part that was computed before ^C."""
    parts: list[tuple[str, Callable[[], object]]] = [
        ("fractions", lambda: fractions(explainer.problem, explainer.fleet)),
        ("merit", lambda: merit(explainer.problem, explainer.fleet)),
        ("changes", explainer.changes),
        ("slos", explainer.slos),
        ("joint_slos", explainer.joint_slos),
        ("relaxed_usd_per_hour", explainer.relaxed_cost),
        ("assumptions", explainer.assumptions),
        ("prices", explainer.prices),
    ]
    for done, (name, part) in enumerate(parts):
        try:
            explained = explained.model_copy(update={name: part()})
        except KeyboardInterrupt:
            return explained.model_copy(update={"interrupted": True})
        if progress is not None:
            progress(done + 1, len(parts))
    return explained


@dataclass(frozen=True)
class _Explainer:
    """The parts of an explanation of ``fleet``, whose own answer is ``answer``."""

    scenario: Scenario
    problem: AllocationProblem
    best: Allocation
    fleet: Fleet
    answer: Answer

    def main_option(self, role: Role) -> Option | None:
        """The type of which the fleet has most replicas in ``role``."""
        counts = {o: self.fleet.count(o.role, o.replica_type) for o in self.problem.in_role(role)}
        best = max(counts, key=lambda o: counts[o])
        return best if counts[best] else None

    @property
    def relaxed_options(self) -> tuple[Option | None, Option | None]:
        """The main types; (None, None) where types of one role keep the SLOs together."""
        mixed = any(len(self.fleet.in_role(role)) > 1 for role in ROLES)
        if mixed and self.problem.slo_scope == "population":
            return None, None
        return self.main_option(PREFILL), self.main_option(DECODE)

    def relaxed_cost(self) -> float | None:
        """Cost of the relaxation with the main types."""
        prefill, decode = self.relaxed_options
        if prefill is None or decode is None:
            return None
        found = relaxed(self.problem, prefill, decode)
        return None if found is None else found.cost

    def slos(self) -> list[SloExplained]:
        """Each SLO with what its bound costs."""
        single = [slo for slo in self.scenario.slos if isinstance(slo, Slo)]
        pairs = zip(single, self.answer.slos, strict=True)
        return [self._slo(slo, answer) for slo, answer in pairs]

    def joint_slos(self) -> list[JointSloExplained]:
        """Each joint SLO with what it costs."""
        joint = [slo for slo in self.scenario.slos if isinstance(slo, JointSlo)]
        found = []
        for slo, answer in zip(joint, self.answer.joint_slos, strict=True):
            share = answer.predicted_share
            slack = None if share is None else slo.room(1.0 - share)
            without = self._best_under(tuple(s for s in self.scenario.slos if s != slo), None)
            found.append(JointSloExplained(slo=answer, slack=slack, without=without))
        return found

    def _slo(self, slo: Slo, answer: SloAnswer) -> SloExplained:
        prefill, decode = self.relaxed_options
        price = None
        if prefill is not None and decode is not None:
            price = price_of_bound(self.scenario, prefill, decode, slo)
        return SloExplained(
            slo=answer,
            slack=None if answer.predicted_s is None else 1.0 - answer.predicted_s / slo.bound,
            without=self._at_bound(slo, None),
            looser=self._at_bound(slo, slo.bound * (1.0 + BY)),
            tighter=self._at_bound(slo, slo.bound * (1.0 - BY)),
            relaxed_usd_per_hour_per_s=price,
        )

    def _at_bound(self, slo: Slo, bound: float | None) -> BoundCost:
        """The optimum with another bound of ``slo``, or without it."""
        changed = () if bound is None else (replace(slo, bound=bound),)
        return self._best_under((*(s for s in self.scenario.slos if s != slo), *changed), bound)

    def _best_under(self, slos: tuple[Objective, ...], bound: float | None) -> BoundCost:
        """The optimum under other SLOs; ``bound`` to be told beside it."""
        found = solver_named("exact").solve(self._asking(slos))
        works = found.status != "infeasible"
        return BoundCost(
            bound_s=bound,
            fleet=str(found.fleet) if works else None,
            xpyd=found.fleet.xpyd if works else None,
            cost_usd_per_hour=found.cost if works else None,
        )

    def _asking(self, slos: tuple[Objective, ...]) -> AllocationProblem:
        return replace(self.scenario, slos=slos).problem(self.problem.capacity.asking(slos))

    def changes(self) -> list[ChangeAnswer]:
        """One replica fewer, and one more, in each pool."""
        return [
            self._change(pool.role, pool.replica_type, change)
            for pool in self.fleet.pools
            for change in (-1, 1)
        ]

    def _change(self, role: Role, replica_type: str, change: Literal[-1, 1]) -> ChangeAnswer:
        counts = self.fleet.counts
        counts[role, replica_type] += change
        fleet = Fleet.of(counts)
        allocation, check = _given(self.problem, fleet), certify(self.problem, fleet)
        answer = answer_of(self.scenario, self.problem, allocation, SEED, with_margins=False)
        return ChangeAnswer(
            role=role,
            replica_type=replica_type,
            change=change,
            fleet=str(fleet),
            xpyd=fleet.xpyd,
            cost_usd_per_hour=self.problem.cost(fleet),
            allowed=not resource_violations(self.problem, fleet),
            keeps=all(c.kept for c in check.slos),
            slos=answer.slos,
            joint_slos=answer.joint_slos,
        )

    def assumptions(self) -> list[AssumptionAnswer]:
        """What breaks an SLO first."""
        return [_assumption(a) for a in assumptions(self.scenario, self.fleet)]

    def prices(self) -> list[AssumptionAnswer]:
        """What moves the cheapest fleet; only of the cheapest one itself."""
        if self.best.status != "optimal" or self.best.fleet != self.fleet:
            return []
        return [_assumption(a) for a in price_assumptions(self.problem, self.fleet)]


def _assumption(a: Assumption) -> AssumptionAnswer:
    return AssumptionAnswer(name=a.name, margin=a.margin, effect=a.effect)
