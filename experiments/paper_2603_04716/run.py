"""The case of arXiv 2603.04716: its numbers, ours, and its cluster's measurements.

    python experiments/paper_2603_04716/run.py

Writes results/*.csv and results/manifest.json; a minute, most of it the simulation beside the
plans, which is the only part with random numbers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.manifest import write_manifest
from experiments.paper_2603_04716 import plans, predictions
from experiments.results import Row, write_csv
from experiments.simulated import simulated_rows

from pdalloc.planning.effort import SEED

RESULTS = predictions.FOLDER / "results"


def tables() -> dict[str, list[Row]]:
    """Every table by name."""
    points = predictions.measured_points()
    return {
        "service_law": predictions.service_law(points),
        "prediction": predictions.predictions(points),
        "prediction_worst": predictions.worst_errors(points),
        "calibration": predictions.calibration(points),
        "fleets": plans.fleet_rows(),
        "paper": plans.paper_rows(),
        "sweep": plans.sweep_rows(plans.sweep_demands()),
        "simulated": simulated_rows(predictions.SCENARIO, (plans.BENCH, plans.CALIBRATED)),
    }


def main(folder: Path = RESULTS) -> None:
    """Write every table, then the manifest, to ``folder``."""
    started = time.perf_counter()
    for name, rows in tables().items():
        print(write_csv(folder / f"{name}.csv", rows).name)
    write_manifest(folder, SEED, started, {"random_numbers": ["simulated.csv"]})


if __name__ == "__main__":
    main()
