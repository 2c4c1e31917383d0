"""Delay laws against the event simulator, which shares no formula with them.

Each mean lies within its law's stated error and twice the interval over replications.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from experiments.delay_laws import accuracy, batching
from experiments.delay_laws.accuracy import SHIPPED
from experiments.delay_laws.dispatch_grid import Cell, cells, key, row, waits
from experiments.delay_laws.services import tokens
from experiments.results import write_csv

from pdalloc.queueing.delay_laws import delay_law
from pdalloc.queueing.station import Station
from pdalloc.simulation.statistics import interval

REQUESTS = 40_000
REPLICATIONS = 8


def law_of(cell: Cell) -> Station:
    dispatch, name, c, rho, scv = cell
    return Station(rho * c, tokens(name)[1], c, scv, dispatch)


@pytest.mark.parametrize(
    ("cell", "stated"),
    [
        (("random", "EMP", 4, 0.7, 1.0), 0.0),
        (("random", "M", 4, 0.6, 4.0), 0.0),
        (("round_robin", "M", 4, 0.7, 1.0), 0.0),
        (("round_robin", "EMP", 8, 0.7, 4.0), 0.0),
        (("central_queue", "D", 4, 0.8, 1.0), 0.0),
        (("central_queue", "EMP", 4, 0.8, 1.0), 0.03),
        (("central_queue", "H2_4", 8, 0.7, 1.0), 0.06),
        (("central_queue", "UNI", 6, 0.8, 1.0), 0.02),
        (("least_loaded", "M", 4, 0.8, 1.0), 0.05),
        (("least_loaded", "EMP", 2, 0.7, 1.0), 0.03),
    ],
    ids=str,
)
def test_mean_wait_and_p_wait(cell: Cell, stated: float) -> None:
    law = delay_law(law_of(cell))
    runs = [waits(cell, REQUESTS, i) for i in range(REPLICATIONS)]
    mean, half = interval([float(w.mean()) for w in runs])
    assert law.mean_wait == pytest.approx(mean, abs=2 * half + stated * mean)
    share, half = interval([float((w > 1e-6).mean()) for w in runs])
    assert law.p_wait == pytest.approx(share, abs=2 * half + 0.03 * share)


@pytest.mark.parametrize(
    "cell", [("central_queue", "EMP", 8, 0.85, 1.0), ("random", "D", 4, 0.7, 1.0)], ids=str
)
def test_percentiles(cell: Cell) -> None:
    law = delay_law(law_of(cell))
    runs = [waits(cell, REQUESTS, i) for i in range(REPLICATIONS)]
    for p in (0.75, 0.9, 0.99):
        found, half = interval([float(np.quantile(w, p)) for w in runs])
        assert law.wait.quantile(p) == pytest.approx(found, abs=2 * half + 0.05 * found)


def test_a_row_of_the_grid_says_what_was_run() -> None:
    cell: Cell = ("least_loaded", "M", 2, 0.5, 1.0)
    assert cell in set(cells())
    grid = Path(accuracy.GRIDS) / "dispatch_grid.csv"
    with grid.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [key(r) for r in rows] == list(cells())
    known = next(r for r in rows if key(r) == cell)
    # the ratio of least assigned work to one queue is above 1, its interval narrower than both
    assert float(known["ratio"]) > 1.0 > float(known["ratio_ci"]) / float(known["EW_ci"])


@pytest.mark.slow
def test_a_row_can_be_made_again() -> None:
    made = row(("random", "M", 4, 0.5, 1.0))
    assert float(made["EW"] or 0) == pytest.approx(1.0, abs=2 * float(made["EW_ci"] or 0))


@pytest.mark.slow
def test_the_shipped_table_is_what_the_experiment_makes(tmp_path: Path) -> None:
    write_csv(tmp_path / "accuracy.csv", accuracy.tables()["accuracy"])
    with (tmp_path / "accuracy.csv").open() as made, SHIPPED.open() as shipped:
        for new, old in zip(csv.DictReader(made), csv.DictReader(shipped), strict=True):
            assert (new["law"], new["regime"], new["cells"]) == (
                old["law"],
                old["regime"],
                old["cells"],
            )
            for column in ("median_percent", "p95_percent", "worst_percent"):
                assert float(new[column]) == pytest.approx(float(old[column]), rel=0.02, abs=0.02)


def test_batching_without_room_is_one_prompt_per_pass() -> None:
    """A budget of a hundredth of a mean prompt: every pass holds one, and the law is near."""
    runs = [batching.stays(0.0, 0.01, 0.7 * batching.SERVERS, REQUESTS, i) for i in range(6)]
    mean, half = interval([float(r.mean()) for r in runs])
    assert batching.law_stay(0.0, 0.7 * batching.SERVERS)[0] == pytest.approx(
        mean, abs=2 * half + 0.02 * mean
    )


def test_batching_helps_only_where_a_pass_has_a_base_time() -> None:
    """Without a base time sharing a pass only delays; with one it saves it."""

    def gain(base: float) -> float:
        rate = 0.8 * batching.SERVERS
        one, many = (
            np.mean([batching.stays(base, budget, rate, 10_000, i).mean() for i in range(4)])
            for budget in (0.01, 4.0)
        )
        return float(1 - many / one)

    assert gain(0.0) < 0.0 < gain(0.3)
