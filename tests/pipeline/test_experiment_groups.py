"""Experiments in groups: by name, what they need, and a manifest that adds up."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.delay_laws import run as delay_laws
from experiments.groups import run_groups
from experiments.simulator import run as simulator

from pdalloc.errors import InputError

pytestmark = pytest.mark.pipeline

GROUPS = {
    "one": (lambda: {"a": [{"x": 1}], "b": [{"x": 2}]}, ""),
    "two": (lambda: {"c": [{"x": 3}]}, ""),
    "far": (lambda: {"d": [{"x": 4}]}, "PDALLOC_NEVER_SET"),
}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_not_there_is_left_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PDALLOC_NEVER_SET", raising=False)
    folder = tmp_path / "simulator" / "results"
    run_groups(folder, 1, GROUPS)
    assert names(folder) == ["a.csv", "b.csv", "c.csv", "manifest.json"]
    assert "far: left as it is (needs PDALLOC_NEVER_SET)" in capsys.readouterr().out


def test_a_group_alone_keeps_what_the_others_left(tmp_path):
    folder = tmp_path / "simulator" / "results"
    run_groups(folder, 1, GROUPS, ["one"])
    assert names(folder) == ["a.csv", "b.csv", "manifest.json"]
    run_groups(folder, 1, GROUPS, ["two"])
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert set(manifest["groups"]) == {"one", "two"}
    assert set(manifest["groups"]["one"]) == {"commit", "dirty", "seconds"}


def test_an_unknown_group_is_refused(tmp_path):
    with pytest.raises(InputError, match="no group 'fast'; known: one, two, far"):
        run_groups(tmp_path, 1, GROUPS, ["fast"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("run", [simulator, delay_laws], ids=["simulator", "delay_laws"])
def test_the_committed_results_are_those_of_every_group(run):
    manifest = json.loads((run.RESULTS / "manifest.json").read_text("utf-8"))
    assert set(manifest["groups"]) == set(run.GROUPS)
    assert not any(group["dirty"] for group in manifest["groups"].values())
