"""The simulator's experiment: groups by name, what they need, and a manifest that adds up."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import read_csv
from experiments.simulator import run

from pdalloc.errors import InputError

pytestmark = pytest.mark.pipeline

RESULTS = Path(run.__file__).parent / "results"


@pytest.fixture
def groups(monkeypatch):
    monkeypatch.delenv("PDALLOC_NEVER_SET", raising=False)
    made = {
        "one": (lambda: {"a": [{"x": 1}], "b": [{"x": 2}]}, ""),
        "two": (lambda: {"c": [{"x": 3}]}, ""),
        "far": (lambda: {"d": [{"x": 4}]}, "PDALLOC_NEVER_SET"),
    }
    monkeypatch.setattr(run, "GROUPS", made)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_not_there_is_left_as_it_is(groups, tmp_path, capsys):
    folder = tmp_path / "simulator" / "results"
    run.main(folder)
    assert names(folder) == ["a.csv", "b.csv", "c.csv", "manifest.json"]
    assert "far: left as it is (needs PDALLOC_NEVER_SET)" in capsys.readouterr().out


def test_a_group_alone_keeps_what_the_others_left(groups, tmp_path, monkeypatch):
    folder = tmp_path / "simulator" / "results"
    run.main(folder, ["one"])
    assert names(folder) == ["a.csv", "b.csv", "manifest.json"]
    run.main(folder, ["two"])
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert set(manifest["groups"]) == {"one", "two"}
    assert set(manifest["groups"]["one"]) == {"commit", "dirty", "seconds"}


def test_an_unknown_group_is_refused(tmp_path):
    with pytest.raises(InputError, match="no group 'fast'; known: diverging, speed, peers"):
        run.main(tmp_path, ["fast"])
    assert not list(tmp_path.iterdir())


def test_the_committed_results_are_those_of_every_group():
    manifest = json.loads((RESULTS / "manifest.json").read_text("utf-8"))
    assert set(manifest["groups"]) == set(run.GROUPS)
    assert not any(group["dirty"] for group in manifest["groups"].values())


def test_the_readme_says_what_the_results_say():
    text = (RESULTS.parents[2] / "README.md").read_text("utf-8").replace("\n", " ")
    fleets = read_csv(RESULTS / "speed_fleets.csv")
    speed = {
        row["fleet"]: float(row["all_percentiles_requests_per_cpu_s"])
        for row in fleets
        if row["decode_step"] == "affine"
    }
    for fleet in ("4P4D", "64P64D"):
        (said,) = re.findall(rf"([0-9.]+) million (?:requests per CPU-second )?at {fleet}", text)
        assert float(said) == round(speed[fleet] / 1e6, 1)
    peers = [row for row in read_csv(RESULTS / "peers.csv") if row["models"] == "P/D"]
    assert len(peers) >= 3 and all(row["status"] == "run" for row in peers)
    (said,) = re.findall(r"at least ([0-9,]+) times as many as any public P/D simulator", text)
    least = min(float(row["ratio"]) for row in peers)
    assert int(said.replace(",", "")) == int(least // 100 * 100) >= 100
    options = [
        float(row["all_percentiles_requests_per_cpu_s"])
        for row in read_csv(RESULTS / "speed_options.csv")
        if row["option"] != "none"
    ]
    (low, high) = re.findall(r"with options ([0-9.]+) to ([0-9.]+) million", text)[0]
    assert (float(low), float(high)) == (round(min(options) / 1e6, 2), round(max(options) / 1e6, 1))
    (most,) = re.findall(r"simulator to ([0-9e-]+) ms", text)
    errors = [float(row["greatest_error_ms"]) for row in read_csv(RESULTS / "distserve.csv")[:3]]
    assert max(errors) <= float(most)
    (percent,) = re.findall(r"real co-located runs within (\d+) % in mean", text)
    means = [
        abs(float(row["error_percent"]))
        for row in read_csv(RESULTS / "measured_runs.csv")
        if (row["requests"], row["statistic"]) == ("left out", "mean")
        and row["metric"] in ("ttft", "tpot", "e2e")
    ]
    assert means and max(means) <= float(percent)
