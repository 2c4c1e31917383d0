"""All solvers on one scenario: cost, gap to the proven optimum, time, and SLOs kept or broken."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from pdalloc.allocation.problem import Allocation
from pdalloc.allocation.solvers import Solver, solver_named, solvers
from pdalloc.allocation.solvers.proportional import ProportionalRatio
from pdalloc.errors import InputError, PdallocError
from pdalloc.fleet import parse_fleet
from pdalloc.planning.answer import Answer, Block, JointSloAnswer, SloAnswer
from pdalloc.planning.assembly import answer_of
from pdalloc.planning.effort import SEED, Effort
from pdalloc.planning.plan import check_apart
from pdalloc.planning.shortfall import refuse_shed, unpriced
from pdalloc.planning.validated import Progress, compared, predictions, with_comparisons
from pdalloc.scenario import Scenario
from pdalloc.version import provenance

REPEATED_BELOW = 5.0
"""Seconds below which a solver runs twice: its libraries load in the first run."""
STOPPED = "stopped: solvers that are not listed have not run"
STOPPED_SIMULATING = "stopped: some fleets are not simulated, or on fewer replications"
RowStatus = Literal["optimal", "feasible", "breaks", "no fleet", "refused"]


class SolverAnswer(Block):
    """What one solver said."""

    solver: str
    exact: bool = Field(description="whether it claims to prove optimality")
    sentence: str
    status: RowStatus = Field(
        description="breaks: its fleet fails its check; no fleet: it found none; refused: it "
        "does not take the problem, or lacks a package"
    )
    reason: str = Field("", description="why it broke, found nothing or refused, in words")
    fleet: str | None = None
    xpyd: str | None = None
    gpus: int = 0
    cost_usd_per_hour: float | None = None
    gap: float | None = Field(
        None, description="cost over the proven bound, less 1; negative only for what breaks"
    )
    seconds: float | None = Field(None, description="wall time of a solve, libraries loaded")
    cold_seconds: float | None = Field(None, description="wall time of the first solve")
    slos: list[SloAnswer] = Field(default_factory=list)
    joint_slos: list[JointSloAnswer] = Field(default_factory=list)
    details: dict[str, float | str] = Field(default_factory=dict)

    @property
    def promises(self) -> list[SloAnswer | JointSloAnswer]:
        """Every SLO: on one latency, then joint ones."""
        return [*self.slos, *self.joint_slos]

    @property
    def keeps(self) -> bool:
        """Whether it found a fleet that passes its check."""
        return self.status in ("optimal", "feasible")


class CompareAnswer(Block):
    """All solvers on one scenario; those that claim proof first, then baselines by cost."""

    scenario: str
    title: str
    variant: str | None
    demand_requests_per_s: float
    demand_tokens_per_minute: float
    bound_usd_per_hour: float | None = Field(
        description="greatest proven lower bound on the cost; None: nothing is proven"
    )
    proven: bool = Field(description="whether some fleet attains the bound: it is the optimum")
    solvers: list[SolverAnswer]
    warnings: list[str] = Field(default_factory=list)
    interrupted: bool = False
    produced_by: dict[str, Any]

    def to_json(self) -> str:
        """Indented JSON, keys in the order above, no NaN or infinity."""
        return self.model_dump_json(indent=2)


@dataclass(frozen=True)
class _Run:
    """One solver's allocation and its answer; both None where it refused."""

    solver: Solver
    answer: Answer | None
    allocation: Allocation | None
    refusal: str
    seconds: float
    cold_seconds: float


def compare(
    scenario: Scenario,
    names: Sequence[str] = (),
    ratios: Sequence[str] = (),
    simulate: bool = False,
    progress: Progress | None = None,
    seed: int = SEED,
    effort: Effort | None = None,
) -> CompareAnswer:
    """Every solver (or those called ``names``) on ``scenario``.

    ``ratios`` such as ``1:3`` add fixed P:D ratios; ``simulate`` puts each distinct fleet
    before the simulator, all on the same arrivals. ^C gives what is done.
    """
    check_apart(scenario)
    refuse_shed(scenario, "compare")
    chosen = [solver_named(name) for name in names] if names else list(solvers().values())
    chosen += [_fixed_ratio(text) for text in ratios]
    runs, warnings = list[_Run](), list[str]()
    try:
        for done, solver in enumerate(chosen):
            runs.append(_run(scenario, solver, seed))
            if progress is not None:
                progress(done + 1, len(chosen))
    except KeyboardInterrupt:
        warnings.append(STOPPED)
    found = [run.answer for run in runs if run.answer is not None]
    answers = {str(answer.fleet): answer for answer in found if answer.fleet}
    if simulate and not warnings:
        answers, complete = _simulated(scenario, answers, seed, effort or Effort(), progress)
        warnings += [] if complete else [STOPPED_SIMULATING]
    bounds = [a.bound_usd_per_hour for a in found if a.bound_usd_per_hour is not None]
    bound = max(bounds, default=None)
    rows = [_row(run, answers, bound) for run in runs]
    return CompareAnswer(
        scenario=scenario.name,
        title=scenario.title,
        variant=scenario.variant,
        demand_requests_per_s=scenario.demand,
        demand_tokens_per_minute=60.0 * scenario.system.workload.tokens_per_second,
        bound_usd_per_hour=bound,
        proven=any(answer.status == "optimal" for answer in found),
        solvers=sorted(rows, key=_order),
        warnings=[*_shared_warnings(answers), *unpriced(scenario), *warnings],
        interrupted=bool(warnings),
        produced_by=provenance("compare", seed),
    )


def _fixed_ratio(text: str) -> ProportionalRatio:
    """``1:3``: one prefill for three decode replicas."""
    try:
        prefill, decode = (float(part) for part in text.split(":"))
        ratio = prefill / decode
    except (ValueError, ZeroDivisionError):
        raise InputError(f"ratio {text!r}: write P:D, such as 1:3") from None
    return ProportionalRatio(
        ratio, f"ratio {text}", f"{text} prefill to decode, scaled until the SLOs hold"
    )


def _run(scenario: Scenario, solver: Solver, seed: int) -> _Run:
    """Solve afresh, so that no solver profits from rates that another has inverted."""
    times = list[float]()
    while not times or (len(times) == 1 and times[0] < REPEATED_BELOW):
        problem, start = scenario.problem(), time.perf_counter()
        try:
            allocation = solver.solve(problem)
        except (PdallocError, ImportError) as error:
            return _Run(solver, None, None, " ".join(str(error).split()), 0.0, 0.0)
        times.append(time.perf_counter() - start)
    answer = answer_of(scenario, problem, allocation, seed, with_margins=False)
    return _Run(solver, answer, allocation, "", times[-1], times[0])


def _simulated(
    scenario: Scenario,
    answers: dict[str, Answer],
    seed: int,
    effort: Effort,
    progress: Progress | None,
) -> tuple[dict[str, Answer], bool]:
    """``answers`` by fleet with simulated latencies; whether all were simulated in full."""
    problem, found = scenario.problem(), dict(answers)
    steady = [f for f, a in answers.items() if all(map(steady_state, a.promises))]
    for number, name in enumerate(steady):

        def onwards(done: int, total: int, before: int = number) -> None:
            if progress is not None:
                progress(before * total + done, len(steady) * total)

        fleet = parse_fleet(name, scenario.system.type_names)
        predicted = predictions(scenario, answers[name])
        try:
            seen = compared(scenario, problem, fleet, predicted, effort, seed, onwards)
        except KeyboardInterrupt:
            return found, False
        found[name] = with_comparisons(answers[name], seen)
        if min(c.replications for c in seen) < effort.replications:
            return found, False
    return found, True


def _row(run: _Run, answers: dict[str, Answer], bound: float | None) -> SolverAnswer:
    named = {
        "solver": run.solver.name, "exact": run.solver.exact, "sentence": run.solver.sentence
    }  # fmt: skip
    if run.answer is None or run.allocation is None:
        return SolverAnswer(status="refused", reason=run.refusal, **named)  # type: ignore[arg-type]
    own, cost = run.answer, run.answer.cost_usd_per_hour
    status: RowStatus = "feasible"
    if own.status == "infeasible":
        status = "breaks" if own.fleet else "no fleet"
    elif own.status == "optimal":
        status = "optimal"
    return SolverAnswer(
        status=status,
        reason=own.reason,
        fleet=own.fleet,
        xpyd=own.xpyd,
        gpus=own.gpus,
        cost_usd_per_hour=cost,
        gap=cost / bound - 1.0 if cost is not None and bound else None,
        seconds=run.seconds,
        cold_seconds=run.cold_seconds,
        slos=(answers[own.fleet] if own.fleet else own).slos,
        joint_slos=(answers[own.fleet] if own.fleet else own).joint_slos,
        details=dict(run.allocation.details),
        **named,  # type: ignore[arg-type]
    )


def steady_state(slo: SloAnswer | JointSloAnswer) -> bool:
    """Whether there is something to predict."""
    found = slo.predicted_s if isinstance(slo, SloAnswer) else slo.predicted_share
    return found is not None


def _order(row: SolverAnswer) -> tuple[bool, int, float, str]:
    """Proofs, then baselines that keep the SLOs by cost, then what breaks, then the rest."""
    ranks: dict[RowStatus, int] = {"optimal": 0, "feasible": 0, "breaks": 1, "no fleet": 2}
    cost = row.cost_usd_per_hour or 0.0
    return not row.exact, ranks.get(row.status, 3), cost, row.solver


def _shared_warnings(answers: dict[str, Answer]) -> list[str]:
    """What every plan warns of; what only one does is its own command's word."""
    lists = [answer.warnings for answer in answers.values()]
    return [line for line in lists[0] if all(line in other for other in lists)] if lists else []
