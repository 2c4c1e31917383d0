"""Mixed fleets: A100 and H100 in both roles, Llama 2 70B, Azure traces (Splitwise's setting)."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import pytest

from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.planning import Answer, evaluate, plan
from pdalloc.scenario import load_scenario

pytestmark = pytest.mark.pipeline
MIXED = Path(__file__).resolve().parents[2] / "experiments" / "mixed_fleet" / "scenario.yaml"
USD = {"a100x8": 8 * 2.21, "h100x8": 8 * 4.76}
"""USD per replica and hour."""
TRACES, TTFTS, TPOTS = ("conversation", "code"), ("400 ms", "1 s", "2 s"), ("60 ms", "100 ms")
CASES = list(itertools.product(TRACES, TTFTS, TPOTS))


@cache
def problem(trace: str, ttft: str, tpot: str) -> AllocationProblem:
    overrides = [
        f"traffic.0.lengths=azure-2023-{trace}",
        f"traffic.0.slo.ttft.mean={ttft}",
        f"traffic.0.slo.tpot.mean={tpot}",
    ]
    return load_scenario(MIXED, None, overrides).problem()


@cache
def solved(trace: str, ttft: str, tpot: str) -> Allocation:
    return solver_named("exact").solve(problem(trace, ttft, tpot))


@cache
def planned(variant: str | None = None) -> Answer:
    return plan(load_scenario(MIXED, variant))


def majority(case: tuple[str, str, str]) -> tuple[str, str]:
    """The type that carries most requests/s in each role."""
    of = problem(*case)
    rates = of.capacity.route(solved(*case).fleet, of.demand)
    assert rates is not None
    prefill, decode = (
        max((rate, name) for (at, name), rate in rates.items() if at == role)[1] for role in ROLES
    )
    return prefill, decode


def test_every_pairing_wins_somewhere() -> None:
    """Which GPU should prefill and which decode depends on SLOs and trace: all four occur."""
    winners = {majority(case) for case in CASES}
    assert winners == set(itertools.product(USD, USD))


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_plans_keep_the_slos_and_no_replica_can_go(case: tuple[str, str, str]) -> None:
    """Certified by routing; with any replica less no routing keeps the SLOs."""
    of, found = problem(*case), solved(*case)
    assert found.status == "optimal"
    assert found.cost == found.bound == pytest.approx(of.cost(found.fleet), rel=1e-12)
    assert of.capacity.route(found.fleet, of.demand) is not None
    for pool in found.fleet.pools:
        fewer = Fleet.of({**found.fleet.counts, (pool.role, pool.replica_type): pool.replicas - 1})
        if all(fewer.in_role(role) for role in ROLES):
            assert of.capacity.route(fewer, of.demand) is None


@pytest.mark.parametrize("ttft", TTFTS)
@pytest.mark.parametrize("trace", TRACES)
def test_tighter_slos_never_cost_less(trace: str, ttft: str) -> None:
    costs = [solved(trace, ttft, tpot).cost or 0.0 for tpot in TPOTS]
    assert costs[0] >= costs[1]
    looser = TTFTS[min(TTFTS.index(ttft) + 1, 2)]
    assert (solved(trace, ttft, "60 ms").cost or 0) >= (solved(trace, looser, "60 ms").cost or 0)


@pytest.mark.parametrize("case", [CASES[3], CASES[9]], ids="-".join)
def test_brute_force_around_the_optimum(case: tuple[str, str, str]) -> None:
    """Every integer fleet from five replicas less to four more in each pool: those that cost
    less than the optimum keep the SLOs under no routing, so none was missed."""
    of, found = problem(*case), solved(*case)
    assert found.cost is not None
    keys = [(role, name) for role in ROLES for name in USD]
    ranges = []
    for role, name in keys:
        n = found.fleet.count(role, name)
        ranges.append(range(max(n - 5, 0), n + 5))
    cheaper = 0
    for counts in itertools.product(*ranges):
        fleet = Fleet.of(dict(zip(keys, counts, strict=True)))
        cost = sum(USD[pool.replica_type] * pool.replicas for pool in fleet.pools)
        if cost > found.cost - 1e-6 or not all(fleet.in_role(role) for role in ROLES):
            continue
        cheaper += 1
        assert of.capacity.route(fleet, of.demand) is None, str(fleet)
    assert cheaper > 200


def test_base_plan() -> None:
    answer = planned()
    assert answer.status == "optimal"
    assert answer.cost_usd_per_hour == pytest.approx(
        sum(USD[pool.replica_type] * pool.replicas for pool in answer.pools), rel=1e-12
    )
    assert answer.demand_requests_per_s == 50.0
    assert sum(p.rate_share or 0 for p in answer.pools if p.role == PREFILL) == pytest.approx(1.0)
    assert sum(p.rate_share or 0 for p in answer.pools if p.role == DECODE) == pytest.approx(1.0)


VARIANTS = [None, "code", "tight_ttft", "tight_tpot", "tight_both", "p90"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_gpu_type_alone_never_costs_less(variant: str | None) -> None:
    """A single-type fleet is one of the mixed ones."""
    answer = planned(variant)
    assert set(answer.single_type) == {"a100", "h100"}
    for gpu, cost in answer.single_type.items():
        assert cost is None or cost >= (answer.cost_usd_per_hour or 0.0) - 1e-9, gpu
    used = {pool.gpu for pool in answer.pools}
    if len(used) == 1:
        assert answer.single_type[used.pop()] == pytest.approx(answer.cost_usd_per_hour)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pools_share_traffic_within_their_speed(variant: str | None) -> None:
    for pool in planned(variant).pools:
        assert pool.utilisation is not None and 0 < pool.utilisation < 1
        assert pool.rate_per_s == pytest.approx(50.0 * (pool.rate_share or 0.0), rel=1e-9)


@pytest.mark.parametrize("rule", ["prefill", "transfer", "decode"])
@pytest.mark.parametrize(
    "slo", ["{itl: {p50: 90.3 ms}}", "{itl: {p90: 60 ms}}", "{e2e: {p99: 90 s}}"]
)
def test_optimal_means_certified(slo: str, rule: str) -> None:
    """A fleet called optimal keeps every SLO when it is evaluated by itself."""
    overrides = [f"traffic.0.slo={slo}", f"first_token={rule}"]
    answer = plan(load_scenario(MIXED, None, overrides))
    assert answer.status == "optimal" and answer.fleet is not None
    assert all(s.kept for s in answer.slos)
    assert evaluate(load_scenario(MIXED, None, overrides), answer.fleet).status == "feasible"


def test_stock_binds() -> None:
    """160 A100 and 64 H100: within both, dearer than without, and neither type alone can."""
    answer = planned("stock")
    assert answer.status == "optimal"
    assert answer.gpus_by_type["a100"] <= 160 and answer.gpus_by_type["h100"] <= 64
    assert (answer.cost_usd_per_hour or 0) > (planned().cost_usd_per_hour or 0)
    assert answer.single_type == {"a100": None, "h100": None}


def test_warnings_name_the_window_and_the_measured_range() -> None:
    """Requests beyond 4096 tokens, batches beyond the 64 measured, no calibration."""
    for variant in (None, "tight_tpot"):
        warnings = planned(variant).warnings
        for word in ("4096-token window", "64 requests", "not calibrated"):
            assert sum(word in warning for warning in warnings) == 1
        assert all(len(warning.splitlines()) == 1 for warning in warnings)


def test_measured_batches_raise_no_range_warning() -> None:
    """The code trace keeps A100 decode below 64 requests (its P99 batch)."""
    answer = planned("code")
    decode = [pool for pool in answer.pools if pool.role == DECODE]
    assert all((pool.mean_batch or 0) < 64 for pool in decode)
    assert not any("64 requests" in warning for warning in answer.warnings)


def test_estimated_memory_is_listed() -> None:
    """The profiles' KV capacity is an estimate, and said to be one for each type used."""
    for line, pool in zip(planned().estimates, {p.replica_type for p in planned().pools},
                          strict=True):  # fmt: skip
        assert pool in line and "kv_tokens" in line


@pytest.mark.parametrize("solver", ["cvxpy", "pyomo"])
def test_backends_reach_the_same_cost(solver: str) -> None:
    """Integer optima are identical across exact backends."""
    for case in (CASES[3], CASES[0]):
        other = solver_named(solver).solve(problem(*case))
        assert other.cost == pytest.approx(solved(*case).cost, rel=1e-9)


def test_alternatives_are_proven_next() -> None:
    answer = plan(load_scenario(MIXED), alternatives=2)
    costs = [answer.cost_usd_per_hour or 0.0, *(a.cost_usd_per_hour for a in answer.alternatives)]
    assert all(later >= cost - 1e-9 for cost, later in itertools.pairwise(costs))
    for other in answer.alternatives:
        assert evaluate(load_scenario(MIXED), other.fleet).status == "feasible"
