"""Plans for joint SLOs against enumeration: no cheaper fleet keeps the share on every path."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import Capacity
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.slo.interface import Objective
from pdalloc.slo.joint import JointSlo, within
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean

STAGES = {"ttft": 3.0, "tpot": 2.0}
ALL = STAGES | {"e2e": 1.7}


def problem(
    small: Any, seed: int, room: dict[str, float], rule: str = "random", share: float = 0.9
) -> AllocationProblem:
    """Two types per role; each limit at ``room`` times the least mean of an unloaded path."""
    system = small.two_type_system(seed, "prefill")
    system = replace(system, dispatch=dict.fromkeys(ROLES, rule))
    slo = JointSlo("all", share, within({m: r * floor(system, m) for m, r in room.items()}))
    found: AllocationProblem = small.problem_on(system, {})
    return replace(found, capacity=Capacity(system, (slo,)))


def floor(system: Any, metric: str) -> float:
    """The least mean of an unloaded path, s."""
    capacity = Capacity(system, ())
    mean = Slo("all", metric, Mean(), 1.0)
    pairs = product(system.types_for(PREFILL), system.types_for(DECODE))
    return min(
        capacity.value(mean, 0, capacity.predictor.prefill(r, 0.0), capacity.predictor.decode(q, 0))
        for r, q in pairs
    )


def cheaper(asked: AllocationProblem, cost: float) -> list[Fleet]:
    """Every fleet that costs less than ``cost`` and has both roles."""
    tops = [int(cost / o.usd_per_hour) for o in asked.options]
    fleets = []
    for counts in product(*(range(top + 1) for top in tops)):
        pairs = zip(asked.options, counts, strict=True)
        fleet = Fleet.of({(o.role, o.replica_type): n for o, n in pairs})
        if all(fleet.in_role(role) for role in ROLES) and asked.cost(fleet) < cost - 1e-6:
            fleets.append(fleet)
    return fleets


@pytest.mark.parametrize(
    ("seed", "room", "rule"),
    [
        (1, STAGES, "random"),
        (2, ALL, "random"),
        (3, {"tpot": 1.6}, "random"),
        (4, STAGES, "central_queue"),
        (5, STAGES, "round_robin"),
    ],
)
def test_no_cheaper_fleet_is_certified(
    small: Any, seed: int, room: dict[str, float], rule: str
) -> None:
    asked = problem(small, seed, room, rule)
    answer = solver_named("exact").solve(asked)
    assert answer.status == "optimal" or asked.capacity.only_by_rule
    assert answer.cost is not None and certify(asked, answer.fleet).certified
    fleets = cheaper(asked, answer.cost)
    assert fleets and not [str(f) for f in fleets if certify(asked, f).certified]
    assert answer.bound is None or answer.bound <= answer.cost + 1e-9


def test_a_greater_share_never_costs_less(small: Any) -> None:
    shares = (0.5, 0.8, 0.9, 0.95, 0.99)
    costs = [solver_named("exact").solve(problem(small, 1, ALL, share=s)).cost for s in shares]
    known = [cost for cost in costs if cost is not None]
    assert known == sorted(known) and costs[: len(known)] == known


def test_the_certificate_is_the_worst_path(small: Any) -> None:
    asked = problem(small, 1, STAGES)
    fleet = Fleet.of({(role, name): 3 for role in ROLES for name in ("big", "small")})
    (check,) = certify(asked, fleet).slos
    prediction = asked.capacity.evaluate(fleet, asked.demand)
    (slo,) = asked.capacity.slos
    late = [asked.capacity.value(slo, 0, p, d) for p, d in prediction.paths()]
    assert len(late) > 1 and check.predicted == pytest.approx(max(late))


def test_what_a_broken_certificate_says(small: Any) -> None:
    asked = problem(small, 1, STAGES)
    answer = solver_named("exact").solve(asked)
    fewer = dict(answer.fleet.counts)
    key = max(fewer, key=lambda k: fewer[k])
    fewer[key] -= 1
    check = certify(asked, Fleet.of(fewer))
    assert not check.certified
    if check.prediction is not None:
        assert "90 % should" in " ".join(check.broken)


def test_limits_below_service_time_are_named(small: Any) -> None:
    reason = explain_infeasible(problem(small, 1, {"ttft": 0.9, "tpot": 2.0}))
    assert "90 % of 'all' cannot keep TTFT <=" in reason and "unloaded requests do" in reason
    assert "\n" not in reason and "widen a limit" in reason


def test_several_objectives_bind_together(small: Any) -> None:
    """A mean beside the joint SLO: both hold, and the cost is at least each one's alone."""
    asked = problem(small, 2, STAGES)
    mean = Slo("all", "e2e", Mean(), 1.5 * floor(asked.capacity.system, "e2e"))
    sets: list[tuple[Objective, ...]] = [
        asked.capacity.slos,
        (mean,),
        (mean, *asked.capacity.slos),
    ]
    costs = []
    for slos in sets:
        both = replace(asked, capacity=Capacity(asked.capacity.system, slos))
        answer = solver_named("exact").solve(both)
        assert answer.cost is not None and certify(both, answer.fleet).certified
        costs.append(answer.cost)
    assert costs[2] >= max(costs[:2]) - 1e-9


def test_the_paper_s_solver_wants_means(small: Any) -> None:
    system = small.two_type_system(1, "prefill")
    one = replace(system, replica_types={"big": system.replica_types["big"]})
    asked: AllocationProblem = small.problem_on(one, {})
    slo = JointSlo("all", 0.9, within({"ttft": 1.0}))
    with pytest.raises(UnsupportedError, match="mean TTFT"):
        solver_named("paper").solve(replace(asked, capacity=Capacity(one, (slo,))))
