"""Sweeps over demand agree with single plans, point by point."""

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning import evaluate, plan
from pdalloc.planning.sweeps import (
    CostPoint,
    cost_sweep,
    costly,
    demand_grid,
    latency_sweep,
    neighbours,
)
from pdalloc.scenario import Scenario, load_scenario

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
PAPER = EXPERIMENTS / "paper_2603_04716" / "scenario.yaml"
MIXED = EXPERIMENTS / "mixed_fleet" / "scenario.yaml"
P, D = ("prefill", "h200x8"), ("decode", "h200x8")


@pytest.fixture(scope="module")
def paper() -> Scenario:
    return load_scenario(PAPER)


@pytest.fixture(scope="module")
def mixed() -> Scenario:
    return load_scenario(MIXED)


@pytest.fixture(scope="module")
def paper_points(paper: Scenario) -> tuple[CostPoint, ...]:
    return cost_sweep(paper, demand_grid(paper))


def at(scenario: Scenario, demand: float) -> Scenario:
    """The scenario at another demand, requests/s."""
    workload = scenario.system.workload.scaled(demand / scenario.demand)
    return replace(scenario, system=scenario.system.with_workload(workload))


def fleet(text: str, scenario: Scenario) -> Fleet:
    return parse_fleet(text, scenario.system.type_names)


def same(left: float | None, right: float | None) -> bool:
    return left == right if left is None or right is None else math.isclose(left, right)


# The demands of a default sweep.


def test_the_grid_rises_and_holds_the_scenarios_own_demand(paper: Scenario) -> None:
    grid = demand_grid(paper)
    assert list(grid) == sorted(set(grid))
    assert paper.demand in grid
    assert grid[0] == pytest.approx(0.2 * paper.demand)
    assert grid[-1] == pytest.approx(1.6 * paper.demand)


def test_costly_scenarios_get_fewer_points(mixed: Scenario) -> None:
    slo = "traffic.0.slo={ttft: {p99: 4 s}}"
    one_type = load_scenario(PAPER, overrides=[slo, "first_token=decode"])
    percentile = load_scenario(MIXED, overrides=[slo])
    apart = load_scenario(MIXED, overrides=[slo, "first_token=prefill"])
    assert [costly(s) for s in (mixed, one_type, apart, percentile)] == [False] * 3 + [True]
    assert len(demand_grid(percentile)) < len(demand_grid(mixed)) / 2


# Cost against demand.


@pytest.mark.parametrize("share", [0.2, 0.55, 1.0, 1.6])
def test_costs_are_those_of_single_plans(paper: Scenario, share: float) -> None:
    (point,) = cost_sweep(paper, [share * paper.demand])
    answer = plan(at(paper, share * paper.demand))
    assert same(point.cost, answer.cost_usd_per_hour)
    assert (point.xpyd, str(point.fleet)) == (answer.xpyd, answer.fleet)
    assert not point.single_type


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_costs_of_mixed_fleets_and_of_each_type_alone(mixed: Scenario, share: float) -> None:
    (point,) = cost_sweep(mixed, [share * mixed.demand])
    answer = plan(at(mixed, share * mixed.demand))
    assert same(point.cost, answer.cost_usd_per_hour)
    assert set(point.single_type) == {"a100", "h100"}
    for gpu, cost in answer.single_type.items():
        assert same(point.single_type[gpu], cost)
    alone = [cost for cost in point.single_type.values() if cost is not None]
    assert point.cost is not None and point.cost <= min(alone) + 1e-9


def test_the_demands_asked_for_are_all_there(
    paper: Scenario, paper_points: tuple[CostPoint, ...]
) -> None:
    found = [point.demand for point in paper_points]
    assert found == sorted(found)
    assert set(demand_grid(paper)) <= set(found)


def test_cost_never_falls_with_demand(paper_points: tuple[CostPoint, ...]) -> None:
    costs = [point.cost for point in paper_points]
    assert None not in costs
    assert all(np.diff(np.array(costs, float)) >= 0)


def test_steps_lie_where_the_cheaper_fleet_gives_up(
    paper: Scenario, paper_points: tuple[CostPoint, ...]
) -> None:
    steps = [i for i, point in enumerate(paper_points) if point.step]
    changes = [
        i for i in range(1, len(paper_points)) if paper_points[i].cost != paper_points[i - 1].cost
    ]
    assert steps == changes
    for i in steps:
        before, point = paper_points[i - 1], paper_points[i]
        just_below = plan(at(paper, point.demand * (1 - 1e-6)))
        assert same(just_below.cost_usd_per_hour, before.cost)
        assert same(plan(at(paper, point.demand)).cost_usd_per_hour, point.cost)


def test_the_papers_fleet_serves_up_to_4_89_million_tokens_per_minute(
    paper: Scenario, paper_points: tuple[CostPoint, ...]
) -> None:
    (step,) = [p for p in paper_points if p.step and p.xpyd == "4P4D"]
    assert step.demand / paper.demand * 5.0 == pytest.approx(4.89, abs=0.001)


def test_steps_of_coupled_stages_are_found_too() -> None:
    scenario = load_scenario(PAPER, overrides=["first_token=decode"])
    points = cost_sweep(scenario, [0.9 * scenario.demand, 1.1 * scenario.demand])
    assert len(points) > 2
    for point in points[1:-1]:
        assert point.step
        below = plan(at(scenario, point.demand * (1 - 1e-3))).cost_usd_per_hour
        assert below is not None and point.cost is not None and below < point.cost


def test_beyond_the_stock_there_is_no_fleet() -> None:
    scenario = load_scenario(PAPER, overrides=["stock={h200: 64}"])
    points = cost_sweep(scenario, demand_grid(scenario))
    served = [point.cost is not None for point in points]
    assert served == sorted(served, reverse=True) and not served[-1]
    first = points[served.index(False)]
    assert first.step and first.fleet is None and first.xpyd is None
    assert first.demand / scenario.demand * 5.0 == pytest.approx(5.201, abs=0.001)


def test_owned_replicas_are_free_in_a_sweep(paper: Scenario) -> None:
    (point,) = cost_sweep(paper.owning("3P4D"), [paper.demand])
    assert point.cost == pytest.approx(28.72)


# Latency against demand.


def test_neighbours_change_one_pool_by_one(paper: Scenario) -> None:
    found = neighbours(fleet("3P4D", paper))
    assert [f.xpyd for f in found] == ["2P4D", "4P4D", "3P3D", "3P5D"]


def test_neighbours_leave_no_role_empty(paper: Scenario) -> None:
    assert [f.xpyd for f in neighbours(fleet("1P1D", paper))] == ["2P1D", "1P2D"]


def test_neighbours_of_a_mixed_fleet_may_drop_a_pool(mixed: Scenario) -> None:
    chosen = fleet("prefill/a100x8=2,prefill/h100x8=1,decode/a100x8=3", mixed)
    found = [str(f) for f in neighbours(chosen)]
    assert "prefill/a100x8=2,decode/a100x8=3" in found
    assert len(found) == 6


def test_latencies_are_those_of_evaluate(paper: Scenario) -> None:
    chosen = fleet("4P4D", paper)
    shares = np.array([0.4, 0.9, 1.0, 1.3])
    (curve,) = latency_sweep(paper, [chosen], shares * paper.demand)
    for share in shares:
        demand = float(share * paper.demand)
        (place,) = np.flatnonzero(curve.demands == demand)
        slos = evaluate(at(paper, demand), "4P4D").slos
        assert curve.seconds[:, place] == pytest.approx([s.predicted_s for s in slos])


def test_latencies_of_a_mixed_fleet_are_those_of_its_worst_path(mixed: Scenario) -> None:
    text = "prefill/a100x8=10,prefill/h100x8=2,decode/a100x8=10,decode/h100x8=3"
    demand = 0.7 * mixed.demand
    (curve,) = latency_sweep(mixed, [fleet(text, mixed)], [demand])
    slos = evaluate(at(mixed, demand), text).slos
    assert curve.seconds[:, 0] == pytest.approx([s.predicted_s for s in slos])


def test_latency_rises_and_ends_where_prefill_saturates(paper: Scenario) -> None:
    chosen = fleet("3P4D", paper)
    (curve,) = latency_sweep(paper, [chosen], demand_grid(paper))
    stable = np.isfinite(curve.seconds)
    saturation = 3 * 28309 / 6144  # requests/s of three replicas at the peak throughput
    assert (stable == (curve.demands < saturation)).all()
    for values in curve.seconds:
        assert (np.diff(values[np.isfinite(values)]) > 0).all()
    assert np.nanmax(curve.seconds[0]) > 10.0  # points of its own lead up the pole


def test_more_replicas_never_slow_a_fleet_down(paper: Scenario) -> None:
    chosen = fleet("4P4D", paper)
    demands = np.linspace(0.4, 1.0, 7) * paper.demand
    curves = latency_sweep(paper, [chosen, *neighbours(chosen)], demands)
    at_demands = [c.seconds[:, np.isin(c.demands, demands)] for c in curves]
    here, fewer_p, more_p, fewer_d, more_d = at_demands
    for fewer, more, slo in ((fewer_p, more_p, 0), (fewer_d, more_d, 1)):
        assert (fewer[slo] > here[slo]).all() and (more[slo] < here[slo]).all()
        assert fewer[1 - slo] == pytest.approx(here[1 - slo])


def test_progress_counts_up_to_the_total(paper: Scenario) -> None:
    seen: list[tuple[int, int]] = []
    demands = [0.5 * paper.demand, paper.demand]
    cost_sweep(paper, demands, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    seen.clear()
    chosen = fleet("4P4D", paper)
    latency_sweep(paper, [chosen], demands, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 1)]


def test_a_default_sweep_of_the_papers_case_takes_less_than_two_seconds(paper: Scenario) -> None:
    start = time.process_time()
    chosen = fleet("4P4D", paper)
    cost_sweep(paper, demand_grid(paper))
    latency_sweep(paper, [chosen, *neighbours(chosen)], demand_grid(paper))
    assert time.process_time() - start < 2.0
