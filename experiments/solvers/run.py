"""How fast the exact search proves its fleets, beside HiGHS and SCIP.

    python experiments/solvers/run.py [speed] [large_stock] [sweep] [published]
    python experiments/solvers/run.py sweep --cluster tcp://scheduler:8786

Writes results/*.csv and results/manifest.json; all groups take about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.groups import Groups, run_groups
from experiments.results import Row
from experiments.solvers import published, speed, sweep

RESULTS = Path(__file__).resolve().parent / "results"


def groups(cluster: str | None = None) -> Groups:
    """What makes each group's tables, by name."""

    def measured() -> dict[str, list[Row]]:
        rows = speed.speed_rows()
        return {
            "speed": rows,
            "speed_summary": speed.summary_rows(rows),
            "cold_start": speed.cold_start_rows(),
        }

    def large() -> dict[str, list[Row]]:
        rows = speed.large_stock_rows()
        return {"large_stock": rows, "large_stock_summary": speed.summary_rows(rows)}

    return {
        "speed": (measured, ""),
        "large_stock": (large, ""),
        "sweep": (lambda: {"sweep": sweep.sweep_rows(cluster)}, ""),
        "published": (lambda: {"published": published.published_rows()}, ""),
    }


def main() -> None:
    """Write the tables of the groups named on the command line (all, by default)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--cluster", help="address of a dask.distributed scheduler")
    asked = parser.parse_args()
    run_groups(RESULTS, 0, groups(asked.cluster), asked.groups)


if __name__ == "__main__":
    main()
