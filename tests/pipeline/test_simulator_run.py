"""The simulator's experiment: groups by name, what they need, and a manifest that adds up."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

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
