"""The ``pdalloc`` command. Each sub-command is one or two calls of the Python API.

Errors of input print one line on stderr and exit with 2, as do infeasible questions (after
their JSON). Heavy modules are imported inside the commands.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdalloc.errors import InputError, PdallocError

if TYPE_CHECKING:
    from pdalloc.planning import Answer
    from pdalloc.scenario import Scenario

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="How many prefill and decode replicas of which GPU, at least cost, within the SLOs.",
)

ScenarioArg = Annotated[Path, typer.Argument(help="scenario YAML file", show_default=False)]
VariantOpt = Annotated[str | None, typer.Option("--variant", help="a variant named in the file")]
SetOpt = Annotated[
    list[str] | None,
    typer.Option("--set", help="override, e.g. 'traffic.0.slo.ttft.mean=250 ms'; repeatable"),
]
JsonOpt = Annotated[
    str | None, typer.Option("--json", help="write the answer as JSON to a file, or - for stdout")
]
OutOpt = Annotated[
    Path | None, typer.Option("--out", help="folder for answer.json and figures (PNG and PDF)")
]
ValidateOpt = Annotated[
    bool, typer.Option("--validate", help="simulate the fleet; show simulated beside predicted")
]
SeedOpt = Annotated[
    int | None, typer.Option("--seed", min=0, help="seed of the simulation, not negative")
]
RequestsOpt = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="simulated requests per replication [default: what the traffic needs]",
    ),
]
ReplicationsOpt = Annotated[int, typer.Option(min=2, help="independent simulated runs")]
FleetOpt = Annotated[str, typer.Option(help="3P4D, or prefill/h200x8=3,decode/h200x8=4")]


@app.command()
def plan(
    scenario: ScenarioArg,
    variant: VariantOpt = None,
    solver: Annotated[str, typer.Option(help="exact, paper, cvxpy, pyomo")] = "exact",
    set_: SetOpt = None,
    owned: Annotated[
        str | None, typer.Option(help="replicas owned already (free), as 3P4D or role/type=n,...")
    ] = None,
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

    _check_outputs(json, out)
    loaded = _load(scenario, variant, set_, owned)
    with bar("simulating", enabled=validate or repair) as progress:
        answer = make_plan(
            loaded,
            solver,
            alternatives,
            validate,
            progress,
            _seed(seed),
            Effort(requests, replications),
            repair,
        )
    _deliver(loaded, answer, json, out)
    if answer.status == "infeasible":
        _fail(f"infeasible: {answer.reason}")


@app.command()
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

    _check_outputs(json, out)
    loaded = _load(scenario, variant, set_, None)
    effort = Effort(requests, replications)
    with bar("simulating", enabled=validate) as progress:
        answer = judge(loaded, fleet, validate, progress, _seed(seed), effort)
    _deliver(loaded, answer, json, out)


@app.command()
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

    _check_outputs(json, out, log)
    loaded = _load(scenario, variant, set_, None)
    effort = Effort(requests, replications)
    with bar("simulating", enabled=True) as progress:
        done = run(loaded, fleet, effort, _seed(seed), progress, engine)
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


@app.command()
def check(scenario: ScenarioArg, variant: VariantOpt = None, set_: SetOpt = None) -> None:
    """Validate a scenario file and every variant in it."""
    from pdalloc.scenario import load_scenario
    from pdalloc.scenario.build import variant_names

    names = [variant] if variant else [None, *variant_names(scenario)]
    for name in names:
        loaded = load_scenario(scenario, name, set_ or ())
        types = ", ".join(loaded.system.replica_types)
        typer.echo(
            f"{scenario}{f' variant {name}' if name else ''}: ok "
            f"({loaded.demand:.4g} req/s, {len(loaded.slos)} SLOs, replica types {types})"
        )


@app.command()
def catalog(
    kind: Annotated[
        str | None,
        typer.Argument(help="gpus, llms, profiles, prices or lengths", show_default=False),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="one entry", show_default=False)] = None,
) -> None:
    """List the catalogue, or show an entry with the source of its numbers."""
    from pdalloc.report.catalogue import print_catalogue

    print_catalogue(kind, name)


@app.command()
def schema(
    what: Annotated[str, typer.Argument(help="scenario, answer or simulation")] = "scenario",
) -> None:
    """Print the JSON Schema of scenario files, of answers or of simulations."""
    import json

    from pydantic import BaseModel

    from pdalloc.planning.answer import Answer
    from pdalloc.planning.simulation_answer import SimulationAnswer
    from pdalloc.scenario.schema import ScenarioSpec

    models: dict[str, type[BaseModel]] = {
        "scenario": ScenarioSpec,
        "answer": Answer,
        "simulation": SimulationAnswer,
    }
    if what not in models:
        raise InputError(f"schema {what!r} is not one of {', '.join(models)}")
    typer.echo(json.dumps(models[what].model_json_schema(), indent=2))


def _load(
    path: Path, variant: str | None, overrides: list[str] | None, owned: str | None
) -> Scenario:
    from pdalloc.scenario import load_scenario

    loaded = load_scenario(path, variant, overrides or ())
    return loaded if owned is None else loaded.owning(owned)


def _deliver(scenario: Scenario, answer: Answer, json: str | None, out: Path | None) -> None:
    """Table to the terminal (unless JSON goes to stdout), then JSON and figures."""
    from pdalloc.report.files import write_outputs, write_text
    from pdalloc.report.table import print_answer

    if json != "-":
        print_answer(answer)
    if json == "-":
        typer.echo(answer.to_json())
    elif json is not None:
        write_text(Path(json), answer.to_json())
    if out is not None:
        write_outputs(scenario, answer, out)


def _check_outputs(json: str | None, out: Path | None, log: Path | None = None) -> None:
    """Refuse, before anything is computed, what could not be written afterwards."""
    from pdalloc.report.files import check_writable

    if json == "":
        raise InputError("--json: give a file name, or - for stdout")
    files = [] if json in (None, "-") else [Path(str(json))]
    check_writable([*files, *([] if log is None else [log])], out)


def _seed(given: int | None) -> int:
    from pdalloc.planning.effort import SEED

    return SEED if given is None else given


def _fail(message: str) -> None:
    print(f"pdalloc: {message}", file=sys.stderr)
    raise typer.Exit(2)


def main() -> None:
    """Entry point: whatever the user got wrong becomes one line on stderr and exit code 2."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = app(standalone_mode=False)
    except PdallocError as error:
        sys.exit(_error(str(error)))
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # click's own: a flag misspelt or missing
        if usage is None:
            raise
        sys.exit(_error(f"{usage()} (see pdalloc --help)"))
    sys.exit(code if isinstance(code, int) else 0)


def _error(message: str) -> int:
    print(f"pdalloc: error: {' '.join(message.split())}", file=sys.stderr)
    return 2
