"""Prices of late requests drive the plan: against enumeration, closed forms and limits."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, Fleet, parse_fleet
from pdalloc.planning import Answer, plan
from pdalloc.planning.promises import predicted_lateness
from pdalloc.planning.shortfall import lateness
from pdalloc.planning.shortfall.idle import IdleDecode
from pdalloc.planning.shortfall.lateness import driving
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

WITHIN = {"ttft": "300 ms"}
REPLICA = 16.0
"""USD/hour of a replica: 8 GPUs at 2."""


def block(made, usd_per_request: float, **keys: Any) -> dict[str, Any]:
    """12 req/s, a mean TTFT of 1 s: 2 M/M/1 replicas of 10 req/s keep it."""
    priced = [{"within": WITHIN, "price": f"{usd_per_request!r} USD/request"}]
    common = {
        "rate": "12 req/s",
        "output": "20 tokens",
        "best_effort": priced if usd_per_request else [],
    }
    found: dict[str, Any] = made.chat(**(common | keys))
    return found


def question(made, usd_per_request: float, **keys: Any) -> Scenario:
    found: Scenario = made.question(traffic=[block(made, usd_per_request)], **keys)
    return found


def late(n: int) -> float:
    """P(T > .3 s) of 12 req/s on n M/M/1 replicas (Kleinrock 1975, eq. 5.119)."""
    return math.exp(-0.3 * (10.0 - 12.0 / n))


def replicas(answer: Answer) -> int:
    """Prefill replicas."""
    assert answer.xpyd is not None
    return int(answer.xpyd.split("P")[0])


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_replica_is_bought_when_it_costs_less_than_what_it_saves(made, n: int) -> None:
    """16 USD/h against 12 x 3600 price (late_n - late_n+1); what n saves falls with n."""
    worth = REPLICA / (12.0 * 3600.0 * (late(n) - late(n + 1)))
    assert replicas(plan(question(made, 0.98 * worth))) == n
    assert replicas(plan(question(made, 1.02 * worth))) == n + 1


def test_the_answer_adds_up(made) -> None:
    answer = plan(question(made, 2e-3))
    found = answer.shortfall
    assert found is not None and answer.status == "optimal" and found.shed == []
    best = min(range(2, 20), key=lambda n: REPLICA * n + 12 * 7.2 * late(n))
    assert replicas(answer) == best
    (row,) = answer.lateness
    assert found.lateness_usd_per_hour == row.predicted_usd_per_hour
    assert row.predicted_usd_per_hour == pytest.approx(12 * 7.2 * late(best), rel=5e-3)
    assert answer.cost_usd_per_hour == REPLICA * (best + 1)
    total = REPLICA * (best + 1) + (row.predicted_usd_per_hour or 0.0)
    assert found.total_usd_per_hour == pytest.approx(total)
    assert found.bound_usd_per_hour == pytest.approx(total)
    assert found.offered_requests_per_s == answer.demand_requests_per_s == pytest.approx(12.0)


def test_dearer_lateness_buys_more_and_misses_less(made) -> None:
    """The least total is concave in the price, its slope the requests that are late."""
    prices = np.linspace(1e-4, 4e-3, 9)
    answers = [plan(question(made, float(p))) for p in prices]
    costs = [a.cost_usd_per_hour or 0.0 for a in answers]
    shares = [a.lateness[0].predicted_late_share or 0.0 for a in answers]
    totals = [a.shortfall.total_usd_per_hour or 0.0 for a in answers if a.shortfall]
    assert costs == sorted(costs) and costs[0] < costs[-1]
    assert shares == sorted(shares, reverse=True)
    assert np.all(np.diff(totals) > 0.0) and np.all(np.diff(totals, 2) <= 1e-9)


def test_the_limits_of_price(made) -> None:
    """Next to nothing: the plain plan. Without end: as many replicas as stock has."""
    alone, cheap = plan(question(made, 0.0)), plan(question(made, 1e-9))
    assert alone.shortfall is None and cheap.shortfall is not None
    assert cheap.fleet == alone.fleet and cheap.cost_usd_per_hour == alone.cost_usd_per_hour
    dear = plan(question(made, 1e6, stock={"h100": 80}))
    assert dear.status == "optimal" and dear.gpus == 80 and replicas(dear) == 9


def test_owned_replicas_wait_for_nobody(made) -> None:
    """What is owned costs nothing, so that all of it serves as soon as lateness has a price."""
    owning = question(made, 1e-6).owning("6P1D")
    assert replicas(plan(question(made, 0.0).owning("6P1D"))) < 6
    answer = plan(owning)
    assert replicas(answer) == 6 and answer.cost_usd_per_hour == 0.0


# Against enumeration.


def enumerated(scenario: Scenario, most: int) -> tuple[float, Fleet]:
    """Least cost and lateness over all fleets of up to ``most`` replicas of each option."""
    problem = scenario.problem()
    best, fleet = math.inf, Fleet(())
    for counts in itertools.product(range(most + 1), repeat=len(problem.options)):
        keys = [(o.role, o.replica_type) for o in problem.options]
        candidate = Fleet.of(dict(zip(keys, counts, strict=True)))
        check = certify(problem, candidate)
        if check.certified:
            rows = predicted_lateness(scenario, check.prediction)
            usd = problem.cost(candidate) + sum(r.predicted_usd_per_hour or 0.0 for r in rows)
            best, fleet = min((best, fleet), (usd, candidate), key=lambda pair: pair[0])
    return best, fleet


def two_types(made, usd: float, **keys: Any) -> Scenario:
    """A fast and a slow type, dear and cheap, for prefill; one of them decodes."""
    slow = made.replica("b", gpu="a100", roles=["prefill"])
    slow["service"] = slow["service"] | {
        "prefill": {"throughput": "6000 token/s", "noise": "exponential"}
    }
    traffic = [block(made, usd, rate="9 req/s", output="20 tokens")]
    found: Scenario = made.question(made.replica("a"), slow, **({"traffic": traffic} | keys))
    return found


CASES = [
    (5e-4, {}),
    (3e-3, {}),
    (3e-3, {"first_token": "decode"}),
    (3e-3, {"stock": {"h100": 16}}),
    (2e-3, {"headroom": 0.3}),
    (2e-3, {"redundancy": 1}),
]


@pytest.mark.parametrize(("usd", "keys"), CASES, ids=str)
def test_two_types_are_as_cheap_as_enumeration(made, usd: float, keys: dict[str, Any]) -> None:
    scenario = two_types(made, usd, **keys)
    expected, fleet = enumerated(scenario, 4)
    assert max(fleet.counts.values()) < 4  # the box was large enough
    answer = plan(scenario)
    assert answer.shortfall is not None
    assert answer.shortfall.total_usd_per_hour == pytest.approx(expected, rel=1e-9)
    assert answer.shortfall.bound_usd_per_hour == pytest.approx(expected, rel=1e-9)


def test_replicas_that_share_a_queue_are_as_cheap_as_enumeration(made) -> None:
    """A larger pool admits more than its share, and is late for less than its share."""
    scenario = question(made, 3e-3, dispatch="central_queue")
    expected, fleet = enumerated(scenario, 4)
    assert max(fleet.counts.values()) < 4
    found = plan(scenario).shortfall
    assert found is not None
    assert found.total_usd_per_hour == pytest.approx(expected, rel=1e-9)


def test_two_classes_are_as_cheap_as_enumeration(made) -> None:
    """Each class has limits and a price of its own; one need keep nothing else."""
    both = [{"within": {"e2e": "600 ms", "tpot": "15 ms"}, "price": "4 USD/krequest"}]
    traffic = [
        block(made, 1e-3, name="chat", rate="6 req/s", output="20 tokens"),
        block(made, 0.0, name="code", rate="4 req/s", output="40 tokens", slo={}, best_effort=both),
    ]
    scenario = made.question(traffic=traffic)
    expected, _ = enumerated(scenario, 5)
    answer = plan(scenario)
    assert answer.shortfall is not None and len(answer.lateness) == 2
    assert answer.shortfall.total_usd_per_hour == pytest.approx(expected, rel=1e-9)


# What bounds the search.


@pytest.fixture(scope="module")
def coupled(made) -> tuple[Scenario, AllocationProblem, IdleDecode]:
    scenario = two_types(made, 3e-3, first_token="decode")
    problem = scenario.problem()
    return scenario, problem, IdleDecode(problem, driving(scenario))


@pytest.mark.parametrize("counts", [(2, 0), (0, 3), (1, 1), (2, 1), (1, 3), (3, 3)])
@pytest.mark.parametrize("decodes", [1, 2])
def test_no_fleet_is_below_its_prefill_beside_idle_decode(
    coupled, counts: tuple[int, int], decodes: int
) -> None:
    scenario, problem, idle = coupled
    pools = {(PREFILL, "a"): counts[0], (PREFILL, "b"): counts[1], (DECODE, "a"): decodes}
    check = certify(problem, Fleet.of(pools))
    assert check.prediction is not None
    (row,) = predicted_lateness(scenario, check.prediction)
    bound = idle.beside(counts)
    assert idle.floor <= bound <= (row.predicted_usd_per_hour or 0.0)
    assert bound >= 0.7 * (row.predicted_usd_per_hour or 0.0)  # and is near enough to help


def test_the_bound_holds_for_every_split(coupled) -> None:
    """Weak duality: no way to share 9 req/s between 1 of a and 2 of b is late for less."""
    _, problem, idle = coupled
    bound = idle.beside((1, 2))
    types, predictor = problem.capacity.system.replica_types, problem.capacity.predictor
    d = predictor.decode(types["a"], 0.0)
    for share in np.linspace(0.0, 0.99, 12):
        usd = 0.0
        for name, rate, n in (("a", 9.0 * share, 1), ("b", 9.0 * (1.0 - share), 2)):
            if rate / n < problem.capacity.stability_limit(PREFILL, types[name]):
                law = predictor.law("ttft", 0, predictor.prefill(types[name], rate / n), d)
                usd += rate * 3600.0 * 3e-3 * (1.0 - law.probability(0.3))
            else:
                usd = math.inf
        assert usd >= bound * (1.0 - 1e-9)


def test_more_prefill_bounds_less(coupled) -> None:
    _, _, idle = coupled
    bounds = [idle.beside((1, n)) for n in range(1, 5)] + [idle.floor]
    assert bounds == sorted(bounds, reverse=True)
    alone = [idle.beside((n, 0)) for n in range(1, 5)]
    assert alone == sorted(alone, reverse=True)


def test_a_search_that_is_cut_off_says_so(made, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = two_types(made, 3e-3)
    whole = plan(scenario).shortfall
    monkeypatch.setattr(lateness, "MOST_FLEETS", 2)
    answer = plan(scenario)
    assert whole is not None and answer.shortfall is not None
    assert answer.status == "feasible"
    total, bound = answer.shortfall.total_usd_per_hour, answer.shortfall.bound_usd_per_hour
    assert total is not None and bound is not None and whole.total_usd_per_hour is not None
    assert bound < whole.total_usd_per_hour <= total


# What prices do not drive.


def test_a_baseline_keeps_its_fleet(made) -> None:
    scenario = question(made, 1e-2)
    greedy = plan(scenario, solver="greedy")
    assert greedy.shortfall is None and greedy.lateness[0].predicted_usd_per_hour is not None
    assert (greedy.cost_usd_per_hour or 0.0) < (plan(scenario).cost_usd_per_hour or 0.0)


def test_other_exact_backends_find_the_same_total(made) -> None:
    scenario = question(made, 2e-3)
    totals = [
        found.shortfall.total_usd_per_hour
        for found in (plan(scenario), plan(scenario, solver="cvxpy"))
        if found.shortfall
    ]
    assert len(totals) == 2 and totals[0] == pytest.approx(totals[1], rel=1e-9)


def test_alternatives_have_no_place_beside_a_price(made) -> None:
    with pytest.raises(UnsupportedError, match="alternatives are ranked by the fleet's cost"):
        plan(question(made, 1e-3), alternatives=2)


def test_what_cannot_be_kept_stays_infeasible(made) -> None:
    traffic = [block(made, 1e-3, slo={"ttft": {"mean": "50 ms"}})]
    answer = plan(made.question(traffic=traffic))
    assert answer.status == "infeasible" and "cannot" in answer.reason
    assert answer.shortfall is not None
    assert answer.shortfall.total_usd_per_hour is None
    assert answer.shortfall.bound_usd_per_hour is None


def test_the_fleet_is_one_of_the_scenario(made) -> None:
    """What is answered is certified, and its pools are those that were paired."""
    scenario = two_types(made, 3e-3)
    answer = plan(scenario)
    fleet = parse_fleet(answer.fleet or "", scenario.system.type_names)
    assert certify(scenario.problem(), fleet).certified
    assert all(slo.kept for slo in answer.promises)
    assert float(answer.details["fleets_weighed"]) >= 1.0
