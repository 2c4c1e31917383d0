"""Plans before their judge: what the simulation shows of them, and how it mends those that break.

Every scenario of a repair has something that no formula knows and theory does: its plan breaks in
simulation by construction, not by chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.planning import Answer, Effort, evaluate, plan, repair, validated
from pdalloc.planning.validated import NOT_VALIDATED
from pdalloc.scenario import Scenario, load_scenario
from pdalloc.simulation import fast
from pdalloc.validation import Comparison

pytestmark = pytest.mark.pipeline

PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper_2603_04716" / "scenario.yaml"
SMALL = Effort(5000, 4)


def bursts(made, **keys: Any) -> Scenario:
    """Told to be Poisson, 8 req/s come at 5.3 and 10.7 req/s in turn; one replica does 10."""
    block = made.chat(
        rate="8 req/s", output="2 tokens", arrivals=made.BURSTS, arrival_scv=1.0,
        slo={"ttft": {"mean": "600 ms"}},
    )  # fmt: skip
    scenario: Scenario = made.question(traffic=[block], **keys)
    return scenario


def spread(made, bound: str = "450 ms", scv: float = 4.0, **keys: Any) -> Scenario:
    """P-K at rho = 0.8: E[T] = 0.1 + 0.2 (1 + SCV) s, 0.3 s as planned and 1.1 s at SCV 4."""
    block = made.chat(rate="8 req/s", output="2 tokens", slo={"ttft": {"mean": bound}})
    noise = {"prefill_noise": {"law": "gamma", "scv": scv}}
    scenario: Scenario = made.question(
        made.replica(noise="none"), traffic=[block], simulation=noise, **keys
    )
    return scenario


def slow(made, *roles: str, **keys: Any) -> Scenario:
    """The first replica of these roles is 1.3 times as slow as its kind.

    Formulas: TTFT mean 1 / (10 - 8) = 0.5 s, TPOT a little above 10.5 ms.
    """
    slo = {"ttft": {"mean": "600 ms"}, "tpot": {"mean": "15 ms"}}
    block = made.chat(rate="8 req/s", output="51 tokens", slo=slo)
    replicas = [{"role": role, "replica": 0, "factor": 1.3} for role in roles]
    scenario: Scenario = made.question(traffic=[block], simulation={"slow": replicas}, **keys)
    return scenario


BREAKING: dict[str, Callable[[Any], Scenario]] = {
    "bursts": bursts,
    "prefill noise": spread,
    "slow decode": lambda made: slow(made, "decode"),
    "slow prefill and decode": lambda made: slow(made, "prefill", "decode"),
}
Mended = tuple[Scenario, Answer, Answer]


@pytest.fixture(scope="module", params=list(BREAKING))
def mended(request: pytest.FixtureRequest, made) -> Mended:
    """(scenario, its plan as simulated, its repaired plan)."""
    scenario = BREAKING[request.param](made)
    planned = plan(scenario, simulate=True, effort=SMALL)
    return scenario, planned, plan(scenario, effort=SMALL, repair=True)


def fleet_of(scenario: Scenario, answer: Answer) -> Fleet:
    return parse_fleet(answer.fleet or "", scenario.system.type_names)


def verdicts(answer: Answer) -> set[str | None]:
    return {slo.simulated_verdict for slo in answer.slos}


def test_the_plan_keeps_its_slos_for_its_formulas_only(mended: Mended) -> None:
    _, planned, _ = mended
    assert planned.status == "optimal" and all(slo.kept for slo in planned.slos)
    assert "breaks" in verdicts(planned)
    assert any("optimistic" in warning for warning in planned.warnings)


def test_the_repaired_fleet_keeps_every_slo_in_simulation(mended: Mended) -> None:
    _, _, repaired = mended
    assert repaired.status == "feasible" and all(slo.kept for slo in repaired.slos)
    for slo in repaired.slos:
        assert slo.simulated_verdict == "keeps"
        assert slo.simulated_s is not None and slo.simulated_half_width_s is not None
        assert slo.simulated_s + slo.simulated_half_width_s < slo.bound_s


def test_it_holds_on_other_random_numbers_too(mended: Mended) -> None:
    scenario, _, repaired = mended
    fleet = fleet_of(scenario, repaired)
    again = evaluate(scenario, fleet, simulate=True, seed=5, effort=Effort(10_000, 4))
    assert "breaks" not in verdicts(again)


def test_it_is_the_plan_and_what_was_added(mended: Mended) -> None:
    scenario, planned, repaired = mended
    before, after = fleet_of(scenario, planned), fleet_of(scenario, repaired)
    added = parse_fleet(str(repaired.details["added"]), scenario.system.type_names)
    assert repaired.details["repaired_from"] == planned.xpyd == before.xpyd
    keys = set(before.counts) | set(added.counts)
    assert after == Fleet.of({key: before.count(*key) + added.count(*key) for key in keys})
    assert sum(pool.replicas for pool in added.pools) >= 1
    assert repaired.cost_usd_per_hour == pytest.approx(scenario.problem().cost(after))
    assert (repaired.cost_usd_per_hour or 0.0) > (planned.cost_usd_per_hour or 0.0)


def test_the_bound_on_the_cost_is_still_the_plan_s(mended: Mended) -> None:
    """No cheaper fleet keeps the SLOs by formula; whether one does in simulation is not known."""
    _, planned, repaired = mended
    assert repaired.bound_usd_per_hour == planned.bound_usd_per_hour
    assert repaired.produced_by["solver"] == "repair"


def test_one_replica_fewer_breaks_again(mended: Mended) -> None:
    """Without the replica that was added last the simulation does not hold."""
    scenario, _, repaired = mended
    counts = fleet_of(scenario, repaired).counts
    added = parse_fleet(str(repaired.details["added"]), scenario.system.type_names)
    fewer = [Fleet.of({**counts, key: counts[key] - 1}) for key in added.counts]
    found = [verdicts(evaluate(scenario, f, simulate=True, effort=SMALL)) for f in fewer]
    assert any("breaks" in verdict for verdict in found)


def test_only_what_is_broken_is_added(made) -> None:
    """Slow prefill is mended by prefill, slow decode by decode, both by one of each."""
    for roles, added in (
        (["prefill"], "prefill/r=1"),
        (["decode"], "decode/r=1"),
        (["prefill", "decode"], "prefill/r=1,decode/r=1"),
    ):
        answer = plan(slow(made, *roles), effort=SMALL, repair=True)
        assert answer.details["added"] == added


def test_the_cheaper_type_that_does_it_is_taken(made) -> None:
    """Both types are equal but for the price; more of the dear one could not be better."""
    scenario = spread(made)
    raw = scenario.system.replica_types["r"]
    dear = replace(raw, name="dear", usd_per_hour=2.0 * raw.usd_per_hour)
    system = replace(scenario.system, replica_types={"dear": dear, "r": raw})
    answer = plan(replace(scenario, system=system), effort=SMALL, repair=True)
    assert answer.details["added"] == "prefill/r=1"


# Nothing to mend, or no way to.


def test_a_plan_that_holds_is_returned_as_it_was(made) -> None:
    scenario = spread(made, "1.6 s")
    planned = plan(scenario, effort=SMALL)
    kept = plan(scenario, effort=SMALL, repair=True)
    assert verdicts(kept) == {"keeps"} and verdicts(planned) == {None}
    simulated = {"simulated_s", "simulated_half_width_s", "simulated_verdict"}
    assert kept.model_dump(exclude={"slos", "warnings"}) == planned.model_dump(
        exclude={"slos", "warnings"}
    )
    for before, after in zip(planned.slos, kept.slos, strict=True):
        assert after.model_dump(exclude=simulated) == before.model_dump(exclude=simulated)
    assert kept.warnings[: len(planned.warnings)] == planned.warnings


def told(
    monkeypatch: pytest.MonkeyPatch, gap: float, half_widths: dict[int, float], broken: str = "ttft"
) -> list[int]:
    """The judge finds ``gap`` s under the bounds on ``broken``, +- by replications.

    Other bounds are kept. Returns the replications that are asked for, as time goes by.
    """
    asked: list[int] = []

    def compared(scenario: Scenario, *more: Any) -> tuple[Comparison, ...]:
        asked.append(more[3].replications)
        half = half_widths[asked[-1]]
        under = {slo: gap if slo.metric == broken else slo.bound for slo in scenario.slos}
        return tuple(
            Comparison(s, 0.1, s.bound - x, half if s.metric == broken else 0.0, asked[-1])
            for s, x in under.items()
        )

    monkeypatch.setattr(repair, "compared", compared)
    return asked


def test_what_is_too_close_to_call_is_looked_at_four_times_as_long(
    made, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = told(monkeypatch, 0.1, {4: 0.2, 16: 0.05})
    answer = plan(spread(made), effort=SMALL, repair=True)
    assert asked == [4, 16]
    assert (answer.xpyd, verdicts(answer)) == ("1P1D", {"keeps"})


def test_what_stays_too_close_to_call_is_not_kept(made, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch, 0.1, {4: 0.2, 16: 0.11})
    monkeypatch.setattr(repair, "MOST_ADDED", 1)
    answer = plan(spread(made), effort=SMALL, repair=True)
    assert answer.status == "infeasible" and re.search(
        r"too close to call against 0\.45 s", answer.reason
    )
    assert asked == [4, 16] * 3  # the plan, and a replica more of either role


def test_what_breaks_for_certain_needs_no_second_look(
    made, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = told(monkeypatch, -0.1, {4: 0.01})
    monkeypatch.setattr(repair, "MOST_ADDED", 1)
    answer = plan(spread(made), effort=SMALL, repair=True)
    assert answer.status == "infeasible" and re.search(r"breaks 0\.45 s", answer.reason)
    assert asked == [4] * 3


@pytest.mark.parametrize(("broken", "candidates"), [("ttft", 2), ("tpot", 1)])
def test_prefill_is_not_tried_where_only_token_gaps_break(
    made, monkeypatch: pytest.MonkeyPatch, broken: str, candidates: int
) -> None:
    """More prefill replicas change no gap between tokens."""
    asked = told(monkeypatch, -0.001, {4: 0.0}, broken)
    monkeypatch.setattr(repair, "MOST_ADDED", 1)
    answer = plan(slow(made, "decode"), effort=SMALL, repair=True)
    assert answer.status == "infeasible" and re.search(broken.upper(), answer.reason)
    assert len(asked) == 1 + candidates


def in_stock(made) -> Scenario:
    return spread(made, stock={"h100": 16})


def limited(made) -> Scenario:
    return replace(spread(made), limits={("prefill", "r"): 1, ("decode", "r"): 1})


@pytest.mark.parametrize("most", [in_stock, limited])
def test_stock_and_limits_may_leave_no_way(made, most: Callable[[Any], Scenario]) -> None:
    answer = plan(most(made), effort=SMALL, repair=True)
    assert answer.status == "infeasible" and answer.fleet is not None
    assert "stock and limits leave no more replicas" in answer.reason
    assert "TTFT mean simulated" in answer.reason and "breaks 0.45 s" in answer.reason
    assert "breaks" in {slo.simulated_verdict for slo in answer.slos}


def test_there_is_an_end_to_adding(made, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-K at SCV 60: even three replicas, rho = 0.27, wait 1.1 s on average."""
    monkeypatch.setattr(repair, "MOST_ADDED", 2)
    answer = plan(spread(made, scv=60.0), effort=SMALL, repair=True)
    assert answer.status == "infeasible" and "2 more replicas are not enough" in answer.reason
    assert sum(pool.replicas for pool in answer.pools) == 4


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_stopped_repair_keeps_what_it_reached(
    made, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """^C in the simulation of a fleet: the plan, or the fleet before, and a word about it."""
    real, looks = validated.compared, list[Any]()

    def until_stopped(*arguments: Any) -> Any:
        if len(looks) == after:
            raise KeyboardInterrupt
        looks.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(repair, "compared", until_stopped)
    answer = plan(spread(made, scv=60.0), effort=SMALL, repair=True)
    assert answer.xpyd == "1P1D"
    assert any("stopped" in warning for warning in answer.warnings)
    assert (answer.slos[0].simulated_s is not None) == (after == 2)  # two looks at the plan


def test_too_few_requests_are_not_repaired(made) -> None:
    with pytest.raises(InputError, match="too few requests to judge it; simulate more"):
        plan(spread(made), effort=Effort(100, 4), repair=True)


def test_most_is_mended_per_dollar(made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replicas mend 0.3 s for 32 USD/h and 0.2 s for 16: the latter comes first."""
    problem = spread(made).problem()
    planned = Fleet.of({("prefill", "r"): 1, ("decode", "r"): 1})
    slo = problem.capacity.slos[0]
    dear, cheap = (Fleet.of({**planned.counts, (role, "r"): 2}) for role in ("prefill", "decode"))
    cost = {planned: 0.0, dear: 32.0, cheap: 16.0}
    over = {planned: 0.9, dear: 0.6, cheap: 0.7}
    monkeypatch.setattr(type(problem), "cost", lambda self, fleet: cost[fleet])
    now, *_ = found = [
        (Comparison(slo, 0.0, slo.bound + over[fleet], 0.0, 4),) for fleet in (planned, dear, cheap)
    ]
    known = dict(zip((planned, dear, cheap), found, strict=True))
    chosen, _ = repair._next(cast(Any, known.__getitem__), problem, planned, now)
    assert chosen == cheap


def test_infeasible_questions_stay_so(made) -> None:
    answer = plan(spread(made, "90 ms"), effort=SMALL, repair=True)
    assert answer.status == "infeasible" and answer.fleet is None


@pytest.mark.parametrize("ask", [plan, lambda s: plan(s, repair=True), lambda s: evaluate(s, "2")])
def test_co_located_serving_has_no_plan(made, ask: Callable[[Scenario], Answer]) -> None:
    with pytest.raises(UnsupportedError, match="use pdalloc simulate") as caught:
        ask(made.question(simulation=made.TOGETHER))
    assert len(str(caught.value).splitlines()) == 1


# Beside the prediction.


def test_simulated_stands_beside_predicted_with_its_options(made) -> None:
    """Steps of random length, mean 1: the only request's TPOT is a mean of 50 of them.

    The prediction does not know; the warnings say so.
    """
    slo = {"tpot": {"p90": "11 ms"}}
    block = made.chat(rate="0.2 req/s", output="51 tokens", arrival_scv=0.0, slo=slo)
    noisy = made.question(traffic=[block], simulation={"step_noise": {"law": "exponential"}})
    calm = made.question(traffic=[block])
    answers = [plan(s, simulate=True, effort=Effort(2000, 4)) for s in (noisy, calm)]
    predicted = [answer.slos[0].predicted_s for answer in answers]
    assert predicted[0] == predicted[1]
    assert [any("step noise" in w for w in answer.warnings) for answer in answers] == [True, False]
    assert answers[0].slos[0].simulated_s == pytest.approx(10.5e-3 * GAMMA_50_P90, rel=0.02)
    assert answers[1].slos[0].simulated_s == pytest.approx(10.5e-3, rel=0.02)
    assert [answer.slos[0].simulated_verdict for answer in answers] == ["breaks", "keeps"]


GAMMA_50_P90 = 59.249 / 50.0
"""P90 of a Gamma(50) over its mean: half of chi-squared's with 100 degrees of freedom, 118.498."""


def test_verdicts_are_those_of_the_intervals(mended: Mended) -> None:
    for slo in mended[1].slos:
        assert slo.simulated_s is not None and slo.simulated_half_width_s is not None
        near = abs(slo.simulated_s - slo.bound_s) <= slo.simulated_half_width_s
        clear = "keeps" if slo.simulated_s < slo.bound_s else "breaks"
        assert slo.simulated_verdict == ("too close to call" if near else clear)


def test_evaluate_and_plan_simulate_the_same_fleet_alike(made) -> None:
    scenario = spread(made)
    planned = plan(scenario, simulate=True, effort=SMALL)
    judged = evaluate(scenario, planned.fleet or "", simulate=True, effort=SMALL)
    assert judged.slos == planned.slos


def test_a_plan_without_a_steady_state_is_simulated_without_a_word_on_its_formulas() -> None:
    """The paper's solver rounds its ratio and may overload a role: there is no prediction."""
    scenario = load_scenario(PAPER, overrides=["traffic.0.rate=2 Mtoken/min"])
    answer = plan(scenario, "paper", simulate=True, effort=SMALL)
    assert answer.status == "infeasible" and answer.slos[0].predicted_s is None
    assert answer.slos[0].simulated_verdict == "breaks"
    assert not any("inf" in warning for warning in answer.warnings)


@pytest.mark.parametrize("runs", [0, 1])
def test_a_simulation_stopped_at_once_gives_the_plan(
    made, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(plain(made))
    replay = fast.replay
    done: list[int] = []

    def stopping(*arguments: Any, **more: Any) -> Any:
        if len(done) == runs:
            raise KeyboardInterrupt
        done.append(1)
        return replay(*arguments, **more)

    monkeypatch.setattr(fast, "replay", stopping)
    answer = plan(plain(made), simulate=True, effort=SMALL)
    assert answer == planned.model_copy(update={"warnings": [*planned.warnings, NOT_VALIDATED]})


def plain(made) -> Scenario:
    scenario: Scenario = made.question(traffic=[made.chat(output="2 tokens")])
    return scenario
