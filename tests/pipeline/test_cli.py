"""The command as a user or a script runs it: exit codes, one line of stderr, clean JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdalloc.planning import Answer
from pdalloc.planning.simulation_answer import SimulationAnswer
from pdalloc.simulation import fast

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml")
MIXED = str(ROOT / "experiments" / "mixed_fleet" / "scenario.yaml")


Command = Callable[..., Any]
"""The fixture ``command``: arguments to how the command ended."""


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "models"), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", "from pdalloc.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=120,
        check=False,
    )


SIMULATE = ["simulate", PAPER, "--fleet", "4P4D", "--requests", "300", "--replications", "2"]
COLOCATED = "simulation.colocated={policy: chunked}"
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
    (["schema", "fleet"], ["scenario, answer, dedicated"]),
    (["simulate", "none.yaml", "--fleet", "3P4D"], ["none.yaml", "No such file"]),
    (["simulate", PAPER], ["--fleet"]),
    (["simulate", PAPER, "--fleet", "4P"], ["3P4D"]),
    (["simulate", PAPER, "--fleet", "0P4D"], ["no prefill replica"]),
    (["simulate", MIXED, "--fleet", "3P4D"], ["prefill/a100x8=3"]),
    (["simulate", PAPER, "--fleet", "4P4D", "--engine", "gpu"], ["gpu", "fast, reference"]),
    (["simulate", PAPER, "--fleet", "4P4D", "--requests", "0"], ["--requests", "1"]),
    (["simulate", PAPER, "--fleet", "4P4D", "--replications", "1"], ["--replications", "2"]),
    (["simulate", PAPER, "--fleet", "4P4D", "--seed", "-1"], ["seed"]),
    (["simulate", PAPER, "--fleet", "4P4D", "--json", ""], ["--json", "stdout"]),
    ([*SIMULATE, "--set", "simulation.kv.watermark=2"], ["simulation.kv", "[0, 1)"]),
    ([*SIMULATE, "--set", "traffic.0.arrivals={process: burst}"], ["arrivals.process", "bursts"]),
    ([*SIMULATE, "--set", COLOCATED], ["co-located", "type=replicas"]),
    (["plan", PAPER, "--set", COLOCATED], ["co-located", "pdalloc simulate"]),
    (["plan", PAPER, "--repair", "--set", COLOCATED], ["co-located", "pdalloc simulate"]),
    (["plan", PAPER, "--validate", "--replications", "1"], ["--replications", "2"]),
    ([*SIMULATE, "--json", "no/such/folder/simulation.json"], ["simulation.json"]),
    ([*SIMULATE, "--log", "no/such/folder/log.csv"], ["log.csv"]),
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
    assert "it takes at least" in answer["reason"]


@pytest.mark.parametrize(("scenario", "lines"), [(PAPER, 3), (MIXED, 8)])
def test_check_lists_every_variant(command: Command, scenario: str, lines: int) -> None:
    done = command("check", scenario)
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(": ok" in line for line in done.stdout.splitlines()) == lines


@pytest.mark.parametrize("what", ["scenario", "answer", "simulation"])
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
    for name in ("plan", "evaluate", "simulate", "check", "catalog", "schema"):
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


# simulate.


def test_simulate_prints_tables_and_exits_0(command: Command, tmp_path: Path) -> None:
    done = command(*SIMULATE)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("4P4D on 64 x h200", "SLOs", "Latencies", "Pools", "Attainment", "goodput"):
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_simulate_as_json_on_stdout(command: Command, engine: str) -> None:
    """The JSON and nothing else, also where it warns."""
    done = command(*SIMULATE, "--json", "-", "--engine", engine, "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    answer = SimulationAnswer.model_validate(json.loads(done.stdout))
    assert answer.warnings and answer.produced_by["seed"] == 3
    assert (answer.requests, answer.replications, answer.xpyd) == (300, 2, "4P4D")


def test_simulate_writes_json_log_and_folder(command: Command, tmp_path: Path) -> None:
    done = command(*SIMULATE, "--json", "a.json", "--log", "log.csv", "--out", "report")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "log.csv", "report"}
    answer = json.loads((tmp_path / "a.json").read_text())
    assert json.loads((tmp_path / "report" / "simulation.json").read_text()) == answer
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "simulation.json", "simulation.png", "simulation.pdf"
    }  # fmt: skip
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert len(rows) == 300 and "ttft_s" in header.split(",")


def test_simulate_takes_co_located_fleets(command: Command) -> None:
    arguments = [*SIMULATE, "--set", COLOCATED, "--json", "-"]
    arguments[arguments.index("4P4D")] = "7"
    done = command(*arguments)
    assert done.returncode == 0
    assert (json.loads(done.stdout)["fleet"], json.loads(done.stdout)["xpyd"]) == ("h200x8=7", None)


@pytest.mark.parametrize(("runs", "written"), [(2, ["a.json"]), (1, [])])
def test_a_stopped_simulation_exits_130(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: int, written: list[str]
) -> None:
    """With two replications done their answer is written; with fewer there is none."""
    replay = fast.replay
    done: list[int] = []

    def run(*arguments: Any, **more: Any) -> Any:
        if len(done) == runs:
            raise KeyboardInterrupt
        done.append(1)
        return replay(*arguments, **more)

    monkeypatch.setattr(fast, "replay", run)
    stopped = command(*SIMULATE, "--replications", "5", "--json", "a.json")
    assert stopped.returncode == 130
    assert stopped.stderr.strip() == ""
    assert [path.name for path in tmp_path.iterdir()] == written
    if written:
        answer = SimulationAnswer.model_validate_json((tmp_path / "a.json").read_text())
        assert answer.interrupted and "stopped after 2 of 5" in " ".join(stopped.stdout.split())


def test_plan_simulates_as_much_as_asked(command: Command) -> None:
    effort = ["--requests", "2000", "--replications", "3", "--json", "-"]
    plain, judged = (
        json.loads(command("plan", PAPER, *more, *effort).stdout) for more in ([], ["--validate"])
    )
    assert [slo["simulated_s"] for slo in plain["slos"]] == [None, None]
    assert all(slo["simulated_verdict"] for slo in judged["slos"])
    assert judged["fleet"] == plain["fleet"] and len(judged["warnings"]) >= len(plain["warnings"])


def test_repair_adds_what_the_simulation_lacks(command: Command) -> None:
    """A decode replica half as fast as its kind: 4P4D as planned breaks TPOT."""
    slow = "simulation.slow=[{role: decode, replica: 0, factor: 2}]"
    effort = ["--requests", "3000", "--replications", "4", "--set", slow, "--json", "-"]
    done = command("plan", PAPER, "--repair", *effort)
    assert (done.returncode, done.stderr) == (0, "")
    answer = Answer.model_validate(json.loads(done.stdout))
    assert {slo.simulated_verdict for slo in answer.slos} == {"keeps"}
    assert answer.details["repaired_from"] == "4P4D" and (answer.cost_usd_per_hour or 0) > 229.76


HELP = {
    "simulate": ["--fleet", "--requests", "--replications", "--engine", "--seed", "--json", "--out",
                 "--log", "--set", "--variant", "located: h200x8=7", "goodput"],
    "plan": ["--validate", "--repair", "--requests", "--replications", "--seed"],
    "evaluate": ["--validate", "--requests", "--replications", "--seed"],
}  # fmt: skip


@pytest.mark.parametrize("name", HELP)
def test_help_names_the_options(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert all(word in text for word in HELP[name])
