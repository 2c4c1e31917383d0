"""The ``pdalloc`` command. Each sub-command is one or two calls of the Python API.

Errors of input print one line on stderr and exit with 2, as do infeasible questions (after
their JSON). Heavy modules are imported inside the commands. One module per group of commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from pdalloc.cli.common import NamesSolvers
from pdalloc.cli.comparisons import compare, explain, frontier
from pdalloc.cli.lookups import catalog, check, schema
from pdalloc.cli.plans import evaluate, plan, simulate
from pdalloc.cli.schedules import schedule
from pdalloc.errors import PdallocError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="How many prefill and decode replicas of which GPU, at least cost, within the SLOs.",
)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(plan, evaluate, compare, frontier, explain, schedule),
    *(simulate, check, catalog, schema),
)
for command in COMMANDS:
    app.command(cls=NamesSolvers)(command)


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
