"""plan on dedicated pools, from a scenario to tables, JSON and figures."""

from __future__ import annotations

import io
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pdalloc.allocation.certify import certify
from pdalloc.allocation.dedicated import (
    DedicatedAllocation,
    DedicatedProblem,
    solve_dedicated,
)
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import parse_fleet
from pdalloc.planning import Effort, compare, evaluate, explain, frontier, plan, simulate
from pdalloc.planning.dedicated import dedicated_problem, part_given, plan_dedicated, shared_pools
from pdalloc.planning.dedicated_answer import DedicatedAnswer
from pdalloc.report.dedicated_files import write_dedicated
from pdalloc.report.dedicated_table import print_dedicated, shared_words
from pdalloc.report.files import FIGURES, KINDS
from pdalloc.scenario import Scenario, scenario_from_mapping

EFFORT = Effort(3000, 4)
LENGTHS = {"prompt": ["500 tokens", "1500 tokens"], "output": "20 tokens"}
BUCKETS = {**LENGTHS, "buckets": "1000 tokens"}


def mapping(made: Any, **keys: Any) -> dict[str, Any]:
    """Two classes on a fast dear and a slow cheap type; chat is in a hurry, batch is not."""
    slow = made.replica("slow", gpu="a100")
    slow["service"] = slow["service"] | {"prefill": {"throughput": "5000 token/s"}}
    raw = {
        "name": "q",
        "title": "[b]two[/b] classes",
        "llm": "llama2-70b",
        "traffic": [
            made.chat(name="chat", rate="9 req/s", **LENGTHS),
            made.chat(name="batch", rate="3 req/s", slo={"ttft": {"mean": "4 s"}}, **LENGTHS),
        ],
        "replicas": [made.replica("fast"), slow],
        "prices": {"h100": "3 USD/GPU/hour", "a100": "1 USD/GPU/hour"},
        "first_token": "prefill",
        "pools": "dedicated",
    }
    return raw | keys


def question(made: Any, **keys: Any) -> Scenario:
    return scenario_from_mapping(mapping(made, **keys))


def known(value: float | None) -> float:
    assert value is not None
    return value


@pytest.fixture(scope="module")
def scenario(made) -> Scenario:
    return question(made, stock={"h100": 24, "a100": 48})


@pytest.fixture(scope="module")
def answer(scenario) -> DedicatedAnswer:
    return plan_dedicated(scenario, simulate=True, effort=EFFORT)


def test_parts_are_ordinary_answers_that_add_up(scenario, answer):
    assert answer.status == "optimal"
    assert [part.classes for part in answer.parts] == [["chat"], ["batch"]]
    each = [part.answer for part in answer.parts]
    assert sum(a.cost_usd_per_hour for a in each) == pytest.approx(answer.cost_usd_per_hour)
    assert sum(a.gpus for a in each) == answer.gpus == sum(answer.gpus_by_type.values())
    assert sum(a.demand_requests_per_s for a in each) == answer.demand_requests_per_s == 12.0
    assert [part.rate_share for part in answer.parts] == [0.75, 0.25]
    assert sum(part.token_share for part in answer.parts) == pytest.approx(1.0)
    assert {a.status for a in each} == {"optimal"}
    assert all(a.bound_usd_per_hour == a.cost_usd_per_hour for a in each)


def test_each_part_keeps_its_slos_by_prediction_and_by_simulation(answer):
    for part in answer.parts:
        for slo in part.answer.slos:
            assert slo.traffic_class == part.classes[0]
            assert slo.kept and slo.predicted_s <= slo.bound_s
            # the prediction lies within two intervals of four replications
            gap = abs(slo.simulated_s - slo.predicted_s)
            assert gap <= 2.0 * slo.simulated_half_width_s + 0.05 * slo.predicted_s


def test_parts_are_simulated_on_streams_of_their_own(made):
    """Two equal classes: equal plans and laws, different random numbers."""
    same = [made.chat(name=name, rate="4 req/s", output="20 tokens") for name in ("a", "b")]
    found = plan_dedicated(question(made, traffic=same), simulate=True, effort=EFFORT)
    first, second = (part.answer for part in found.parts)
    assert first.fleet == second.fleet
    assert first.slos[0].predicted_s == second.slos[0].predicted_s
    assert first.slos[0].simulated_s != second.slos[0].simulated_s


def test_shared_pools_stand_beside_and_cost_what_plan_says(made, answer):
    shared = question(made, stock={"h100": 24, "a100": 48}, pools="shared")
    (row,) = answer.shared
    assert (row.promise, row.cost_usd_per_hour) == ("class", plan(shared).cost_usd_per_hour)
    assert row.dedicated_change == pytest.approx(
        answer.cost_usd_per_hour / row.cost_usd_per_hour - 1.0
    )


def test_with_buckets_shared_pools_are_shown_under_both_promises(made):
    traffic = [made.chat(**BUCKETS)]
    found = shared_pools(question(made, traffic=traffic), 1.0)
    assert [row.promise for row in found] == ["class", "bucket"]
    over_class, in_bucket = (known(row.cost_usd_per_hour) for row in found)
    # a mean kept in every bucket is kept over the class: the stronger promise costs no less
    assert over_class <= in_bucket
    bursty = [traffic[0] | {"arrival_scv": 4.0}]
    assert "no independent streams" in shared_pools(question(made, traffic=bursty), 1.0)[1].reason


def test_what_buckets_promise_and_assume_is_said(made):
    traffic = [made.chat(**BUCKETS)]
    poisson = plan_dedicated(question(made, traffic=traffic)).warnings
    assert len(poisson) == 1 and "SLOs hold in every bucket" in poisson[0]
    bursty = [traffic[0] | {"arrival_scv": 4.0}]
    assert "SCV 1 + p (SCV - 1)" in plan_dedicated(question(made, traffic=bursty)).warnings[1]


def test_auto_buckets_are_the_cheapest_of_those_tried(made):
    """Each choice costs what a scenario with that edge costs; no edge is one of them."""
    prompts = ["100 tokens", "500 tokens", "1500 tokens", "6000 tokens"]
    chat = made.chat(name="chat", rate="9 req/s", **LENGTHS) | {"prompt": prompts}
    found = plan_dedicated(question(made, traffic=[chat | {"buckets": "auto"}]))
    tried = {tuple(t.buckets): known(t.cost_usd_per_hour) for t in found.tried}
    assert () in tried and len(tried) == 4
    assert known(found.cost_usd_per_hour) == min(tried.values())
    for names, cost in tried.items():
        edge = names[0].split("<=")[1][:-1] if names else "9000"
        fixed = [chat | ({"buckets": f"{edge} tokens"} if names else {})]
        problem = dedicated_problem(question(made, traffic=fixed))
        assert solve_dedicated(problem).cost == cost
    text = printed(found)
    assert "Buckets tried: none " in text and "chat[<=100] chat[>100] " in text


def test_owned_replicas_help_every_choice(made):
    traffic = [made.chat(name="chat", rate="9 req/s", **LENGTHS) | {"buckets": "auto"}]
    paid = plan_dedicated(question(made, traffic=traffic))
    free = plan_dedicated(question(made, traffic=traffic).owning("decode/fast=1"))
    for less, more in zip(free.tried, paid.tried, strict=True):
        assert known(less.cost_usd_per_hour) <= known(more.cost_usd_per_hour)


def test_a_choice_that_is_too_hard_leaves_the_others(made, monkeypatch):
    def unproven(problem: DedicatedProblem) -> DedicatedAllocation:
        if len(problem.parts) == 1:
            raise UnsupportedError("too hard")
        return solve_dedicated(problem)

    monkeypatch.setattr("pdalloc.planning.dedicated.solve_dedicated", unproven)
    traffic = [made.chat(name="chat", rate="9 req/s", **LENGTHS) | {"buckets": "auto"}]
    found = plan_dedicated(question(made, traffic=traffic))
    assert [t.cost_usd_per_hour is None for t in found.tried] == [True, False]
    assert len(found.parts) == 2 and found.status == "optimal"
    assert "none -" in printed(found)


def test_owned_replicas_are_divided_and_free_once(made):
    owned = "prefill/fast=1,decode/fast=1"
    free = plan_dedicated(question(made).owning(owned))
    paid = plan_dedicated(question(made))
    assert known(free.cost_usd_per_hour) < known(paid.cost_usd_per_hour)
    used = [pool.owned for part in free.parts for pool in part.answer.pools]
    assert sum(used) <= 2
    each = sum(known(part.answer.cost_usd_per_hour) for part in free.parts)
    assert each == pytest.approx(free.cost_usd_per_hour)


def test_a_part_is_given_what_the_others_leave(scenario, answer):
    """Its question under that stock has its own fleet as certified and cheapest answer."""
    problem = dedicated_problem(scenario)
    types = scenario.system.type_names
    fleets = [parse_fleet(part.answer.fleet or "", types) for part in answer.parts]
    for i, part in enumerate(scenario.parts):
        given = part_given(part, problem, i, fleets)
        used = problem.gpus([f for j, f in enumerate(fleets) if j != i])
        assert given.stock == {g: n - used.get(g, 0) for g, n in scenario.stock.items()}
        assert certify(given.problem(), fleets[i]).certified
        assert plan(given).cost_usd_per_hour == answer.parts[i].answer.cost_usd_per_hour


def test_no_fleet_is_an_answer_with_its_reason_and_shared_pools(made):
    found = plan_dedicated(question(made, stock={"h100": 16, "a100": 8}))
    assert (found.status, found.parts, found.cost_usd_per_hour) == ("infeasible", [], None)
    assert "batch" in found.reason or "not all together" in found.reason
    assert found.shared[0].dedicated_change is None


def test_errors_of_a_part_name_it(made):
    one = made.chat(name="one", prompt="500 tokens", output="1 token")
    with pytest.raises(InputError, match="pools of one: every request has one output token"):
        plan_dedicated(question(made, traffic=[made.chat(name="chat", **LENGTHS), one]))


def test_types_left_out_are_named(made):
    small = made.replica("small", kv_tokens=1200.0)
    traffic = [made.chat(**BUCKETS)]
    found = plan_dedicated(question(made, traffic=traffic, replicas=[made.replica("r"), small]))
    assert [part.left_out for part in found.parts] == [[], ["decode/small"]]
    assert "Left out: decode/small cannot hold" in printed(found)


def printed(answer: DedicatedAnswer) -> str:
    out = io.StringIO()
    print_dedicated(answer, Console(file=out, width=200, force_terminal=False))
    return out.getvalue()


def test_the_table_has_totals_shared_pools_and_every_part(answer):
    text = printed(answer)
    assert "[b]two[/b] classes" in text
    assert "Dedicated pools on" in text and "proven by each part alone" in text
    assert "Shared pools (SLOs over each class):" in text
    for part in answer.parts:
        assert part.answer.xpyd in text
    assert text.count("\nPools") == 2
    once = [line for line in text.splitlines() if line.startswith("Warning:")]
    assert len(once) == len(set(once))


def test_shared_pools_in_words(answer):
    (row,) = answer.shared
    more = row.model_copy(update={"dedicated_change": 0.123})
    assert shared_words(more).endswith("dedicated pools cost 12.3% more.")
    less = row.model_copy(update={"dedicated_change": -0.05})
    assert shared_words(less).endswith("dedicated pools cost 5.0% less.")
    equal = row.model_copy(update={"dedicated_change": 0.0})
    assert shared_words(equal).endswith("dedicated pools cost as much.")
    alone = row.model_copy(update={"dedicated_change": None})
    assert shared_words(alone).endswith("USD/h.")
    near = row.model_copy(update={"status": "feasible", "bound_usd_per_hour": 1.0})
    assert "(at least 1.00 is needed)" in shared_words(near)
    none = row.model_copy(update={"fleet": None, "reason": "no stock"})
    assert shared_words(none) == "Shared pools (SLOs over each class): none (no stock)."


def test_files_have_the_figures_of_every_part_and_lose_old_ones(
    scenario, answer, tmp_path, monkeypatch
):
    """Figures themselves are tested with plan; here, that each is its own part's."""

    def drawn(given: Scenario, part: Any) -> dict[str, bytes]:
        text = f"{given.title} {part.fleet} {given.stock}".encode()
        return {f"{name}.{kind}": text for name in FIGURES for kind in KINDS}

    monkeypatch.setattr("pdalloc.report.dedicated_files.figure_files", drawn)
    old = tmp_path / "part9_x_cost_against_demand.png"
    old.write_bytes(b"old")
    write_dedicated(scenario, answer, tmp_path)
    assert not old.exists()
    assert DedicatedAnswer.model_validate_json((tmp_path / "answer.json").read_text()) == answer
    assert len(list(tmp_path.iterdir())) == 1 + 2 * len(FIGURES) * len(KINDS)
    for start, part in zip(("part1_chat", "part2_batch"), answer.parts, strict=True):
        for figure, kind in product(FIGURES, KINDS):
            text = (tmp_path / f"{start}_{figure}.{kind}").read_text()
            assert text.startswith(f"{part.classes[0]} {part.answer.fleet} ")


def written(made: Any, folder: Path, **keys: Any) -> str:
    path = folder / "q.yaml"
    path.write_text(yaml.safe_dump(mapping(made, **keys)), encoding="utf-8")
    return str(path)


def test_the_command_prints_a_table_or_json(made, command, tmp_path):
    path = written(made, tmp_path)
    done = command("plan", path)
    assert done.returncode == 0 and "Dedicated pools on" in done.stdout
    done = command("plan", path, "--json", "-")
    assert json.loads(done.stdout)["status"] == "optimal"
    done = command("plan", path, "--json", "a.json")
    assert json.loads(Path("a.json").read_text())["parts"][0]["classes"] == ["chat"]
    done = command("check", path)
    assert "pools for chat | batch" in done.stdout
    done = command("schema", "dedicated")
    assert json.loads(done.stdout)["title"] == "DedicatedAnswer"


def test_the_command_fails_with_one_line(made, command, tmp_path):
    path = written(made, tmp_path, stock={"h100": 8, "a100": 8})
    done = command("plan", path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "infeasible: " in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--repair",), "--repair: not for dedicated pools"),
        (("--alternatives", "2"), "--alternatives: dedicated pools have one solver"),
        (("--solver", "greedy"), "--solver: dedicated pools have one solver"),
    ],
)
def test_what_plan_does_not_offer_here_is_one_line(made, command, tmp_path, flags, message):
    done = command("plan", written(made, tmp_path), *flags)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "ask",
    [
        plan,
        compare,
        explain,
        lambda s: evaluate(s, "1P1D"),
        lambda s: simulate(s, "1P1D"),
        lambda s: frontier(s, "demand"),
    ],
    ids=["plan", "compare", "explain", "evaluate", "simulate", "frontier"],
)
def test_other_questions_are_refused_in_one_line(scenario, ask):
    with pytest.raises(UnsupportedError, match="which only pdalloc plan answers"):
        ask(scenario)


def test_shared_pools_are_no_question_for_it(made):
    with pytest.raises(InputError, match="set pools: dedicated, or use plan"):
        plan_dedicated(question(made, pools="shared"))
