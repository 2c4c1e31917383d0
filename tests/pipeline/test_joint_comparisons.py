"""Joint SLOs in comparisons and explanations: told as shares, counted like any other."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from pdalloc.errors import InputError
from pdalloc.planning import Effort
from pdalloc.planning.compare import CompareAnswer, compare
from pdalloc.planning.explain import explain
from pdalloc.planning.explain_answer import ExplainAnswer
from pdalloc.planning.frontier import axis_of
from pdalloc.report.compare_figure import compare_figure
from pdalloc.report.compare_table import compare_csv, load, print_compare
from pdalloc.report.explain_table import print_explanation
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def scenario(made) -> Scenario:
    """M/M/1 prefill at 27 req/s: 90 % of first tokens within 1 s, and within 20 ms a token."""
    joint = [{"share": 0.9, "within": {"ttft": "1 s", "tpot": "20 ms"}}]
    chat = made.chat(rate="27 req/s", output="20 tokens", slo={}, attainment=joint)
    found: Scenario = made.question(traffic=[chat])
    return found


@pytest.fixture(scope="module")
def compared(scenario: Scenario) -> CompareAnswer:
    return compare(
        scenario, ["exact", "greedy", "one_to_one"], simulate=True, effort=Effort(2000, 3)
    )


@pytest.fixture(scope="module")
def explained(scenario: Scenario) -> ExplainAnswer:
    return explain(scenario)


def printed(show, answer) -> str:
    out = io.StringIO()
    show(answer, Console(file=out, width=100))
    return " ".join(out.getvalue().split())


def test_a_comparison_tells_shares(compared: CompareAnswer) -> None:
    for row in compared.solvers:
        (slo,) = row.promises
        assert row.slos == [] and slo.kept == row.keeps
        assert row.joint_slos[0].simulated_verdict is not None
        late = 1.0 - (row.joint_slos[0].predicted_share or 0.0)
        assert load(slo) == pytest.approx(late / 0.1)
    text = printed(print_compare, compared)
    assert "TTFT <= 1000 ms, TPOT <= 20 ms at" in text and ">= 90 %" in text
    assert compare_figure(compared) is not None
    assert CompareAnswer.model_validate_json(compared.to_json()) == compared


def test_csv_names_the_unit(compared: CompareAnswer) -> None:
    for row in csv.DictReader(io.StringIO(compare_csv(compared))):
        assert (row["unit"], float(row["bound"])) == ("share", 0.9)
        assert 0.0 <= float(row["predicted"]) <= 1.0


def test_an_explanation_says_what_a_joint_slo_costs(explained: ExplainAnswer) -> None:
    (joint,) = explained.joint_slos
    assert explained.slos == [] and joint.slo.kept
    predicted = joint.slo.predicted_share or 0.0
    assert joint.slack == pytest.approx(1.0 - (1.0 - predicted) / 0.1)
    assert joint.without.cost_usd_per_hour is not None
    assert joint.without.cost_usd_per_hour <= (explained.cost_usd_per_hour or 0.0)
    for change in explained.changes:
        assert len(change.joint_slos) == 1
        assert change.keeps == change.joint_slos[0].kept
    text = printed(print_explanation, explained)
    assert "TTFT <= 1000 ms, TPOT <= 20 ms costs" in text and "against >= 90 %" in text
    assert ExplainAnswer.model_validate_json(explained.to_json()) == explained


def test_a_frontier_moves_bounds_on_one_latency_only(scenario: Scenario) -> None:
    with pytest.raises(InputError, match="no such SLO"):
        axis_of(scenario, "ttft+tpot")
