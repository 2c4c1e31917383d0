"""The reference paper's case from its scenario file: plans, limits, and what is impossible.

Numbers: arXiv 2603.04716 and design 3.7.1 (28 309 token/s, 6144/512 tokens, TTFT 2 s, TPOT
20 ms, 5 Mtoken/min, H200 at 3.59 USD/GPU/hour, 8 per replica).
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import pytest

from pdalloc.planning import Answer, evaluate, plan
from pdalloc.scenario import load_scenario

pytestmark = pytest.mark.pipeline
PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper_2603_04716" / "scenario.yaml"
RATE = 5e6 / 60 / (6144 + 512)
MU = 28309 / 6144
REPLICA = 8 * 3.59
"""USD per replica and hour."""


@cache
def planned(variant: str | None = None, solver: str = "exact", *overrides: str) -> Answer:
    return plan(load_scenario(PAPER, variant, overrides), solver)


@cache
def evaluated(fleet: str, variant: str | None = None) -> Answer:
    return evaluate(load_scenario(PAPER, variant), fleet)


def slo(answer: Answer, metric: str) -> float:
    (found,) = [s.predicted_s for s in answer.slos if s.metric == metric]
    assert found is not None
    return found


def test_base_plan() -> None:
    """5 Mtoken/min on the benchmark curve needs 4P4D."""
    answer = planned()
    assert (answer.status, answer.xpyd) == ("optimal", "4P4D")
    assert answer.demand_requests_per_s == pytest.approx(RATE, rel=1e-12)
    assert answer.cost_usd_per_hour == pytest.approx(8 * REPLICA, rel=1e-12)
    assert (answer.gpus, answer.gpus_by_type) == (64, {"h200": 64})
    assert all(s.kept for s in answer.slos)


def test_base_ttft_is_the_papers_formula() -> None:
    """1/(mu - lambda/4) + 0.1 s (M/M/1 plus overhead)."""
    assert slo(planned(), "ttft") == pytest.approx(1 / (MU - RATE / 4) + 0.1, rel=1e-9)


def test_bench_curve_variant_is_the_base() -> None:
    assert planned("bench_curve").xpyd == planned().xpyd


def test_calibrated_plan() -> None:
    """Decode 4.1 % slower, as the cluster measured: 4P5D."""
    answer = planned("calibrated")
    assert (answer.status, answer.xpyd) == ("optimal", "4P5D")
    assert answer.cost_usd_per_hour == pytest.approx(9 * REPLICA, rel=1e-12)
    assert not any("calibrated" in warning for warning in answer.warnings)


def test_one_replica_fewer_breaks_an_slo() -> None:
    """What optimality means with one type: neither 3P4D nor 4P3D keeps both SLOs."""
    assert not all(s.kept for s in evaluated("3P4D").slos)
    assert not all(s.kept for s in evaluated("4P3D").slos)


def test_proven_bound_is_the_cost() -> None:
    for variant in (None, "calibrated"):
        answer = planned(variant)
        assert answer.bound_usd_per_hour == pytest.approx(answer.cost_usd_per_hour, rel=1e-12)


def test_paper_solver() -> None:
    """Design 3.7.1: 25 075 token/s and 1714 token/s, 3.07 P and 3.74 D, ratio 0.82."""
    answer = planned(None, "paper")
    details = answer.details
    peak = 28309 - 6144 / 1.9
    assert details["prefill_tokens_per_s_per_replica"] == pytest.approx(peak, rel=1e-9)
    assert details["prefill_tokens_per_s_per_replica"] == pytest.approx(25075, abs=1)
    # The step curve meets 20 ms at batch 30 + 10 (20 - 18.8)/(21.6 - 18.8) = 34.29.
    batch = 30 + 10 * (20 - 18.8) / (21.6 - 18.8)
    assert details["decode_tokens_per_s_per_replica"] == pytest.approx(batch / 0.02, rel=1e-6)
    assert details["prefill_replicas"] == pytest.approx(RATE * 6144 / peak, rel=1e-9)
    assert details["prefill_replicas"] == pytest.approx(3.07, abs=0.005)
    assert details["decode_replicas"] == pytest.approx(3.74, abs=0.005)
    assert details["ratio"] == pytest.approx(0.82, abs=0.005)
    assert answer.xpyd == "3P4D"


def test_rounding_down_breaks_the_papers_own_slo() -> None:
    """3P4D at 5 Mtoken/min: 1/(mu - lambda/3) + 0.1 = 2.40 s, above 2 s."""
    for answer in (planned(None, "paper"), evaluated("3P4D")):
        assert answer.status == "infeasible"
        assert slo(answer, "ttft") == pytest.approx(2.40, abs=0.005)
        assert slo(answer, "ttft") == pytest.approx(1 / (MU - RATE / 3) + 0.1, rel=1e-9)
        assert "TTFT" in answer.reason and "TPOT" not in answer.reason


def test_3p4d_holds_up_to_4_89() -> None:
    """3 (mu - 1/1.9) requests/s of 6656 tokens = 4.89 Mtoken/min."""
    limit = evaluated("3P4D").demand_limit_tokens_per_minute
    assert limit == pytest.approx(60 * 6656 * 3 * (MU - 1 / 1.9), rel=1e-5)
    assert limit == pytest.approx(4.89e6, abs=5e3)


def test_calibrated_four_decode_replicas_hold_up_to_4_74() -> None:
    """Design 3.7.1: with the decode factor four decode replicas reach about 4.73-4.74."""
    answer = evaluated("6P4D", "calibrated")
    assert answer.demand_limit_tokens_per_minute == pytest.approx(4.735e6, abs=1e4)
    assert slo(answer, "tpot") > 0.02


@pytest.mark.parametrize("fleet", ["3P4D", "4P4D", "6P4D"])
def test_demand_limit_is_where_the_slos_break(fleet: str) -> None:
    limit = evaluated(fleet).demand_limit_tokens_per_minute
    assert limit is not None
    for factor, kept in ((0.9999, True), (1.0005, False)):
        rate = f"traffic.0.rate={limit * factor / 1e6:.9f} Mtoken/min"
        answer = evaluate(load_scenario(PAPER, None, [rate]), fleet)
        assert all(s.kept for s in answer.slos) is kept


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("traffic.0.slo.ttft.mean=250 ms", ["TTFT", "317 ms"]),
        ("traffic.0.slo.tpot.mean=8 ms", ["TPOT", "12.8 ms"]),
        ("stock.h200=40", ["h200", "24 short", "4P4D"]),
    ],
)
def test_infeasible_in_words(override: str, words: list[str]) -> None:
    """No count helps: 6144/28309 + 0.1 = 317 ms; t(1) = 12.8 ms; 64 GPUs of 40."""
    answer = planned(None, "exact", override)
    assert answer.status == "infeasible"
    assert (answer.xpyd, answer.cost_usd_per_hour, answer.gpus) == (None, None, 0)
    assert len(answer.reason.splitlines()) == 1
    assert all(word in answer.reason for word in words)


@pytest.mark.parametrize("bound", ["318 ms", "12.9 ms"])
def test_the_nearest_bound_named_is_feasible(bound: str) -> None:
    metric = "ttft" if bound.startswith("3") else "tpot"
    answer = planned(None, "exact", f"traffic.0.slo.{metric}.mean={bound}")
    assert answer.status == "optimal"


def test_enough_stock_changes_nothing() -> None:
    assert planned(None, "exact", "stock.h200=64").xpyd == "4P4D"


def test_alternatives_cost_more_in_order_and_keep_the_slos() -> None:
    answer = plan(load_scenario(PAPER), alternatives=6)
    costs = [other.cost_usd_per_hour for other in answer.alternatives]
    assert len(costs) == 6 and costs == sorted(costs)
    assert answer.cost_usd_per_hour is not None and costs[0] >= answer.cost_usd_per_hour
    fleets = [other.fleet for other in answer.alternatives]
    assert len({answer.fleet, *fleets}) == 7
    for fleet in fleets:
        assert all(s.kept for s in evaluate(load_scenario(PAPER), fleet).slos)
    assert {o.xpyd for o in answer.alternatives[:2]} == {"4P5D", "5P4D"}


def test_owned_replicas_make_additions_only() -> None:
    """Owning the paper's 3P4D, one prefill replica is bought."""
    answer = plan(load_scenario(PAPER).owning("3P4D"))
    assert answer.xpyd == "4P4D"
    assert answer.cost_usd_per_hour == pytest.approx(REPLICA, rel=1e-12)
    assert {p.role: p.owned for p in answer.pools} == {"prefill": 3, "decode": 4}
    assert {p.role: p.cost_usd_per_hour for p in answer.pools} == pytest.approx(
        {"prefill": REPLICA, "decode": 0.0}
    )


def test_owning_enough_costs_nothing() -> None:
    answer = plan(load_scenario(PAPER).owning("6P6D"))
    assert (answer.status, answer.cost_usd_per_hour) == ("optimal", 0.0)


@pytest.mark.parametrize("solver", ["cvxpy", "pyomo"])
@pytest.mark.parametrize("variant", [None, "calibrated"])
def test_exact_backends_agree(solver: str, variant: str | None) -> None:
    assert planned(variant, solver).fleet == planned(variant).fleet


def test_margins_are_where_the_slos_break() -> None:
    """Demand: limit/demand - 1. Decode: TPOT scales with the step at fixed load, so its
    slow-down is re-checked by evaluation just inside and outside."""
    answer = planned()
    assert answer.margin is not None and answer.margin.decode is not None
    assert answer.demand_limit_tokens_per_minute == pytest.approx(
        5e6 * (1 + (answer.margin.demand or math.nan)), rel=1e-9
    )
    for change, kept in ((-3e-4, True), (3e-4, False)):
        factor = 1 + answer.margin.decode + change
        scenario = load_scenario(PAPER, None, [f"replicas.0.calibration.decode={factor}"])
        assert all(s.kept for s in evaluate(scenario, "4P4D").slos) is kept


def test_json_is_complete_and_finite() -> None:
    for answer in (planned(), planned(None, "exact", "stock.h200=40"), evaluated("4P1D")):
        text = answer.to_json()
        read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        assert list(read) == list(Answer.model_fields)
        assert Answer.model_validate(read) == answer
