"""The simulator on trial: how fast it is, and how it agrees with answers that are not its own.

    python experiments/simulator/run.py [table ...]

Writes results/*.csv and results/manifest.json; half an hour in all. Comparisons with other
people's data need PDALLOC_REFERENCE_DATA, the benchmark of other simulators PDALLOC_PEERS
(experiments/simulator/peers says what has to be there); without them their tables stay as they
are. Names of tables or groups on the command line make those alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.manifest import commit, write_manifest
from experiments.results import Row, write_csv
from experiments.simulator import distserve, diverging, grids, measured_runs, peers, speed

from pdalloc.errors import InputError

RESULTS = Path(__file__).parent / "results"
SEED = 1
Tables = Mapping[str, Sequence[Row]]


def diverging_tables() -> Tables:
    """A published fleet under its own constants."""
    return {
        "diverging_backlog": diverging.backlog_rows(SEED),
        "diverging_fleets": diverging.fleet_rows(SEED),
    }


def speed_tables() -> Tables:
    """Requests per CPU-second: by fleet, by option, by length of the run; compilation apart."""
    return {
        "speed_fleets": speed.size_rows(),
        "speed_options": speed.option_rows(),
        "speed_requests": speed.cost_rows(),
        "speed_compile": speed.compile_rows(),
    }


def peer_tables() -> Tables:
    """Other simulators in the same run."""
    return {"peers": peers.rows()}


def grid_tables() -> Tables:
    """Exact and long-run values of queues."""
    found = grids.rows(_reference() / "queueing", SEED)
    named = {f"grid_{name}": rows for name, rows in found.items()}
    return {**named, "grids": grids.summary_rows(found)}


def outside_tables() -> Tables:
    """Another simulator's answers, and real runs."""
    measured = measured_runs.rows(_reference())
    return {
        "distserve": distserve.rows(_reference()),
        "measured_runs": measured["measured"],
        "measured_fits": measured["fits"],
    }


GROUPS: Mapping[str, tuple[Callable[[], Tables], str]] = {
    "diverging": (diverging_tables, ""),
    "speed": (speed_tables, ""),
    "peers": (peer_tables, "PDALLOC_PEERS"),
    "grids": (grid_tables, "PDALLOC_REFERENCE_DATA"),
    "outside": (outside_tables, "PDALLOC_REFERENCE_DATA"),
}
"""Groups of tables and the variable that each needs."""


def _reference() -> Path:
    return Path(os.environ["PDALLOC_REFERENCE_DATA"])


def main(folder: Path = RESULTS, chosen: Sequence[str] = ()) -> None:
    """Write the tables of the ``chosen`` groups (all, by default), then the manifest.

    The manifest keeps, for each group, the commit and the seconds of the run that made it.
    """
    unknown = sorted(set(chosen) - set(GROUPS))
    if unknown:
        raise InputError(f"no group {unknown[0]!r}; known: {', '.join(GROUPS)}")
    started, made = time.perf_counter(), _made_before(folder)
    for name, (make, variable) in GROUPS.items():
        if chosen and name not in chosen:
            continue
        if variable and variable not in os.environ:
            print(f"{name}: left as it is (needs {variable})")
            continue
        begun = time.perf_counter()
        for table, rows in make().items():
            print(write_csv(folder / f"{table}.csv", list(rows)).name)
        made[name] = {**commit(), "seconds": round(time.perf_counter() - begun, 1)}
        write_manifest(folder, SEED, started, {"groups": made})


def _made_before(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")).get("groups", {})
    return found


if __name__ == "__main__":
    main(chosen=sys.argv[1:])
