"""Results as files: written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pdalloc.errors import InputError
from pdalloc.fleet import parse_fleet

if TYPE_CHECKING:
    from pdalloc.planning.answer import Answer
    from pdalloc.planning.simulation import Simulation
    from pdalloc.scenario import Scenario

ANSWER = "answer.json"
SIMULATION = "simulation.json"
SIMULATION_FIGURE = "simulation"
FIGURES = ("cost_against_demand", "latency_against_demand")
KINDS = ("png", "pdf")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` at once: readers see the old file or the new one.

    Raises InputError when it cannot be written.
    """
    _replace({path: text.encode()})


def check_writable(files: Iterable[Path], folder: Path | None) -> None:
    """Raise InputError for a file without a folder to be in, or a ``folder`` that cannot be."""
    for path in files:
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            reason = "it is a folder" if path.is_dir() else "its folder is not there or is closed"
            raise InputError(f"{path}: cannot write this file: {reason}")
    if folder is not None:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise InputError(f"{folder}: cannot make this folder: {there} is no open folder")


def write_outputs(scenario: Scenario, answer: Answer, out: Path) -> None:
    """answer.json and, where the answer names a fleet, the figures, in folder ``out``.

    Everything is computed before the first file is written. Figures of an earlier run go
    when the new answer has none. Raises InputError when ``out`` cannot be written.
    """
    from pdalloc.planning.shortfall import as_served

    scenario = as_served(scenario, answer)
    contents = {ANSWER: (answer.to_json() + "\n").encode()}
    stale = [f"{name}.{kind}" for name in FIGURES for kind in KINDS]
    if answer.margin is not None:
        contents |= figure_files(scenario, answer)
    _make_folder(out)
    _replace({out / name: content for name, content in contents.items()})
    for name in set(stale) - set(contents):
        (out / name).unlink(missing_ok=True)


def simulation_files(simulation: Simulation, out: Path) -> dict[Path, bytes]:
    """simulation.json and its figure in both formats, in folder ``out``, which is made.

    Raises InputError when it cannot be made.
    """
    from pdalloc.report.simulation_figure import simulation_figure
    from pdalloc.report.style import figure_bytes

    figure = simulation_figure(simulation)
    contents = {SIMULATION: (simulation.answer.to_json() + "\n").encode()}
    contents |= {f"{SIMULATION_FIGURE}.{kind}": figure_bytes(figure, kind) for kind in KINDS}
    _make_folder(out)
    return {out / name: content for name, content in contents.items()}


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write all files, or none: readers see the old ones or the new ones.

    Raises InputError when one cannot be written.
    """
    _replace(contents)


def fill_folder(out: Path, contents: Mapping[str, bytes]) -> None:
    """Make folder ``out`` where it is not there, and write these files into it, or none.

    Raises InputError when it cannot be made or one cannot be written.
    """
    _make_folder(out)
    _replace({out / name: content for name, content in contents.items()})


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot make this folder: {_reason(error)}") from None


def figure_files(scenario: Scenario, answer: Answer) -> dict[str, bytes]:
    """File name -> contents of both figures in both formats."""
    from pdalloc.planning import sweeps
    from pdalloc.report.figures import cost_against_demand, latency_against_demand
    from pdalloc.report.progress import bar
    from pdalloc.report.style import figure_bytes

    demands = sweeps.demand_grid(scenario)
    fleet = parse_fleet(answer.fleet or "", scenario.system.type_names)
    with bar("cost against demand", enabled=True) as progress:
        points = sweeps.cost_sweep(scenario, demands, progress)
    drawn = [cost_against_demand(points, answer)]
    if answer.slos:  # joint SLOs are shares, not latencies
        with bar("latency against demand", enabled=True) as progress:
            fleets = [fleet, *sweeps.neighbours(fleet)]
            curves = sweeps.latency_sweep(scenario, fleets, demands, progress)
        drawn.append(latency_against_demand(curves, answer))
    return {
        f"{name}.{kind}": figure_bytes(figure, kind)
        for name, figure in zip(FIGURES, drawn, strict=False)
        for kind in KINDS
    }


def _replace(contents: Mapping[Path, bytes]) -> None:
    """Write each file beside its place, then move all into place; leave nothing on failure."""
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in contents}
    path = Path()
    try:
        for path, content in contents.items():
            temporary[path].write_bytes(content)
        for path in contents:
            temporary[path].replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot write this file: {_reason(error)}") from None
    finally:
        for left in temporary.values():
            _discard(left)


def _discard(path: Path) -> None:
    """Remove a temporary file if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # its folder is not there, or cannot be written: nothing was left in it


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
