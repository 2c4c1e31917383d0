"""A day's schedule from a scenario to table, figure and file; and its command."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pdalloc.allocation.periods import search
from pdalloc.closed_forms import mm1_count
from pdalloc.errors import InputError, UnsupportedError
from pdalloc.planning import Effort, evaluate, plan
from pdalloc.planning.schedule import periods_problem, scenarios_of, schedule
from pdalloc.planning.schedule_answer import HOURLY, PEAK, ScheduleAnswer
from pdalloc.report.schedule_figure import schedule_figure
from pdalloc.report.schedule_table import headline, print_schedule, remarks, schedule_csv
from pdalloc.report.style import figure_bytes
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).resolve().parents[2]
DAILY = ROOT / "experiments" / "daily_schedule" / "scenario.yaml"
FACTORS = [0.3, 0.6, 1.0, 0.8, 1.0, 0.5]
PRICE = 16.0
"""USD/hour of a made-up replica."""


@pytest.fixture(scope="module")
def ask(made) -> Callable[..., Scenario]:
    """M/M/1 prefill of 10 requests/s a replica, mean TTFT 1 s, 37 req/s at the peak."""

    def question(**keys: Any) -> Scenario:
        block = {"factors": FACTORS, "lasts": "4 h", "start_cost": "30 min"} | keys
        chat = made.chat(rate="37 req/s", output="2 tokens")
        found: Scenario = made.question(traffic=[chat], periods=block)
        return found

    return question


@pytest.fixture(scope="module")
def day(ask) -> ScheduleAnswer:
    return schedule(ask(), 5.0)


def text_of(answer: ScheduleAnswer, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_schedule(answer, console)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_fleets_are_those_of_the_mm1_count(day: ScheduleAnswer, made) -> None:
    """n replicas hold the mean sojourn 1/(mu - lambda/n) <= 1 s; idle ones only save starts."""
    for p in day.periods:
        least = math.ceil(mm1_count(p.demand_requests_per_s, made.MU, 1.0) - 1e-9)
        prefills = sum(pool.replicas for pool in p.pools if pool.role == "prefill")
        assert prefills >= least
        assert p.own_optimum.startswith(f"prefill/r={least},")
        assert p.slos[0].kept and p.slos[0].predicted_s is not None
        sojourn = 1.0 / (made.MU - p.demand_requests_per_s / prefills)
        assert p.slos[0].predicted_s == pytest.approx(sojourn, rel=1e-6)
        utilisation = p.demand_requests_per_s / prefills / made.MU
        assert p.utilisation["prefill"] == pytest.approx(utilisation)


def test_costs_add_up(day: ScheduleAnswer) -> None:
    assert day.cost is not None and day.bound_usd is not None and day.status == "optimal"
    running = sum(p.hours * p.cost_usd_per_hour for p in day.periods)
    starts = sum(sum(p.started.values()) for p in day.periods)
    assert day.cost.running_usd == pytest.approx(running)
    assert day.cost.starting_usd == pytest.approx(starts * 0.5 * PRICE)  # half an hour each
    assert day.cost.total_usd == pytest.approx(running + day.cost.starting_usd)
    assert day.cost.starts == starts == sum(sum(p.stopped.values()) for p in day.periods)
    assert day.bound_usd <= day.cost.total_usd <= day.bound_usd * (1.0 + 1e-5)
    peak, hourly = day.rivals
    assert (peak.name, hourly.name) == (PEAK, HOURLY)
    assert day.cost.total_usd <= min(peak.total_usd, hourly.total_usd) + 1e-9
    assert hourly.running_usd == pytest.approx(
        4.0 * sum(p.own_optimum_usd_per_hour for p in day.periods)
    )
    assert day.saving(PEAK) == pytest.approx(1.0 - day.cost.total_usd / peak.total_usd)


def test_the_rivals_are_plans(ask, day: ScheduleAnswer) -> None:
    """The peak fleet is what ``plan`` answers at the greatest demand, for all the hours."""
    assert ask().demand == max(p.demand_requests_per_s for p in day.periods)
    peak = plan(ask())
    assert peak.cost_usd_per_hour is not None
    assert day.rivals[0].total_usd == pytest.approx(24.0 * peak.cost_usd_per_hour)
    assert day.rivals[0].starts == 0


def test_dear_starts_and_no_starts_keep_the_peak_fleet(ask) -> None:
    for keys in ({"start_cost": "100 h"}, {"most_starts": 0}):
        found = schedule(ask(**keys), 5.0)
        assert found.cost is not None
        assert found.cost.total_usd == pytest.approx(found.rivals[0].total_usd)
        assert found.cost.starts == 0 and len({p.fleet for p in found.periods}) == 1


def test_owned_replicas_are_free_to_run(ask) -> None:
    owned = schedule(ask().owning("2P1D"), 5.0)
    bare = schedule(ask(), 5.0)
    assert owned.cost is not None and bare.cost is not None
    assert owned.cost.total_usd <= bare.cost.total_usd - 24.0 * PRICE * 2.0 + 1e-6


def test_a_day_from_a_given_fleet(ask) -> None:
    found = schedule(ask(cyclic=False, initial="0P0D"), 5.0)
    first = found.periods[0]
    assert not found.cyclic
    assert sum(first.started.values()) == sum(pool.replicas for pool in first.pools)


def test_rates_are_shared_where_they_do_not_depend_on_the_load(ask, made) -> None:
    """Poisson arrivals share one capacity; bursts are thinned by each period's own rate."""
    plain = periods_problem(ask())
    assert len({id(p.problem.capacity) for p in plain.periods}) == 1
    assert plain.kinds == (0, 1, 2, 3, 2, 5)
    chat = made.chat(rate="37 req/s", output="2 tokens", arrival_scv=4.0)
    bursty = made.question(traffic=[chat], periods={"factors": [0.4, 1.0]})
    problem = periods_problem(bursty)
    assert len({id(p.problem.capacity) for p in problem.periods}) == 2
    for k, scaled in enumerate(scenarios_of(bursty)):
        own = plan(scaled)
        assert own.demand_requests_per_s == problem.demands[k]
        found = schedule(replace(bursty), 5.0)
        assert found.periods[k].own_optimum == own.fleet


def test_shared_and_own_rates_agree(ask) -> None:
    """Under Poisson arrivals a period's problem is that of the scenario at its traffic."""
    problem = periods_problem(ask())
    for period, scaled in zip(problem.periods, scenarios_of(ask()), strict=True):
        own = scaled.problem()
        assert period.problem.demand == pytest.approx(own.demand)
        for o in own.options:
            assert period.problem.rate(o) == pytest.approx(own.rate(o), rel=1e-9)


def test_no_schedule_is_an_answer(ask) -> None:
    tight = replace(ask(), stock={"h100": 24})
    found = schedule(tight, 5.0)
    assert found.status == "infeasible" and found.cost is None and found.periods == []
    assert found.reason.startswith("period 3 (37 req/s): ")
    assert found.saving(PEAK) is None and found.warnings == []
    assert "No schedule: period 3" in text_of(found)
    ScheduleAnswer.model_validate_json(found.to_json())


def test_validated_schedules(ask) -> None:
    """Each fleet simulated at its steady demand; M/M/1 within its intervals (three of them)."""
    found = schedule(ask(factors=[0.5, 1.0, 0.5]), 5.0, None, True, effort=Effort(2000, 3))
    assert found.validated and not found.interrupted
    for p in found.periods:
        for row in p.slos:
            assert row.simulated_s is not None and row.simulated_half_width_s is not None
            assert row.predicted_s is not None
            assert abs(row.simulated_s - row.predicted_s) <= 3.0 * row.simulated_half_width_s
            assert row.simulated_verdict != "breaks"
    same = [found.periods[k] for k in (0, 2)]
    assert same[0].fleet != same[1].fleet or same[0].slos == same[1].slos
    assert "Simulated at steady demand" in text_of(found)
    assert any("steady state" in line for line in found.warnings)


def test_an_interrupt_in_validation_keeps_the_schedule(ask, day: ScheduleAnswer) -> None:
    def stop(done: int, total: int) -> None:
        if total > 100:  # requests: it is simulating
            raise KeyboardInterrupt

    found = schedule(ask(factors=[0.5, 1.0, 0.7]), 5.0, stop, True, effort=Effort(500, 3))
    assert found.interrupted and not found.validated and found.cost is not None


def test_an_interrupted_search_says_so(ask) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    found = schedule(ask(), 5.0, stop)
    assert found.interrupted and found.cost is not None and len(found.periods) == len(FACTORS)
    assert found.rivals == []  # the other periods were not looked at
    words = text_of(found)
    assert "Stopped: the best schedule so far." in words and "is needed: a gap of" in words


@pytest.mark.parametrize(
    "keys",
    [
        {"slo_scope": "population"},
        {"compatible": [["a", "a"], ["b", "b"]]},
        {"redundancy": 1},
        {"headroom": 0.3},
        {"dispatch": {"prefill": "central_queue"}},
        {"first_token": "decode"},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_whatever_else_a_scenario_asks_is_kept_in_every_period(made, keys: Any) -> None:
    """Each period's fleet does what ``evaluate`` asks of it at that period's traffic."""
    scenario = made.pair(periods={"factors": [0.6, 1.4], "start_cost": "20 min"}, **keys)
    found = schedule(scenario, 5.0)
    assert found.cost is not None and found.bound_usd is not None
    assert found.bound_usd <= found.cost.total_usd
    for scaled, p in zip(scenarios_of(scenario), found.periods, strict=True):
        answer = evaluate(scaled, p.fleet)
        assert answer.status == "feasible", answer.reason
        assert answer.cost_usd_per_hour == pytest.approx(p.cost_usd_per_hour)
        own = plan(scaled)
        assert own.cost_usd_per_hour == pytest.approx(p.own_optimum_usd_per_hour)
        assert all(row.kept for row in p.promises)


# What is shown


def test_the_table(day: ScheduleAnswer) -> None:
    words = text_of(day)
    assert day.cost is not None
    assert f"{day.cost.total_usd:,.2f} USD every 24 hours (proven least)" in words
    for text in ("00:00", "08:00", "load P/D", PEAK, HOURLY, "Warning: every period"):
        assert text in words
    assert "Against the peak fleet all the time it saves" in words


def test_words_for_each_outcome(ask, day: ScheduleAnswer) -> None:
    """Starts for free: the periods' own optima win. With a limit they may break it."""
    free = schedule(ask(start_cost="0 USD"), 5.0)
    assert any("costs no more" in line for line in remarks(free))
    tight = schedule(ask(most_starts=1, most_stops=1), 5.0)
    assert tight.cost is not None and tight.cost.most_starts <= 1
    line = remarks(tight)[1]
    assert "would break a limit: it starts" in line and "limit 1" in line and "stops" in line
    open_gap = day.model_copy(update={"status": "feasible", "bound_usd": 100.0, "gap": 0.25})
    assert "at least 100.00 is needed: a gap of 25.00 %" in headline(open_gap)
    unknown = open_gap.model_copy(update={"bound_usd": None, "gap": None, "cyclic": False})
    assert "over 24 hours (not proven cheapest)" in headline(unknown)


def test_the_csv_has_a_row_per_period(day: ScheduleAnswer) -> None:
    rows = list(csv.DictReader(io.StringIO(schedule_csv(day))))
    assert len(rows) == len(day.periods)
    for row, p in zip(rows, day.periods, strict=True):
        assert row["fleet"] == p.fleet and int(row["starts"]) == sum(p.started.values())
        tokens = 60.0 * p.demand_requests_per_s * day.tokens_per_request
        assert float(row["demand_tokens_per_minute"]) == pytest.approx(tokens)
        assert float(row["hours"]) == 4.0


def test_the_figure_shows_every_gpu_and_the_demand(day: ScheduleAnswer) -> None:
    figure = schedule_figure(day)
    for panel, role in zip(figure.axes[:2], ("prefill", "decode"), strict=True):
        heights = [bar.get_height() for bar in panel.patches]
        gpus = [sum(8 * q.replicas for q in p.pools if q.role == role) for p in day.periods]
        assert heights == gpus
        assert [bar.get_width() for bar in panel.patches] == [4.0] * len(gpus)
    for right in figure.axes[2:]:
        line = right.lines[0].get_ydata()
        assert list(line[:-1]) == [p.demand_requests_per_s for p in day.periods]
    assert figure_bytes(figure, "pdf") == figure_bytes(schedule_figure(day), "pdf")


def test_types_share_a_panel_and_keep_their_colours(made) -> None:
    scenario = made.pair(stock={"a100": 8}, periods={"factors": [0.5, 1.0], "start_cost": "1 h"})
    figure = schedule_figure(schedule(scenario, 5.0))
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names and set(names) <= {"a", "b"}


# The command


def written(made, tmp_path: Path, **keys: Any) -> str:
    raw = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": [made.chat(rate="37 req/s", output="2 tokens")],
        "replicas": [made.replica()],
        "prices": {"h100": "2 USD/GPU/hour"},
        "first_token": "prefill",
        "periods": {"factors": [0.5, 1.0], "lasts": "12 h", "start_cost": "5 USD"},
    }
    (tmp_path / "day.yaml").write_text(yaml.safe_dump(raw | keys))
    return "day.yaml"


def test_the_command(command, made, tmp_path: Path) -> None:
    file = written(made, tmp_path)
    done = command("schedule", file, "--out", "out", "--json", "day.json", "--time-limit", "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert "proven least" in done.stdout
    answer = ScheduleAnswer.model_validate_json((tmp_path / "day.json").read_text())
    assert answer.status == "optimal" and len(answer.periods) == 2
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"schedule.{kind}" for kind in ("json", "csv", "png", "pdf")}


def test_json_alone_on_stdout(command, made, tmp_path: Path) -> None:
    """HiGHS prints a banner when it is made; stdout is the answer and nothing else."""
    done = command("schedule", written(made, tmp_path), "--json", "-", "--time-limit", "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert ScheduleAnswer.model_validate(json.loads(done.stdout)).cost is not None


def test_infeasible_exits_2_with_one_line(command, made, tmp_path: Path) -> None:
    done = command("schedule", written(made, tmp_path, stock={"h100": 8}), "--json", "-")
    answer = json.loads(done.stdout)
    assert done.returncode == 2 and answer["status"] == "infeasible"
    assert done.stderr.splitlines() == [f"pdalloc: infeasible: {answer['reason']}"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--time-limit", "0"], ["time limit", "positive"]),
        (["--set", "periods.factors=[1, -1]"], ["periods.factors", "needs traffic"]),
        (["--json", "no/such/folder/day.json"], ["day.json"]),
        (["--set", "simulation.colocated={policy: chunked}"], ["co-located"]),
    ],
)
def test_errors(command, made, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    done = command("schedule", written(made, tmp_path), *arguments)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in words)


def test_a_scenario_without_periods_is_told_how(made) -> None:
    with pytest.raises(InputError, match=r"periods: this key is missing; add e.g. periods:"):
        schedule(made.question())
    with pytest.raises(UnsupportedError, match="co-located"):
        schedule(made.question(simulation=made.TOGETHER, periods={"factors": [1]}))


def test_an_interrupt_ends_with_130(
    command, made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "solve_program", at_once)
    done = command("schedule", written(made, tmp_path), "--time-limit", "5")
    assert done.returncode == 130
    assert "Stopped: the best schedule so far." in done.stdout


def test_the_schema_is_printed(command) -> None:
    done = command("schema", "schedule")
    assert json.loads(done.stdout)["title"] == "ScheduleAnswer"


def test_a_plan_of_a_day_says_for_which_rate_it_is(ask, day: ScheduleAnswer) -> None:
    """37 req/s are the peak: the plan is the rival that stays up all the time."""
    found = plan(ask())
    assert found.demand_requests_per_s == pytest.approx(37.0)
    assert any("pdalloc schedule plans each" in line for line in found.warnings)
    assert not any("pdalloc schedule plans each" in line for line in day.warnings)
