"""A100 and H100 in one fleet: which prefills, which decodes, and at which prices.

    python experiments/mixed_fleet/run.py

Writes results/*.csv and results/manifest.json; a few minutes, of which the simulation that
stands beside the plans is the only part with random numbers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.manifest import write_manifest
from experiments.mixed_fleet import pairings, prices
from experiments.results import Row, write_csv
from experiments.simulated import simulated_rows

from pdalloc.planning.effort import SEED

RESULTS = pairings.FOLDER / "results"


def tables() -> dict[str, list[Row]]:
    """Every table by name."""
    swept = prices.ratio_rows()
    return {
        "pairings": pairings.pairing_rows("mean", pairings.MEAN_TTFT_S),
        "pairings_p90": pairings.pairing_rows("p90", pairings.P90_TTFT_S),
        "llama31": pairings.pairing_rows(
            "mean",
            pairings.LLAMA31_TTFT_S,
            pairings.LLAMA31_TPOT_S,
            {"conversation": None},
            pairings.LLAMA31,
        ),
        "price_ratio": swept,
        "price_switch": prices.switch_rows(prices.CASES, swept),
        "simulated": simulated_rows(pairings.SPLITWISE, pairings.TRACES.values()),
    }


def main(folder: Path = RESULTS) -> None:
    """Write every table, then the manifest, to ``folder``."""
    started = time.perf_counter()
    for name, rows in tables().items():
        print(write_csv(folder / f"{name}.csv", rows).name)
    write_manifest(folder, SEED, started, {"random_numbers": ["simulated.csv"]})


if __name__ == "__main__":
    main()
