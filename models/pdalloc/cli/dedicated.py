"""``plan`` where classes have pools of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pdalloc.cli.common import fail, seed_or_default
from pdalloc.errors import UnsupportedError

if TYPE_CHECKING:
    from pdalloc.planning import Effort
    from pdalloc.scenario import Scenario


def deliver_dedicated(
    scenario: Scenario,
    solver: str,
    alternatives: int,
    validate: bool,
    repair: bool,
    effort: Effort,
    seed: int | None,
    json: str | None,
    out: Path | None,
) -> None:
    """Plan, print and write; UnsupportedError for what dedicated pools do not offer."""
    from pdalloc.planning.dedicated import plan_dedicated
    from pdalloc.report.dedicated_files import write_dedicated
    from pdalloc.report.dedicated_table import print_dedicated
    from pdalloc.report.files import write_text
    from pdalloc.report.progress import bar

    for asked, flag in ((solver != "exact", "--solver"), (alternatives > 0, "--alternatives")):
        if asked:
            raise UnsupportedError(f"{flag}: dedicated pools have one solver, which lists one plan")
    if repair:
        raise UnsupportedError("--repair: not for dedicated pools; use --validate, and headroom:")
    with bar("simulating", enabled=validate) as progress:
        answer = plan_dedicated(scenario, validate, progress, seed_or_default(seed), effort)
    if json == "-":
        typer.echo(answer.to_json())
    else:
        print_dedicated(answer)
        if json is not None:
            write_text(Path(json), answer.to_json())
    if out is not None:
        write_dedicated(scenario, answer, out)
    if answer.status == "infeasible":
        fail(f"infeasible: {answer.reason}")
