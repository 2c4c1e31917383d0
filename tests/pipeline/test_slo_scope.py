"""SLOs over all requests, from a scenario to every answer about it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.serving import best_traffic, serves, traffic
from pdalloc.closed_forms import Stage, best_split, population_mix
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import parse_fleet
from pdalloc.planning import Answer, Effort, evaluate, margins, plan, simulate
from pdalloc.planning.explain import explain
from pdalloc.planning.frontier import frontier
from pdalloc.planning.sweeps import cost_sweep, latency_sweep
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

RATE, BOUND = 10.0, 0.81
SLOW, FAST = 2.0, 4.0
"""Requests/s that one M/M/1 prefill replica of each type can do."""
DEAR = 2.6
"""Price of a fast GPU relative to a slow one: the slow type is the better bargain per rate."""


@pytest.fixture(scope="module")
def asked(made):
    """Two M/M/1 prefill types, one decode type with room: 10 req/s, mean TTFT of a second."""

    def ask(scope: str = "population", bound: float = BOUND, **keys: Any) -> Scenario:
        def prefill(name: str, gpu: str, rate: float) -> dict[str, Any]:
            found: dict[str, Any] = made.replica(name, gpu=gpu, gpus=1, roles=["prefill"])
            found["service"]["prefill"]["throughput"] = f"{1000 * rate} token/s"
            return found

        types = [prefill("slow", "a100", SLOW), prefill("fast", "h100", FAST)]
        types += [made.replica("d", roles=["decode"])]
        slo = {"ttft": {"mean": f"{bound} s"}}
        question: Scenario = made.question(
            *types,
            traffic=[made.chat(rate=f"{RATE} req/s", output="20 tokens", slo=slo)],
            prices={"a100": "1 USD/GPU/hour", "h100": f"{DEAR} USD/GPU/hour"},
            slo_scope=scope,
            **keys,
        )
        return question

    return ask


@pytest.fixture(scope="module")
def planned(asked) -> Answer:
    return plan(asked(), simulate=True, effort=Effort(20_000, 6))


def of_prefill(answer: Answer) -> dict[str, tuple[int, float]]:
    """(replicas, requests/s) of each prefill type."""
    pools = (p for p in answer.pools if p.role == "prefill")
    return {p.replica_type: (p.replicas, p.rate_per_s or 0.0) for p in pools}


def mean_sojourn(answer: Answer) -> float:
    """Traffic-weighted mean of 1/(mu - lambda/n) (M/M/1; Kleinrock 1975, eq. 3.26)."""
    mu = {"slow": SLOW, "fast": FAST}
    found = of_prefill(answer)
    return sum(rate / (mu[name] - rate / n) for name, (n, rate) in found.items()) / RATE


def test_fast_pools_make_up_for_slow_ones(asked, planned: Answer) -> None:
    """All requests together keep what a slow pool alone would not; that is cheaper."""
    assert planned.status == "optimal" and planned.slo_scope == "population"
    alone = plan(asked("pool"))
    assert alone.slo_scope == "pool" and alone.status == "optimal"
    assert (planned.cost_usd_per_hour or 0.0) < (alone.cost_usd_per_hour or 0.0)
    (slo,) = planned.slos
    assert slo.predicted_s == pytest.approx(mean_sojourn(planned), rel=1e-6)
    assert slo.kept and mean_sojourn(planned) <= BOUND
    assert any("holds over all requests" in line for line in planned.warnings)
    assert not any("holds over all requests" in line for line in alone.warnings)


def mean_of(counts: tuple[int, int]) -> float:
    """Least mean sojourn of ``counts`` slow and fast replicas (closed form); infinite if full."""
    stages = [Stage.mm1(1.0, SLOW), Stage.mm1(DEAR, FAST)]
    if SLOW * counts[0] + FAST * counts[1] <= RATE:
        return math.inf
    rates = best_split(RATE, stages, counts)
    pairs = zip((SLOW, FAST), counts, rates, strict=True)
    return sum(x / (mu - x / n) for mu, n, x in pairs if x > 0.0) / RATE


@pytest.mark.parametrize("bound", [0.62, 0.8, 1.0, 1.3, 1.5, 2.0])
def test_the_optimum_is_that_of_brute_force(asked, bound: float) -> None:
    """To the last dollar, also where a bound is met exactly: 3 fast ones at 1.5 s."""
    answer = plan(asked(bound=bound))
    paid = sum(p.cost_usd_per_hour for p in answer.pools if p.role == "prefill")
    fleets = ((a, b) for a in range(16) for b in range(12))
    least = min(a + DEAR * b for a, b in fleets if mean_of((a, b)) <= bound * (1 + 1e-9))
    assert answer.status == "optimal" and answer.bound_usd_per_hour == answer.cost_usd_per_hour
    assert paid == pytest.approx(least, rel=1e-9)


def test_the_split_is_where_one_more_request_costs_the_same(planned: Answer) -> None:
    """d/dx of x/(mu - x) is mu/(mu - x)^2, equal on all used types (Bell and Stidham 1983)."""
    mu = {"slow": SLOW, "fast": FAST}
    used = of_prefill(planned)
    assert set(used) == set(mu)
    prices = [mu[name] / (mu[name] - rate / n) ** 2 for name, (n, rate) in used.items()]
    assert prices[0] == pytest.approx(prices[1], rel=0.15)  # the curves are tables
    assert sum(rate for _, rate in used.values()) == pytest.approx(RATE)


def test_whole_replicas_cost_no_less_than_fractions(asked, planned: Answer) -> None:
    """The relaxation of theorem ``two_types`` bounds the prefill cost from below."""
    stages = [Stage.mm1(1.0, SLOW), Stage.mm1(DEAR, FAST)]
    least = population_mix(RATE, stages, BOUND).cost
    paid = sum(p.cost_usd_per_hour for p in planned.pools if p.role == "prefill")
    assert least <= paid <= least + 1.0 + DEAR


def test_the_simulation_judges_all_requests(planned: Answer) -> None:
    (slo,) = planned.slos
    half = slo.simulated_half_width_s
    assert half is not None and 0.0 < half < 0.1 * BOUND
    assert slo.simulated_s == pytest.approx(mean_sojourn(planned), abs=2.0 * half)
    assert slo.simulated_verdict in ("keeps", "too close to call")


def test_simulate_splits_as_the_plan(asked, planned: Answer) -> None:
    found = simulate(asked(), planned.fleet or "", Effort(2000, 2)).answer
    rates = {p.replica_type: p.rate_per_s for p in found.pools if p.role == "prefill"}
    assert rates == pytest.approx({name: rate for name, (_, rate) in of_prefill(planned).items()})


def test_one_type_needs_no_scope(asked) -> None:
    """Equal replicas share equally: each pool's mean is that of all."""
    for bound in (0.7, 1.5):
        costs = [
            plan(asked(scope, bound, stock={"h100": 64, "a100": 0})).cost_usd_per_hour
            for scope in ("pool", "population")
        ]
        assert costs[0] == costs[1] is not None


def test_headroom_is_planned_over_all_requests(asked) -> None:
    roomy, busier = plan(asked(headroom=0.2)), asked()
    problem = busier.problem()
    problem = replace(problem, demand=1.2 * problem.demand)
    assert roomy.status == "optimal" and roomy.fleet is not None
    fleet = parse_fleet(roomy.fleet, busier.system.type_names)
    assert serves(problem, fleet)
    assert not serves(problem, parse_fleet("prefill/slow=7,decode/d=1", busier.system.type_names))


def test_the_demand_margin_is_where_all_requests_break(asked, planned: Answer) -> None:
    scenario = asked()
    problem = scenario.problem()
    fleet = parse_fleet(planned.fleet or "", scenario.system.type_names)
    assert planned.margin is not None and planned.margin.demand is not None
    limit = problem.demand * (1.0 + planned.margin.demand)
    assert certify(replace(problem, demand=limit * 0.999), fleet).certified
    assert not certify(replace(problem, demand=limit * 1.002), fleet).certified
    slower = margins.prefill_margin(problem, fleet)
    assert slower == pytest.approx(planned.margin.prefill) and slower is not None
    assert slower < planned.margin.demand  # work grows alike, and every request is longer itself


def test_traffic_is_none_where_an_slo_breaks(asked) -> None:
    problem = asked().problem()
    few = parse_fleet("prefill/slow=6,decode/d=1", asked().system.type_names)
    assert traffic(problem, few) is None
    assert best_traffic(problem, few) == pytest.approx(
        {("prefill", "slow"): 10, ("decode", "d"): 10}
    )
    overloaded = parse_fleet("prefill/slow=4,decode/d=1", asked().system.type_names)
    assert traffic(problem, overloaded) is None
    assert sum(best_traffic(problem, overloaded).values()) == pytest.approx(20.0)
    headless = parse_fleet("0P1D", {"prefill": ["slow"], "decode": ["d"]})
    assert traffic(problem, headless) is None and not serves(problem, headless)


def test_a_fleet_that_breaks_says_over_what(asked) -> None:
    answer = evaluate(asked(), "prefill/slow=6,decode/d=1")
    assert answer.status == "infeasible" and "over all requests is above" in answer.reason
    assert answer.slos[0].predicted_s == pytest.approx(1.0 / (SLOW - RATE / 6), rel=1e-6)


def test_sweeps_keep_the_scope(asked, planned: Answer) -> None:
    scenario = asked()
    fleet = parse_fleet(planned.fleet or "", scenario.system.type_names)
    (point, *_) = cost_sweep(scenario, [RATE])
    assert point.cost == planned.cost_usd_per_hour
    (curve,) = latency_sweep(scenario, [fleet], [0.5 * RATE, RATE])
    at = dict(zip(curve.demands, curve.seconds[0], strict=True))
    assert at[RATE] == pytest.approx(mean_sojourn(planned), rel=1e-6)


def test_the_frontier_is_never_above_that_of_pools(asked) -> None:
    costs = []
    for scope in ("pool", "population"):
        points = frontier(asked(scope), "ttft", 0.9, 1.4, 3).points
        costs.append([p.cost or 0.0 for p in points if not p.corner])
    pool, population = costs
    assert len(pool) == len(population) >= 3
    assert all(x <= y for x, y in zip(population, pool, strict=True))


def test_explain_knows_what_it_cannot_say(asked, planned: Answer) -> None:
    """No merit order and no relaxation where types keep an SLO together."""
    found = explain(asked())
    assert found.fleet == planned.fleet and found.merit == []
    assert found.relaxed_usd_per_hour is None
    assert {a.name for a in found.assumptions} >= {"demand", "prefill times"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"dispatch": "round_robin"}, "dispatch: random"),
        ({"redundancy": 1}, "slo_scope: pool"),
    ],
)
def test_what_is_not_known_over_all_requests(asked, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        plan(asked(**keys))


def test_the_command_says_over_all_requests(made, asked, command, tmp_path) -> None:
    import yaml

    raw = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": [made.chat(output="20 tokens")],
        "replicas": [made.replica()],
        "prices": {"h100": "2 USD/GPU/hour"},
        "first_token": "prefill",
        "slo_scope": "population",
    }
    (tmp_path / "q.yaml").write_text(yaml.safe_dump(raw))
    done = command("plan", "q.yaml")
    assert (done.returncode, done.stderr) == (0, "") and "SLOs over all requests" in done.stdout
    wrong = command("plan", "q.yaml", "--set", "slo_scope=fleet")
    assert wrong.returncode == 2 and "slo_scope" in wrong.stderr and "Traceback" not in wrong.stderr
