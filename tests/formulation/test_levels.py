"""Coupled problems by ranges of decode's level against the search over decode fleets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation import levels as module
from pdalloc.allocation.certify import certify
from pdalloc.allocation.levels import cheapest_by_levels
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import exact, solver_named
from pdalloc.capacity import Capacity
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.slo.interface import Objective
from pdalloc.slo.joint import JointSlo, within
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile

KINDS = ("mean", "percentile", "two")
STOCK = {"big": 5, "small": 40}


def slos(kind: str, bounds: dict[str, float]) -> tuple[Objective, ...]:
    """SLOs that span the stages, of one kind, with these bounds in seconds."""
    tpot = Slo("all", "tpot", Mean(), bounds["tpot"])
    if kind == "mean":
        return (Slo("all", "ttft", Mean(), bounds["ttft"]), tpot)
    if kind == "percentile":
        return (Slo("all", "ttft", Percentile(0.9), 2.0 * bounds["ttft"]), tpot)
    if kind == "two":
        ttft = Slo("all", "ttft", Mean(), bounds["ttft"])
        return (ttft, tpot, Slo("all", "e2e", Mean(), bounds["e2e"]))
    limits = {"ttft": 2.5 * bounds["ttft"], "tpot": bounds["tpot"]}
    return (JointSlo("all", 0.9, within(limits)),)


def coupled(
    small: Any, seed: int, kind: str, times: float = 1.0, stock: dict[str, int] | None = None
) -> AllocationProblem:
    """Two types per role, decode makes the first token; ``times`` the system's own demand."""
    system = small.two_type_system(seed)
    predictor = Capacity(system, ()).predictor
    p, d = predictor.prefill(system.replica_types["big"], 0.0), system.replica_types["big"]
    idle = predictor.decode(d, 0.0)
    room = {"ttft": 1.4 + 0.1 * (seed % 5), "tpot": 3.0, "e2e": 1.8}
    bounds = {m: r * predictor.law(m, 0, p, idle).mean for m, r in room.items()}
    found: AllocationProblem = small.problem_on(system, {}, stock)
    capacity = Capacity(system, slos(kind, bounds))
    return replace(found, capacity=capacity, demand=times * found.demand)


def by_fleets(problem: AllocationProblem, monkeypatch: pytest.MonkeyPatch) -> float | None:
    """Least cost by the search over decode fleets alone."""
    with monkeypatch.context() as patch:
        patch.setattr(exact, "MANY_DECODE_FLEETS", -1)
        return solver_named("exact").solve(problem).cost


@pytest.mark.parametrize("stock", [None, STOCK])
@pytest.mark.parametrize("kind", KINDS)
def test_both_searches_find_the_same_cost(
    small: Any, kind: str, stock: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random systems, demands and stocks; the fleet found keeps every SLO where it is routed."""
    feasible = 0
    for seed in range({"mean": 6, "two": 2, "percentile": 1}[kind]):
        problem = coupled(small, seed, kind, (1.0, 2.0)[seed % 2], stock)
        assert problem.capacity.coupled
        expected, found = by_fleets(problem, monkeypatch), cheapest_by_levels(problem, math.inf)
        assert found is not None
        (fleet,) = found
        if expected is None:
            assert fleet is None
            continue
        feasible += 1
        assert fleet is not None and problem.cost(fleet) == pytest.approx(expected, abs=1e-9)
        assert certify(problem, fleet).certified
        # nothing costs less than the optimum, and something less than a little more
        assert cheapest_by_levels(problem, expected) == (None,)
        above = cheapest_by_levels(problem, expected + 1e-6)
        assert above is not None and above[0] is not None
    assert feasible >= 1


@pytest.mark.parametrize("kind", ["mean", "percentile", "two"])
def test_no_cheaper_fleet_can_be_routed(small: Any, kind: str) -> None:
    """By enumeration of every fleet that costs less than the answer."""
    problem = coupled(small, 1, kind, 2.0 if kind == "percentile" else 1.5)
    found = cheapest_by_levels(problem, math.inf)
    assert found is not None and found[0] is not None
    cost, looked = problem.cost(found[0]), 0
    tops = int(cost / min(o.usd_per_hour for o in problem.options))
    for prefill in small.vectors(problem, PREFILL, tops):
        for decode in small.vectors(problem, DECODE, tops):
            fleet = small.fleet_of(problem, prefill, decode)
            if all(fleet.in_role(role) for role in ROLES) and problem.cost(fleet) < cost - 1e-9:
                looked += 1
                assert problem.capacity.route(fleet, problem.demand) is None
    assert looked > 10


@pytest.mark.parametrize("kind", ["mean", "percentile"])
def test_the_exact_solver_changes_over(
    small: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first decode fleet on, or after sixty: the same cost, proven."""
    for seed in range(3 if kind == "mean" else 1):
        problem = coupled(small, seed, kind, 3.0)
        expected = by_fleets(problem, monkeypatch)
        monkeypatch.setattr(exact, "MANY_DECODE_FLEETS", 0)
        answer = solver_named("exact").solve(problem)
        monkeypatch.undo()
        assert answer.status == "optimal" and answer.cost == pytest.approx(expected, abs=1e-9)
        assert answer.bound == answer.cost


def test_thousands_of_replicas_are_planned(small: Any) -> None:
    """A thousand times the demand: no dearer per request (pools may be repeated), and proven."""
    small_one, large = (coupled(small, 2, "mean", times) for times in (1.0, 1000.0))
    one, thousand = (solver_named("exact").solve(p) for p in (small_one, large))
    assert thousand.status == "optimal" and one.cost is not None and thousand.cost is not None
    assert thousand.cost <= 1000.0 * one.cost
    # no decode type above its own rate, no prefill type above that beside idle decode
    least = 0.0
    for role in ROLES:
        units = [o.usd_per_hour / large.rate(o) for o in large.in_role(role) if large.rate(o) > 0]
        least += large.demand * min(units)
    assert least <= thousand.cost <= 1.5 * least
    assert sum(pool.replicas for pool in thousand.fleet.pools) > 1000
    assert certify(large, thousand.fleet).certified


def test_alternatives_are_listed_one_by_one(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of levels know the cheapest fleet, not the next ones."""
    monkeypatch.setattr(exact, "MANY_DECODE_FLEETS", 0)
    monkeypatch.setattr(exact, "cheapest_by_levels", lambda *_: pytest.fail("not to be asked"))
    problem = coupled(small, 3, "mean")
    answer = solver_named("exact").solve(problem, 2)
    costs = [problem.cost(f) for f in (answer.fleet, *answer.alternatives)]
    assert len(costs) == 3 and costs == sorted(costs) and costs[0] == answer.cost


def test_what_it_does_not_know_is_left_to_the_other_search(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pools that share a queue, stages apart, flat levels, too many ranges: None, not a guess."""
    problem = coupled(small, 1, "mean")
    system = replace(problem.capacity.system, dispatch={r: "least_loaded" for r in ROLES})
    shared = replace(problem, capacity=problem.capacity.under(system))
    assert cheapest_by_levels(shared, 9e9) is None
    apart = small.problem_on(problem.capacity.system, {"tpot": 1.0})
    assert not apart.capacity.coupled and cheapest_by_levels(apart, 9e9) is None
    monkeypatch.setattr(module, "MOST_RANGES", 1)
    assert cheapest_by_levels(problem, math.inf) is None
    monkeypatch.undo()
    # idle decode and a busy one leave an idle prefill the same room: nobody is late
    assert cheapest_by_levels(coupled(small, 1, "joint"), math.inf) is None
    flat = replace(problem, capacity=problem.capacity.under(problem.capacity.system))
    rates = np.linspace(0.0, 1.0, 5)
    flat.capacity._levels["big", 1] = rates, np.ones(5)
    assert cheapest_by_levels(flat, math.inf) is None


def test_prefill_rates_that_rise_with_decodes_load_are_a_doubt(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound needs them to fall; a law that says otherwise ends the search."""
    search, rates = module._Levels(coupled(small, 1, "mean"), math.inf), iter((3.0, 2.0, 1.5))
    monkeypatch.setattr(Capacity, "prefill_rate", lambda *_: next(rates))
    low, high = search.ends
    assert search._left("big", "small", low) == 3.0 == search._left("big", "small", low)
    assert search._left("big", "small", high) == 2.0
    with pytest.raises(module._DoubtError):
        search._left("big", "small", 0.5 * (low + high))  # less than beside a higher load
