"""``plan``, ``evaluate`` and ``simulate``: one question, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdalloc.cli.common import (
    SOLVERS,
    FleetOpt,
    JsonOpt,
    OutOpt,
    OwnedOpt,
    ReplicationsOpt,
    RequestsOpt,
    ScenarioArg,
    SeedOpt,
    SetOpt,
    ValidateOpt,
    VariantOpt,
    check_outputs,
    deliver,
    fail,
    load,
    seed_or_default,
)


def plan(
    scenario: ScenarioArg,
    variant: VariantOpt = None,
    solver: Annotated[str, typer.Option(help=SOLVERS)] = "exact",
    set_: SetOpt = None,
    owned: OwnedOpt = None,
    alternatives: Annotated[int, typer.Option(min=0, help="list the N next-cheapest fleets")] = 0,
    json: JsonOpt = None,
    out: OutOpt = None,
    validate: ValidateOpt = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="add the cheapest replicas until the simulation keeps every SLO"
        ),
    ] = False,
    requests: RequestsOpt = None,
    replications: ReplicationsOpt = 10,
    seed: SeedOpt = None,
) -> None:
    """Find the cheapest fleet that keeps every SLO."""
    from pdalloc.planning import Effort
    from pdalloc.planning import plan as make_plan
    from pdalloc.report.progress import bar

    check_outputs(json, out)
    loaded = load(scenario, variant, set_, owned)
    if loaded.parts:
        from pdalloc.cli.dedicated import deliver_dedicated

        effort = Effort(requests, replications)
        deliver_dedicated(loaded, solver, alternatives, validate, repair, effort, seed, json, out)
        return
    with bar("simulating", enabled=validate or repair) as progress:
        answer = make_plan(
            loaded,
            solver,
            alternatives,
            validate,
            progress,
            seed_or_default(seed),
            Effort(requests, replications),
            repair,
        )
    deliver(loaded, answer, json, out)
    if answer.status == "infeasible":
        fail(f"infeasible: {answer.reason}")


def evaluate(
    scenario: ScenarioArg,
    fleet: FleetOpt,
    variant: VariantOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = None,
    out: OutOpt = None,
    validate: ValidateOpt = False,
    requests: RequestsOpt = None,
    replications: ReplicationsOpt = 10,
    seed: SeedOpt = None,
) -> None:
    """Say what a given fleet does: which SLO breaks, and up to which demand it holds."""
    from pdalloc.planning import Effort
    from pdalloc.planning import evaluate as judge
    from pdalloc.report.progress import bar

    check_outputs(json, out)
    loaded = load(scenario, variant, set_)
    effort = Effort(requests, replications)
    with bar("simulating", enabled=validate) as progress:
        answer = judge(loaded, fleet, validate, progress, seed_or_default(seed), effort)
    deliver(loaded, answer, json, out)


def simulate(
    scenario: ScenarioArg,
    fleet: Annotated[
        str,
        typer.Option(help="3P4D, or prefill/h200x8=3,decode/h200x8=4; co-located: h200x8=7"),
    ],
    variant: VariantOpt = None,
    set_: SetOpt = None,
    requests: RequestsOpt = None,
    replications: ReplicationsOpt = 10,
    seed: SeedOpt = None,
    engine: Annotated[str, typer.Option(help="fast, or reference (readable, slow)")] = "fast",
    json: JsonOpt = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for simulation.json and figures")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", help="CSV file for every request of the first replication"),
    ] = None,
) -> None:
    """Simulate a given fleet: latencies, attainment, goodput, queues and cost, with intervals."""
    from pdalloc.planning import Effort
    from pdalloc.planning import simulate as run
    from pdalloc.report.files import simulation_files, write_files
    from pdalloc.report.log_csv import log_as_csv
    from pdalloc.report.progress import bar
    from pdalloc.report.simulation_table import print_simulation

    check_outputs(json, out, log)
    loaded = load(scenario, variant, set_)
    effort = Effort(requests, replications)
    with bar("simulating", enabled=True) as progress:
        done = run(loaded, fleet, effort, seed_or_default(seed), progress, engine)
    contents = {} if out is None else simulation_files(done, out)
    if json not in (None, "-"):
        contents[Path(json)] = done.answer.to_json().encode()
    if log is not None:
        contents[log] = log_as_csv(loaded, done.log).encode()
    write_files(contents)
    if json == "-":
        typer.echo(done.answer.to_json())
    else:
        print_simulation(done.answer)
    if done.answer.interrupted:
        raise typer.Exit(130)
