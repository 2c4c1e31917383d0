"""Dedicated pools beside everything else that a scenario may ask for."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pdalloc.allocation.certify import certify
from pdalloc.allocation.conditions import misfits, remainders
from pdalloc.allocation.dedicated import solve_dedicated
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, Fleet, parse_fleet
from pdalloc.planning import plan
from pdalloc.planning.dedicated import dedicated_problem, part_given, plan_dedicated
from pdalloc.planning.dedicated_answer import DedicatedAnswer
from pdalloc.report.dedicated_files import _plain
from pdalloc.report.dedicated_table import headline, print_dedicated
from pdalloc.scenario import Scenario, load_scenario, scenario_from_mapping

MIXED = Path(__file__).parents[2] / "experiments" / "mixed_fleet" / "scenario.yaml"


def mapping(made: Any, **keys: Any) -> dict[str, Any]:
    """Two classes on two types; the dear one prefills twice as fast."""
    slow = made.replica("slow", gpu="a100")
    slow["service"] = slow["service"] | {"prefill": {"throughput": "5000 token/s"}}
    raw = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": [
            made.chat(name="chat", rate="9 req/s", output="20 tokens"),
            made.chat(name="batch", rate="3 req/s", output="20 tokens"),
        ],
        "replicas": [made.replica("fast"), slow],
        "prices": {"h100": "3 USD/GPU/hour", "a100": "1 USD/GPU/hour"},
        "first_token": "prefill",
        "pools": "dedicated",
    }
    return raw | keys


def question(made: Any, **keys: Any) -> Scenario:
    return scenario_from_mapping(mapping(made, **keys))


def fleets_of(scenario: Scenario, answer: DedicatedAnswer) -> list[Fleet]:
    types = scenario.system.type_names
    return [parse_fleet(part.answer.fleet or "", types) for part in answer.parts]


def certified(scenario: Scenario, answer: DedicatedAnswer) -> bool:
    """Whether every part keeps all constraints with what the others leave it."""
    problem, fleets = dedicated_problem(scenario), fleets_of(scenario, answer)
    return not problem.violations(fleets) and all(
        certify(part_given(part, problem, i, fleets).problem(), fleets[i]).certified
        for i, part in enumerate(scenario.parts)
    )


def test_each_part_keeps_its_slos_with_a_replica_lost(made):
    scenario = question(made, redundancy=1)
    answer = plan_dedicated(scenario)
    assert answer.status == "optimal" and certified(scenario, answer)
    for part, fleet in zip(scenario.parts, fleets_of(scenario, answer), strict=True):
        problem = part.problem()
        for left in remainders(fleet, 1).values():
            assert problem.capacity.route(left, problem.demand) is not None


def test_types_of_a_part_fit_each_other_but_not_those_of_another_part(made):
    """Requests never cross from one part's pools to another's."""
    pairs = [["fast", "fast"], ["slow", "slow"]]
    scenario = question(made, compatible=pairs, stock={"h100": 16})
    answer = plan_dedicated(scenario)
    assert certified(scenario, answer)
    for part, fleet in zip(scenario.parts, fleets_of(scenario, answer), strict=True):
        assert misfits(part.problem(), fleet) == []


def test_headroom_is_planned_for_in_every_part(made):
    """A fleet with 20 % headroom serves 1.2 times the demand in each part."""
    scenario = question(made, headroom=0.2)
    answer = plan_dedicated(scenario)
    assert certified(scenario, answer)
    for part, fleet in zip(scenario.parts, fleets_of(scenario, answer), strict=True):
        assert part.problem().capacity.route(fleet, 1.2 * part.demand) is not None


def test_slos_over_all_requests_hold_over_each_part(made):
    """Level 2 allows what level 1 does, so it costs no more, part by part."""
    pool = plan_dedicated(question(made))
    population = plan_dedicated(question(made, slo_scope="population"))
    assert population.status == "optimal"
    for wide, narrow in zip(population.parts, pool.parts, strict=True):
        assert wide.answer.slo_scope == "population"
        assert (wide.answer.cost_usd_per_hour or 0.0) <= (narrow.answer.cost_usd_per_hour or 0.0)


def test_joint_slos_and_prices_of_lateness_are_a_parts_own(made):
    batch = made.chat(name="batch", rate="3 req/s", output="20 tokens", slo={})
    batch["attainment"] = [{"share": 0.9, "within": {"ttft": "1 s"}}]
    batch["best_effort"] = [{"within": {"ttft": "0.5 s"}, "price": "1 USD/krequest"}]
    chat = made.chat(name="chat", rate="9 req/s", output="20 tokens")
    scenario = question(made, traffic=[chat, batch])
    first, second = (part.answer for part in plan_dedicated(scenario).parts)
    assert (len(first.joint_slos), len(first.lateness)) == (0, 0)
    assert (len(second.slos), len(second.joint_slos), len(second.lateness)) == (0, 1, 1)
    assert second.joint_slos[0].kept


def test_parts_with_coupled_stages_share_a_stock(made):
    """TTFT spans both stages where decode makes the first token: proven by prices, or apart."""
    keys: dict[str, Any] = {"first_token": "decode"}
    free = solve_dedicated(dedicated_problem(question(made, **keys)))
    used = dedicated_problem(question(made, **keys)).gpus(free.fleets)
    tight = {gpu: max(count - 8, 8) for gpu, count in used.items()}
    found = solve_dedicated(dedicated_problem(question(made, **keys, stock=tight)))
    assert free.status == "optimal" and found.status == "optimal"
    # less stock never makes a fleet cheaper
    assert (free.cost or 0.0) < (found.cost or 0.0)
    assert found.method != free.method


def test_groups_are_planned_as_classes_that_share(made):
    """[[chat, batch]] is one part: what pools: shared plans."""
    together = plan_dedicated(question(made, pools=[["chat", "batch"]]))
    shared = plan(question(made, pools="shared"))
    assert together.cost_usd_per_hour == shared.cost_usd_per_hour
    assert together.parts[0].answer.fleet == shared.fleet
    assert together.shared[0].dedicated_change == 0.0


def test_a_part_that_falls_short_is_planned_again_for_a_little_more():
    """The question of the test of plan's own second try, as the only part."""
    overrides = (
        "traffic.0.arrival_scv=4",
        "traffic.0.lengths=null",
        "traffic.0.prompt=[" + "100 tokens," * 9 + "8000 tokens]",
        "traffic.0.output=100 tokens",
        "traffic.0.rate=3 req/s",
        "replicas.0.prefill_noise=exponential",
        "replicas.1.prefill_noise=exponential",
        "traffic.0.slo={tpot: {p99: 59.897714 ms}, ttft: {mean: 2 s}}",
        "pools=dedicated",
    )
    scenario = load_scenario(MIXED, None, overrides)
    problem = dedicated_problem(scenario)
    first = solve_dedicated(problem)
    assert not certify(problem.parts[0].problem, first.fleets[0]).certified
    answer = plan_dedicated(scenario)
    assert answer.status == "feasible" and certified(scenario, answer)
    assert answer.bound_usd_per_hour == first.cost
    assert "at least" in headline(answer)


# Words, files and the command


def printed(answer: DedicatedAnswer) -> str:
    out = io.StringIO()
    print_dedicated(answer, Console(file=out, width=200, force_terminal=False))
    return out.getvalue()


def test_no_answer_in_words(made):
    answer = plan_dedicated(question(made, stock={"h100": 8, "a100": 8}))
    assert printed(answer).splitlines()[1].startswith("No dedicated pools keep every SLO: ")
    assert "Parts" not in printed(answer)


def test_a_plan_that_fails_its_check_says_which_part(made, monkeypatch):
    """Prediction has the last word, part by part."""
    monkeypatch.setattr("pdalloc.planning.dedicated.AGAIN", ())

    def fewer(problem: Any) -> Any:
        found = solve_dedicated(problem)
        least = Fleet.of({(PREFILL, "slow"): 1, (DECODE, "slow"): 1})
        return type(found)("optimal", (least, found.fleets[1]), 16.0, 16.0, found.method)

    monkeypatch.setattr("pdalloc.planning.dedicated.solve_dedicated", fewer)
    answer = plan_dedicated(question(made))
    assert (answer.status, answer.bound_usd_per_hour) == ("infeasible", None)
    assert answer.reason.startswith("chat: the fleet fails its check")
    assert " break: chat: " in headline(answer)


def test_variants_are_named(made):
    raw = mapping(made, variants={"more": {"set": {"traffic.0.rate": "12 req/s"}}})
    answer = plan_dedicated(scenario_from_mapping(raw, "more"))
    assert printed(answer).splitlines()[0].endswith("variant more")


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        (["chat"], "chat"),
        (["chat[<=2048]", "code[>8192]"], "chat_up_to_2048+code_over_8192"),
        (["a b/c[10-20]"], "a_b_c_10-20"),
    ],
)
def test_file_names_of_parts_are_plain(classes, name):
    assert _plain(classes) == name


def test_the_command_validates_each_part(made, command, tmp_path):
    path = tmp_path / "q.yaml"
    path.write_text(yaml.safe_dump(mapping(made)), encoding="utf-8")
    flags = ("--validate", "--requests", "2000", "--replications", "2", "--seed", "5")
    found = json.loads(command("plan", str(path), *flags, "--json", "-").stdout)
    for i, part in enumerate(found["parts"]):
        assert part["answer"]["slos"][0]["simulated_s"] > 0.0
        assert part["answer"]["produced_by"]["seed"] == 5 + i
    owned = command("plan", str(path), "--owned", "prefill/fast=1", "--json", "-")
    assert json.loads(owned.stdout)["cost_usd_per_hour"] <= found["cost_usd_per_hour"]


def test_co_located_serving_is_refused(made):
    with pytest.raises(UnsupportedError, match="co-located"):
        plan_dedicated(question(made, simulation=made.TOGETHER))
