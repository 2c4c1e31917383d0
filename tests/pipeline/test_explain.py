"""Why this fleet: every number of an explanation against its closed form, and the words."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pdalloc.closed_forms import mm1_count, mm1_count_percentile
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.planning import plan
from pdalloc.planning.explain import explain
from pdalloc.planning.explain_answer import ExplainAnswer
from pdalloc.planning.margins import ACCURACY
from pdalloc.planning.relaxation import price_of_bound, relaxed
from pdalloc.report.explain_table import print_explanation
from pdalloc.report.explain_words import headline, what_it_leans_on
from pdalloc.scenario import Scenario, load_scenario
from pdalloc.slo.objective import Slo

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml")
RATE, BOUND = 37.0, 1.0
USD = 16.0
"""Eight GPUs at 2 USD/hour."""


@pytest.fixture(scope="module")
def queue(made) -> Scenario:
    """M/M/1 prefill of 10 requests/s a replica and a mean TTFT of 1 s: 37/(10 - 1) = 4.11."""
    found: Scenario = made.question(traffic=[made.chat(rate=f"{RATE} req/s", output="2 tokens")])
    return found


@pytest.fixture(scope="module")
def answer(queue: Scenario) -> ExplainAnswer:
    return explain(queue)


def text_of(answer: ExplainAnswer, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_explanation(answer, console)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def words_of(answer: ExplainAnswer) -> str:
    return " ".join(text_of(answer).split())


def margin(answer: ExplainAnswer, name: str) -> float:
    (found,) = [a.margin for a in answer.assumptions if a.name.startswith(name)]
    assert found is not None
    return found


# Fractions and the relaxation.


def test_the_fraction_is_the_mm1_count_and_says_so(answer: ExplainAnswer, made) -> None:
    prefill = answer.fractions[0]
    assert prefill.count == pytest.approx(mm1_count(RATE, made.MU, BOUND), rel=1e-6)
    assert prefill.formula.startswith("M/M/1: lambda/(mu - 1/tau), mu 10/s")
    assert (prefill.replicas, answer.xpyd) == (5, "5P1D")
    assert "need 4.11 replicas (M/M/1" in words_of(answer) and "rounded up, 5" in words_of(answer)


def test_the_fraction_of_a_percentile(made) -> None:
    slo = {"ttft": {"p90": "1 s"}}
    chat = made.chat(rate=f"{RATE} req/s", output="2 tokens", slo=slo)
    prefill = explain(made.question(traffic=[chat])).fractions[0]
    assert prefill.count == pytest.approx(mm1_count_percentile(RATE, made.MU, 1.0, 0.9), rel=1e-4)
    assert "ln(1/(1-p))" in prefill.formula


def test_no_formula_is_named_where_none_applies(made) -> None:
    """Constant prefill times: M/D/1 waits half as long as M/M/1."""
    chat = made.chat(rate=f"{RATE} req/s", output="2 tokens")
    found = explain(made.question(made.replica(noise="none"), traffic=[chat]))
    assert found.fractions[0].formula == ""
    assert found.fractions[0].count < mm1_count(RATE, made.MU, BOUND)


def test_the_price_of_a_ttft_bound(answer: ExplainAnswer, made) -> None:
    """d/dtau of c lambda/(mu - 1/tau): -c lambda/(tau mu - 1)^2."""
    expected = -USD * RATE / (BOUND * made.MU - 1.0) ** 2
    assert answer.slos[0].relaxed_usd_per_hour_per_s == pytest.approx(expected, rel=1e-3)


def test_the_price_of_a_tpot_bound(made) -> None:
    """d/dtau of c lambda L b/(1 - s/tau), s = a + b: -c lambda L b s/(tau - s)^2."""
    chat = made.chat(output="40 tokens", slo={"tpot": {"mean": "14 ms"}})
    scenario = made.question(traffic=[chat], first_token="decode")
    problem = scenario.problem()
    prefill, decode = problem.in_role(PREFILL)[0], problem.in_role(DECODE)[0]
    load, s, tau = 7.0 * 40.0 * made.PER_REQUEST, made.STEP + made.PER_REQUEST, 14e-3
    (slo,) = scenario.slos
    assert isinstance(slo, Slo)
    found = price_of_bound(scenario, prefill, decode, slo)
    assert found == pytest.approx(-USD * load * s / (tau - s) ** 2, rel=0.02)


def test_the_relaxation_of_a_shared_budget(made) -> None:
    """cost = lambda (sum alpha + (sum sqrt beta)^2/sigma): a delay of beta/y over the floors.

    Prefill: alpha = c/mu, beta = c/mu^2. Decode: alpha = c L b, beta = c L^2 b (a + b), floor
    L (a + b). The wait for a step's end, which the form leaves out, is part of the floor here.
    """
    steps, chat = 99.0, made.chat(output="100 tokens", slo={"e2e": {"mean": "2 s"}})
    problem = made.question(traffic=[chat]).problem()
    prefill, decode = problem.in_role(PREFILL)[0], problem.in_role(DECODE)[0]
    a, b, mu = made.STEP, made.PER_REQUEST, made.MU
    betas = (USD / mu**2, USD * steps**2 * b * (a + b))
    sigma = 2.0 - 1.0 / mu - steps * (a + b)
    alphas = USD / mu + USD * steps * b
    expected = 7.0 * (alphas + sum(math.sqrt(beta) for beta in betas) ** 2 / sigma)
    found = relaxed(problem, prefill, decode)
    assert found is not None and found.cost == pytest.approx(expected, rel=0.02)


def test_no_fractions_where_replicas_are_pooled(made) -> None:
    chat = made.chat(rate="20 req/s", output="2 tokens")
    found = explain(made.question(traffic=[chat], dispatch="central_queue"))
    assert found.fractions == [] and found.relaxed_usd_per_hour is None
    assert found.slos[0].relaxed_usd_per_hour_per_s is None
    assert found.status == "optimal" and "Why this many" not in text_of(found)


def test_whole_replicas_cost_what_the_rounding_adds(answer: ExplainAnswer) -> None:
    fractions = sum(f.count for f in answer.fractions) * USD
    assert answer.relaxed_usd_per_hour == pytest.approx(fractions)
    more = 6 * USD - fractions
    assert f"whole replicas cost {more:,.2f} USD/h" in words_of(answer)


# SLOs, replicas, assumptions, prices.


def test_what_a_bound_costs_is_the_optimum_with_another(answer: ExplainAnswer, made) -> None:
    """Without TTFT four replicas are enough (3.7 at full load); 0.9 s needs 37/(10 - 1/0.9)."""
    (slo,) = answer.slos
    assert (slo.without.xpyd, slo.without.cost_usd_per_hour) == ("4P1D", 5 * USD)
    for bound in (slo.looser, slo.tighter):
        assert bound.bound_s is not None
        count = math.ceil(mm1_count(RATE, made.MU, bound.bound_s))
        assert bound.xpyd == f"{count}P1D"
    assert slo.slack == pytest.approx(1.0 - 1.0 / (made.MU - RATE / 5) / BOUND)
    assert "TTFT mean costs 16.00 USD/h: without it 4P1D would do" in words_of(answer)


def test_one_more_and_one_fewer(answer: ExplainAnswer, made) -> None:
    """n replicas wait 1/(mu - lambda/n) in all; the last decode replica cannot go."""
    changes = {(c.role, c.change): c for c in answer.changes}
    for change in (-1, 1):
        c = changes[PREFILL, change]
        assert c.slos[0].predicted_s == pytest.approx(1.0 / (made.MU - RATE / (5 + change)))
        assert c.cost_usd_per_hour == (6 + change) * USD and c.allowed
        assert c.keeps == (change == 1)
    assert not changes[DECODE, -1].keeps and changes[DECODE, 1].keeps
    text = words_of(answer)
    assert "With one prefill r replica fewer TTFT mean is 1333 ms against 1000 ms." in text
    assert "With one decode r replica fewer there is no steady state." in text


def test_margins_by_closed_form(answer: ExplainAnswer, made) -> None:
    """Five replicas hold lambda up to 5 (mu - 1/tau), and service times f/mu up to
    f = mu/(1/tau + lambda/5)."""
    assert margin(answer, "demand") == pytest.approx(5 * 9.0 / RATE - 1.0, abs=2 * ACCURACY)
    slower = made.MU / (1.0 + RATE / 5) - 1.0
    assert margin(answer, "prefill times") == pytest.approx(slower, abs=2 * ACCURACY)
    assert answer.assumptions[0].name == "prefill times"
    assert answer.assumptions[0].effect == "TTFT mean"
    assert "It leans most on prefill times" in words_of(answer)
    assert "Demand can grow by 21.6 %" in words_of(answer)


def test_bursts_are_an_assumption(made) -> None:
    """A fleet of one prefill replica sees the whole stream: SCV c waits longer."""
    chat = made.chat(rate="8 req/s", output="2 tokens", slo={"ttft": {"mean": "1 s"}})
    found = explain(made.question(traffic=[chat]))
    assert found.xpyd == "1P1D"
    assert 0.0 < margin(found, "burstiness") < 3.0
    even = made.chat(rate="8 req/s", output="2 tokens", arrival_scv=0)
    names = [a.name for a in explain(made.question(traffic=[even])).assumptions]
    assert not any(name.startswith("burst") for name in names)


def test_price_edges_of_two_equal_types(made) -> None:
    """Equally fast at 2 and 1.5 USD: b until it is a third dearer, or a a quarter cheaper."""
    prices = {"h100": "2 USD/GPU/hour", "a100": "1.5 USD/GPU/hour"}
    found = explain(made.pair(prices=prices))
    edges = {p.name: p.margin for p in found.prices}
    assert edges["price of a100 (dearer)"] == pytest.approx(1 / 3, abs=3e-3)
    assert edges["price of h100 (cheaper)"] == pytest.approx(-1 / 4, abs=3e-3)
    assert len(edges) == 2
    assert "Another fleet becomes cheapest with the price of" in words_of(found)


def test_merit_order_of_two_types(made) -> None:
    found = explain(made.pair())
    prefill = [m for m in found.merit if m.role == PREFILL]
    assert [m.replica_type for m in prefill] == ["b", "a"]
    assert prefill[1].usd_per_hour_per_request_per_s == pytest.approx(
        2.0 * prefill[0].usd_per_hour_per_request_per_s
    )
    assert "Prefill in merit order" in words_of(found)


def test_one_gpu_type_has_no_price_edge(answer: ExplainAnswer) -> None:
    assert answer.prices == [] and answer.merit == []
    assert "No price between half and double" in words_of(answer)


# Given fleets, and questions without an answer.


def test_a_given_fleet_that_breaks_an_slo(queue: Scenario) -> None:
    found = explain(queue, "4P1D")
    assert (found.status, found.given, found.best_xpyd) == ("infeasible", True, "5P1D")
    text = words_of(found)
    assert "breaks: TTFT mean 1.333 s is above 1 s. The cheapest that does is 5P1D" in text
    assert "16.00 USD/h more" in text
    assert "would keep every SLO with" in text and "demand -2.7 %" in text  # 4 x 9/37 - 1
    assert found.prices == []


def test_a_given_fleet_that_is_too_large(queue: Scenario) -> None:
    found = explain(queue, "7P1D")
    text = words_of(found)
    assert found.status == "feasible" and "keeps every SLO. The cheapest" in text
    assert "32.00 USD/h less" in text
    assert "With one prefill r replica fewer every SLO still holds, for 112.00 USD/h." in text
    assert "rounded up 5, and the fleet has 7" in text


@pytest.mark.parametrize("fleet", ["3P1D", "0P1D", "5P0D"])
def test_a_fleet_without_a_steady_state_is_explained_too(queue: Scenario, fleet: str) -> None:
    found = explain(queue, fleet)
    assert found.status == "infeasible" and found.slos[0].slack is None
    assert "unstable" in text_of(found)


def test_no_fleet_at_all(made) -> None:
    chat = made.chat(slo={"ttft": {"mean": "50 ms"}}, output="2 tokens")
    found = explain(made.question(traffic=[chat]))
    assert found.fleet is None and found.slos == [] and found.changes == []
    assert headline(found).startswith("No fleet keeps every SLO: TTFT mean")
    given = explain(made.question(traffic=[chat]), "9P1D")
    assert given.best_xpyd is None and "No fleet does." in words_of(given)
    assert "Without TTFT mean there would be a fleet: 1P1D" in words_of(given)


def test_stock_that_forbids_one_more_is_said(made) -> None:
    chat = made.chat(rate=f"{RATE} req/s", output="2 tokens")
    found = explain(made.question(traffic=[chat], stock={"h100": 48}))
    assert [c.allowed for c in found.changes] == [True, False, True, False]
    assert "(not allowed)" in text_of(found, 100)


@pytest.mark.parametrize("part", ["assumptions", "relaxed", "fractions"])
def test_control_c_keeps_the_parts_that_are_done(
    queue: Scenario, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def stop(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["pdalloc.planning.explain"], part, stop)
    found = explain(queue)
    assert found.interrupted and found.xpyd == "5P1D" and found.assumptions == []
    assert bool(found.changes) == (part != "fractions")
    assert "Stopped" in text_of(found) and what_it_leans_on(found) == []


def test_progress_counts_the_parts(queue: Scenario) -> None:
    seen: list[tuple[int, int]] = []
    explain(queue, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][0] == seen[-1][1]


def test_bad_questions(queue: Scenario, made) -> None:
    with pytest.raises(InputError, match="3P4D"):
        explain(queue, "4P")
    with pytest.raises(UnsupportedError, match="co-located"):
        explain(made.question(traffic=[made.chat(output="2 tokens")], simulation=made.TOGETHER))


# Several classes, several SLOs; words and JSON.


def test_more_slos_than_columns_and_several_classes(made) -> None:
    slo = {"ttft": {"mean": "1 s", "p50": "2 s", "p90": "3 s"}, "tpot": {"mean": "30 ms"}}
    classes = [made.chat(name=n, output="20 tokens", slo=slo) for n in ("chat", "code")]
    found = explain(made.question(traffic=classes))
    assert len(found.slos) == 8
    assert {s.slo.traffic_class for s in found.slos} == {"chat", "code"}
    assert "chat TTFT mean" in text_of(found, 120)


def test_the_papers_case() -> None:
    """3.07 P by the M/M/1 formula and 3.85 D by its curve; 3P4D would do without TTFT."""
    found = explain(load_scenario(PAPER))
    text = words_of(found)
    for words in (
        "4P4D on 64 x h200 at 229.76 USD/h is the cheapest fleet that keeps every SLO (proven)",
        "need 3.07 replicas (M/M/1: lambda/(mu - 1/tau)",
        "need 3.85 replicas; rounded up, 4",
        "TTFT mean is 2403 ms against 2000 ms",
        "TTFT mean costs 28.72 USD/h: without it 3P4D would do",
        "Demand can grow by 4.0 % to 5.2 Mtoken/min; beyond, TPOT mean breaks",
        "It leans most on decode step times",
    ):
        assert words in text, words
    assert max(len(line) for line in text_of(found).splitlines()) <= 80
    assert found.cost_usd_per_hour == plan(load_scenario(PAPER)).cost_usd_per_hour


def test_json_goes_round(answer: ExplainAnswer) -> None:
    assert ExplainAnswer.model_validate_json(answer.to_json()) == answer


# The command.


def test_the_command(command) -> None:
    done = command("explain", PAPER, "--json", "a.json")
    assert (done.returncode, done.stderr) == (0, "")
    for section in ("Why this many", "What binds", "What the SLOs cost", "What it leans on"):
        assert section in done.stdout
    ExplainAnswer.model_validate_json(Path("a.json").read_text())


def test_json_on_stdout_of_a_given_fleet(command) -> None:
    done = command("explain", PAPER, "--fleet", "3P4D", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["status"] == "infeasible"


def test_an_infeasible_question_exits_2(command) -> None:
    done = command("explain", PAPER, "--set", "traffic.0.slo.ttft.mean=250 ms")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "317 ms" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.yaml"], ["none.yaml"]),
        ([PAPER, "--fleet", "4P"], ["3P4D"]),
        ([PAPER, "--variant", "magic"], ["magic"]),
        ([PAPER, "--json", "no/such/a.json"], ["a.json"]),
    ],
)
def test_errors_are_one_line_and_exit_2(command, arguments, words, tmp_path: Path) -> None:
    done = command("explain", *arguments)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("pdalloc: error: ") and all(w in done.stderr for w in words)
    assert list(tmp_path.iterdir()) == []
