"""All solvers on one scenario: what is said of each, whatever it did, and what is written."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers import solvers
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.planning import Effort
from pdalloc.planning import compare as module_or_function
from pdalloc.planning.compare import CompareAnswer, SolverAnswer, compare
from pdalloc.report.compare_figure import compare_figure
from pdalloc.report.compare_table import compare_csv, print_compare
from pdalloc.scenario import Scenario, load_scenario

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml")
BASELINES = ["greedy", "one_to_one", "proportional", "golden", "fixed_point", "paper"]


@pytest.fixture(scope="module")
def paper() -> Scenario:
    return load_scenario(PAPER)


@pytest.fixture(scope="module")
def compared(paper: Scenario) -> CompareAnswer:
    return compare(paper, ratios=["1:3"])


def row(answer: CompareAnswer, name: str) -> SolverAnswer:
    (found,) = [r for r in answer.solvers if r.solver == name]
    return found


def text_of(answer: CompareAnswer, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_compare(answer, console)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_every_solver_has_a_row(compared: CompareAnswer) -> None:
    assert {r.solver for r in compared.solvers} == {*solvers(), "ratio 1:3"}


def test_the_papers_case(compared: CompareAnswer) -> None:
    """4P4D at 8 x 3.59 USD/h each is proven; 3P4D, a replica less, breaks TTFT (2.40 s)."""
    replica = 8 * 3.59
    assert compared.proven and compared.bound_usd_per_hour == pytest.approx(8 * replica)
    for name, solver in solvers().items():
        if solver.exact and not name.endswith("misocp"):  # no cone: SLOs of one stage each
            assert (row(compared, name).status, row(compared, name).gap) == ("optimal", 0.0)
    broken = row(compared, "paper")
    assert (broken.status, broken.xpyd) == ("breaks", "3P4D") and "TTFT mean 2.403" in broken.reason
    assert broken.gap == pytest.approx(-1 / 8)
    assert row(compared, "ratio 1:3").gap == pytest.approx(14 / 8 - 1.0)  # 4P10D


def test_the_relaxation_tells_its_bound(compared: CompareAnswer) -> None:
    """lambda c/kappa in each role: at least 3 P and 3 D of 8 x 3.59 USD/h, no more than 4 and 4."""
    found = row(compared, "cvxpy_relaxation")
    bound = float(found.details["relaxation_usd_per_hour"])
    counts = [float(found.details[f"count[{r}/h200x8]"]) for r in ("prefill", "decode")]
    assert bound == pytest.approx(8 * 3.59 * sum(counts), rel=1e-6)
    assert all(3.0 < n <= 4.0 for n in counts)
    line = f"fractional replicas would cost {bound:.2f} USD/h (prefill/h200x8 {counts[0]:.2f}"
    assert line in " ".join(text_of(compared, 400).split())


def test_nothing_that_keeps_the_slos_is_below_the_bound(compared: CompareAnswer) -> None:
    for r in compared.solvers:
        assert r.keeps == (r.fleet is not None and all(s.kept for s in r.slos))
        assert not r.keeps or (r.gap or 0.0) >= -1e-9
        refused = r.status == "refused"
        assert refused or ((r.seconds or 0.0) > 0.0 and (r.cold_seconds or 0.0) > 0.0)


def test_proofs_come_first_then_what_keeps_by_cost_then_what_breaks(compared) -> None:
    exact = [r.exact for r in compared.solvers]
    assert exact == sorted(exact, reverse=True)
    rest = [r for r in compared.solvers if not r.exact]
    costs = [r.cost_usd_per_hour for r in rest if r.keeps]
    assert costs == sorted(costs)
    assert [r.keeps for r in rest] == sorted((r.keeps for r in rest), reverse=True)


class Odd:
    """A solver that does what the test asks."""

    exact = False
    sentence = "does what the test asks"

    def __init__(self, name: str, error: BaseException) -> None:
        self.name, self.error = name, error

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        raise self.error


def among(monkeypatch: pytest.MonkeyPatch, *odd: Odd) -> None:
    """Let discovery find these and the real baselines that are quick."""
    known = {name: solvers()[name] for name in ("greedy", "exact")}
    found = {**known, **{o.name: o for o in odd}}
    module = sys.modules["pdalloc.planning.compare"]
    monkeypatch.setattr(module, "solvers", lambda: found)


@pytest.mark.parametrize(
    "error", [UnsupportedError("solver 'odd' needs\nthe package scip"), ImportError("no scip")]
)
def test_a_refusal_or_a_missing_package_is_a_row(
    monkeypatch: pytest.MonkeyPatch, paper: Scenario, error: BaseException
) -> None:
    among(monkeypatch, Odd("odd", error))
    answer = compare(paper)
    refused = row(answer, "odd")
    assert (refused.status, refused.fleet, refused.gap) == ("refused", None, None)
    assert "scip" in refused.reason and len(refused.reason.splitlines()) == 1
    assert answer.solvers[-1] == refused and answer.proven
    assert "odd - refuses: " in text_of(answer)
    assert compare_figure(answer) is not None


def test_control_c_leaves_what_is_done(monkeypatch: pytest.MonkeyPatch, paper: Scenario) -> None:
    among(monkeypatch, Odd("odd", KeyboardInterrupt()))
    answer = compare(paper, simulate=True)
    assert {r.solver for r in answer.solvers} == {"greedy", "exact"}
    assert answer.interrupted and any("have not run" in line for line in answer.warnings)
    assert all(s.simulated_s is None for r in answer.solvers for s in r.slos)


@pytest.fixture(scope="module")
def judged(paper: Scenario) -> CompareAnswer:
    return compare(
        paper, ["exact", "greedy", "paper"], simulate=True, effort=Effort(4000, 3), seed=5
    )


def test_each_fleet_is_simulated_with_intervals(judged: CompareAnswer) -> None:
    """Also the one that breaks; the same fleet has the same numbers, the same arrivals."""
    for r in judged.solvers:
        for slo in r.slos:
            assert (slo.simulated_s or 0.0) > 0.0 and (slo.simulated_half_width_s or 0.0) > 0.0
            assert slo.simulated_verdict is not None
    assert row(judged, "exact").slos == row(judged, "greedy").slos
    three, four = row(judged, "paper").slos[0], row(judged, "exact").slos[0]
    assert (three.simulated_s or 0.0) > (four.simulated_s or 0.0)
    text = text_of(judged)
    assert "Simulated" in text and text.count("4P4D") == 3  # a row each, and one simulated


def test_control_c_while_simulating(monkeypatch: pytest.MonkeyPatch, paper: Scenario) -> None:
    def stop(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["pdalloc.planning.compare"], "compared", stop)
    answer = compare(paper, ["exact"], simulate=True)
    assert answer.interrupted and row(answer, "exact").status == "optimal"
    assert any("not simulated" in line for line in answer.warnings)


def test_an_unstable_fleet_is_not_simulated(paper: Scenario, made) -> None:
    """Nothing serves: one prefill replica of one GPU type in stock for twice its rate."""
    scenario = made.question(traffic=[made.chat(rate="19 req/s")], stock={"h100": 16})
    answer = compare(scenario, ["greedy", "exact"], simulate=True, effort=Effort(500, 2))
    assert not any(r.keeps for r in answer.solvers)
    assert all(s.simulated_s is None for r in answer.solvers for s in r.slos)
    assert answer.bound_usd_per_hour is None and "No solver proves a bound." in text_of(answer)
    assert compare_figure(answer) is not None


def test_progress_counts_solvers_then_simulation(paper: Scenario) -> None:
    seen: list[tuple[int, int]] = []
    compare(
        paper, ["exact", "paper"], simulate=True, effort=Effort(200, 2),
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[:2] == [(1, 2), (2, 2)]
    shares = [done / total for done, total in seen[2:]]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert 0.5 in shares  # the first of two fleets


@pytest.mark.parametrize("ratio", ["1", "a:b", "1:0", "1:2:3", "0:1", "-1:2"])
def test_a_bad_ratio_is_refused_in_one_line(paper: Scenario, ratio: str) -> None:
    with pytest.raises(InputError, match="ratio"):
        compare(paper, ["exact"], [ratio])


def test_the_table_fits_eighty_columns(compared: CompareAnswer) -> None:
    text = text_of(compared, 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    for words in ("proven", "BREAKS", "+75.0 %", "converged after", "4P4D", "TPOT mean at 97"):
        assert words in text


def test_json_and_csv_say_the_same(compared: CompareAnswer) -> None:
    again = CompareAnswer.model_validate_json(compared.to_json())
    assert again == compared
    rows = list(csv.DictReader(io.StringIO(compare_csv(compared))))
    assert len(rows) == sum(max(len(r.slos), 1) for r in compared.solvers)
    exact = next(r for r in rows if r["solver"] == "exact" and r["slo"] == "TPOT mean")
    assert float(exact["cost_usd_per_hour"]) == row(compared, "exact").cost_usd_per_hour
    assert float(exact["bound"]) == 0.02 and exact["kept"] == "True"


def test_the_public_name_is_the_function() -> None:
    assert module_or_function is compare


# The command.


def test_the_command_prints_and_writes(command, tmp_path: Path) -> None:
    done = command("compare", PAPER, "--solver", "exact", "--solver", "paper", "--out", "folder")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Proven optimum: 229.76 USD/h" in done.stdout
    written = {path.name for path in (tmp_path / "folder").iterdir()}
    assert written == {"compare.json", "compare.csv", "compare.png", "compare.pdf"}
    assert (tmp_path / "folder" / "compare.png").read_bytes().startswith(b"\x89PNG")
    CompareAnswer.model_validate_json((tmp_path / "folder" / "compare.json").read_text())


def test_json_on_stdout_and_nothing_else(command) -> None:
    done = command("compare", PAPER, "--json", "-", "--solver", "exact", "--ratio", "2:3")
    assert (done.returncode, done.stderr) == (0, "")
    answer = CompareAnswer.model_validate(json.loads(done.stdout))
    assert [r.solver for r in answer.solvers] == ["exact", "ratio 2:3"]


def test_where_nothing_keeps_the_slos_it_says_so_and_exits_2(command) -> None:
    bound = "traffic.0.slo.ttft.mean=250 ms"
    done = command("compare", PAPER, "--set", bound, "--solver", "exact", "--json", "a.json")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "317 ms" in " ".join(done.stdout.split())
    assert json.loads(Path("a.json").read_text())["solvers"][0]["status"] == "no fleet"


def test_a_stopped_comparison_exits_130(command, monkeypatch: pytest.MonkeyPatch) -> None:
    among(monkeypatch, Odd("odd", KeyboardInterrupt()))
    done = command("compare", PAPER, "--json", "a.json")
    assert done.returncode == 130 and "stopped" in done.stdout
    assert json.loads(Path("a.json").read_text())["interrupted"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.yaml"], ["none.yaml"]),
        ([PAPER, "--solver", "magic"], ["magic", "exact"]),
        ([PAPER, "--ratio", "1"], ["ratio '1'", "1:3"]),
        ([PAPER, "--json", ""], ["--json"]),
        ([PAPER, "--json", "no/such/a.json"], ["a.json"]),
        ([PAPER, "--set", "simulation.colocated={policy: chunked}"], ["co-located"]),
    ],
)
def test_errors_are_one_line_and_exit_2(command, arguments, words, tmp_path: Path) -> None:
    done = command("compare", *arguments)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("pdalloc: error: ") and all(w in done.stderr for w in words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["plan", "compare"])
def test_help_lists_the_solvers_that_are_there(command, name: str) -> None:
    text = " ".join(command(name, "--help").stdout.split())
    assert ", ".join(sorted(solvers())) in text
