"""Plans whose formulas read the simulation's options: what is planned keeps its own check."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdalloc import evaluate, load_scenario, plan
from pdalloc.allocation.certify import certify
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import demand_limit
from pdalloc.fleet import parse_fleet
from pdalloc.planning.plan import solved

MIXED = Path(__file__).parents[2] / "experiments" / "mixed_fleet" / "scenario.yaml"
KV = (
    "first_token=transfer",
    "simulation.kv.reserve=full",
    "replicas.0.kv_tokens=100000",
    "replicas.1.kv_tokens=100000",
    "traffic.0.slo.tpot.mean=300 ms",
)
LINK = (
    "first_token=prefill",
    "simulation.transfers.sharing=fcfs",
    "network.bandwidth=1.5 GB/s",
)
UNEVEN = (
    "traffic.0.arrival_scv=4",
    "traffic.0.lengths=null",
    "traffic.0.prompt=[" + "100 tokens," * 9 + "8000 tokens]",
    "traffic.0.output=100 tokens",
    "traffic.0.rate=3 req/s",
    "replicas.0.prefill_noise=exponential",
    "replicas.1.prefill_noise=exponential",
    "traffic.0.slo={tpot: {p99: 59.897714 ms}, ttft: {mean: 2 s}}",
)


@pytest.mark.parametrize("options", [KV, LINK], ids=["waits for space", "shared links"])
def test_plans_keep_their_own_check(options: tuple[str, ...]) -> None:
    """What a request waits for after prefill counts where it is planned, and one replica fewer
    of either role breaks something."""
    scenario = load_scenario(MIXED, None, options)
    answer = plan(scenario)
    assert answer.status == "optimal"
    assert all(row.kept for row in answer.slos)
    fleet = parse_fleet(answer.fleet, scenario.system.type_names)
    for key, count in fleet.counts.items():
        fewer = ",".join(
            f"{role}/{name}={n - (role == key[0] and name == key[1])}"
            for (role, name), n in fleet.counts.items()
        )
        if count > 1:
            assert evaluate(scenario, fewer).status == "infeasible"


def test_a_fleet_that_falls_short_is_planned_again() -> None:
    """Departures that lean make TPOT P99 a hair longer than what decode was sized for."""
    problem = load_scenario(MIXED, None, UNEVEN).problem()
    first = solver_named("exact").solve(problem)
    assert first.status == "optimal"
    found = solved(problem, "exact")
    assert certify(problem, found.fleet).certified
    assert not certify(problem, first.fleet).certified  # what this question was found for
    assert found.status == "feasible"
    assert found.bound == first.cost
    assert problem.cost(found.fleet) > problem.cost(first.fleet)


def test_most_demand_sees_the_link_it_fills() -> None:
    """One fabric of 22 GB/s for all: the greatest demand of a fleet leaves it below full."""
    scenario = load_scenario(
        MIXED,
        None,
        (
            "simulation.transfers.sharing=fcfs",
            "simulation.transfers.scope=fabric",
            "network.bandwidth=22 GB/s",
            "traffic.0.slo={ttft: {mean: 3 s}, tpot: {mean: 300 ms}}",
        ),
    )
    capacity = scenario.capacity()
    fleet = parse_fleet("prefill/a100x8=20,decode/a100x8=20", scenario.system.type_names)
    limit = demand_limit(capacity, fleet, 3.0 * scenario.demand)
    size = scenario.system.llm.kv_bytes_per_token * scenario.system.workload.mix().prompt
    mean = float(scenario.system.workload.mix().weight @ size) / 22e9
    assert 0.8 / mean < limit < 1.0 / mean
    for share, serves in ((0.999, True), (1.001, False)):
        factor = share * limit / scenario.demand
        system = scenario.system.with_workload(scenario.system.workload.scaled(factor))
        assert (capacity.under(system).route(fleet, share * limit) is not None) == serves
