"""Relaxations and sensitivities, piece by piece, against hand calculations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.solvers import solver_named
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.planning import margins
from pdalloc.planning.fractions import fractions, merit
from pdalloc.planning.relaxation import STEP, price_of_bound, relaxed
from pdalloc.planning.sensitivity import PRICE_RANGE, assumptions, price_assumptions
from pdalloc.scenario import Scenario
from pdalloc.slo.objective import Slo

pytestmark = pytest.mark.pipeline
USD = 16.0


def options(scenario: Scenario):
    problem = scenario.problem()
    return problem, problem.in_role(PREFILL)[0], problem.in_role(DECODE)[0]


def single(scenario: Scenario) -> list[Slo]:
    return [slo for slo in scenario.slos if isinstance(slo, Slo)]


def queue(made, rate: float, **keys) -> Scenario:
    """M/M/1 prefill of 10 requests/s a replica, mean TTFT 1 s, two output tokens."""
    found: Scenario = made.question(
        traffic=[made.chat(**({"rate": f"{rate} req/s", "output": "2 tokens"} | keys))]
    )
    return found


# The relaxation.


@pytest.mark.parametrize("rate", [3.0, 18.0, 400.0])
def test_uncoupled_fractions_are_demand_over_rate(made, rate: float) -> None:
    """lambda/(mu - 1/tau) prefill replicas; the cost is the sum of both roles."""
    problem, prefill, decode = options(queue(made, rate))
    found = relaxed(problem, prefill, decode)
    assert found is not None
    assert found.prefill == pytest.approx(rate / (made.MU - 1.0), rel=1e-9)
    assert found.decode == pytest.approx(rate / problem.rate(decode), rel=1e-9)
    assert found.cost == pytest.approx(USD * (found.prefill + found.decode))


@pytest.mark.parametrize("bound", [1.4, 2.0, 6.0])
def test_coupled_fractions_bound_the_integer_optimum(made, bound: float) -> None:
    """A relaxation is never dearer than whole replicas of the same types."""
    chat = made.chat(output="60 tokens", rate="20 req/s", slo={"e2e": {"mean": f"{bound} s"}})
    problem, prefill, decode = options(made.question(traffic=[chat]))
    found = relaxed(problem, prefill, decode)
    whole = solver_named("exact").solve(problem)
    assert found is not None and whole.cost is not None
    assert found.cost <= whole.cost + 1e-9
    up = math.ceil(found.prefill) + math.ceil(found.decode)
    assert whole.cost <= USD * (up + 1)


def test_the_shared_budget_is_split_at_the_least_cost(made) -> None:
    """No other decode load does better: a tenth more or less decode costs as much or more."""
    chat = made.chat(output="60 tokens", rate="20 req/s", slo={"e2e": {"mean": "2 s"}})
    problem, prefill, decode = options(made.question(traffic=[chat]))
    found = relaxed(problem, prefill, decode)
    assert found is not None
    capacity, r = problem.capacity, problem.capacity.system.replica_types["r"]
    for factor in (0.9, 0.98, 1.02, 1.1):
        rate = problem.demand / (factor * found.decode)
        if rate >= problem.rate(decode):
            continue
        admitted = capacity.prefill_rate(r, [capacity.predictor.decode(r, rate)])
        if admitted > 0.0:
            cost = USD * (problem.demand / admitted + factor * found.decode)
            assert cost >= found.cost * (1.0 - 1e-9)


def test_no_fraction_below_the_floor(made) -> None:
    problem, prefill, decode = options(queue(made, 5.0, slo={"ttft": {"mean": "90 ms"}}))
    assert relaxed(problem, prefill, decode) is None


def test_prices_are_one_sided_at_the_floor(made) -> None:
    """The bound 1 % tighter cannot be kept: the difference goes the other way only."""
    floor = 1.0 / made.MU + 0.0005
    scenario = queue(made, 5.0, slo={"ttft": {"mean": f"{floor} s"}})
    problem, prefill, decode = options(scenario)
    here = relaxed(problem, prefill, decode)
    loose = queue(made, 5.0, slo={"ttft": {"mean": f"{floor * (1 + STEP)} s"}})
    there = relaxed(*options(loose))
    assert here is not None and there is not None
    found = price_of_bound(scenario, prefill, decode, single(scenario)[0])
    assert found == pytest.approx((there.cost - here.cost) / (STEP * floor), rel=1e-6)


def test_a_bound_that_does_not_bind_has_no_price(made) -> None:
    """Of TTFT mean 1 s and mean 30 s only the first sets the rate."""
    slo = {"ttft": {"mean": "1 s", "p50": "30 s"}}
    scenario = queue(made, 37.0, slo=slo)
    _, prefill, decode = options(scenario)
    prices = [price_of_bound(scenario, prefill, decode, s) for s in single(scenario)]
    assert prices[0] is not None and prices[0] < 0.0
    assert prices[1] == pytest.approx(0.0, abs=1e-9)


# Fractions and merit order.


def test_fractions_beside_loaded_decode(made) -> None:
    """Where E2E spans the stages prefill admits less beside the fleet than beside idle decode."""
    chat = made.chat(output="60 tokens", rate="20 req/s", slo={"e2e": {"mean": "2 s"}})
    problem = made.question(traffic=[chat]).problem()
    fleet = solver_named("exact").solve(problem).fleet
    prefill, decode = fractions(problem, fleet)
    assert prefill.admits_per_s < problem.rate(problem.in_role(PREFILL)[0])
    assert prefill.count <= prefill.replicas and decode.count <= decode.replicas
    assert prefill.formula == decode.formula == ""


def test_mixed_roles_have_no_fraction_but_a_merit_order(made) -> None:
    problem = made.pair().problem()
    fleet = Fleet.of({(PREFILL, "a"): 1, (PREFILL, "b"): 1, (DECODE, "b"): 1})
    assert [f.role for f in fractions(problem, fleet)] == [DECODE]
    order = merit(problem, fleet)
    assert [(m.role, m.replica_type, m.replicas) for m in order] == [
        (PREFILL, "b", 1), (PREFILL, "a", 1), (DECODE, "b", 1), (DECODE, "a", 0)
    ]  # fmt: skip
    for m in order:
        price = USD if m.replica_type == "a" else USD / 2.0
        assert m.usd_per_hour_per_request_per_s == pytest.approx(price / m.admits_per_s)


def test_types_that_admit_nothing_have_no_merit(made) -> None:
    slow = made.replica("slow", gpu="a100", roles=["prefill"])
    slow["service"] = {**slow["service"], "prefill": {"throughput": "900 token/s"}}
    chat = made.chat(rate="5 req/s", output="2 tokens")  # 1000 tokens take it 1.1 s
    problem = made.question(made.replica("fast"), slow, traffic=[chat]).problem()
    fleet = solver_named("exact").solve(problem).fleet
    assert [m.replica_type for m in merit(problem, fleet) if m.role == PREFILL] == ["fast"]


# Assumptions.


@pytest.mark.parametrize("prefills", [5, 6, 9])
def test_each_margin_is_where_an_slo_breaks(made, prefills: int) -> None:
    """A little below the margin the fleet holds, a little above it does not."""
    scenario = queue(made, 37.0)
    fleet = made.fleet(prefills, 1)
    found = {a.name: a for a in assumptions(scenario, fleet)}
    assert set(found) >= {"demand", "prefill times", "decode step times", "output lengths"}
    for name, change in (("demand", 1.0), ("prefill times", 0.0)):
        margin = found[name].margin
        assert margin is not None and found[name].effect
        for shift, holds in ((-0.005, True), (0.005, False)):
            factor = 1.0 + margin + shift
            problem = scenario.problem()
            if change:
                problem = replace(problem, demand=factor * problem.demand)
            else:
                slower = replace(scenario, system=scenario.system.slowed(prefill=factor))
                problem = slower.problem()
            assert certify(problem, fleet).certified == holds


def test_the_least_margin_comes_first_and_hopeless_ones_last(made) -> None:
    good = [a.margin for a in assumptions(queue(made, 37.0), made.fleet(5, 1))]
    assert good == sorted(m for m in good if m is not None)
    bad = assumptions(queue(made, 37.0), made.fleet(4, 1))
    sizes = [math.inf if a.margin is None else abs(a.margin) for a in bad]
    assert sizes == sorted(sizes) and sizes[-1] == math.inf
    assert all(a.margin is None or a.margin < 0.0 for a in bad)


def test_more_decode_never_shrinks_a_margin(made) -> None:
    chat = made.chat(output="40 tokens", slo={"tpot": {"mean": "14 ms"}})
    scenario = made.question(traffic=[chat], first_token="decode")
    before = -1.0
    for decodes in (1, 2, 3):
        found = {a.name: a.margin for a in assumptions(scenario, made.fleet(2, decodes))}
        margin = found["decode step times"]
        now = -1.0 if margin is None else margin
        assert now >= before
        before = now


def test_a_margin_beyond_the_range_has_no_effect(made) -> None:
    """Decode does next to nothing here: four times as slow is fine."""
    found = {a.name: a for a in assumptions(queue(made, 5.0), made.fleet(1, 3))}
    assert found["decode step times"].margin == margins.MOST
    assert found["decode step times"].effect == ""


# Prices.


@pytest.mark.parametrize("cheap", [0.8, 1.2, 1.9])
def test_equal_types_change_places_at_equal_prices(made, cheap: float) -> None:
    """b at ``cheap`` against a at 2 USD: it is cheapest up to 2/cheap times its price."""
    prices = {"h100": "2 USD/GPU/hour", "a100": f"{cheap} USD/GPU/hour"}
    problem = made.pair(prices=prices).problem()
    fleet = solver_named("exact").solve(problem).fleet
    assert all(pool.replica_type == "b" for pool in fleet.pools)
    edges = {a.name: 1.0 + (a.margin or 0.0) for a in price_assumptions(problem, fleet)}
    if 2.0 / cheap < PRICE_RANGE[1]:
        assert edges.pop("price of a100 (dearer)") == pytest.approx(2.0 / cheap, abs=3e-3)
    if cheap / 2.0 > PRICE_RANGE[0]:
        assert edges.pop("price of h100 (cheaper)") == pytest.approx(cheap / 2.0, abs=3e-3)
    assert edges == {}


def test_the_nearest_price_edge_comes_first(made) -> None:
    prices = {"h100": "2 USD/GPU/hour", "a100": "1.5 USD/GPU/hour"}
    problem = made.pair(prices=prices).problem()
    found = price_assumptions(problem, solver_named("exact").solve(problem).fleet)
    sizes = [abs(a.margin or 0.0) for a in found]
    assert sizes == sorted(sizes) and len(sizes) == 2
    assert all("becomes cheapest: prefill/a=" in a.effect for a in found)


def test_one_gpu_type_has_no_edges(made) -> None:
    problem = queue(made, 37.0).problem()
    assert price_assumptions(problem, made.fleet(5, 1)) == []
