"""``compare``, ``frontier`` and ``explain``: a question looked at from several sides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdalloc.cli.common import (
    SOLVERS,
    JsonOpt,
    OwnedOpt,
    ReplicationsOpt,
    RequestsOpt,
    ScenarioArg,
    SeedOpt,
    SetOpt,
    VariantOpt,
    check_outputs,
    fail,
    load,
    seed_or_default,
)

if TYPE_CHECKING:
    from pdalloc.scenario import Scenario

FolderOpt = Annotated[
    Path | None, typer.Option("--out", help="folder for JSON, CSV and the figure (PNG and PDF)")
]


def compare(
    scenario: ScenarioArg,
    variant: VariantOpt = None,
    solver: Annotated[
        list[str] | None, typer.Option(help=f"{SOLVERS}; repeatable [default: all]")
    ] = None,
    ratio: Annotated[
        list[str] | None, typer.Option(help="a fixed P:D ratio such as 1:3 beside; repeatable")
    ] = None,
    set_: SetOpt = None,
    owned: OwnedOpt = None,
    json: JsonOpt = None,
    out: FolderOpt = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="simulate each distinct fleet, on the same arrivals")
    ] = False,
    requests: RequestsOpt = None,
    replications: ReplicationsOpt = 10,
    seed: SeedOpt = None,
) -> None:
    """Put all solvers on one scenario: cost, gap to the proven optimum, time, SLOs kept."""
    from pdalloc.planning import Effort
    from pdalloc.planning.compare import compare as run
    from pdalloc.report.compare_table import compare_csv, print_compare
    from pdalloc.report.progress import bar

    check_outputs(json, out)
    loaded = load(scenario, variant, set_, owned)
    effort = Effort(requests, replications)
    with bar("comparing", enabled=True) as progress:
        answer = run(
            loaded, solver or (), ratio or (), validate, progress, seed_or_default(seed), effort
        )
    if out is not None:
        from pdalloc.report.compare_figure import compare_figure

        fill(out, "compare", answer.to_json(), compare_csv(answer), compare_figure(answer))
    print_or_json(json, answer.to_json(), lambda: print_compare(answer))
    if answer.interrupted:
        raise typer.Exit(130)
    if not any(row.keeps for row in answer.solvers):
        fail("infeasible: no solver found a fleet that keeps every SLO")


def frontier(
    scenario: ScenarioArg,
    over: Annotated[
        str, typer.Option(help="demand, or an SLO: ttft, tpot, itl, e2e, ttft.p99, class/ttft.mean")
    ],
    low: Annotated[
        str | None, typer.Option("--from", help="least value, e.g. '300 ms' or '2 Mtoken/min'")
    ] = None,
    high: Annotated[str | None, typer.Option("--to", help="greatest value")] = None,
    points: Annotated[int, typer.Option(min=2, help="values; corners come on top")] = 13,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes [default: as many as pay off]")
    ] = None,
    variant: VariantOpt = None,
    set_: SetOpt = None,
    owned: OwnedOpt = None,
    json: JsonOpt = None,
    out: FolderOpt = None,
) -> None:
    """Show the least cost against one bound, or against demand, with the fleet at each corner."""
    from pdalloc.planning.frontier import frontier as run
    from pdalloc.planning.frontier_answer import frontier_answer
    from pdalloc.report.frontier_table import frontier_csv, print_frontier
    from pdalloc.report.progress import bar

    check_outputs(json, out)
    loaded = load(scenario, variant, set_, owned)
    ends = (value_of(loaded, over, low, "--from"), value_of(loaded, over, high, "--to"))
    with bar("frontier", enabled=True) as progress:
        answer = frontier_answer(run(loaded, over, *ends, points, progress, jobs))
    if out is not None and answer.points:
        from pdalloc.report.frontier_figure import frontier_figure

        fill(out, "frontier", answer.to_json(), frontier_csv(answer), frontier_figure(answer))
    print_or_json(json, answer.to_json(), lambda: print_frontier(answer))
    if answer.interrupted:
        raise typer.Exit(130)
    if not any(point.fleet for point in answer.points):
        fail("infeasible: no fleet keeps every SLO anywhere in this range")


def explain(
    scenario: ScenarioArg,
    fleet: Annotated[
        str | None,
        typer.Option(help="3P4D, or prefill/h200x8=3,decode/h200x8=4 [default: the cheapest]"),
    ] = None,
    variant: VariantOpt = None,
    set_: SetOpt = None,
    owned: OwnedOpt = None,
    json: JsonOpt = None,
) -> None:
    """Say why this fleet: what binds, what each SLO costs, and what it leans on."""
    from pdalloc.planning.explain import explain as run
    from pdalloc.report.explain_table import print_explanation
    from pdalloc.report.progress import bar

    check_outputs(json, None)
    loaded = load(scenario, variant, set_, owned)
    with bar("explaining", enabled=True) as progress:
        answer = run(loaded, fleet, progress)
    print_or_json(json, answer.to_json(), lambda: print_explanation(answer))
    if answer.interrupted:
        raise typer.Exit(130)
    if answer.fleet is None:
        fail(f"infeasible: {answer.reason}")


def value_of(scenario: Scenario, over: str, text: str | None, where: str) -> float | None:
    """A bound in seconds, or a demand in requests/s, from its words."""
    from pdalloc.units import parse_quantity

    if text is None:
        return None
    if over != "demand":
        return parse_quantity(text, "time", where)
    if "tok" not in text:
        return parse_quantity(text, "requests_rate", where)
    per_request = scenario.system.workload.mean_tokens
    return parse_quantity(text, "tokens_rate", where) / per_request


def print_or_json(json: str | None, text: str, show: Callable[[], None]) -> None:
    """JSON to stdout or a file; the table unless stdout has the JSON."""
    from pdalloc.report.files import write_text

    if json == "-":
        typer.echo(text)
        return
    if json is not None:
        write_text(Path(json), text)
    show()


def fill(out: Path, name: str, json: str, table: str, figure: Any) -> None:
    """NAME.json, NAME.csv and NAME.png and .pdf in folder ``out``."""
    from pdalloc.report.files import KINDS, fill_folder
    from pdalloc.report.style import figure_bytes

    contents = {f"{name}.json": f"{json}\n".encode(), f"{name}.csv": table.encode()}
    contents |= {f"{name}.{kind}": figure_bytes(figure, kind) for kind in KINDS}
    fill_folder(out, contents)
