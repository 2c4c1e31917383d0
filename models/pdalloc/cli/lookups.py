"""``check``, ``catalog`` and ``schema``: what is known, and whether a file is right."""

from __future__ import annotations

from typing import Annotated

import typer

from pdalloc.cli.common import ScenarioArg, SetOpt, VariantOpt
from pdalloc.errors import InputError


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
            f"({loaded.demand:.4g} req/s, {len(loaded.slos)} SLOs, replica types {types}"
            f"{'; pools for ' if loaded.parts else ''}{' | '.join(p.title for p in loaded.parts)})"
        )


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


def schema(
    what: Annotated[
        str,
        typer.Argument(
            help="scenario, answer, simulation, compare, frontier, explain or dedicated"
        ),
    ] = "scenario",
) -> None:
    """Print the JSON Schema of scenario files, or of what a command answers."""
    import json

    from pydantic import BaseModel

    from pdalloc.planning.answer import Answer
    from pdalloc.planning.compare import CompareAnswer
    from pdalloc.planning.dedicated_answer import DedicatedAnswer
    from pdalloc.planning.explain_answer import ExplainAnswer
    from pdalloc.planning.frontier_answer import FrontierAnswer
    from pdalloc.planning.simulation_answer import SimulationAnswer
    from pdalloc.scenario.schema import ScenarioSpec

    models: dict[str, type[BaseModel]] = {
        "scenario": ScenarioSpec,
        "answer": Answer,
        "simulation": SimulationAnswer,
        "compare": CompareAnswer,
        "frontier": FrontierAnswer,
        "explain": ExplainAnswer,
        "dedicated": DedicatedAnswer,
    }
    if what not in models:
        raise InputError(f"schema {what!r} is not one of {', '.join(models)}")
    typer.echo(json.dumps(models[what].model_json_schema(), indent=2))
