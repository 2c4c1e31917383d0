"""Answers about what is served: simulated, drawn, told, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdalloc.errors import UnsupportedError
from pdalloc.planning import Answer, Effort, compare, explain, frontier, plan, simulate
from pdalloc.planning.dedicated import plan_dedicated
from pdalloc.planning.schedule import schedule
from pdalloc.planning.shortfall import as_served, served
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

OFFERED = 47.0


def question(made, usd: float, most: float = 1.0, **keys: Any) -> Scenario:
    found: Scenario = made.question(traffic=[made.sheddable(usd, most)], **keys)
    return found


def shed_of(answer: Answer) -> float:
    """Requests/s that are shed."""
    assert answer.shortfall is not None
    return sum(row.requests_per_s for row in answer.shortfall.shed)


def total(answer: Answer) -> float:
    assert answer.shortfall is not None and answer.shortfall.total_usd_per_hour is not None
    return answer.shortfall.total_usd_per_hour


def plain(made) -> dict[str, Any]:
    found: dict[str, Any] = made.sheddable(0.0)
    del found["shed"]
    return found


# What is served is what is simulated, drawn and told.


def test_the_simulation_is_offered_what_is_served(made) -> None:
    answer = plan(question(made, 1e-3, 0.5), simulate=True, effort=Effort(3000, 3))
    assert answer.demand_requests_per_s == pytest.approx(45.0)
    for slo in answer.slos:
        assert slo.simulated_s is not None and slo.simulated_half_width_s is not None
        assert slo.predicted_s is not None
        # near the bound by design, and simulated there, not at the load of all 47 req/s
        assert abs(slo.simulated_s - slo.predicted_s) <= 3.0 * slo.simulated_half_width_s
    mended = plan(question(made, 1e-3, 0.5), repair=True, effort=Effort(3000, 3))
    assert total(mended) >= total(answer) - 1e-9
    assert total(mended) == pytest.approx((mended.cost_usd_per_hour or 0.0) + 2.0 * 3.6, abs=1e-5)


def test_bursts_keep_their_scv_and_it_is_told(made) -> None:
    traffic = [made.sheddable(1e-3, arrival_scv=3.0)]
    answer = plan(made.question(traffic=traffic))
    assert shed_of(answer) > 0.0
    assert any("arrival SCV 3" in w and "nearer to Poisson" in w for w in answer.warnings)
    part = as_served(made.question(traffic=traffic), answer)
    (only,) = part.system.workload.classes
    assert only.arrival_scv == 3.0 and only.rate == pytest.approx(answer.demand_requests_per_s)
    assert not any("nearer to Poisson" in w for w in plan(question(made, 1e-3)).warnings)


def test_what_is_served_scales_the_process_and_nothing_else(made) -> None:
    traffic = [made.sheddable(1e-3, arrivals=made.BURSTS), plain(made) | {"name": "other"}]
    scenario = made.question(traffic=traffic)
    part = served(scenario, (11.75,))
    assert part is not None
    one, other = part.system.workload.classes
    assert one.rate == one.process.rate == pytest.approx(11.75)
    assert other == scenario.system.workload.classes[1]
    assert part.slos == scenario.slos and part.shed == ()
    gone = served(scenario, (0.0,))
    assert gone is not None and {s.traffic_class for s in gone.slos} == {"other"}
    assert served(question(made, 1e-3), (0.0,)) is None


def test_simulate_sheds_nothing_and_says_so(made) -> None:
    found = simulate(question(made, 1e-3), "6P1D", Effort(1500, 3))
    assert found.answer.demand_requests_per_s == pytest.approx(OFFERED)
    assert any("nothing is shed here" in w for w in found.answer.warnings)


@pytest.mark.parametrize("name", ["compare", "frontier", "explain", "schedule"])
def test_others_refuse_in_one_line(made, name: str) -> None:
    ask = {
        "compare": compare, "explain": explain, "frontier": lambda s: frontier(s, "demand"),
        "schedule": schedule,
    }[name]  # fmt: skip
    with pytest.raises(UnsupportedError, match=f"shed: {name} serves all that is offered"):
        ask(question(made, 1e-3))  # type: ignore[operator]


def test_dedicated_pools_refuse_in_one_line(made) -> None:
    """Which part is to shed would be a search over all of them."""
    traffic = [made.sheddable(1e-3), plain(made) | {"name": "other"}]
    scenario = made.question(traffic=traffic, pools="dedicated")
    with pytest.raises(UnsupportedError, match="shed: a plan of dedicated pools serves all"):
        plan_dedicated(scenario)


def test_a_schedule_says_that_lateness_is_not_in_its_costs(made) -> None:
    late = {"best_effort": [{"within": {"ttft": "0.3 s"}, "price": "1 USD/krequest"}]}
    periods = {"factors": [1.0, 0.5]}
    asked = made.question(traffic=[plain(made) | late], periods=periods)
    assert any("costs are of fleets alone" in w for w in schedule(asked, 5.0).warnings)
    silent = made.question(traffic=[plain(made)], periods=periods)
    assert not any("costs are of fleets alone" in w for w in schedule(silent, 5.0).warnings)


def test_baselines_and_alternatives_are_refused(made) -> None:
    with pytest.raises(UnsupportedError, match="proves no bound"):
        plan(question(made, 1e-3), solver="greedy")
    with pytest.raises(UnsupportedError, match="alternatives are ranked"):
        plan(question(made, 1e-3), alternatives=1)


# As people and programs see it.


def written(made, tmp_path: Path, usd: float, **keys: Any) -> str:
    file = tmp_path / "question.yaml"
    raw = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": [made.sheddable(usd)],
        "replicas": [made.replica()],
        "prices": {"h100": "2 USD/GPU/hour"},
        "first_token": "prefill",
    }
    file.write_text(yaml.safe_dump(raw | keys), encoding="utf-8")
    return str(file)


def test_the_plan_prints_what_it_loses(made, tmp_path: Path, command: Any) -> None:
    file = written(made, tmp_path, 1e-2, stock={"h100": 32})
    out = tmp_path / "figures"
    done = command("plan", file, "--out", str(out))
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "Shed of all: 20 req/s, 42.6 % (at most 100 %), 720.00 USD/h (10 USD per 1000" in text
    assert "Total: fleet 64.00 + shed 720.00 = 784.00 USD/h, proven least." in text
    assert "Served are 27 of 47 req/s; pools, SLOs and margins are of what is served." in text
    answer = json.loads((out / "answer.json").read_text(encoding="utf-8"))
    assert answer["shortfall"]["shed"][0]["requests_per_s"] == pytest.approx(20.0, abs=1e-5)
    assert answer["shortfall"]["bound_usd_per_hour"] <= answer["shortfall"]["total_usd_per_hour"]
    assert any(path.suffix == ".png" for path in out.iterdir())


def test_a_plan_of_nothing_prints_as_such(made, tmp_path: Path, command: Any) -> None:
    done = command("plan", written(made, tmp_path, 1e-6))
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "Nothing is served: to shed every request costs least" in text
    assert "No fleet keeps" not in text


def test_nothing_shed_is_said(made, tmp_path: Path, command: Any) -> None:
    text = " ".join(command("plan", written(made, tmp_path, 1.0)).stdout.split())
    assert "Shed of all: nothing (1000 USD per 1000 of them would be the price)." in text
    assert "Served are" not in text


@pytest.mark.parametrize("verb", [["compare"], ["frontier", "--over", "demand"], ["explain"]])
def test_commands_refuse_with_one_line(made, tmp_path: Path, command: Any, verb: Any) -> None:
    done = command(verb[0], written(made, tmp_path, 1e-3), *verb[1:])
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "shed" in line]
    assert len(lines) == 1 and "use pdalloc plan, or leave shed out" in lines[0]


def test_a_fleet_on_the_command_line(made, tmp_path: Path, command: Any) -> None:
    done = command("evaluate", written(made, tmp_path, 1e-3), "--fleet", "3P1D")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "Total: fleet 64.00 + shed 72.00 = 136.00 USD/h." in text
