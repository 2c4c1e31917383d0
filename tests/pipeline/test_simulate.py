"""simulate: what it measures against queueing theory, and which fleets it takes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.planning import Effort, Simulation, simulate
from pdalloc.planning.simulation import rates_for, request_bounds
from pdalloc.planning.simulation_answer import LatencyAnswer, SimulationAnswer
from pdalloc.simulation.attainment import Bound

pytestmark = pytest.mark.pipeline

SMALL = Effort(2000, 4)


def latency(answer: SimulationAnswer, metric: str, of: str = "all") -> LatencyAnswer:
    (row,) = [x for x in answer.latencies if (x.traffic_class, x.metric) == (of, metric)]
    return row


def rounded(answer: SimulationAnswer) -> Any:
    """The answer to 12 decimals, as sums are added in other orders; without who produced it."""
    found = json.loads(answer.to_json(), parse_float=lambda text: round(float(text), 12))
    return {**found, "produced_by": {}}


# Theory.


@pytest.fixture(scope="module")
def mm1(made) -> Simulation:
    slo = {"ttft": {"mean": "0.4 s", "p90": "0.8 s"}}
    return simulate(made.question(traffic=[made.chat(slo=slo)]), "1P1D", Effort(20_000, 8))


def test_an_mm1_prefill_has_exponential_sojourns(made, mm1: Simulation) -> None:
    """M/M/1: T is exponential of rate mu - lambda = 3/s (Kleinrock 1975, section 3.2)."""
    row, away = latency(mm1.answer, "ttft"), made.MU - 7.0
    made.confirm(row.mean_s, 1.0 / away)
    for percent, found in ((50, row.p50_s), (90, row.p90_s), (95, row.p95_s), (99, row.p99_s)):
        made.confirm(found, -math.log(1.0 - percent / 100.0) / away, 0.15)
    assert latency(mm1.answer, "e2e") == row.model_copy(update={"metric": "e2e"})


def test_attainment_is_the_tail_of_the_highest_percentile_s_bound(made, mm1: Simulation) -> None:
    """P(T <= 0.8 s) = 1 - exp(-3 0.8); goodput is that share of what is offered."""
    share = 1.0 - math.exp(-3.0 * 0.8)
    made.confirm(mm1.answer.attainment, share)
    made.confirm(mm1.answer.offered_requests_per_s, 7.0)
    made.confirm(mm1.answer.goodput_requests_per_s, share * 7.0)
    assert mm1.answer.attainment_bounds == ["TTFT <= 800 ms"]


def test_utilisation_stages_and_little(made, mm1: Simulation) -> None:
    """rho = 0.7; E[waiting] = rho^2 / (1 - rho), E[in service] = rho; nothing elsewhere."""
    prefill, decode = mm1.answer.pools
    made.confirm(prefill.utilisation, 0.7)
    made.confirm(mm1.answer.stages["queue_prefill"], 0.49 / 0.3, 0.2)
    made.confirm(mm1.answer.stages["in_prefill"], 0.7)
    assert decode.utilisation.value == mm1.answer.stages["in_decode"].value == 0.0
    assert abs(mm1.answer.littles_law_gap.value) < 0.01
    assert mm1.answer.warnings == []


def test_verdicts_are_those_of_the_intervals(mm1: Simulation) -> None:
    for slo in mm1.answer.slos:
        assert slo.simulated_s is not None and slo.half_width_s is not None
        low, high = slo.simulated_s - slo.half_width_s, slo.simulated_s + slo.half_width_s
        expected = "keeps" if high < slo.bound_s else "breaks" if low > slo.bound_s else None
        assert slo.verdict == (expected or "too close to call")


@pytest.mark.parametrize(
    ("noise", "options", "scv"),
    [
        ("none", {}, 0.0),
        ("none", {"prefill_noise": {"law": "gamma", "scv": 0.5}}, 0.5),
        ("exponential", {}, 1.0),
    ],
)
def test_waits_are_pollaczek_khinchine(
    made, noise: str, options: dict[str, Any], scv: float
) -> None:
    """E[W] = rho (1 + SCV) / (2 (1 - rho)) E[S]."""
    scenario = made.question(made.replica(noise=noise), simulation=options)
    answer = simulate(scenario, "1P1D", Effort(15_000, 8)).answer
    expected = 0.7 * (1.0 + scv) / (2.0 * 0.3) / made.MU + 1.0 / made.MU
    made.confirm(latency(answer, "ttft").mean_s, expected)


def test_options_reach_the_run(made) -> None:
    """The only prefill replica is 1.25 times as slow: M/M/1 with mu = 8/s."""
    slow = {"slow": [{"role": "prefill", "replica": 0, "factor": 1.25}]}
    answer = simulate(made.question(simulation=slow), "1P1D", Effort(20_000, 8)).answer
    made.confirm(answer.pools[0].utilisation, 7.0 / 8.0)
    made.confirm(latency(answer, "ttft").mean_s, 1.0 / (8.0 - 7.0), 0.2)


def test_attainment_of_classes_with_bounds_of_their_own(made) -> None:
    """Both see the same M/M/1: the shares that keep their bounds, weighted by their rates."""
    rates, bounds = (5.0, 2.0), (0.3, 0.9)
    classes = [
        made.chat(name=f"c{bound}", rate=f"{rate} req/s", slo={"ttft": {"p90": f"{bound} s"}})
        for rate, bound in zip(rates, bounds, strict=True)
    ]
    answer = simulate(made.question(traffic=classes), "1P1D", Effort(20_000, 8)).answer
    kept = [1.0 - math.exp(-3.0 * bound) for bound in bounds]
    made.confirm(answer.attainment, float(np.average(kept, weights=rates)))
    assert answer.attainment_bounds == ["TTFT of c0.3 <= 300 ms", "TTFT of c0.9 <= 900 ms"]
    for bound in bounds:
        made.confirm(latency(answer, "ttft", f"c{bound}").mean_s, 1.0 / 3.0)


def test_a_lone_request_at_a_time_takes_its_own_time(made) -> None:
    """A clock that leaves 10 s between requests: prefill 0.1 s, 5 steps of one request.

    The clock offers its rate exactly, so that attainment, goodput and cost have no spread.
    """
    slo = {"ttft": {"p50": "0.2 s"}, "tpot": {"mean": "9 ms"}, "itl": {"p99": "11 ms"}}
    block = made.chat(rate="0.1 req/s", output="6 tokens", arrival_scv=0.0, slo=slo)
    answer = simulate(
        made.question(made.replica(noise="none"), traffic=[block]), "1P1D", SMALL
    ).answer
    step = made.STEP + made.PER_REQUEST
    for metric, seconds in (("ttft", 0.1), ("tpot", step), ("itl", step), ("e2e", 0.1 + 5 * step)):
        row = latency(answer, metric)
        for found in (row.mean_s, row.p50_s, row.p99_s):
            assert found.value == pytest.approx(seconds) and found.half_width < 1e-9
    assert [slo.verdict for slo in answer.slos] == ["keeps", "breaks", "keeps"]
    assert answer.attainment.value == answer.goodput_requests_per_s.value == 0.0
    assert answer.offered_requests_per_s.value == pytest.approx(0.1)
    # 32 USD/h for 0.1 req/s of 1006 tokens
    usd = 32.0 / 3600.0 / 0.1 * 1e6
    assert answer.usd_per_million_tokens is not None
    assert answer.usd_per_million_tokens.value == pytest.approx(usd / 1006)
    assert answer.usd_per_million_output_tokens is not None
    assert answer.usd_per_million_output_tokens.value == pytest.approx(usd / 6)


@pytest.mark.parametrize("dispatch", ["random", "central_queue"])
def test_goodput_is_the_attained_share_of_what_is_offered(made, dispatch: str) -> None:
    """By a clock what is offered is its rate in every replication, so means multiply."""
    block = made.chat(arrival_scv=0.0, rate="14 req/s", slo={"ttft": {"p50": "150 ms"}})
    answer = simulate(made.question(traffic=[block], dispatch=dispatch), "2P1D", SMALL).answer
    assert 0.0 < answer.attainment.value < 1.0
    expected = answer.attainment.value * answer.offered_requests_per_s.value
    assert answer.goodput_requests_per_s.value == pytest.approx(expected)


# Bounds that a request must keep.


def bounds_of(made, **slo: dict[str, str]) -> list[Bound]:
    return request_bounds(made.question(traffic=[made.chat(slo=slo)]).slos, ["all"])


def test_the_highest_percentile_bounds_a_request(made) -> None:
    assert bounds_of(made, ttft={"p99": "3 s", "mean": "1 s", "p50": "2 s"}) == [
        Bound("ttft", 3.0, 0)
    ]
    assert bounds_of(made, ttft={"mean": "1 s"}) == [Bound("ttft", 1.0, 0)]
    assert bounds_of(made, tpot={"p90": "20 ms"}, e2e={"p95": "9 s"}) == [
        Bound("tpot", 0.02, 0), Bound("e2e", 9.0, 0)
    ]  # fmt: skip


def test_of_a_request_s_gaps_a_share_keeps_the_bound(made) -> None:
    """The percentile's share; half of them where only their mean has a bound."""
    assert bounds_of(made, itl={"p99": "30 ms", "mean": "20 ms"}) == [Bound("itl", 0.03, 0, 0.99)]
    assert bounds_of(made, itl={"mean": "20 ms"}) == [Bound("itl", 0.02, 0, 0.5)]


def test_one_token_answers_have_no_gap_to_judge(made) -> None:
    slo = {"ttft": {"mean": "1 s"}, "tpot": {"mean": "1 ms"}, "itl": {"p99": "1 ms"}}
    answer = simulate(made.question(traffic=[made.chat(slo=slo)]), "1P1D", SMALL).answer
    found = {s.metric: (s.simulated_s, s.verdict) for s in answer.slos if s.metric != "ttft"}
    assert found == {"tpot": (0.0, "keeps"), "itl": (0.0, "keeps")}
    assert {row.metric for row in answer.latencies} == {"ttft", "e2e"}


def test_a_class_that_nobody_saw_is_not_called_kept(made) -> None:
    """One request in ten thousand: too few in any replication."""
    rare = made.chat(name="rare", rate="0.0007 req/s", slo={"ttft": {"mean": "1 us"}})
    scenario = made.question(traffic=[made.chat(), rare])
    answer = simulate(scenario, "1P1D", SMALL).answer
    (unseen,) = [slo for slo in answer.slos if slo.traffic_class == "rare"]
    assert (unseen.verdict, unseen.simulated_s) == ("too few to judge", None)
    assert any("rare" in w and "few for a P99" in w for w in answer.warnings)


# Fleets.


def test_a_co_located_replica_is_paid_once(made) -> None:
    scenario = made.pair(simulation=made.TOGETHER)
    answer = simulate(scenario, "a=1,b=2", SMALL).answer
    assert answer.fleet == "a=1,b=2" and answer.xpyd is None
    assert answer.cost_usd_per_hour == 16.0 + 2 * 8.0
    assert (answer.gpus, answer.gpus_by_type) == (24, {"h100": 8, "a100": 16})
    assert [(p.role, p.replica_type, p.replicas) for p in answer.pools] == [
        ("both", "a", 1), ("both", "b", 2)
    ]  # fmt: skip
    assert sum(p.rate_per_s for p in answer.pools) == pytest.approx(7.0)
    assert answer.stages["in_transfer"].value == 0.0
    assert SimulationAnswer.model_validate_json(answer.to_json()) == answer


def test_co_located_fleets_are_written_short_or_long_or_given(made) -> None:
    scenario = made.question(traffic=[made.chat(output="20 tokens")], simulation=made.TOGETHER)
    both = made.fleet(2, 2)
    first, *others = [simulate(scenario, fleet, SMALL).answer for fleet in ("2", "r=2", both)]
    assert all(other == first for other in others)


def test_a_co_located_pool_works_while_it_prefills_or_decodes(made) -> None:
    """Prefill 0.1 s and 19 steps of 10.5 ms every 2 s: 0.2995 s, on one replica of two."""
    block = made.chat(rate="0.5 req/s", output="20 tokens", arrival_scv=0.0)
    scenario = made.question(made.replica(noise="none"), traffic=[block], simulation=made.TOGETHER)
    (pool,) = simulate(scenario, "2", SMALL).answer.pools
    work = 0.1 + 19 * (made.STEP + made.PER_REQUEST)
    assert pool.utilisation.value == pytest.approx(work / 2.0 / 2.0, rel=1e-3)


def test_apart_both_roles_are_paid(made) -> None:
    answer = simulate(made.pair(), "prefill/a=1,decode/b=2", SMALL).answer
    assert (answer.xpyd, answer.cost_usd_per_hour, answer.gpus) == ("1P2D", 32.0, 24)


@pytest.mark.parametrize("rule", ["least_loaded", "round_robin"])
def test_pools_share_traffic_as_the_formulas_route(made, rule: str) -> None:
    """By what each pool admits under its dispatch rule; the log has those shares."""
    fleet = "prefill/a=1,prefill/b=1,decode/a=1,decode/b=2"
    scenario = made.pair(dispatch=rule)
    done = simulate(scenario, fleet, SMALL)
    capacity = scenario.problem().capacity
    admits = [
        capacity.admissible_rate(PREFILL, scenario.system.replica_types[name], 1)
        for name in ("a", "b")
    ]
    share = admits[0] / sum(admits)
    assert done.answer.pools[0].rate_per_s == pytest.approx(7.0 * share)
    seen = float((done.log.prefill_replica == 0).mean())
    assert seen == pytest.approx(share, abs=4.0 * math.sqrt(share * (1 - share) / len(done.log)))


@pytest.mark.parametrize("rule", ["least_loaded", "central_queue", "round_robin"])
def test_a_role_s_only_pool_takes_everything(made, rule: str) -> None:
    scenario = made.question(dispatch=rule)
    fleet = made.fleet(2, 1)
    rates, words = rates_for(scenario, scenario.problem(), fleet)
    assert (rates, words) == ({(PREFILL, "r"): 7.0, (DECODE, "r"): 7.0}, [])


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda made: simulate(made.question(), "1P", SMALL), "3P4D"),
    (lambda made: simulate(made.question(), "0P1D", SMALL), "no prefill replica"),
    (lambda made: simulate(made.question(), "1P0D", SMALL), "no decode replica"),
    (lambda made: simulate(made.pair(), "1P1D", SMALL), "2 replica types may serve prefill"),
    (lambda made: simulate(made.pair(simulation=made.TOGETHER), "1P1D", SMALL), "type=replicas"),
    (
        lambda made: simulate(made.pair(simulation=made.TOGETHER), "7", SMALL),
        "2 replica types.*known: a, b",
    ),
    (
        lambda made: simulate(made.question(), "1P1D", SMALL, engine="gpu"),
        "'gpu'; known: fast, reference",
    ),
    (lambda made: simulate(made.question(), "1P1D", Effort(1, 2)), "longer run than 1 requests"),
    (
        lambda made: simulate(
            made.question(simulation={"slow": [{"role": "prefill", "replica": 3, "factor": 2.0}]}),
            "2P1D",
            SMALL,
        ),
        "slow prefill replica 3.*the fleet has 2",
    ),
]


@pytest.mark.parametrize(("ask", "words"), REFUSED)
def test_questions_that_make_no_sense(made, ask: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        ask(made)
    assert len(str(caught.value).splitlines()) == 1


# Runs.


@pytest.mark.parametrize(
    ("options", "fleet"),
    [
        ({}, "1P2D"),
        ({"step_noise": {"law": "gamma"}, "clients": {"timeout": "1 s"}}, "1P2D"),
        ({"colocated": {"policy": "chunked", "tokens": "500 tokens"}}, "2"),
    ],
)
def test_both_engines_give_the_same_answer(made, options: dict[str, Any], fleet: str) -> None:
    scenario = made.question(traffic=[made.chat(output="5 tokens")], simulation=options)
    fast_, reference = (
        simulate(scenario, fleet, Effort(400, 2), engine=engine) for engine in ("fast", "reference")
    )
    assert rounded(fast_.answer) == rounded(reference.answer)
    assert np.array_equal(fast_.log.finish, reference.log.finish, equal_nan=True)


def test_the_same_seed_gives_the_same_answer_and_progress_is_told(made) -> None:
    told: list[tuple[int, int]] = []
    effort = Effort(500, 3)
    first = simulate(
        made.question(), "1P1D", effort, 7, lambda done, total: told.append((done, total))
    )
    assert simulate(made.question(), "1P1D", effort, 7).answer == first.answer
    other = simulate(made.question(), "1P1D", effort, 8).answer
    assert other.attainment != first.answer.attainment
    assert told[-1] == (1500, 1500) and told == sorted(told)
    assert (first.answer.requests, first.answer.replications, len(first.log)) == (500, 3, 500)
