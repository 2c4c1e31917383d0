"""The committed accuracy table of the decode laws: what it says, and that it keeps the bars."""

from __future__ import annotations

import math
from pathlib import Path

import experiments.delay_laws.decode_accuracy as experiment
import numpy as np
import pytest
from experiments.results import Row, read_csv

RESULTS = Path(experiment.__file__).parent / "results"
CELLS, TABLE = (read_csv(RESULTS / name) for name in ("decode_cells.csv", "decode_accuracy.csv"))


def column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(r[name]) if r[name] else math.nan for r in rows])


def test_bars() -> None:
    """95 % of all cells within 1.5 % on mean TPOT and 5 % on P99 ITL; so of every family with
    at least 20 cells."""
    for row in TABLE:
        if row["bar_percent"] and int(row["cells"]) >= 20:
            assert float(row["share_within_bar"]) >= 0.95, row


def test_means_are_right_to_the_simulations_own_noise() -> None:
    """Nine in ten simulated means agree within twice their 95 % half-width and .3 %."""
    error = np.abs(column(CELLS, "mean_tpot_error_percent"))
    width = column(CELLS, "mean_tpot_half_width_percent")
    assert np.mean(error <= 2.0 * width + 0.3) >= 0.9


def test_the_fluid_law_is_the_baseline_it_is() -> None:
    """Reference notes 2: -9 % at a/b = 10, -2.6 % at 40, -.4 % at 200."""
    for base, low, high in ((10.0, -10.5, -7.0), (40.0, -5.0, -1.0), (200.0, -2.0, 1.0)):
        mine = [r for r in CELLS if r["family"] == "affine" and float(r["base"]) == base]
        errors = column(mine, "fluid_mean_tpot_error_percent")
        assert len(errors) >= 15
        assert low <= float(np.median(errors)) <= high


def test_table_follows_from_the_cells(tmp_path: Path) -> None:
    """Counts and worst cases recomputed from the cells' file."""
    rows: list[Row] = [
        {k: (v if k == "family" else float(v or "nan")) for k, v in r.items() if numeric(k)}
        for r in CELLS
    ]
    again = {(r["family"], r["statistic"]): r for r in experiment.table(rows)}
    for row in TABLE:
        other = again[row["family"], row["statistic"]]
        assert int(row["cells"]) == other["cells"]
        assert float(row["worst_percent"]) == pytest.approx(other["worst_percent"], rel=1e-4)


def numeric(name: str) -> bool:
    return name == "family" or name.endswith("_percent")


def test_every_cell_is_stable_and_named() -> None:
    """Cells are distinct, below full load, and the grid's 111 are among them."""
    keys = [tuple(v for k, v in r.items() if not k.endswith("_percent")) for r in CELLS]
    simulated = list(experiment.cells())
    assert len(keys) == 111 + len(simulated)
    assert len(set(simulated)) == len(simulated)
    assert all(0.0 < cell.rho < 1.0 for cell in simulated)
    families = {r["family"] for r in CELLS}
    assert families == {"affine", "slots", *(cell.family for cell in simulated)}


def test_lengths_have_the_mean_they_say() -> None:
    """Fixed, geometric and lognormal outputs of mean 200, 20, 5 to 2 %; SCV 0, about 1, about 2."""
    from experiments.delay_laws.decode_runs import lengths

    for mean in (200.0, 20.0, 5.0):
        for law in ("fixed", "geometric", "lognormal"):
            assert lengths(law, mean).mean_output == pytest.approx(mean, rel=0.06)
    scv = {}
    for law in ("fixed", "geometric", "lognormal"):
        found = lengths(law)
        scv[law] = found.mean(found.output**2) / found.mean_output**2 - 1.0
    assert scv["fixed"] == 0.0
    assert scv["geometric"] == pytest.approx(1.0, abs=0.05)
    assert scv["lognormal"] == pytest.approx(2.0, abs=0.6)
