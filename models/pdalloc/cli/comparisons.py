"""``compare``, ``frontier`` and ``explain``: a question looked at from several sides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pdalloc.cli.common import (
    SOLVERS,
    JsonOpt,
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

OwnedOpt = Annotated[
    str | None, typer.Option(help="replicas owned already (free), as 3P4D or role/type=n,...")
]
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

        _folder(out, "compare", answer.to_json(), compare_csv(answer), compare_figure(answer))
    _print_or_json(json, answer.to_json(), lambda: print_compare(answer))
    if answer.interrupted:
        raise typer.Exit(130)
    if not any(row.keeps for row in answer.solvers):
        fail("infeasible: no solver found a fleet that keeps every SLO")


def _print_or_json(json: str | None, text: str, show: Callable[[], None]) -> None:
    """JSON to stdout or a file; the table unless stdout has the JSON."""
    from pdalloc.report.files import write_text

    if json == "-":
        typer.echo(text)
        return
    if json is not None:
        write_text(Path(json), text)
    show()


def _folder(out: Path, name: str, json: str, table: str, figure: Any) -> None:
    """NAME.json, NAME.csv and NAME.png and .pdf in folder ``out``."""
    from pdalloc.report.files import KINDS, fill_folder
    from pdalloc.report.style import figure_bytes

    contents = {f"{name}.json": f"{json}\n".encode(), f"{name}.csv": table.encode()}
    contents |= {f"{name}.{kind}": figure_bytes(figure, kind) for kind in KINDS}
    fill_folder(out, contents)
