"""How much is simulated, what a run that was stopped comes to, and what the answer warns of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pdalloc.errors import InputError
from pdalloc.planning import Effort, simulate
from pdalloc.planning.caveats import ignored_by_formulas, simulation_warnings
from pdalloc.planning.effort import MOST_REQUESTS, REQUESTS, REQUESTS_WITH_OPTIONS, STAYS
from pdalloc.planning.simulation_answer import EstimateAnswer, SimulationAnswer
from pdalloc.scenario import Scenario
from pdalloc.simulation import fast
from pdalloc.simulation.options import PLAIN, Clients, SimulationOptions

pytestmark = pytest.mark.pipeline

SMALL = Effort(2000, 4)
OPTIONS = SimulationOptions(clients=Clients())


# Effort.


@pytest.mark.parametrize(
    ("requests", "replications", "words"),
    [(0, 10, "1 request"), (-5, 10, "-5"), (100, 1, "2 replications"), (None, 0, "got 0")],
)
def test_efforts_that_show_nothing(requests: int | None, replications: int, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Effort(requests, replications)
    assert len(str(caught.value).splitlines()) == 1


def test_requests_are_those_asked_for(made) -> None:
    system = made.question().system
    assert Effort(123).requests_for(system, PLAIN) == 123
    assert Effort(2 * MOST_REQUESTS).requests_for(system, OPTIONS) == 2 * MOST_REQUESTS


def test_short_stays_need_no_more_than_the_least(made) -> None:
    system = made.question().system
    assert Effort().requests_for(system, PLAIN) == REQUESTS
    assert Effort().requests_for(system, OPTIONS) == REQUESTS_WITH_OPTIONS


def test_long_stays_need_more(made) -> None:
    """STAYS times lambda (E[prefill] + E[steps] t(1)): what is there at once, STAYS times over."""
    block = made.chat(rate="10 req/s", output="3001 tokens")
    system = made.question(traffic=[block]).system
    stay = 0.1 + 3000 * (made.STEP + made.PER_REQUEST)
    expected = math.ceil(STAYS * 10 * stay)
    assert REQUESTS_WITH_OPTIONS < expected < REQUESTS
    assert Effort().requests_for(system, OPTIONS) == pytest.approx(expected, abs=1)
    busier = system.with_workload(system.workload.scaled(5.0))
    assert Effort().requests_for(busier, PLAIN) == pytest.approx(5 * expected, abs=5)
    assert Effort().requests_for(busier, OPTIONS) == pytest.approx(5 * expected, abs=5)
    crowded = system.with_workload(system.workload.scaled(1000.0))
    assert Effort().requests_for(crowded, PLAIN) == MOST_REQUESTS


def test_slow_patterns_are_seen_often_enough(made) -> None:
    """50 rounds of two states of 10 min at 7 req/s; of a day's profile as many as fit."""
    rounds = {"process": "bursts", "levels": [1, 2], "lasts": "10 min"}
    system = made.question(traffic=[made.chat(arrivals=rounds)]).system
    assert Effort().requests_for(system, PLAIN) == pytest.approx(7 * 50 * 1200, abs=1)
    day = {"process": "profile", "levels": [1, 2], "lasts": "12 hour"}
    system = made.question(traffic=[made.chat(arrivals=day)]).system
    assert Effort().requests_for(system, PLAIN) == MOST_REQUESTS


# ^C.


def stopping(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    """The fast simulator is interrupted in its run number ``runs`` + 1."""
    replay = fast.replay
    done: list[int] = []

    def run(*arguments: Any, **more: Any) -> Any:
        if len(done) == runs:
            raise KeyboardInterrupt
        done.append(1)
        return replay(*arguments, **more)

    monkeypatch.setattr(fast, "replay", run)


def test_a_stopped_simulation_keeps_the_replications_that_were_done(
    made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of six: the numbers are those of asking for three."""
    three = simulate(made.question(), "1P1D", Effort(1000, 3)).answer
    stopping(monkeypatch, 3)
    answer = simulate(made.question(), "1P1D", Effort(1000, 6)).answer
    assert (answer.replications, answer.replications_asked, answer.interrupted) == (3, 6, True)
    assert answer.slos == three.slos and answer.latencies == three.latencies
    assert not three.interrupted and not [w for w in three.warnings if "stopped" in w]
    (line,) = [w for w in answer.warnings if w.startswith("stopped after 3 of 6 replications")]
    assert "intervals" in line


@pytest.mark.parametrize("runs", [0, 1])
def test_one_replication_has_no_interval(made, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping(monkeypatch, runs)
    with pytest.raises(KeyboardInterrupt):
        simulate(made.question(), "1P1D", Effort(1000, 6))


# Warnings.


def unsteady(answer: SimulationAnswer) -> list[str]:
    return [w for w in answer.warnings if "steady state" in w]


def test_an_overloaded_prefill_is_named_and_it_alone(made) -> None:
    """12 req/s at a replica that does 10; decode, busy all the time as well, keeps up."""
    block = made.chat(rate="12 req/s", output="60 tokens")
    answer = simulate(made.question(traffic=[block]), "1P1D", SMALL).answer
    (line,) = unsteady(answer)
    assert "there is no steady state" in line
    assert line.startswith("prefill/r: busy all the time")
    # A fluid queue: N(t) = (lambda - mu) t, W(t) = (lambda / mu - 1) t; N / lambda W = 1 / rho.
    gap = answer.littles_law_gap
    assert gap.value == pytest.approx(1.0 / 1.2 - 1.0, abs=2.0 * gap.half_width + 0.02)
    assert answer.slos[0].verdict == "breaks"


def test_an_overloaded_decode_is_named(made) -> None:
    """A step of at most 4 requests takes 12 ms, so 333 tokens/s; 14 req/s need 686."""
    block = made.chat(output="50 tokens", rate="14 req/s", arrival_scv=0.0)
    answer = simulate(made.question(made.replica(max_batch=4), traffic=[block]), "2P1D", SMALL)
    (line,) = unsteady(answer.answer)
    assert line.startswith("decode/r: busy all the time")


def test_an_overloaded_co_located_pool_is_named(made) -> None:
    block = made.chat(rate="11 req/s", output="20 tokens")
    answer = simulate(made.question(traffic=[block], simulation=made.TOGETHER), "1", SMALL).answer
    (line,) = unsteady(answer)
    assert line.startswith("both/r: busy all the time")


def test_a_decode_pool_that_always_has_a_request_is_no_overload(made) -> None:
    """lambda (L - 1) b = 0.7: about 70 requests at a time, never none, and a steady state."""
    rate = 0.7 / (400 * made.PER_REQUEST)
    block = made.chat(rate=f"{rate} req/s", output="401 tokens")
    answer = simulate(made.question(traffic=[block]), "1P1D", Effort(4000, 4)).answer
    assert answer.pools[1].utilisation.value > 0.999
    assert unsteady(answer) == []


def with_gap(answer: SimulationAnswer, gap: float, half_width: float, busy: float) -> Any:
    pools = [
        p.model_copy(update={"utilisation": EstimateAnswer(value=busy, half_width=0.0)})
        for p in answer.pools
    ]
    changed = EstimateAnswer(value=gap, half_width=half_width)
    return answer.model_copy(update={"littles_law_gap": changed, "pools": pools, "warnings": []})


@pytest.fixture(scope="module")
def calm(made) -> tuple[Scenario, SimulationAnswer]:
    scenario = made.question()
    return scenario, simulate(scenario, "1P1D", SMALL).answer


GAPS = [  # gap, half-width, utilisation, words of the warning
    (-0.05, 0.01, 1.0, "no steady state"),
    (-0.02, 0.01, 1.0, "no steady state"),
    (-0.002, 0.001, 1.0, ""),  # chance: an interval misses its mean once in twenty
    (-0.05, 0.06, 1.0, ""),
    (0.02, 0.01, 1.0, ""),
    (-0.05, 0.01, 0.8, "too short for a steady state"),
    (0.05, 0.01, 0.8, "too short for a steady state"),
    (-0.02, 0.001, 0.8, ""),
]


@pytest.mark.parametrize(("gap", "half_width", "busy", "words"), GAPS)
def test_gaps_in_little_s_law(
    made, calm: tuple[Scenario, SimulationAnswer], gap: float, half_width: float,
    busy: float, words: str,
) -> None:  # fmt: skip
    scenario, answer = calm
    found = simulation_warnings(scenario, made.fleet(), with_gap(answer, gap, half_width, busy))
    assert len(found) == bool(words) and all(words in line for line in found)


def test_a_calm_run_warns_of_nothing(calm: tuple[Scenario, SimulationAnswer]) -> None:
    assert calm[1].warnings == calm[1].estimates == []


def test_clients_that_leave_are_warned_of_and_count_as_missed(made) -> None:
    """Without retries: those with an answer, those who left and those refused are all."""
    clients = {"clients": {"timeout": "0.5 s", "max_queue": 6}}
    slo = {"ttft": {"mean": "1000 s"}}
    scenario = made.question(traffic=[made.chat(rate="12 req/s", slo=slo)], simulation=clients)
    answer = simulate(scenario, "1P1D", SMALL).answer
    lost = answer.timeout_share.value + answer.rejected_share.value
    assert min(answer.timeout_share.value, answer.rejected_share.value) > 0.0
    assert answer.attainment.value == pytest.approx(1.0 - lost)
    (line,) = answer.warnings
    assert line.startswith(f"{lost:.2%} of requests got no answer")
    # M/M/1 that is never empty serves mu: the share that gets nothing is at least 1 - mu / lambda.
    assert lost > 1.0 - made.MU / 12.0 - 0.02


def test_what_the_service_times_rest_on_is_said_here_too(made) -> None:
    scenario = made.question(made.replica(calibration={}))
    (line,) = simulate(scenario, "1P1D", SMALL).answer.warnings
    assert "not calibrated" in line
    roofline = made.question(made.replica(service="roofline", prefill_noise="exponential"))
    answer = simulate(roofline, "9P9D", SMALL).answer
    assert answer.estimates and all("no measurement" in line for line in answer.estimates)


# What formulas leave out.

BLOCKS: list[tuple[dict[str, Any], str]] = [
    ({"step_noise": {"law": "gamma"}}, "step noise"),
    ({"transfers": {"jitter": {"law": "gamma"}}}, "transfer jitter"),
    ({"kv": {"reserve": "full", "back_pressure": True}}, "back-pressure of kv"),
    ({"kv": {}}, "preemptions of kv that come in convoys (equal answers, memory nearly full)"),
    ({"slow": [{"role": "decode", "replica": 0, "factor": 2.0}]}, "slow"),
    ({"prefill_noise": {"law": "gamma"}, "clients": {}}, "prefill noise, clients"),
    ({"failures": {"mtbf": "1 day", "mttr": "1 s"}}, "failures"),
]


@pytest.mark.parametrize(("block", "named"), BLOCKS)
def test_options_that_no_formula_knows_are_named(made, block: dict[str, Any], named: str) -> None:
    (line,) = ignored_by_formulas(made.question(simulation=block))
    assert f"simulation options ({named})" in line and len(line.splitlines()) == 1


@pytest.mark.parametrize(
    "block",
    [
        {"kv": {"reserve": "full"}},
        {"multi_token": {"mean": 2.0}},
        {"transfers": {"sharing": "fcfs"}},
    ],
)
def test_options_that_formulas_know_are_not_named(made, block: dict[str, Any]) -> None:
    assert ignored_by_formulas(made.question(simulation=block)) == []


def test_a_link_of_several_replicas_is_rough(made) -> None:
    block = {"transfers": {"sharing": "fcfs", "scope": "fabric"}}
    (line,) = ignored_by_formulas(made.question(simulation=block))
    assert "per fabric" in line and "too long" in line


def test_a_rate_that_follows_the_clock_is_named(made) -> None:
    day = {"process": "profile", "levels": [1, 2], "lasts": "12 hour"}
    (line,) = ignored_by_formulas(made.question(traffic=[made.chat(arrivals=day)]))
    assert "follows the clock" in line


def test_nothing_is_left_out_of_a_plain_scenario(made) -> None:
    assert ignored_by_formulas(made.question()) == []
    assert ignored_by_formulas(made.question(traffic=[made.chat(arrivals=made.BURSTS)])) == []
