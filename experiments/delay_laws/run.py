"""How well the delay laws hold: errors of prefill and decode laws, and of ignoring batched prompts.

    python experiments/delay_laws/run.py [group ...]

Writes results/*.csv and results/manifest.json, about ten minutes in all, and gives the package the
table by which it ranks prefill laws. ``dispatch_grid.py`` simulates the reference values that
nobody has published (tests/data/queueing/dispatch_grid.csv); it is run by itself, rarely.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.delay_laws import (
    accuracy,
    batching,
    decode_accuracy,
    end_to_end,
    memory_accuracy,
)
from experiments.groups import Groups, run_groups

RESULTS = Path(__file__).parent / "results"
SEED = 0
GROUPS: Groups = {
    "prefill": (accuracy.tables, ""),
    "decode": (decode_accuracy.tables, ""),
    "end_to_end": (end_to_end.tables, ""),
    "memory": (memory_accuracy.tables, ""),
    "batching": (lambda: {"batching": batching.rows(batching.REQUESTS)}, ""),
}


def main(folder: Path = RESULTS, chosen: Sequence[str] = ()) -> None:
    """Write the tables of the ``chosen`` groups (all, by default) and the manifest."""
    run_groups(folder, SEED, GROUPS, chosen)
    if folder == RESULTS and (not chosen or "prefill" in chosen):
        accuracy.ship(folder)


if __name__ == "__main__":
    main(chosen=sys.argv[1:])
