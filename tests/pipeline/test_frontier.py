"""Cost against a bound or demand: every corner where theory puts it, and nothing lost to ^C."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pdalloc.allocation.certify import certify
from pdalloc.closed_forms import decode_count, mm1_count
from pdalloc.errors import InputError
from pdalloc.planning.frontier import Axis, Frontier, FrontierPoint, axis_of, frontier, grid
from pdalloc.planning.frontier_answer import FrontierAnswer, frontier_answer
from pdalloc.report.frontier_figure import frontier_figure
from pdalloc.report.frontier_table import axis_words, frontier_csv, pools, print_frontier
from pdalloc.scenario import Scenario, load_scenario

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml")


@pytest.fixture(scope="module")
def queue(made) -> Scenario:
    """M/M/1 prefill of 10 requests/s a replica, short answers; 37 req/s, mean TTFT 1 s."""
    found: Scenario = made.question(traffic=[made.chat(rate="37 req/s", output="2 tokens")])
    return found


def corners(found: Frontier) -> list[FrontierPoint]:
    return [p for p in found.points if p.corner]


def text_of(answer: FrontierAnswer, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_frontier(answer, console)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def prefills(point: FrontierPoint) -> int:
    assert point.fleet is not None
    return point.fleet.in_role("prefill")[0].replicas


def test_corners_over_ttft_are_those_of_the_mm1_count(queue: Scenario, made) -> None:
    """n replicas hold the mean sojourn 1/(mu - lambda/n): each corner is where n becomes whole."""
    found = frontier(queue, "ttft", low=0.12, high=3.0)
    assert len(corners(found)) >= 6
    for p in corners(found):
        assert p.value == pytest.approx(1.0 / (made.MU - 37.0 / prefills(p)), rel=1e-6)
        assert mm1_count(37.0, made.MU, p.value) == pytest.approx(prefills(p), rel=1e-6)


def test_corners_over_demand_are_those_of_the_mm1_count(queue: Scenario, made) -> None:
    """lambda = n (mu - 1/tau) is the most that n replicas take; the next fleet begins there."""
    found = frontier(queue, "demand", low=5.0, high=60.0)
    assert len(corners(found)) >= 5
    for p in corners(found):
        before = prefills(p) - 1
        assert p.value == pytest.approx(before * (made.MU - 1.0), rel=2e-4)


def test_corners_over_tpot_are_those_of_the_batch_law(made) -> None:
    """m = lambda L b/(1 - (a + b)/tau), answers of L tokens, all of them decode's."""
    chat = made.chat(output="40 tokens", slo={"tpot": {"mean": "14 ms"}})
    scenario = made.question(traffic=[chat], first_token="decode")
    found = frontier(scenario, "tpot.mean", low=0.0108, high=0.03)
    assert len(corners(found)) >= 3
    for p in corners(found):
        assert p.fleet is not None
        m = p.fleet.in_role("decode")[0].replicas
        assert decode_count(7.0, 40.0, made.STEP, made.PER_REQUEST, p.value) == pytest.approx(
            m, rel=2e-3
        )


@pytest.mark.parametrize(("over", "falls"), [("ttft", True), ("demand", False)])
def test_cost_is_monotone_and_each_point_holds_what_it_says(
    queue: Scenario, over: str, falls: bool
) -> None:
    """A looser bound never costs more, a greater demand never less."""
    found = frontier(queue, over)
    values = [p.value for p in found.points]
    costs = [p.cost for p in found.points if p.cost is not None]
    assert values == sorted(values) and found.axis.here in values
    assert costs == sorted(costs, reverse=falls)
    shared = queue.problem().capacity
    for p in found.points:
        if p.fleet is not None:
            problem = found.axis.problem(queue, p.value, shared)
            assert certify(problem, p.fleet).certified and problem.cost(p.fleet) == p.cost


def test_just_beyond_a_corner_the_cheaper_fleet_fails(queue: Scenario) -> None:
    found = frontier(queue, "ttft", low=0.2, high=3.0)
    for p in corners(found):
        assert p.fleet is not None
        problem = found.axis.problem(queue, p.value * (1.0 - 1e-4), queue.problem().capacity)
        assert not certify(problem, p.fleet).certified


def test_routing_follows_the_bound_where_types_mix(made) -> None:
    """Several types in prefill: a corner holds, and a little below it does not."""
    fast = made.replica("fast", roles=["prefill", "decode"])
    slow = made.replica("slow", gpu="a100", roles=["prefill"])
    slow["service"] = {**slow["service"], "prefill": {"throughput": "4000 token/s"}}
    scenario = made.question(fast, slow, traffic=[made.chat(rate="23 req/s", output="2 tokens")])
    found = frontier(scenario, "ttft", low=0.3, high=4.0, points=7)
    mixed = [p for p in corners(found) if p.fleet and len(p.fleet.in_role("prefill")) > 1]
    assert mixed
    for p in mixed:
        for value, holds in ((p.value, True), (p.value * (1.0 - 1e-3), False)):
            problem = found.axis.problem(scenario, value, scenario.problem().capacity)
            assert p.fleet is not None and certify(problem, p.fleet).certified == holds


def test_below_the_floor_there_is_no_fleet_and_it_says_why(queue: Scenario) -> None:
    """One prefill takes 100 ms."""
    found = frontier(queue, "ttft", low=0.05, high=1.0, points=5)
    below = [p for p in found.points if p.value <= 0.1]
    assert below and all(p.fleet is None and "100 ms" in p.reason for p in below)
    text = " ".join(text_of(frontier_answer(found)).split())
    assert "No fleet at" in text and "and below: TTFT mean" in text


def test_stock_ends_the_demand(made) -> None:
    scenario = made.question(
        traffic=[made.chat(rate="20 req/s", output="2 tokens")], stock={"h100": 32}
    )
    found = frontier(scenario, "demand")
    assert found.points[-1].fleet is None and "stock" in found.points[-1].reason
    last = [p for p in found.points if p.fleet is not None][-1]
    end = next(p for p in found.points if p.corner and p.fleet is None)
    assert prefills(last) == 3 and end.value == pytest.approx(3 * (made.MU - 1.0), rel=2e-4)


@pytest.mark.parametrize("jobs", [1, 2])
def test_several_processes_find_the_same(queue: Scenario, jobs: int) -> None:
    expected = frontier(queue, "ttft", points=4)
    assert frontier(queue, "ttft", points=4, jobs=jobs).points == expected.points


@pytest.mark.parametrize("done", [0, 1, 5, 7])
def test_control_c_loses_nothing_that_is_done(
    queue: Scenario, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Stopped in the grid or among the corners: the points before are there, in order."""
    module = sys.modules["pdalloc.planning.frontier"]
    real, calls = module.solver_named("exact"), list[int]()

    class Stops:
        def solve(self, problem: Any) -> Any:
            if len(calls) == done:
                raise KeyboardInterrupt
            calls.append(1)
            return real.solve(problem)

    monkeypatch.setattr(module, "solver_named", lambda name: Stops())
    found = frontier(queue, "ttft", points=6)
    assert found.interrupted and len(found.points) >= min(done, 6)
    assert [p.value for p in found.points] == sorted(p.value for p in found.points)
    answer = frontier_answer(found)
    assert "Stopped" in text_of(answer)


def test_progress_ends_at_its_total(queue: Scenario) -> None:
    seen: list[tuple[int, int]] = []
    frontier(queue, "ttft", points=4, progress=lambda d, t: seen.append((d, t)))
    assert seen[-1][0] == seen[-1][1] == 2 * 5 - 1  # four values and the scenario's own
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)


# Axes and grids.


@pytest.fixture(scope="module")
def two(made) -> Scenario:
    classes = [
        made.chat(name=name, output="20 tokens", slo={"ttft": {"mean": "1 s", "p90": "3 s"}})
        for name in ("chat", "code")
    ]
    found: Scenario = made.question(traffic=classes)
    return found


def test_an_axis_by_its_words(two: Scenario) -> None:
    assert axis_of(two, "demand") == Axis(None, two.demand)
    axis = axis_of(two, "code/ttft.p90")
    assert axis.slo is not None and axis.here == 3.0
    assert (axis.slo.traffic_class, axis.slo.name) == ("code", "ttft.p90")


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("ttft", "fits 4 SLOs"),
        ("ttft.mean", "fits 2 SLOs"),
        ("chat/ttft", "fits 2 SLOs"),
        ("tpot", "no such SLO"),
        ("latency", "metrics are ttft"),
        ("chat/", "no such SLO"),
        ("", "no such SLO"),
    ],
)
def test_words_that_name_no_one_slo(two: Scenario, over: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        axis_of(two, over)
    assert "chat/ttft.mean" in str(caught.value)


def test_only_the_named_bound_moves(two: Scenario) -> None:
    axis = axis_of(two, "chat/ttft.mean")
    slos = axis.problem(two, 0.7, two.problem().capacity).capacity.slos
    assert [s.bound for s in slos] == [0.7, 3.0, 1.0, 3.0]


def test_grids_are_even_in_factors_or_differences(two: Scenario) -> None:
    bound, demand = axis_of(two, "chat/ttft.mean"), axis_of(two, "demand")
    values = grid(bound, 0.5, 8.0, 5)
    assert values == pytest.approx((0.5, 1.0, 2.0, 4.0, 8.0))
    assert grid(demand, 2.0, 6.0, 3) == pytest.approx((2.0, 4.0, 6.0))
    assert bound.here in grid(bound, None, None, 6) and demand.here in grid(demand, None, None, 6)


@pytest.mark.parametrize(
    ("low", "high", "points"),
    [(2.0, 1.0, 5), (0.0, 1.0, 5), (-1.0, 1.0, 5), (1.0, math.inf, 5), (1.0, 2.0, 1)],
)
def test_ranges_that_are_none(two: Scenario, low: float, high: float, points: int) -> None:
    with pytest.raises(InputError, match=r"range|points"):
        grid(axis_of(two, "demand"), low, high, points)


# Table, CSV, figure.


@pytest.fixture(scope="module")
def answer(queue: Scenario) -> FrontierAnswer:
    return frontier_answer(frontier(queue, "ttft", low=0.09, high=3.0))


def test_stretches_cover_the_range_without_gaps(answer: FrontierAnswer) -> None:
    stretches = answer.stretches
    assert stretches[0].start == answer.points[0].value
    assert stretches[-1].end == answer.points[-1].value
    for left, right in itertools.pairwise(stretches):
        assert left.end == right.start and left.last <= right.start
        assert left.point.cost_usd_per_hour != right.point.cost_usd_per_hour


def test_the_table_says_what_changes_beside_the_scenarios_own_value(answer, made) -> None:
    """5 replicas hold 1/(10 - 37/5) = 385 ms to 1/(10 - 37/4) = 1333 ms; now 1000 ms."""
    text = " ".join(text_of(answer).split())
    assert "against the bound of TTFT mean; now 1000 ms" in text
    assert "Below 384.6 ms it costs 16.00 USD/h" in text
    assert "From 1333 ms it saves 16.00 USD/h" in text
    assert max(len(line) for line in text_of(answer).splitlines()) <= 80


def test_json_csv_and_figure(answer: FrontierAnswer) -> None:
    assert FrontierAnswer.model_validate_json(answer.to_json()) == answer
    rows = list(csv.DictReader(io.StringIO(frontier_csv(answer))))
    assert [float(r["value_s"]) for r in rows] == [p.value for p in answer.points]
    axes = frontier_figure(answer).axes[0]
    assert axes.get_xscale() == "log" and "(s)" in axes.get_xlabel()
    assert any("5P1D" in text.get_text() for text in axes.texts)
    assert any(text.get_text() == "no fleet" for text in axes.texts)


def test_demand_is_drawn_in_tokens_a_minute(queue: Scenario) -> None:
    found = frontier_answer(frontier(queue, "demand", points=5))
    axes = frontier_figure(found).axes[0]
    assert axes.get_xscale() == "linear" and "Mtoken/min" in axes.get_xlabel()
    assert axes.get_xlim()[1] == pytest.approx(1.6 * 37.0 * 60 * 1002 / 1e6)
    assert axis_words(found) == "demand" and "value_requests_per_s" in frontier_csv(found)


def test_mixed_roles_are_counted_by_type(made) -> None:
    """``2+1P1D`` where two types prefill somewhere, and which is which in a corner."""
    slow = made.replica("slow", gpu="a100", roles=["prefill"])
    slow["service"] = {**slow["service"], "prefill": {"throughput": "4000 token/s"}}
    chat = made.chat(rate="23 req/s", output="2 tokens")
    scenario = made.question(made.replica("fast"), slow, traffic=[chat])
    for over in ("ttft", "demand"):
        drawn = frontier_figure(frontier_answer(frontier(scenario, over, points=3)))
        texts = [text.get_text() for text in drawn.axes[0].texts]
        assert "P: fast + slow" in texts
        assert any("+" in text and text.endswith("P1D") for text in texts)


def test_near_costs_are_shown_without_the_zero(answer: FrontierAnswer) -> None:
    """From 4 + 1 to 5 + 1 replicas; over the whole range down to nothing, with it."""
    near = [p for p in answer.points if p.value > 0.4]
    close = answer.model_copy(update={"points": near})
    assert frontier_figure(close).axes[0].get_ylim()[0] > 0.0
    assert frontier_figure(answer).axes[0].get_ylim()[0] == 0.0
    assert len(frontier_figure(close).axes[0].get_xticks()) >= 4


def test_a_frontier_of_nothing_can_still_be_shown(answer: FrontierAnswer) -> None:
    none = [p for p in answer.points if p.fleet is None]
    for points in ([], none[:1], none):
        bare = answer.model_copy(update={"points": points})
        text_of(bare)
        if points:
            assert frontier_figure(bare) is not None


def test_pools_in_words() -> None:
    assert pools("prefill/a=2,prefill/b=1,decode/a=3", "decode") == "3 a"
    assert pools(None, "decode") == ""


# The command.


def test_the_command_prints_and_writes(command, tmp_path: Path) -> None:
    arguments = ["--over", "demand", "--from", "4 Mtoken/min", "--to", "6 Mtoken/min"]
    done = command("frontier", PAPER, *arguments, "--points", "3", "--out", "folder")
    assert (done.returncode, done.stderr) == (0, "")
    assert "now 5 Mtoken/min" in done.stdout and "3P4D" in done.stdout
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {
        "frontier.json", "frontier.csv", "frontier.png", "frontier.pdf"
    }  # fmt: skip
    FrontierAnswer.model_validate_json((tmp_path / "folder" / "frontier.json").read_text())


def test_the_papers_fleet_holds_up_to_its_own_ttft(command) -> None:
    """3P4D: 1/(mu - lambda/3) + 0.1 s = 2.403 s with mu = 28309/6144."""
    arguments = ["--over", "ttft", "--from", "1 s", "--to", "4 s", "--points", "2", "--json", "-"]
    done = command("frontier", PAPER, *arguments)
    answer = FrontierAnswer.model_validate(json.loads(done.stdout))
    (corner,) = [p for p in answer.points if p.corner]
    rate = load_scenario(PAPER).demand
    assert corner.xpyd == "3P4D"
    assert corner.value == pytest.approx(1.0 / (28309 / 6144 - rate / 3) + 0.1, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.yaml", "--over", "ttft"], ["none.yaml"]),
        ([PAPER], ["--over"]),
        ([PAPER, "--over", "itl"], ["itl", "all/ttft.mean"]),
        ([PAPER, "--over", "ttft", "--from", "3"], ["--from", "unit"]),
        ([PAPER, "--over", "ttft", "--from", "3 s", "--to", "2 s"], ["range"]),
        ([PAPER, "--over", "demand", "--to", "3 s"], ["--to"]),
        ([PAPER, "--over", "ttft", "--points", "1"], ["--points"]),
        ([PAPER, "--over", "ttft", "--json", "no/such/a.json"], ["a.json"]),
    ],
)
def test_errors_are_one_line_and_exit_2(command, arguments, words, tmp_path: Path) -> None:
    done = command("frontier", *arguments)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("pdalloc: error: ") and all(w in done.stderr for w in words)
    assert list(tmp_path.iterdir()) == []


def test_a_range_without_any_fleet_exits_2(command) -> None:
    ends = ["--from", "100 ms", "--to", "300 ms", "--points", "2"]
    done = command("frontier", PAPER, "--over", "ttft", *ends)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "317 ms" in " ".join(done.stdout.split())


def test_a_stopped_frontier_exits_130_with_what_is_done(
    command, monkeypatch: pytest.MonkeyPatch, queue: Scenario
) -> None:
    module = sys.modules["pdalloc.planning.frontier"]
    stopped = replace(frontier(queue, "ttft", points=3), interrupted=True)
    monkeypatch.setattr(module, "frontier", lambda *arguments: stopped)
    done = command("frontier", PAPER, "--over", "ttft", "--json", "a.json")
    assert done.returncode == 130 and "Stopped" in done.stdout
    assert json.loads(Path("a.json").read_text())["interrupted"] is True
