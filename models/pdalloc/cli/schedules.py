"""``schedule``: a fleet for each period of a day."""

from __future__ import annotations

from typing import Annotated

import typer

from pdalloc.cli.common import (
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
from pdalloc.cli.comparisons import FolderOpt, fill, print_or_json


def schedule(
    scenario: ScenarioArg,
    variant: VariantOpt = None,
    set_: SetOpt = None,
    owned: OwnedOpt = None,
    time_limit: Annotated[
        float, typer.Option(help="seconds for the integer program; its gap is stated")
    ] = 20.0,
    json: JsonOpt = None,
    out: FolderOpt = None,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="simulate each period's fleet at its own, steady demand"),
    ] = False,
    requests: RequestsOpt = None,
    replications: ReplicationsOpt = 10,
    seed: SeedOpt = None,
) -> None:
    """Find the cheapest fleet for each period of a day, with what starts and stops cost."""
    from pdalloc.planning import Effort
    from pdalloc.planning.schedule import schedule as run
    from pdalloc.report.progress import bar
    from pdalloc.report.schedule_table import print_schedule, schedule_csv

    check_outputs(json, out)
    loaded = load(scenario, variant, set_, owned)
    effort = Effort(requests, replications)
    with bar("scheduling", enabled=True) as progress:
        answer = run(loaded, time_limit, progress, validate, seed_or_default(seed), effort)
    if out is not None and answer.periods:
        from pdalloc.report.schedule_figure import schedule_figure

        table = schedule_csv(answer)
        fill(out, "schedule", answer.to_json(), table, schedule_figure(answer))
    print_or_json(json, answer.to_json(), lambda: print_schedule(answer))
    if answer.interrupted:
        raise typer.Exit(130)
    if answer.status == "infeasible":
        fail(f"infeasible: {answer.reason}")
