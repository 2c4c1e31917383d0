"""The answer as a contract: fields, sums, determinism, what is binding, what comes next."""

from __future__ import annotations

import importlib
import itertools
import json
import math
from functools import cache
from typing import Any

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers.exact import ExactSearch
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet, parse_fleet
from pdalloc.planning import Answer, evaluate, plan
from pdalloc.scenario import Scenario, scenario_from_mapping

pytestmark = pytest.mark.pipeline
VALIDATE: Any = importlib.import_module("jsonschema").validate  # the package has no annotations
USD = {"a100": 2.0, "h100": 5.0}
GPUS = {"slow": 2, "fast": 1}
OWNED = "prefill/slow=1,decode/fast=1,decode/slow=1"


def replica(name: str, gpu: str, slower: float) -> dict[str, Any]:
    decode = {"base": f"{9 * slower} ms", "per_request": f"{0.3 * slower} ms/request"}
    prefill = {"throughput": f"{16000 / slower} token/s", "noise": "exponential"}
    return {
        "name": name,
        "gpu": gpu,
        "gpus": GPUS[name],
        "service": {"source": "made up", "prefill": prefill, "decode": decode},
        "max_batch": 256,
    }


def question(kind: str = "free", rule: str = "transfer", rate: float = 30.0) -> Scenario:
    """Two types; with replicas ``owned``, scarce ``stock``, ``none`` to speak of; ``single``."""
    types = [replica("fast", "h100", 1.0), replica("slow", "a100", 1.5)]
    raw: dict[str, Any] = {
        "name": "contract",
        "title": "A made-up question",
        "llm": "llama-3.1-8b",
        "traffic": [
            {
                "rate": f"{rate} req/s",
                "prompt": "1000 tokens",
                "output": "150 tokens",
                "slo": {"ttft": {"mean": "400 ms", "p90": "900 ms"}, "tpot": {"mean": "30 ms"}},
            }
        ],
        "replicas": types[:1] if kind == "single" else types,
        "prices": {gpu: f"{usd} USD/GPU/hour" for gpu, usd in USD.items()},
        "first_token": rule,
    }
    raw["stock"] = {"stock": {"h100": 3}, "none": {"h100": 3, "a100": 0}}.get(kind, {})
    scenario = scenario_from_mapping(raw)
    return scenario.owning(OWNED) if kind == "owned" else scenario


@cache
def planned(kind: str = "free", rule: str = "transfer") -> Answer:
    return plan(question(kind, rule))


@cache
def evaluated(fleet: str, kind: str = "free") -> Answer:
    return evaluate(question(kind), fleet)


FEW = "prefill/fast=2,decode/fast=2"
OVERLOADED = "prefill/fast=1,decode/fast=9"
HALF = "prefill/fast=9"


KINDS = ("free", "owned", "stock", "none", "single")


@cache
def answers() -> dict[str, Answer]:
    found = {kind: planned(kind) for kind in KINDS}
    found |= {text: evaluated(text) for text in (FEW, OVERLOADED, HALF)}
    return found | {"decode rule": planned("single", "decode")}


NAMES = [*KINDS, FEW, OVERLOADED, HALF, "decode rule"]


@pytest.mark.parametrize("name", NAMES)
def test_json_keeps_its_schema_and_comes_back_the_same(name: str) -> None:
    answer = answers()[name]
    text = answer.to_json()
    read = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    VALIDATE(read, Answer.model_json_schema())
    assert Answer.model_validate_json(text) == answer
    assert list(read) == list(Answer.model_fields)


@pytest.mark.parametrize("name", NAMES)
def test_gpus_and_costs_are_the_sums_of_the_pools(name: str) -> None:
    answer = answers()[name]
    assert answer.gpus == sum(p.replicas * p.gpus_per_replica for p in answer.pools)
    assert answer.gpus == sum(answer.gpus_by_type.values())
    for gpu, count in answer.gpus_by_type.items():
        assert count == sum(p.replicas * p.gpus_per_replica for p in answer.pools if p.gpu == gpu)
    if answer.cost_usd_per_hour is None:
        assert not answer.pools and answer.fleet is None and answer.gpus == 0
        return
    assert answer.cost_usd_per_hour == pytest.approx(sum(p.cost_usd_per_hour for p in answer.pools))
    for p in answer.pools:
        bought = max(p.replicas - p.owned, 0)
        assert p.cost_usd_per_hour == pytest.approx(bought * p.gpus_per_replica * USD[p.gpu])
    assert answer.fleet is not None
    written = parse_fleet(answer.fleet, question().system.type_names).counts
    assert written == {(p.role, p.replica_type): p.replicas for p in answer.pools}


@pytest.mark.parametrize("name", NAMES)
def test_unit_costs_are_recomputed(name: str) -> None:
    """30 requests/s of 1150 tokens: 2.07 million tokens a minute."""
    answer = answers()[name]
    per_minute = 60.0 * 30.0 * (1000 + 150)
    assert answer.demand_requests_per_s == pytest.approx(30.0, rel=1e-12)
    assert answer.demand_tokens_per_minute == pytest.approx(per_minute, rel=1e-12)
    if answer.cost_usd_per_hour is None:
        assert answer.cost_usd_per_million_tokens is None
        assert answer.tokens_per_minute_per_gpu is None
    else:
        per_million = answer.cost_usd_per_hour / (60 * per_minute / 1e6)
        assert answer.cost_usd_per_million_tokens == pytest.approx(per_million, rel=1e-12)
        assert answer.tokens_per_minute_per_gpu == pytest.approx(per_minute / answer.gpus)
    if answer.margin is not None and answer.demand_limit_tokens_per_minute is not None:
        assert answer.demand_limit_tokens_per_minute == pytest.approx(
            per_minute * (1 + (answer.margin.demand or math.nan)), rel=1e-12
        )


@pytest.mark.parametrize("name", ["free", "owned", "stock", "single", FEW])
def test_shares_of_a_role_sum_to_one(name: str) -> None:
    """Every pool is within its speed, and the rates are the shares of the demand."""
    answer = answers()[name]
    for role in ROLES:
        pools = [p for p in answer.pools if p.role == role]
        assert sum(p.rate_share or 0.0 for p in pools) == pytest.approx(1.0, rel=1e-9)
        assert sum(p.rate_per_s or 0.0 for p in pools) == pytest.approx(30.0, rel=1e-9)
        for p in pools:
            assert p.utilisation is not None and 0 < p.utilisation < 1
            assert (p.mean_batch is not None) == (role == DECODE)


@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_utilisation_is_the_offered_load(slower: float) -> None:
    """Prefill: rate times 1000 tokens over 16 000 token/s, per replica."""
    answer = evaluated(f"prefill/{'fast' if slower == 1.0 else 'slow'}=5,decode/fast=9")
    (pool,) = [p for p in answer.pools if p.role == PREFILL]
    assert pool.utilisation == pytest.approx(30 / 5 * 1000 * slower / 16000, rel=1e-9)


def test_status_and_bound() -> None:
    """A plan's bound is proven and never above its cost; an evaluation proves nothing."""
    for kind in ("free", "owned", "stock", "single"):
        answer = planned(kind)
        assert (answer.status, answer.reason) == ("optimal", "")
        assert answer.bound_usd_per_hour is not None and answer.cost_usd_per_hour is not None
        assert answer.bound_usd_per_hour <= answer.cost_usd_per_hour + 1e-9
        assert all(s.kept and s.predicted_s <= s.bound_s for s in answer.slos if s.predicted_s)
    for name in ("none", FEW, OVERLOADED, HALF):
        answer = answers()[name]
        assert answer.status == "infeasible" and answer.reason
        assert answer.bound_usd_per_hour is None
    assert evaluated(HALF).margin is None and planned("none").margin is None


def test_owned_replicas_are_free_and_more_choice_never_costs_more() -> None:
    answer = planned("owned")
    assert answer.cost_usd_per_hour is not None
    assert answer.cost_usd_per_hour < (planned().cost_usd_per_hour or 0.0)
    owned = parse_fleet(OWNED, question().system.type_names)
    for p in answer.pools:
        assert p.owned == min(owned.count(p.role, p.replica_type), p.replicas)
    assert (planned("stock").cost_usd_per_hour or 0) >= (planned().cost_usd_per_hour or 0)
    assert planned("stock").gpus_by_type.get("h100", 0) <= 3


OF_PLAN = {"status", "bound_usd_per_hour", "single_type", "alternatives", "details", "produced_by"}
SAME = [name for name in Answer.model_fields if name not in OF_PLAN]


@pytest.mark.parametrize("kind", ["free", "owned", "single"])
def test_evaluate_says_what_plan_said(kind: str) -> None:
    """The planned fleet, evaluated by itself, has the same numbers."""
    answer = planned(kind)
    again = evaluated(answer.fleet or "", kind)
    assert again.status == "feasible"
    for name in SAME:
        assert getattr(again, name) == getattr(answer, name), name


BUSY = 140.0
"""Requests/s that need ten replicas a role: one fewer still has a steady state."""
TTFTS, TPOTS = {("ttft", "mean"), ("ttft", "p90")}, {("tpot", "mean")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prefill/fast=11,decode/fast=14", TTFTS),
        ("prefill/fast=14,decode/fast=10", TPOTS),
        ("prefill/fast=11,decode/fast=10", TTFTS | TPOTS),
        ("prefill/fast=14,decode/fast=14", set()),
        ("prefill/fast=9,prefill/slow=4,decode/fast=10", None),
    ],
)
def test_binding_slos_are_those_that_break_with_one_replica_fewer(
    text: str, expected: set[tuple[str, str]] | None
) -> None:
    """Each smaller fleet is checked by itself.

    kappa = 16 - 1/0.4 = 13.5 (mean TTFT) and 16 - ln 10/0.9 = 13.4 (P90): 11 replicas for 140
    requests/s; (1 - 9.3/30)/(149 x 0.3 ms) = 15.4 for TPOT: 10 replicas.
    """
    scenario = question("free", rate=BUSY)
    problem = scenario.problem()
    fleet = parse_fleet(text, scenario.system.type_names)
    broken: set[tuple[str, str]] = set()
    for pool in fleet.pools:
        smaller = {**fleet.counts, (pool.role, pool.replica_type): pool.replicas - 1}
        check = certify(problem, Fleet.of(smaller))
        assert check.prediction is not None
        kept = {c.slo.name: c.kept for c in check.slos}
        broken |= {
            (name.partition(".")[0], name.partition(".")[2]) for name in kept if not kept[name]
        }
    answer = evaluate(scenario, fleet)
    assert {(s.metric, s.statistic) for s in answer.slos if s.binding} == broken
    assert expected is None or broken == expected


@pytest.mark.parametrize("kind", ["free", "stock", "single"])
def test_a_cheapest_fleet_has_something_binding(kind: str) -> None:
    assert any(s.binding for s in planned(kind).slos)


def test_broken_slos_are_binding_and_slack_ones_are_not() -> None:
    answer = evaluated(FEW)
    assert any(not s.kept for s in answer.slos)
    assert all(s.binding for s in answer.slos if not s.kept)
    assert not any(s.binding for s in evaluated("prefill/fast=30,decode/fast=30").slos)


def certified_costs(problem: AllocationProblem, most: int, ceiling: float) -> list[float]:
    """Costs up to ``ceiling`` of the certified fleets of at most ``most`` replicas a pool."""
    keys = [(o.role, o.replica_type) for o in problem.options]
    fleets = [
        Fleet.of(dict(zip(keys, counts, strict=True)))
        for counts in itertools.product(range(most + 1), repeat=len(keys))
    ]
    affordable = [f for f in fleets if problem.cost(f) <= ceiling + 1e-9]
    return sorted(problem.cost(f) for f in affordable if certify(problem, f).certified)


@pytest.mark.parametrize("kind", ["single", "free"])
def test_alternatives_are_the_next_cheapest_that_keep_the_slos(kind: str) -> None:
    """Against every fleet that costs no more than the last of them; no fleet twice."""
    scenario = question(kind)
    answer = plan(scenario, alternatives=4)
    found = [a.cost_usd_per_hour for a in answer.alternatives]
    least = min(o.usd_per_hour for o in scenario.problem().options)
    costs = certified_costs(scenario.problem(), int(found[-1] / least), found[-1])
    assert [answer.cost_usd_per_hour, *found] == pytest.approx(costs[:5])
    fleets = [answer.fleet, *(a.fleet for a in answer.alternatives)]
    assert len(set(fleets)) == 5
    for other in answer.alternatives:
        parsed = parse_fleet(other.fleet, scenario.system.type_names)
        assert certify(scenario.problem(), parsed).certified
        assert parsed.xpyd == other.xpyd
        assert scenario.problem().cost(parsed) == pytest.approx(other.cost_usd_per_hour)


@pytest.mark.parametrize("fleet", [FEW, OVERLOADED, HALF])
def test_a_fleet_that_fails_its_check_is_never_optimal(
    monkeypatch: pytest.MonkeyPatch, fleet: str
) -> None:
    """Prediction has the last word, whatever the solver claims."""

    def boast(self: ExactSearch, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        wrong = parse_fleet(fleet, question("single").system.type_names)
        cost = problem.cost(wrong)
        return Allocation("optimal", "exact", wrong, cost, cost)

    monkeypatch.setattr(ExactSearch, "solve", boast)
    answer = plan(question("single"))
    assert answer.status == "infeasible" and answer.bound_usd_per_hour is None
    assert "fails its check" in answer.reason and len(answer.reason.splitlines()) == 1
    assert not all(s.kept for s in answer.slos)


@pytest.mark.parametrize("kind", ["stock", "single"])
def test_plans_are_deterministic(kind: str) -> None:
    assert plan(question(kind)).to_json() == planned(kind).to_json()
