"""The simulator on trial: how fast it is, and how it agrees with answers that are not its own.

    python experiments/simulator/run.py [table ...]

Writes results/*.csv and results/manifest.json; half an hour in all. Comparisons with other
people's data need PDALLOC_REFERENCE_DATA, the benchmark of other simulators PDALLOC_PEERS
(experiments/simulator/peers says what has to be there); without them their tables stay as they
are. Names of tables or groups on the command line make those alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.groups import Groups, Tables, run_groups
from experiments.simulator import distserve, diverging, grids, measured_runs, peers, speed

RESULTS = Path(__file__).parent / "results"
SEED = 1


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


GROUPS: Groups = {
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
    """Write the tables of the ``chosen`` groups (all, by default) and the manifest."""
    run_groups(folder, SEED, GROUPS, chosen)


if __name__ == "__main__":
    main(chosen=sys.argv[1:])
