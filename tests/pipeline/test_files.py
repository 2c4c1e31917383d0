"""Results are written whole or not at all, and trouble is one clear line."""

import json
import sys
from pathlib import Path

import pytest

from pdalloc import cli
from pdalloc.errors import InputError
from pdalloc.planning import evaluate, plan
from pdalloc.planning.answer import Answer
from pdalloc.report import files, style
from pdalloc.report.files import check_writable, write_outputs, write_text
from pdalloc.scenario import Scenario, load_scenario

PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper_2603_04716" / "scenario.yaml"
FIGURES = {
    f"{name}.{kind}"
    for name in ("cost_against_demand", "latency_against_demand")
    for kind in ("png", "pdf")
}
pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(PAPER)


@pytest.fixture(scope="module")
def answer(scenario: Scenario) -> Answer:
    return plan(scenario)


@pytest.fixture(scope="module")
def infeasible() -> tuple[Scenario, Answer]:
    impossible = load_scenario(PAPER, overrides=["traffic.0.slo.ttft.mean=250 ms"])
    return impossible, plan(impossible)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def failing_replace(self: Path, target: Path) -> None:
    raise OSError(28, "No space left on device")


# write_text


def test_text_is_written_as_utf_8(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "µ = 4.6 req/s\n")
    assert (tmp_path / "a.json").read_bytes() == "µ = 4.6 req/s\n".encode()
    assert names(tmp_path) == {"a.json"}


def test_text_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("old and longer")
    write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "new"


def test_the_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "x")
    (tmp_path / "b.json").write_text("x")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "b.json").stat().st_mode


def test_failure_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")
    monkeypatch.setattr(Path, "replace", failing_replace)
    with pytest.raises(InputError, match=r"a\.json: cannot write this file: No space left"):
        write_text(target, "new")
    assert target.read_text() == "old"
    assert names(tmp_path) == {"a.json"}


def test_a_disk_that_fills_up_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(InputError, match="No space left"):
        write_text(tmp_path / "a.json", "new")
    assert not names(tmp_path)


@pytest.mark.parametrize("place", ["missing/a.json", "file/a.json", "folder"])
def test_places_that_cannot_be_written_are_named_in_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError) as caught:
        write_text(tmp_path / place, "new")
    assert str(tmp_path / place) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == {"file", "folder"}


# write_outputs


def test_the_folder_holds_the_answer_and_both_figures(
    tmp_path: Path, scenario: Scenario, answer: Answer
) -> None:
    out = tmp_path / "new" / "folder"
    write_outputs(scenario, answer, out)
    assert names(out) == {"answer.json", *FIGURES}
    text = (out / "answer.json").read_text()
    assert text == answer.to_json() + "\n"
    read = json.loads(text)
    assert (read["xpyd"], read["cost_usd_per_hour"]) == ("4P4D", pytest.approx(229.76))
    assert Answer.model_validate(read) == answer
    for name in FIGURES:
        start = {"png": b"\x89PNG", "pdf": b"%PDF"}[name.rsplit(".")[-1]]
        assert (out / name).read_bytes().startswith(start)


def test_the_same_plan_writes_the_same_bytes(
    tmp_path: Path, scenario: Scenario, answer: Answer
) -> None:
    for folder in ("one", "two"):
        write_outputs(scenario, answer, tmp_path / folder)
    for name in ("answer.json", *FIGURES):
        one, two = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
        assert one == two


def test_an_infeasible_answer_is_only_its_json(
    tmp_path: Path, infeasible: tuple[Scenario, Answer]
) -> None:
    write_outputs(*infeasible, tmp_path)
    assert names(tmp_path) == {"answer.json"}
    read = json.loads((tmp_path / "answer.json").read_text())
    assert read["status"] == "infeasible" and "317 ms" in read["reason"]


def test_figures_of_an_earlier_plan_go_when_the_answer_is_infeasible(
    tmp_path: Path, scenario: Scenario, answer: Answer, infeasible: tuple[Scenario, Answer]
) -> None:
    write_outputs(scenario, answer, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    write_outputs(*infeasible, tmp_path)
    assert names(tmp_path) == {"answer.json", "notes.txt"}


def test_a_fleet_that_breaks_an_slo_gets_figures_too(tmp_path: Path, scenario: Scenario) -> None:
    """Where it breaks is what one wants to see."""
    write_outputs(scenario, evaluate(scenario, "3P4D"), tmp_path)
    assert names(tmp_path) > {"answer.json"}


def test_nothing_is_written_when_drawing_fails(
    tmp_path: Path, scenario: Scenario, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(figure: object, kind: str) -> bytes:
        raise InputError("no ink")

    monkeypatch.setattr(style, "figure_bytes", broken)
    with pytest.raises(InputError, match="no ink"):
        write_outputs(scenario, answer, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_when_one_file_cannot_be(
    tmp_path: Path, scenario: Scenario, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "figure_files", lambda scenario, answer: {"a.png": b"x"})
    (tmp_path / "answer.json").write_text("old")
    written: list[Path] = []

    def second_fails(self: Path, data: bytes) -> int:
        written.append(self)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        with self.open("wb") as file:
            return file.write(data)

    monkeypatch.setattr(Path, "write_bytes", second_fails)
    with pytest.raises(InputError, match=r"a\.png: cannot write this file"):
        write_outputs(scenario, answer, tmp_path)
    assert names(tmp_path) == {"answer.json"}
    assert (tmp_path / "answer.json").read_text() == "old"


def test_a_file_in_place_of_the_folder_is_one_clear_line(
    tmp_path: Path, infeasible: tuple[Scenario, Answer]
) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="out: cannot make this folder: File exists"):
        write_outputs(*infeasible, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "a file"


# The command line


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit code of ``pdalloc`` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["pdalloc", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("option", ["--out", "--json"])
def test_unwritable_places_are_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    (tmp_path / "file").write_text("x")
    code = run(monkeypatch, "plan", str(PAPER), option, str(tmp_path / "file" / "x"))
    shown = capsys.readouterr()
    assert code == 2
    assert shown.err.count("\n") == 1 and shown.err.startswith("pdalloc: error: ")
    assert "file/x" in shown.err and "Traceback" not in shown.err
    assert names(tmp_path) == {"file"}


def test_json_to_standard_output_is_nothing_but_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "plan", str(PAPER), "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["xpyd"] == "4P4D"


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    check_writable([tmp_path / "a.json", tmp_path / "log.csv"], tmp_path / "new" / "out")
    check_writable([], None)
    (tmp_path / "file").write_text("x")
    for wanted, folder, words in (
        ([tmp_path / "no" / "a.json"], None, "its folder is not there"),
        ([tmp_path], None, "it is a folder"),
        ([], tmp_path / "file" / "out", "cannot make this folder"),
    ):
        with pytest.raises(InputError, match=words):
            check_writable(wanted, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
