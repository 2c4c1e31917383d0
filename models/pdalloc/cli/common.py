"""What the commands share: their arguments, loading, checking, writing and failing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from pdalloc.errors import InputError

if TYPE_CHECKING:
    from pdalloc.planning import Answer
    from pdalloc.scenario import Scenario

SOLVERS = "SOLVERS"
"""Stands in help texts for the names of all solvers."""

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
OwnedOpt = Annotated[
    str | None, typer.Option(help="replicas owned already (free), as 3P4D or role/type=n,...")
]
FleetOpt = Annotated[str, typer.Option(help="3P4D, or prefill/h200x8=3,decode/h200x8=4")]


def load(
    path: Path, variant: str | None, overrides: list[str] | None, owned: str | None = None
) -> Scenario:
    """The scenario of the file, with its variant, overrides and owned replicas."""
    from pdalloc.scenario import load_scenario

    loaded = load_scenario(path, variant, overrides or ())
    return loaded if owned is None else loaded.owning(owned)


def deliver(scenario: Scenario, answer: Answer, json: str | None, out: Path | None) -> None:
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


def check_outputs(json: str | None, out: Path | None, log: Path | None = None) -> None:
    """Refuse, before anything is computed, what could not be written afterwards."""
    from pdalloc.report.files import check_writable

    if json == "":
        raise InputError("--json: give a file name, or - for stdout")
    files = [] if json in (None, "-") else [Path(str(json))]
    check_writable([*files, *([] if log is None else [log])], out)


class NamesSolvers(TyperCommand):
    """A command whose help lists the solvers that are there, which takes loading them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, with the names for SOLVERS in that of ``--solver``."""
        for option in self.params:
            if isinstance(option, TyperOption) and SOLVERS in (option.help or ""):
                from pdalloc.allocation.solvers import solvers

                option.help = str(option.help).replace(SOLVERS, ", ".join(sorted(solvers())))
        super().format_help(ctx, formatter)


def seed_or_default(given: int | None) -> int:
    """The seed asked for, or the usual one."""
    from pdalloc.planning.effort import SEED

    return SEED if given is None else given


def fail(message: str) -> None:
    """One line on stderr, and exit code 2."""
    print(f"pdalloc: {message}", file=sys.stderr)
    raise typer.Exit(2)
