"""Sentences of explanations, comparisons and frontiers, from answers made by hand."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from pdalloc.planning.answer import SloAnswer
from pdalloc.planning.compare import CompareAnswer, SolverAnswer
from pdalloc.planning.explain_answer import (
    AssumptionAnswer,
    BoundCost,
    ChangeAnswer,
    ExplainAnswer,
    FractionAnswer,
    SloExplained,
)
from pdalloc.planning.frontier_answer import FrontierAnswer, FrontierPointAnswer
from pdalloc.planning.margins import MOST
from pdalloc.report import explain_words as words
from pdalloc.report.compare_figure import compare_figure
from pdalloc.report.compare_table import duration, gap, iteration, print_compare, reasons, tightest
from pdalloc.report.frontier_table import MOST_ROWS, print_frontier, remarks

pytestmark = pytest.mark.pipeline


def slo(predicted: float | None = 0.9, bound: float = 1.0, **more: Any) -> SloAnswer:
    kept = predicted is not None and predicted <= bound
    fields: dict[str, Any] = {"traffic_class": "all", "metric": "ttft", "statistic": "mean"}
    fields["binding"] = True
    return SloAnswer(bound_s=bound, predicted_s=predicted, kept=kept, **(fields | more))


def explained(**more: Any) -> ExplainAnswer:
    """3P2D at 50 USD/h, the optimum, unless ``more`` says otherwise."""
    fields: dict[str, Any] = {
        "scenario": "s", "title": "S", "variant": None, "status": "optimal", "reason": "",
        "given": False, "fleet": "prefill/r=3,decode/r=2", "xpyd": "3P2D",
        "gpus_by_type": {"h100": 40}, "cost_usd_per_hour": 50.0,
        "best_fleet": "prefill/r=3,decode/r=2", "best_xpyd": "3P2D",
        "best_cost_usd_per_hour": 50.0, "best_proven": True, "demand_requests_per_s": 10.0,
        "demand_tokens_per_minute": 1e6, "relaxed_usd_per_hour": 45.0, "fractions": [],
        "merit": [], "slos": [], "changes": [], "assumptions": [], "prices": [], "warnings": [],
        "produced_by": {},
    }  # fmt: skip
    return ExplainAnswer(**(fields | more))


def bound(cost: float | None, xpyd: str | None = "2P2D", seconds: float | None = None) -> BoundCost:
    return BoundCost(bound_s=seconds, fleet=xpyd, xpyd=xpyd, cost_usd_per_hour=cost)


def cost_of(without: float | None, looser: float | None, tighter: float | None) -> SloExplained:
    return SloExplained(
        slo=slo(), slack=0.1, without=bound(without), looser=bound(looser), tighter=bound(tighter),
        relaxed_usd_per_hour_per_s=-20.0,
    )  # fmt: skip


# Headlines.


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "3P2D on 40 x h100 at 50.00 USD/h is the cheapest fleet that keeps every SLO "
         "(proven)."),
        ({"best_proven": False}, "every SLO found; that is not proven."),
        (
            {"best_fleet": "x", "best_xpyd": "2P2D", "best_cost_usd_per_hour": 40.0},
            "keeps every SLO. The cheapest that does is 2P2D at 40.00 USD/h, 10.00 USD/h less.",
        ),
        (
            {"status": "infeasible", "reason": "TTFT", "best_fleet": "x", "best_xpyd": "4P2D",
             "best_cost_usd_per_hour": 60.0},
            "breaks: TTFT. The cheapest that does is 4P2D at 60.00 USD/h, 10.00 USD/h more.",
        ),
        (
            {"status": "infeasible", "reason": "TTFT", "best_cost_usd_per_hour": None},
            "breaks: TTFT. No fleet does.",
        ),
        ({"fleet": None, "reason": "too slow"}, "No fleet keeps every SLO: too slow."),
    ],
)  # fmt: skip
def test_headlines(more: dict[str, Any], said: str) -> None:
    assert words.headline(explained(**more)).endswith(said)


# Numbers of replicas.


@pytest.mark.parametrize(
    ("count", "replicas", "said"),
    [
        (2.3, 3, "rounded up, 3"),
        (3.0, 3, "rounded up, 3"),
        (3.1, 3, "rounded up 4, and the fleet has 3"),
    ],
)  # fmt: skip
def test_rounding_is_told(count: float, replicas: int, said: str) -> None:
    fraction = FractionAnswer(
        role="prefill", replica_type="r", admits_per_s=10.0 / count, count=count,
        replicas=replicas, formula="",
    )  # fmt: skip
    (line, *_) = words.why_this_many(explained(fractions=[fraction]))
    assert line.endswith(f"need {count:.2f} replicas; {said}.")


def test_what_whole_replicas_cost_is_told_for_two_single_types_only() -> None:
    one = FractionAnswer(
        role="prefill", replica_type="r", admits_per_s=4.0, count=2.5, replicas=3, formula=""
    )
    two = one.model_copy(update={"role": "decode"})
    assert "5.00 USD/h (11.1 %) on top" in words.why_this_many(explained(fractions=[one, two]))[-1]
    for more in ({"fractions": [one]}, {"relaxed_usd_per_hour": None}, {"status": "infeasible"}):
        lines = words.why_this_many(explained(**({"fractions": [one, two]} | more)))
        assert not any("on top" in line for line in lines)


# What binds, what SLOs cost.


def change(slos: list[SloAnswer], keeps: bool, by: Any = -1) -> ChangeAnswer:
    return ChangeAnswer(
        role="prefill", replica_type="r", change=by, fleet="f", xpyd="2P2D",
        cost_usd_per_hour=40.0, allowed=True, keeps=keeps, slos=slos,
    )  # fmt: skip


def test_what_one_replica_fewer_does() -> None:
    cases = [
        (change([slo(1.3), slo(0.9)], False), "TTFT mean is 1300 ms against 1000 ms."),
        (change([slo(1.3), slo(2.5, 2.0)], False), "and TTFT mean is 2500 ms against 2000 ms."),
        (change([slo(None)], False), "there is no steady state."),
        (change([slo(0.9)], True), "every SLO still holds, for 40.00 USD/h."),
    ]  # fmt: skip
    lines = words.what_binds(explained(changes=[c for c, _ in cases]))
    for line, (_, said) in zip(lines, cases, strict=True):
        assert line.startswith("With one prefill r replica fewer ") and line.endswith(said)
    assert words.what_binds(explained(changes=[change([slo(0.5)], True, 1)])) == []


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ((50.0, 50.0, 60.0), "TTFT mean costs nothing"),
        ((None, 50.0, 60.0), "TTFT mean costs nothing"),
        (
            (40.0, 45.0, 60.0),
            "costs 10.00 USD/h: without it 2P2D would do. 10 % tighter: 10.00 USD/h more; "
            "10 % looser: 5.00 USD/h less.",
        ),
        ((40.0, 50.0, None), "10 % tighter: no fleet keeps it; 10 % looser: the same cost."),
    ],
)  # fmt: skip
def test_what_an_slo_costs(costs: Any, said: str) -> None:
    (line, priced) = words.what_slos_cost(explained(slos=[cost_of(*costs)]))
    assert said in line
    assert priced.startswith("In fractions 1 % on a bound is worth: TTFT mean 0.20 USD/h")


# What it leans on.


def assume(name: str, margin: float | None, effect: str = "TTFT mean") -> AssumptionAnswer:
    return AssumptionAnswer(name=name, margin=margin, effect=effect)


def test_growth_and_the_weakest_assumption() -> None:
    found = [assume("prefill times", 0.02), assume("demand", 0.05, "TTFT mean, TPOT mean")]
    lines = words.what_it_leans_on(explained(assumptions=found))
    assert (
        lines[0]
        == "Demand can grow by 5.0 % to 1.05 Mtoken/min; beyond, TTFT mean, TPOT mean break."
    )
    assert lines[1] == (
        "It leans most on prefill times: beyond +2.0 % TTFT mean breaks. Then: demand +5.0 %."
    )
    assert lines[2].startswith("No price between")


def test_growth_beyond_the_range() -> None:
    lines = words.what_it_leans_on(explained(assumptions=[assume("demand", MOST, "")]))
    assert lines[0] == "Demand can grow at least 4-fold." and "leans" not in lines[1]


@pytest.mark.parametrize("effect", ["no steady state", "KV memory does not hold a request"])
def test_effects_that_are_no_slo(effect: str) -> None:
    (line, *_) = words.what_it_leans_on(explained(assumptions=[assume("demand", 0.1, effect)]))
    assert line.endswith(f"beyond, {effect}.")


def test_what_would_mend_a_broken_fleet() -> None:
    found = [assume("prefill times", -0.02), assume("demand", -0.05), assume("bursts", None, "")]
    broken = explained(status="infeasible", assumptions=found)
    (line,) = words.what_it_leans_on(broken)
    assert "with prefill times -2.0 % or demand -5.0 %; nothing else alone helps" in line
    hopeless = explained(status="infeasible", assumptions=[assume("demand", None, "")])
    assert words.what_it_leans_on(hopeless)[0].startswith("No single change")


# Comparisons.


def solver(name: str, status: Any, **more: Any) -> SolverAnswer:
    return SolverAnswer(solver=name, exact=False, sentence="does", status=status, **more)


def test_solvers_that_say_the_same_share_a_line() -> None:
    rows = [solver("a", "no fleet", reason="why"), solver("b", "no fleet", reason="why"),
            solver("c", "refused", reason="why"), solver("d", "feasible")]  # fmt: skip
    assert reasons(rows) == ["a, b - no fleet: why", "c - refuses: why"]


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "-"), (0.0, "0"), (1e-9, "0"), (0.25, "+25.0 %"), (-0.125, "-12.5 %")],
)
def test_gaps(value: float | None, said: str) -> None:
    assert gap(solver("a", "feasible", gap=value)) == said


@pytest.mark.parametrize(
    ("value", "said"), [(None, "-"), (0.0004, "0 ms"), (0.9994, "999 ms"), (1.0, "1.0 s")]
)
def test_durations(value: float | None, said: str) -> None:
    assert duration(value) == said


def test_the_tightest_slo_is_told_by_its_share() -> None:
    row = solver("a", "feasible", fleet="f", slos=[slo(0.5), slo(1.9, 2.0, metric="e2e")])
    assert tightest(row) == "E2E mean at 95 %"
    assert tightest(solver("a", "breaks", fleet="f", slos=[slo(None)])) == "no steady state"
    assert tightest(solver("a", "no fleet")) == "-"


def test_the_rounds_of_an_iteration_are_told_without_repeats() -> None:
    details = {"ended": "converged", "rounds": 3.0, "failures": 1.0, "path": "3P3D 3P3D 2P3D 2P2D"}
    said = iteration(solver("fixed_point", "feasible", details=details))
    assert said.endswith("converged after 3 rounds, 1 of whose fleets broke an SLO: "
                         "3P3D -> 2P3D -> 2P2D")  # fmt: skip


def comparison(*rows: SolverAnswer, **more: Any) -> CompareAnswer:
    fields: dict[str, Any] = {
        "scenario": "s", "title": "S", "variant": "v", "demand_requests_per_s": 1.0,
        "demand_tokens_per_minute": 5e4, "bound_usd_per_hour": 10.0, "proven": False,
        "produced_by": {},
    }  # fmt: skip
    return CompareAnswer(solvers=list(rows), **(fields | more))


def test_a_bound_that_nobody_attains_is_called_one() -> None:
    out = io.StringIO()
    print_compare(comparison(solver("a", "refused", reason="no")), Console(file=out, width=80))
    assert "Proven lower bound: 10.00 USD/h" in out.getvalue() and "S, variant v" in out.getvalue()


def test_the_figure_has_a_row_for_everyone() -> None:
    def found(name: str, status: Any, xpyd: str, cost: float, seconds: float) -> SolverAnswer:
        gap = cost / 10.0 - 1.0
        more = {"xpyd": xpyd, "cost_usd_per_hour": cost, "gap": gap, "seconds": seconds}
        return solver(name, status, fleet=xpyd, **more)

    rows = [
        found("best", "optimal", "1P1D", 10.0, 0.2),
        found("worse", "feasible", "2P1D", 15.0, 9.0),
        found("wrong", "breaks", "0P1D", 5.0, 1e-5),
        solver("none", "no fleet"),
        solver("other", "refused"),
    ]
    left, right = compare_figure(comparison(*rows)).axes
    assert [t.get_text() for t in left.get_yticklabels()] == [r.solver for r in rows]
    said = [t.get_text() for t in left.texts]
    assert said == [
        "1P1D",
        "2P1D, +50.0 %",
        "0P1D, -50.0 %",
        "finds no fleet",
        "refuses this problem",
    ]
    low, high = right.get_xlim()
    assert low <= 1e-3 and high >= 9.0
    ticks = [t.get_text() for t in right.get_xticklabels()]
    assert ticks == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]


# Frontiers.


def frontier_of(values: list[tuple[float, float | None]], **more: Any) -> FrontierAnswer:
    points = [
        FrontierPointAnswer(
            value=value, corner=True, fleet=None if cost is None else "prefill/r=1,decode/r=1",
            xpyd=None if cost is None else "1P1D", gpus_by_type={"h100": 16} if cost else {},
            cost_usd_per_hour=cost, proven=True, reason="" if cost else "too tight",
        )
        for value, cost in values
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "scenario": "s", "title": "S", "variant": None, "over": "ttft.mean", "unit": "s",
        "here": 2.0, "demand_requests_per_s": 1.0, "tokens_per_request": 100.0,
        "interrupted": False, "produced_by": {},
    }  # fmt: skip
    return FrontierAnswer(points=points, **(fields | more))


def test_neighbours_of_the_own_value_are_told() -> None:
    lines = remarks(frontier_of([(0.5, None), (1.0, 40.0), (1.5, 30.0), (3.0, 20.0)]))
    assert lines[0] == "Below 1500 ms it costs 10.00 USD/h (+33.3 %): 1P1D."
    assert lines[1] == "From 3000 ms it saves 10.00 USD/h (-33.3 %): 1P1D."
    assert lines[2] == "No fleet at 500 ms and below: too tight."


def test_unknown_places_and_unproven_fleets_are_told() -> None:
    answer = frontier_of([(1.0, 40.0), (1.5, 30.0)])
    loose = [p.model_copy(update={"corner": False, "proven": False}) for p in answer.points]
    lines = remarks(answer.model_copy(update={"points": loose}))
    assert any(line.startswith("<=:") for line in lines)
    assert any("not proven cheapest" in line for line in lines)


def test_a_long_table_keeps_the_widest_rows_and_its_own() -> None:
    values: list[tuple[float, float | None]] = [(1.0 + 0.01 * i, 100.0 - i) for i in range(40)]
    answer = frontier_of([*values, (9.0, 5.0)], here=1.105)
    out = io.StringIO()
    print_frontier(answer, Console(file=out, width=80))
    text = out.getvalue()
    assert len(re.findall(r"1P1D", text.split("Below")[0])) == MOST_ROWS
    assert f"{41 - MOST_ROWS} narrow stretches are left out here." in text
    assert "1100 ms" in text  # the stretch from 1.10 to 1.11 s, the scenario's own
