"""What a run of an experiment leaves behind: tidy CSV files and a manifest."""

import json
import sys
import time
from pathlib import Path

import pytest

from pdalloc.errors import InputError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments import manifest
from experiments.mixed_fleet import run as mixed_run
from experiments.paper_2603_04716 import run as paper_run
from experiments.results import Value, numbers, read_csv, write_csv

pytestmark = pytest.mark.pipeline


@pytest.mark.parametrize("run", [paper_run, mixed_run])
def test_a_run_writes_every_table_and_the_manifest(run, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "tables", lambda: {"one": [{"a": 1}], "two": [{"b": 2.5}]})
    folder = tmp_path / "experiment" / "results"
    run.main(folder)
    assert {path.name for path in folder.iterdir()} == {"one.csv", "two.csv", "manifest.json"}
    assert json.loads((folder / "manifest.json").read_text("utf-8"))["experiment"] == "experiment"


def test_a_manifest_holds_what_the_experiment_adds_and_nothing_is_hidden(tmp_path):
    path = manifest.write_manifest(tmp_path, 7, time.perf_counter(), {"rows": 3})
    found = json.loads(path.read_text("utf-8"))
    assert (found["seed"], found["rows"]) == (7, 3)
    assert 0.0 <= found["seconds"] < 60.0
    with pytest.raises(InputError, match="seed is written already"):
        manifest.write_manifest(tmp_path, 7, time.perf_counter(), {"seed": 8})


def test_a_manifest_outside_a_checkout_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    path = manifest.write_manifest(tmp_path, 7, time.perf_counter())
    assert json.loads(path.read_text("utf-8"))["git"] == {"commit": None, "dirty": None}


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("experiments/mixed_fleet/results/pairings.csv", True),
        ("experiments/mixed_fleet/results/", True),
        ("experiments/mixed_fleet/run.py", False),
        ("models/pdalloc/results/x.py", False),
    ],
)
def test_results_do_not_make_a_checkout_dirty(path, result):
    assert manifest._is_result(path) is result


def test_csv_round_trip(tmp_path):
    row: dict[str, Value] = {"name": "x", "n": 3, "value_s": 1 / 3, "kept": True, "none": None}
    path = write_csv(tmp_path / "deep" / "t.csv", [row, {**row, "value_s": float("nan")}])
    back = read_csv(path)
    assert back[0] == {"name": "x", "n": "3", "value_s": "0.333333", "kept": "yes", "none": ""}
    values = numbers(back, "value_s")
    assert values[0] == pytest.approx(1 / 3, abs=1e-6)
    assert values[1] != values[1]  # NaN


def test_csv_errors_name_the_file(tmp_path):
    with pytest.raises(InputError, match=r"t\.csv: no rows"):
        write_csv(tmp_path / "t.csv", [])
    with pytest.raises(InputError, match=r"t\.csv: rows differ"):
        write_csv(tmp_path / "t.csv", [{"a": 1}, {"b": 1}])
    with pytest.raises(InputError, match=r"none\.csv: no such file"):
        read_csv(tmp_path / "none.csv")
