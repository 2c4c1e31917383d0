"""The command as a user or a script runs it: exit codes, one line of stderr, clean JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdalloc.cli import main
from pdalloc.planning import Answer

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml")
MIXED = str(ROOT / "experiments" / "mixed_fleet" / "scenario.yaml")


Command = Callable[..., "Done"]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def process(*arguments: str, cwd: Path | None = None) -> Done:
    """The command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "models"), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", "from pdalloc.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """The command in this process, in an empty folder; whatever libraries print is seen too."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["pdalloc", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


ERRORS = [  # arguments, words of the one line
    (["plan", "none.yaml"], ["none.yaml", "No such file"]),
    (["plan", PAPER, "--variant", "calibrate"], ["calibrate", "bench_curve, calibrated"]),
    (["plan", PAPER, "--set", "traffic.0.rate=5"], ["traffic.0.rate", "unit"]),
    (["plan", PAPER, "--set", "foo"], ["path=value"]),
    (["plan", PAPER, "--owned", "3X"], ["3P4D"]),
    (["plan", PAPER, "--solver", "magic"], ["magic", "exact"]),
    (["plan", MIXED, "--solver", "paper"], ["one replica type", "--solver exact"]),
    (["plan", PAPER, "--json", "no/such/folder/answer.json"], ["answer.json"]),
    (["plan", PAPER, "--json", ""], []),
    (["plan", PAPER, "--validate", "--seed", "-1"], ["seed"]),
    (["evaluate", PAPER, "--fleet", "4P"], ["3P4D"]),
    (["evaluate", MIXED, "--fleet", "3P4D"], ["prefill/a100x8=3"]),
    (["check", "none.yaml"], ["none.yaml"]),
    (["catalog", "gpus", "h2000"], ["h2000", "h200"]),
    (["schema", "fleet"], ["scenario, answer"]),
]


@pytest.mark.parametrize(("arguments", "words"), ERRORS, ids=lambda x: " ".join(x)[-40:])
def test_errors_are_one_line_and_exit_2(
    command: Command, arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("pdalloc: error: ")
    assert all(word in done.stderr for word in words)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_process(tmp_path: Path) -> None:
    done = process("plan", "none.yaml", "--json", "answer.json", cwd=tmp_path)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert len(done.stderr.splitlines()) == 1


def test_plan_as_json_on_stdout() -> None:
    """stdout is the JSON answer and nothing else; success says nothing on stderr."""
    done = process("plan", PAPER, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    answer = Answer.model_validate(json.loads(done.stdout))
    assert (answer.status, answer.xpyd) == ("optimal", "4P4D")


@pytest.mark.parametrize("solver", ["cvxpy", "pyomo"])
def test_a_solvers_own_banner_never_reaches_stdout(command: Command, solver: str) -> None:
    done = command("plan", PAPER, "--json", "-", "--solver", solver)
    assert done.returncode == 0
    assert json.loads(done.stdout)["xpyd"] == "4P4D"


def test_json_file_and_table(command: Command, tmp_path: Path) -> None:
    done = command("plan", PAPER, "--json", "answer.json", "--variant", "calibrated")
    assert (done.returncode, done.stderr) == (0, "")
    assert "4P5D" in done.stdout
    assert json.loads((tmp_path / "answer.json").read_text())["xpyd"] == "4P5D"


def test_out_writes_a_folder(command: Command, tmp_path: Path) -> None:
    assert command("plan", PAPER, "--out", "report").returncode == 0
    assert json.loads((tmp_path / "report" / "answer.json").read_text())["xpyd"] == "4P4D"


def test_infeasible_prints_its_answer_and_exits_2(command: Command) -> None:
    """The JSON carries the reason; stderr repeats it in one line."""
    done = command("plan", PAPER, "--set", "traffic.0.slo.ttft.mean=250 ms", "--json", "-")
    answer = json.loads(done.stdout)
    assert done.returncode == 2
    assert answer["status"] == "infeasible"
    assert "317 ms" in answer["reason"]
    assert done.stderr.splitlines() == [f"pdalloc: infeasible: {answer['reason']}"]


def test_evaluate_names_the_broken_slo(command: Command) -> None:
    done = command("evaluate", PAPER, "--fleet", "3P4D", "--json", "-")
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    kept = {slo["metric"]: slo["kept"] for slo in answer["slos"]}
    assert kept == {"ttft": False, "tpot": True}


@pytest.mark.parametrize("fleet", ["4P1D", "1P4D"])
def test_an_overloaded_fleet_is_an_answer(command: Command, fleet: str) -> None:
    done = command("evaluate", PAPER, "--fleet", fleet, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert [slo["predicted_s"] for slo in answer["slos"]] == [None, None]
    assert "more than" in answer["reason"]


@pytest.mark.parametrize(("scenario", "lines"), [(PAPER, 3), (MIXED, 7)])
def test_check_lists_every_variant(command: Command, scenario: str, lines: int) -> None:
    done = command("check", scenario)
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(": ok" in line for line in done.stdout.splitlines()) == lines


@pytest.mark.parametrize("what", ["scenario", "answer"])
def test_schema_is_json_schema(command: Command, what: str) -> None:
    schema = json.loads(command("schema", what).stdout)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False


def test_same_question_same_answer(command: Command) -> None:
    """No clock, path or order reaches the numbers."""
    first, second = (
        json.loads(command("plan", MIXED, "--alternatives", "2", "--json", "-").stdout)
        for _ in range(2)
    )
    assert first == second


def test_help_is_quick_and_names_the_commands() -> None:
    """Start-up bar: 0.5 s on a free core (best of three; doubled for busy machines)."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = process("--help")
        times.append(time.perf_counter() - start)
    assert done.returncode == 0
    for name in ("plan", "evaluate", "check", "catalog", "schema"):
        assert name in done.stdout
    assert min(times) < 1.0


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom pdalloc.cli import app\n"
        "heavy = {'numpy', 'scipy', 'pandas', 'matplotlib', 'pydantic', 'yaml', 'pint', 'cvxpy'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "models")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "[]"
