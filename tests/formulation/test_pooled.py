"""Plans under dispatch rules that pool replicas: enumeration agrees, other solvers refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import Capacity
from pdalloc.capacity.rates import useful_rate
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile, Statistic
from pdalloc.workload.traffic import Workload

LOOSE = {"ttft": 4.0, "tpot": 4.0}
RULES = ["least_loaded", "round_robin", "central_queue"]
UNCOUPLED, COUPLED = {"ttft": 1.5, "tpot": 2.5}, {"ttft": 1.4, "tpot": 2.5, "e2e": 1.6}


def pooled(
    small: Any,
    seed: int,
    rule: str,
    room: dict[str, float],
    scv: float = 1.0,
    statistic: Statistic | None = None,
) -> AllocationProblem:
    """Two types per role; each SLO at ``room`` times the least of an unloaded path."""
    first = "transfer" if "e2e" not in room else "decode"
    system = small.two_type_system(seed, first)
    classes = tuple(replace(c, arrival_scv=scv) for c in system.workload.classes)
    system = replace(system, dispatch=dict.fromkeys(ROLES, rule), workload=Workload(classes))
    predictor = Capacity(system, ()).predictor
    of = statistic or Mean()
    prefills = [predictor.prefill(r, 0.0) for r in system.types_for(PREFILL)]
    decodes = [predictor.decode(r, 0.0) for r in system.types_for(DECODE)]

    def floor(metric: str) -> float:
        return min(of.of_law(predictor.law(metric, 0, p, d)) for p in prefills for d in decodes)

    problem: AllocationProblem = small.problem_on(system, {m: 1.0 for m in room})
    slos = tuple(Slo("all", m, of, r * floor(m)) for m, r in room.items())
    return replace(problem, capacity=Capacity(system, slos))


def fleets_up_to(problem: AllocationProblem, cost: float) -> list[Fleet]:
    """Every fleet that costs at most ``cost`` and has both roles."""
    tops = [int(cost / o.usd_per_hour) for o in problem.options]
    found = []
    for counts in product(*(range(top + 1) for top in tops)):
        pairs = zip(problem.options, counts, strict=True)
        fleet = Fleet.of({(o.role, o.replica_type): n for o, n in pairs})
        if all(fleet.in_role(role) for role in ROLES) and problem.cost(fleet) <= cost:
            found.append(fleet)
    return found


CASES = [
    (1, "least_loaded", UNCOUPLED, 1.0),
    (2, "least_loaded", UNCOUPLED, 4.0),
    (3, "round_robin", UNCOUPLED, 1.0),
    (4, "central_queue", UNCOUPLED, 1.0),
    (5, "central_queue", UNCOUPLED, 4.0),
    (3, "least_loaded", COUPLED, 1.0),
    (4, "round_robin", COUPLED, 1.0),
]


@pytest.mark.parametrize(("seed", "rule", "room", "scv"), CASES)
def test_no_cheaper_fleet_is_certified(
    small: Any, seed: int, rule: str, room: dict[str, float], scv: float
) -> None:
    """The answer keeps every SLO by prediction; each fleet that costs less breaks one."""
    problem = pooled(small, seed, rule, room, scv)
    answer = solver_named("exact").solve(problem)
    assert answer.status == "optimal" or problem.capacity.only_by_rule
    assert answer.cost is not None and certify(problem, answer.fleet).certified
    cheaper = fleets_up_to(problem, answer.cost - 1e-6)
    assert cheaper
    assert not [str(f) for f in cheaper if certify(problem, f).certified]


@pytest.mark.parametrize("rule", RULES)
def test_stock_moves_the_optimum(small: Any, rule: str) -> None:
    """With one replica less of the GPU that the free answer takes most of: still the cheapest."""
    free = pooled(small, 1, rule, LOOSE)
    used = free.gpus(solver_named("exact").solve(free).fleet)
    gpu = max(used, key=lambda g: used[g])
    problem = replace(free, stock={gpu: used[gpu] - 1})
    answer = solver_named("exact").solve(problem)
    assert answer.cost is not None and certify(problem, answer.fleet).certified
    cheaper = fleets_up_to(problem, answer.cost - 1e-6)
    assert not [str(f) for f in cheaper if certify(problem, f).certified]


@pytest.mark.parametrize("rule", RULES)
def test_pools_are_no_dearer_than_random_dispatch(small: Any, rule: str) -> None:
    """A pool admits at least what its replicas do alone."""
    cost = solver_named("exact").solve(pooled(small, 1, rule, UNCOUPLED)).cost
    alone = solver_named("exact").solve(pooled(small, 1, "random", UNCOUPLED)).cost
    assert cost is not None and alone is not None and cost <= alone + 1e-9


@pytest.mark.parametrize("statistic", [Mean(), Percentile(95.0)])
@pytest.mark.parametrize("scv", [1.0, 4.0])
@pytest.mark.parametrize("rule", RULES)
def test_rates_grow_with_the_pool_up_to_their_bounds(
    small: Any, rule: str, scv: float, statistic: Statistic
) -> None:
    """What the exact search rests on: kappa(n) does not fall with n, nor pass the bounds."""
    problem = pooled(small, 2, rule, UNCOUPLED, scv, statistic)
    capacity = problem.capacity
    for o in problem.options:
        r = capacity.system.replica_types[o.replica_type]
        rates = [capacity.admissible_rate(o.role, r, n) for n in (1, 2, 3, 5, 8, 13)]
        for fewer, more in pairwise(rates):
            assert more >= fewer * (1.0 - 1e-3)
        assert max(rates) <= capacity.relaxed_rate(o.role, r)
        enough = [k * n for k, n in zip(rates, (1, 2, 3, 5, 8, 13), strict=True)]
        alone = [k for k, most in zip(rates, enough, strict=True) if most < problem.demand]
        if any(rates):
            assert all(k <= problem.rate(o) * (1.0 + 1e-9) for k in alone)


@pytest.mark.parametrize("demand", [0.3, 1.0, 4.5, 40.0, 400.0])
def test_useful_rate_is_that_of_the_smallest_pool_that_suffices(demand: float) -> None:
    def rate(n: int) -> float:
        return 1.0 - 0.6 / math.sqrt(n)

    n = next(n for n in range(1, 10_000) if n * rate(n) >= demand)
    assert useful_rate(rate, lambda n: n * rate(n) >= demand, demand, 1.0) == rate(n)
    assert useful_rate(rate, lambda n: False, demand, 1.0) == 0.0


@pytest.mark.parametrize("name", ["cvxpy", "pyomo"])
@pytest.mark.parametrize(("seed", "rule"), [(1, "least_loaded"), (2, "central_queue")])
def test_one_hot_programs_agree(small: Any, name: str, seed: int, rule: str) -> None:
    """Both languages on the same tables find the exact search's cost, with and without stock."""
    free = pooled(small, seed, rule, UNCOUPLED)
    used = free.gpus(solver_named("exact").solve(free).fleet)
    for stock in ({}, {gpu: n - 1 for gpu, n in used.items()} | {"big": 6}):
        problem = replace(free, stock=stock)
        best, answer = (solver_named(s).solve(problem) for s in ("exact", name))
        assert answer.status == best.status
        if best.cost is not None:
            assert answer.cost == pytest.approx(best.cost, abs=1e-9)
            assert certify(problem, answer.fleet).certified


@pytest.mark.parametrize("name", ["cvxpy", "pyomo"])
def test_linear_solvers_refuse_pools_under_spanning_slos(small: Any, name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"dispatch: random.*--solver exact"):
        solver_named(name).solve(pooled(small, 3, "least_loaded", COUPLED))


def test_an_slo_below_the_floor_is_explained(small: Any) -> None:
    answer = solver_named("exact").solve(pooled(small, 1, "least_loaded", {"ttft": 0.9}))
    assert answer.status == "infeasible" and "cannot be" in answer.reason


def test_too_little_stock_is_explained(small: Any) -> None:
    problem = replace(pooled(small, 1, "central_queue", UNCOUPLED), stock={"big": 1, "small": 1})
    answer = solver_named("exact").solve(problem)
    assert answer.status == "infeasible" and "stock" in answer.reason
