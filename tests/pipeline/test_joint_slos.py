"""Joint SLOs and prices of lateness from a scenario to every answer about it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdalloc.allocation.problem import Allocation
from pdalloc.cli import main
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning import Answer, Effort, evaluate, plan, simulate
from pdalloc.planning.assembly import answer_of
from pdalloc.planning.effort import SEED
from pdalloc.planning.simulation import request_bounds
from pdalloc.report.files import write_outputs
from pdalloc.report.simulation_figure import simulation_figure
from pdalloc.report.slo_rows import lateness
from pdalloc.report.words import share
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

EFFORT = Effort(8000, 5)
TOGETHER = {"share": 0.95, "within": {"ttft": "700 ms", "tpot": "40 ms"}}
PRICED = {"within": {"ttft": "300 ms"}, "price": "0.5 USD/krequest"}


def block(made, **keys: Any) -> dict[str, Any]:
    """12 req/s of 1000 tokens, answers of 100: 3 M/M/1 replicas keep TOGETHER, 2 do not."""
    common = {"rate": "12 req/s", "output": "100 tokens", "slo": {}, "attainment": [TOGETHER]}
    found: dict[str, Any] = made.chat(**(common | keys))
    return found


def question(made, **keys: Any) -> Scenario:
    found: Scenario = made.question(traffic=[block(made, **keys)])
    return found


def without_margins(scenario: Scenario, fleet: Fleet) -> Answer:
    """What evaluate says, but for how much more the fleet would bear: many times the work."""
    given = Allocation("feasible", "evaluate", fleet, None, None)
    return answer_of(scenario, scenario.problem(), given, SEED, with_margins=False)


@pytest.fixture(scope="module")
def planned(made) -> Answer:
    return plan(question(made, best_effort=[PRICED]), simulate=True, effort=EFFORT)


def test_the_plan_is_the_cheapest_that_keeps_the_share(made, planned: Answer) -> None:
    """Without decode, P(T <= .7 s) = 1 - exp(-.7 (10 - 12/n)) of n replicas: 94 % of 2, 98.5 of 3.

    (M/M/1, Kleinrock 1975, eq. 5.119.)
    """
    (slo,) = planned.joint_slos
    assert planned.status == "optimal" and planned.xpyd == "3P1D" and planned.slos == []
    assert slo.kept and slo.binding
    assert slo.share == 0.95 and slo.within_s == pytest.approx({"ttft": 0.7, "tpot": 0.04})
    assert 1.0 - math.exp(-0.7 * (10 - 6)) < 0.95 < (slo.predicted_share or 0.0) <= 0.9865
    smaller = evaluate(question(made), "2P1D")
    assert smaller.status == "infeasible" and not smaller.joint_slos[0].kept
    assert "95 % should" in smaller.reason and "% keep TTFT <= 700 ms" in smaller.reason


def test_the_simulation_stands_beside_it(planned: Answer) -> None:
    (slo,) = planned.joint_slos
    assert slo.predicted_share is not None
    assert slo.simulated_share is not None and slo.simulated_half_width is not None
    assert 0.0 < slo.simulated_half_width < 0.01
    off = slo.predicted_share - slo.simulated_share
    assert abs(off) <= 2.0 * slo.simulated_half_width
    assert slo.simulated_verdict == "keeps"


def test_lateness_costs_what_mm1_says(made) -> None:
    """P(T > t) = exp(-(mu - lambda) t): 12 req/s on 3 replicas, 0.3 s."""
    answer = evaluate(question(made, best_effort=[PRICED]), "3P2D", simulate=True, effort=EFFORT)
    (row,) = answer.lateness
    late = math.exp(-(10 - 4) * 0.3)
    assert row.usd_per_late_request == pytest.approx(5e-4)
    assert row.predicted_late_share == pytest.approx(late, rel=5e-3)
    assert row.predicted_usd_per_hour == pytest.approx(12 * 3600 * late * 5e-4, rel=5e-3)
    half = row.simulated_usd_per_hour_half_width
    assert row.simulated_usd_per_hour is not None and half is not None and half > 0.0
    expected = 12 * 3600 * late * 5e-4
    assert row.simulated_usd_per_hour == pytest.approx(expected, abs=2.0 * half)


def test_prices_do_not_drive_the_plan(made, planned: Answer) -> None:
    dear = question(made, best_effort=[PRICED | {"price": "50 USD/request"}])
    for answer in (plan(question(made)), plan(dear)):
        assert answer.fleet == planned.fleet
        assert answer.cost_usd_per_hour == planned.cost_usd_per_hour


def test_one_limit_plans_as_its_percentile(made) -> None:
    for seconds in (0.3, 0.7, 2.0):
        alone = [{"share": 0.9, "within": {"ttft": f"{seconds} s"}}]
        joint = plan(question(made, attainment=alone))
        single = plan(question(made, attainment=[], slo={"ttft": {"p90": f"{seconds} s"}}))
        assert (joint.fleet, joint.status) == (single.fleet, single.status)
        assert joint.margin is not None and single.margin is not None
        assert joint.margin.demand == pytest.approx(single.margin.demand, abs=2e-3)


def test_simulate_judges_the_class_as_a_whole(made) -> None:
    scenario = question(made, best_effort=[PRICED])
    found = simulate(scenario, "3P2D", EFFORT)
    (slo,), (late,) = found.answer.joint_slos, found.answer.lateness
    assert slo.verdict == "keeps" and found.answer.slos == []
    attainment = found.answer.attainment  # the same bounds, counted elsewhere
    assert slo.simulated_share == pytest.approx(attainment.value, abs=1e-12)
    assert slo.half_width == pytest.approx(attainment.half_width, rel=1e-6)
    assert late.late_share is not None and late.usd_per_hour is not None
    made.confirm(late.late_share, math.exp(-6 * 0.3))
    assert late.usd_per_hour.value == pytest.approx(12 * 3600 * late.late_share.value * 5e-4)


def test_without_an_answer_is_late(made) -> None:
    """Who gives up at once at a busy replica is late, and paid for."""
    noise = {"clients": {"timeout": "50 ms"}}
    scenario = made.question(traffic=[block(made, best_effort=[PRICED])], simulation=noise)
    answer = simulate(scenario, "2P2D", EFFORT).answer
    lost = answer.timeout_share.value
    assert lost > 0.1
    assert answer.joint_slos[0].verdict == "breaks"
    assert (answer.joint_slos[0].simulated_share or 1.0) <= 1.0 - lost + 1e-9
    late = answer.lateness[0].late_share
    assert late is not None and late.value >= lost - 1e-9


def test_gaps_are_measured_and_not_predicted(made) -> None:
    limits = {"share": 0.95, "within": {"ttft": "700 ms", "itl": "400 ms"}}
    scenario = question(made, attainment=[limits])
    with pytest.raises(UnsupportedError, match="bound on itl; put bounds on"):
        plan(scenario)
    assert simulate(scenario, "3P2D", EFFORT).answer.joint_slos[0].verdict == "keeps"


def test_types_are_simulated_without_a_prediction_of_gaps(made) -> None:
    limits = {"share": 0.95, "within": {"ttft": "2 s", "itl": "400 ms"}}
    scenario = made.pair(traffic=[block(made, attainment=[limits])])
    fleet = "prefill/a=2,prefill/b=1,decode/a=1,decode/b=1"
    answer = simulate(scenario, fleet, EFFORT).answer
    assert answer.joint_slos[0].simulated_share is not None
    assert any("no prediction" in warning for warning in answer.warnings)


def test_every_path_keeps_its_share(made) -> None:
    """The promise is on each path: what is predicted is the worst of them, per class."""
    classes = [
        block(made, name="chat", attainment=[TOGETHER]),
        block(made, name="code", rate="3 req/s", attainment=[], slo={"e2e": {"mean": "4 s"}}),
    ]
    scenario = made.question(
        made.replica("a"), made.replica("b", gpu="a100", max_batch=16), traffic=classes
    )
    text = "prefill/a=3,prefill/b=2,decode/a=1,decode/b=1"
    fleet = parse_fleet(text, scenario.system.type_names)
    answer = without_margins(scenario, fleet)
    prediction = scenario.problem().capacity.evaluate(fleet, scenario.demand)
    capacity = scenario.problem().capacity
    (slo, index) = capacity.slo_classes[-1]
    shares = [1.0 - capacity.value(slo, index, p, d) for p, d in prediction.paths()]
    assert len(shares) == 4 and len(set(shares)) > 1
    assert answer.joint_slos[0].predicted_share == pytest.approx(min(shares))
    assert [s.traffic_class for s in answer.promises] == ["code", "chat"]


def test_lateness_counts_paths_by_their_traffic(made) -> None:
    """Money adds up over requests: sum over paths of r_p r_d / r^2 (1 - P(TTFT <= t))."""
    limits = {"share": 0.5, "within": {"ttft": "3 s", "tpot": "100 ms"}}
    scenario = made.question(
        made.replica("a"),
        made.replica("b", gpu="a100", noise="none"),
        traffic=[block(made, attainment=[limits], best_effort=[PRICED])],
    )
    text = "prefill/a=2,prefill/b=1,decode/a=1,decode/b=1"
    fleet = parse_fleet(text, scenario.system.type_names)
    (row,) = without_margins(scenario, fleet).lateness
    prediction = scenario.problem().capacity.evaluate(fleet, scenario.demand)
    late = [
        (
            p.rate * p.replicas * d.rate * d.replicas / scenario.demand**2,
            1.0 - prediction.predictor.law("ttft", 0, p, d).probability(0.3),
        )
        for p, d in prediction.paths()
    ]
    assert len(late) == 4 and max(x for _, x in late) > min(x for _, x in late) + 0.01
    assert row.predicted_late_share == pytest.approx(sum(w * x for w, x in late))
    assert row.predicted_usd_per_hour == pytest.approx(
        12 * 3600 * 5e-4 * (row.predicted_late_share or 0.0)
    )


@pytest.fixture(scope="module")
def mended(made) -> tuple[Answer, Answer]:
    """Prefill of SCV 4 told to be constant: M/G/1 (Pollaczek-Khinchine) where M/D/1 is planned."""
    limits = {"share": 0.9, "within": {"ttft": "800 ms", "tpot": "60 ms"}}
    scenario = made.question(
        made.replica(noise="none"),
        traffic=[block(made, rate="8 req/s", attainment=[limits], best_effort=[PRICED])],
        simulation={"prefill_noise": {"law": "gamma", "scv": 4.0}},
    )
    return (
        plan(scenario, simulate=True, effort=EFFORT),
        plan(scenario, repair=True, effort=EFFORT),
    )


def test_repair_adds_until_the_share_is_kept(mended: tuple[Answer, Answer]) -> None:
    planned, repaired = mended
    assert planned.joint_slos[0].kept and planned.joint_slos[0].simulated_verdict == "breaks"
    assert any("points optimistic" in warning for warning in planned.warnings)
    (slo,) = repaired.joint_slos
    assert repaired.status == "feasible" and slo.simulated_verdict == "keeps"
    assert slo.simulated_share is not None and slo.simulated_half_width is not None
    assert slo.simulated_share - slo.simulated_half_width > 0.9
    assert (repaired.cost_usd_per_hour or 0.0) > (planned.cost_usd_per_hour or 0.0)


def test_a_repaired_fleet_has_its_own_price_of_lateness(mended: tuple[Answer, Answer]) -> None:
    before, after = (answer.lateness[0] for answer in mended)
    assert before.simulated_usd_per_hour is not None and after.simulated_usd_per_hour is not None
    assert after.simulated_usd_per_hour < before.simulated_usd_per_hour
    assert (after.predicted_usd_per_hour or 0.0) < (before.predicted_usd_per_hour or 0.0)


def test_no_fleet_keeps_what_service_alone_breaks(made) -> None:
    """Of M/M/1 requests without load exp(-1) take longer than their mean, 0.1 s."""
    limits = {"share": 0.95, "within": {"ttft": "100 ms", "tpot": "40 ms"}}
    answer = plan(question(made, attainment=[limits], best_effort=[PRICED]))
    assert answer.status == "infeasible" and answer.fleet is None
    assert "95 % of 'all' cannot keep TTFT <= 100 ms and TPOT <= 40 ms" in answer.reason
    assert "63" in answer.reason.partition("on the best types")[2].split(" %")[0]


# As people and programs see it.


def command(
    made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> dict[str, Any]:
    """What a command writes as JSON."""
    file, out = tmp_path / "question.yaml", tmp_path / "answer.json"
    raw = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": [block(made, best_effort=[PRICED])],
        "replicas": [made.replica()],
        "prices": {"h100": "2 USD/GPU/hour"},
        "first_token": "prefill",
    }
    file.write_text(yaml.safe_dump(raw), encoding="utf-8")
    verb, *others = arguments
    monkeypatch.setattr(sys, "argv", ["pdalloc", verb, str(file), *others, "--json", str(out)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


FEW = ["--requests", "3000", "--replications", "3"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], ["95 %", "Expected price of lateness:", "do not drive the plan"]),
        (["plan", "--validate", *FEW], [">= 95 %", "; simulated", "±"]),
        (["plan", "--repair", *FEW], [">= 95 %", "; simulated"]),
        (["evaluate", "--fleet", "2P1D"], ["BROKEN", "95 % should", "Expected price"]),
        (["simulate", "--fleet", "3P1D", *FEW], [">= 95 %", "Price of lateness:", "keeps"]),
    ],
    ids=lambda x: " ".join(x[:2]),
)
def test_commands_show_shares_and_prices(
    made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, arguments: Any, words: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    found = command(made, tmp_path, monkeypatch, *arguments)
    text = " ".join(capfd.readouterr().out.split())
    for word in ["TTFT <= 700 ms,", "TPOT <= 40 ms", *words]:
        assert word in text
    (slo,), (late,) = found["joint_slos"], found["lateness"]
    assert slo["share"] == 0.95
    assert slo["within_s"] == pytest.approx({"ttft": 0.7, "tpot": 0.04})
    assert late["usd_per_late_request"] == pytest.approx(5e-4)


def test_files_of_a_joint_slo_have_no_latency_figure(made, tmp_path: Path) -> None:
    scenario = question(made)
    write_outputs(scenario, plan(scenario), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert "answer.json" in names and any(name.endswith(".png") for name in names)
    assert not any("latency" in name for name in names)


def test_the_figure_marks_the_limits(made) -> None:
    """Each limit alone must be kept by the share: the dot is at 1 - share of the tail."""
    figure = simulation_figure(simulate(question(made), "3P1D", Effort(1500, 3)))
    ttft, tpot, e2e = figure.axes[:3]
    for panel, seconds in ((ttft, 0.7), (tpot, 0.04)):
        (dot,) = [line for line in panel.lines if line.get_marker() == "o"]
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == pytest.approx((seconds, 0.05))
        assert [t.get_text() for t in panel.texts] == ["95 % joint"]
    assert not e2e.texts


def test_attainment_counts_the_joint_limits(made) -> None:
    """Of two bounds on a latency the one with the higher level is what a request must keep."""
    slo = {"ttft": {"p50": "200 ms"}, "itl": {"p99": "50 ms"}, "tpot": {"p99": "45 ms"}}
    scenario = question(made, slo=slo)
    found = {b.metric: (b.seconds, b.share) for b in request_bounds(scenario.slos, ["all"])}
    assert list(found) == ["ttft", "tpot", "itl"]
    assert [seconds for seconds, _ in found.values()] == pytest.approx([0.7, 0.045, 0.05])
    assert [share for _, share in found.values()] == [1.0, 1.0, 0.99]


def test_a_price_on_token_gaps_is_not_predicted_and_binds_nothing(made) -> None:
    """The plan stands; the simulation counts who is late."""
    gaps = PRICED | {"within": {"itl": "20 ms"}}
    alone, priced = (plan(question(made, best_effort=x)) for x in ([], [gaps]))
    assert priced.status == "optimal" and priced.fleet == alone.fleet
    (row,) = priced.lateness
    assert row.predicted_late_share is None and row.predicted_usd_per_hour is None
    assert lateness(priced, "+-")[0].startswith("Expected price of lateness: not predicted (of all")
    assert "without a steady state" not in " ".join(lateness(priced, "+-"))
    found = evaluate(question(made, best_effort=[gaps]), "3P1D", simulate=True, effort=EFFORT)
    assert found.lateness[0].simulated_late_share is not None


def test_a_share_on_token_gaps_is_refused_by_name(made) -> None:
    asked = [{"share": 0.9, "within": {"ttft": "1 s", "itl": "20 ms"}}]
    message = "attainment of traffic class 'all', TTFT <= 1000 ms and ITL <= 20 ms: no prediction"
    for ask in (plan, lambda scenario: evaluate(scenario, "3P1D")):
        with pytest.raises(UnsupportedError, match=message):
            ask(question(made, attainment=asked))


def test_a_share_is_not_rounded_up_to_all() -> None:
    assert share(1.0 - 1e-10) == "99.999999990 %"
    assert share(1.0) == "100.00 %" and share(0.5) == "50 %"
