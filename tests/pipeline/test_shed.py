"""Shed demand from a scenario to every answer about it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.fleet import parse_fleet
from pdalloc.planning import Answer, evaluate, plan
from pdalloc.planning.plan import solved
from pdalloc.planning.shortfall import Outcome, priced_plan, served
from pdalloc.planning.shortfall.served import Offer
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

OFFERED = 47.0


def question(made, usd: float, most: float = 1.0, **keys: Any) -> Scenario:
    found: Scenario = made.question(traffic=[made.sheddable(usd, most)], **keys)
    return found


def shed_of(answer: Answer) -> float:
    """Requests/s that are shed."""
    assert answer.shortfall is not None
    return sum(row.requests_per_s for row in answer.shortfall.shed)


def total(answer: Answer) -> float:
    assert answer.shortfall is not None and answer.shortfall.total_usd_per_hour is not None
    return answer.shortfall.total_usd_per_hour


def least(scenario: Scenario) -> Outcome:
    """The plan without margins and predictions around it."""
    found = priced_plan(scenario, "exact", 0, lambda p: solved(p, "exact"))
    assert found is not None
    return found


def usd(outcome: Outcome) -> float:
    """Fleet and shed requests, USD/hour."""
    shed = Offer(outcome.offered).usd_per_hour(outcome.point)
    return outcome.problem.cost(outcome.allocation.fleet) + shed


# Closed forms.


def test_the_last_replica_is_bought_when_its_requests_are_worth_it(made) -> None:
    """Five prefill replicas serve 45 req/s; the sixth, 16 USD/h, the last 2."""
    worth = 16.0 / (3600.0 * 2.0)
    less, more = (plan(question(made, f * worth)) for f in (0.999, 1.001))
    assert (less.xpyd, more.xpyd) == ("5P1D", "6P1D")
    assert shed_of(less) == pytest.approx(2.0, abs=1e-6) and shed_of(more) == 0.0
    assert less.status == more.status == "optimal"
    assert total(less) == pytest.approx(96.0 + 0.999 * 16.0)
    assert total(more) == 112.0


def test_a_fleet_is_worth_it_when_all_it_serves_is(made) -> None:
    """16 n USD/h for n - 1 prefill replicas and one of decode, 9 (n - 1) req/s: 5P1D is cheapest
    by request, and serves 45 of 47, so that less than 96/(45 x 3600) USD sheds everything."""
    worth = 96.0 / (45.0 * 3600.0)
    nothing, most = (plan(question(made, f * worth)) for f in (0.999, 1.001))
    assert nothing.fleet is None and nothing.status == "optimal" and nothing.gpus == 0
    assert nothing.cost_usd_per_hour == 0.0 and nothing.demand_requests_per_s == 0.0
    assert nothing.slos == [] and nothing.cost_usd_per_million_tokens is None
    assert shed_of(nothing) == OFFERED
    assert total(nothing) == pytest.approx(0.999 * worth * OFFERED * 3600.0)
    assert most.xpyd == "5P1D"


@pytest.mark.parametrize("most", [1.0, 0.5])
def test_for_nothing_as_much_is_shed_as_saves_a_replica(made, most: float) -> None:
    answer = plan(question(made, 0.0, most))
    if most == 1.0:
        assert answer.fleet is None and total(answer) == 0.0
        return
    # 23.5 req/s must be served: 3 replicas, which take 27
    assert answer.xpyd == "3P1D" and total(answer) == 64.0
    assert shed_of(answer) == pytest.approx(OFFERED - 27.0, abs=1e-6)


@pytest.mark.parametrize("most", [0.0, 0.4, 1.0])
def test_a_dear_request_is_served(made, most: float) -> None:
    answer, alone = plan(question(made, 1.0, most)), plan(made.question(traffic=[plain(made)]))
    assert answer.fleet == alone.fleet and answer.cost_usd_per_hour == alone.cost_usd_per_hour
    assert shed_of(answer) == 0.0 and total(answer) == alone.cost_usd_per_hour
    assert answer.slos == alone.slos and answer.margin == alone.margin


def plain(made) -> dict[str, Any]:
    found: dict[str, Any] = made.sheddable(0.0)
    del found["shed"]
    return found


def test_what_32_gpus_lose(made) -> None:
    """Too small a stock for the demand: 3P1D serves 27 of 47 req/s, and the rest has a price."""
    answer = plan(question(made, 1e-2, stock={"h100": 32}))
    assert answer.status == "optimal" and answer.xpyd == "3P1D"
    assert answer.demand_requests_per_s == pytest.approx(27.0)
    assert shed_of(answer) == pytest.approx(20.0, abs=1e-6)
    assert total(answer) == pytest.approx(64.0 + 20.0 * 36.0)
    assert sum(pool.rate_per_s or 0.0 for pool in answer.pools) == pytest.approx(54.0)
    assert all(slo.kept for slo in answer.promises)
    assert answer.margin is not None
    assert answer.margin.demand == pytest.approx(0.0, abs=1e-6)  # of what is served


def test_too_small_a_stock_for_what_must_be_served_is_infeasible(made) -> None:
    answer = plan(question(made, 1e-2, 0.4, stock={"h100": 32}))
    assert answer.status == "infeasible" and "28.2 req/s" in answer.reason
    assert answer.shortfall is not None and answer.shortfall.total_usd_per_hour is None
    assert answer.shortfall.shed == []
    enough = plan(question(made, 1e-2, 0.43, stock={"h100": 32}))
    assert shed_of(enough) == pytest.approx(20.0, abs=1e-6)


def test_dearer_requests_are_shed_less(made) -> None:
    """The least total is concave in the price, with what is shed as its slope."""
    prices = np.linspace(2e-4, 3e-3, 7)
    found = [least(question(made, float(p), 0.8)) for p in prices]
    shed = [OFFERED - outcome.point[0] for outcome in found]
    assert np.all(np.diff(shed) <= 1e-6) and shed[0] > shed[-1] + 1.0
    totals = np.array([usd(outcome) for outcome in found])
    assert np.all(np.diff(totals) >= -1e-6) and np.all(np.diff(totals, 2) <= 1e-5)


# Against an integer program, and a grid.


def program(problem: AllocationProblem, price: float, most: float) -> float:
    """min c n + 3600 price z: in each role the rates of the n cover what is offered less z."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    options, n = problem.options, len(problem.options)
    rows, low = [], []
    for role in ("prefill", "decode"):
        rows.append([problem.rate(o) if o.role == role else 0.0 for o in options] + [1.0])
        low.append(problem.demand)
    for gpu, held in problem.stock.items():
        rows.append([-float(o.gpus) if o.gpu == gpu else 0.0 for o in options] + [0.0])
        low.append(-float(held))
    found = milp(
        np.array([*(o.usd_per_hour for o in options), 3600.0 * price]),
        constraints=LinearConstraint(np.array(rows), np.array(low), np.full(len(rows), np.inf)),
        integrality=np.array([*([1] * n), 0]),
        bounds=Bounds(np.zeros(n + 1), np.array([*([100.0] * n), most * problem.demand])),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun) if found.success else math.inf


@pytest.mark.parametrize("price", [3e-4, 1e-3, 2e-3])
@pytest.mark.parametrize(
    ("most", "keys"), [(1.0, {}), (0.3, {}), (0.9, {"stock": {"h100": 24, "a100": 16}})], ids=str
)
def test_two_types_cost_what_the_integer_program_says(
    made, price: float, most: float, keys: dict[str, Any]
) -> None:
    slow = made.replica("b", gpu="a100")
    slow["service"] = slow["service"] | {
        "prefill": {"throughput": "6200 token/s", "noise": "exponential"}
    }
    traffic = [made.sheddable(price, most, rate="31 req/s", output="100 tokens")]
    scenario = made.question(made.replica("a"), slow, traffic=traffic, **keys)
    expected = program(scenario.problem(), price, most)
    found = least(scenario)
    if math.isinf(expected):
        assert found.allocation.status == "infeasible"
        return
    assert usd(found) == pytest.approx(expected, rel=1e-6)
    assert found.bound is not None and found.bound <= expected * (1.0 + 1e-7)
    assert found.allocation.status == "optimal"


def classes(made, chat: float, code: float, most: float) -> Scenario:
    """Short prompts, and long ones that take three times the prefill."""
    slo = {"ttft": {"mean": "2 s"}, "tpot": {"mean": "60 ms"}}
    traffic = [
        made.sheddable(chat, most, name="chat", rate="20 req/s"),
        made.sheddable(code, most, name="code", rate="15 req/s", prompt="3000 tokens", slo=slo),
    ]
    found: Scenario = made.question(traffic=traffic)
    return found


def test_several_classes_no_grid_is_cheaper(made) -> None:
    """Every fleet about the best one, at 7 x 7 ways to serve: none is below the bound."""
    scenario = classes(made, 3e-3, 1e-3, 0.5)
    found = least(scenario)
    assert found.bound is not None
    best = math.inf
    for prefills in range(5, 8):
        fleet = parse_fleet(f"{prefills}P1D", scenario.system.type_names)
        for x in np.linspace(1.0, 0.5, 7):
            for y in np.linspace(1.0, 0.5, 7):
                cost = 16.0 * (prefills + 1) + 10.8 * 20 * (1 - x) + 3.6 * 15 * (1 - y)
                if cost >= best:
                    continue
                part = served(scenario, (20.0 * float(x), 15.0 * float(y)))
                if part is not None and certify(part.problem(), fleet).certified:
                    best = cost
    assert found.bound <= usd(found) <= best
    assert usd(found) >= 0.97 * best  # the grid is near enough to tell


def test_a_class_goes_with_its_slos_when_nothing_of_it_is_served(made) -> None:
    """No fleet prefills 3000 tokens in 100 ms: the class is shed whole, whatever its price."""
    traffic = [
        made.sheddable(1e-2, name="chat", rate="20 req/s"),
        made.sheddable(
            1e-2, name="code", rate="15 req/s", prompt="3000 tokens",
            slo={"ttft": {"mean": "100 ms"}},
        ),
    ]  # fmt: skip
    answer = plan(made.question(traffic=traffic))
    assert answer.shortfall is not None
    chat, code = answer.shortfall.shed
    assert (chat.share, code.share) == (0.0, 1.0)
    assert {slo.traffic_class for slo in answer.slos} == {"chat"}
    assert answer.demand_requests_per_s == pytest.approx(20.0)
    alone = plan(made.question(traffic=[plain(made) | {"rate": "20 req/s"}]))
    assert answer.fleet == alone.fleet
    assert code.usd_per_hour == pytest.approx(15.0 * 36.0)


def test_a_class_that_may_not_be_shed_is_served(made) -> None:
    traffic = [
        plain(made) | {"name": "chat", "rate": "20 req/s"},
        made.sheddable(1e-5, name="bulk", rate="30 req/s"),
    ]
    answer = plan(made.question(traffic=traffic))
    assert answer.shortfall is not None
    (bulk,) = answer.shortfall.shed
    # 20 req/s take 3 replicas of 9 req/s, which serve 7 of the others for nothing
    assert answer.xpyd == "3P1D" and bulk.traffic_class == "bulk"
    assert bulk.requests_per_s == pytest.approx(23.0, abs=1e-5)
    assert answer.shortfall.offered_requests_per_s == pytest.approx(50.0)


# Both prices at once; a given fleet.


def both(made, usd: float, late: float, **keys: Any) -> Scenario:
    priced = [{"within": {"ttft": "300 ms"}, "price": f"{late!r} USD/request"}]
    traffic = [made.sheddable(usd, rate="19 req/s", best_effort=priced)]
    found: Scenario = made.question(traffic=traffic, **keys)
    return found


def test_shed_and_late_requests_together(made) -> None:
    """min over n, s of 16 (n + 1) + 3600 (p (19 - s) + q s exp(-.3 (10 - s/n))), s/n <= 9."""
    p, q = 2e-3, 3e-3
    best = math.inf
    for n in range(1, 8):
        s = np.linspace(0.0, min(19.0, 9.0 * n), 20_001)
        late = s * np.exp(-0.3 * (10.0 - s / n))
        best = min(best, float(np.min(16.0 * (n + 1) + 3600.0 * (p * (19.0 - s) + q * late))))
    answer = plan(both(made, p, q))
    assert answer.shortfall is not None and answer.shortfall.bound_usd_per_hour is not None
    assert total(answer) == pytest.approx(best, rel=5e-3)
    assert answer.shortfall.bound_usd_per_hour <= best * (1.0 + 5e-3)
    assert total(answer) - answer.shortfall.bound_usd_per_hour <= 1.001e-3 * total(answer)
    parts = answer.shortfall
    assert total(answer) == pytest.approx(
        (answer.cost_usd_per_hour or 0.0)
        + (parts.shed_usd_per_hour or 0.0)
        + (parts.lateness_usd_per_hour or 0.0)
    )


def test_late_requests_may_be_dearer_than_shed_ones(made) -> None:
    """With one prefill replica in stock, s of 19 req/s: 3600 (p (19 - s) + q s exp(-.3 (10 - s)))
    is least where p = q (1 + .3 s) exp(-.3 (10 - s)), below the 9 that the SLO lets it take."""
    p, q = 2e-2, 4e-2
    answer = plan(both(made, p, q, stock={"h100": 16}))
    s = np.linspace(0.0, 9.0, 9001)
    stationary = float(s[np.argmin(np.abs(p - q * (1.0 + 0.3 * s) * np.exp(-0.3 * (10.0 - s))))])
    assert 0.0 < stationary < 8.0
    assert answer.xpyd == "1P1D"
    assert answer.demand_requests_per_s == pytest.approx(stationary, abs=0.5)


def test_a_given_fleet_serves_what_it_can(made) -> None:
    answer = evaluate(question(made, 1e-3), "3P1D")
    assert answer.status == "feasible" and answer.xpyd == "3P1D"
    assert shed_of(answer) == pytest.approx(20.0, abs=1e-5)
    assert total(answer) == pytest.approx(64.0 + 20.0 * 3.6)
    assert answer.shortfall is not None and answer.shortfall.bound_usd_per_hour is None
    whole = evaluate(question(made, 1e-3), "6P1D")
    assert shed_of(whole) == 0.0 and total(whole) == 112.0


def test_a_given_fleet_that_serves_too_little_breaks(made) -> None:
    answer = evaluate(question(made, 1e-3, 0.2), "3P1D", simulate=True)
    assert answer.status == "infeasible" and answer.reason
    assert answer.demand_requests_per_s == pytest.approx(0.8 * OFFERED)
    assert answer.shortfall is not None and answer.shortfall.total_usd_per_hour is None
