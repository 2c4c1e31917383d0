"""The figures show the numbers they are drawn from, and nothing covers anything."""

import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from pdalloc.fleet import parse_fleet
from pdalloc.planning import evaluate, plan
from pdalloc.planning.answer import Answer
from pdalloc.planning.sweeps import (
    CostPoint,
    LatencyCurve,
    cost_sweep,
    demand_grid,
    latency_sweep,
    neighbours,
)
from pdalloc.report import style
from pdalloc.report.figures import cost_against_demand, latency_against_demand, staircase
from pdalloc.scenario import Scenario, load_scenario

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
PAPER = EXPERIMENTS / "paper_2603_04716" / "scenario.yaml"
MIXED = EXPERIMENTS / "mixed_fleet" / "scenario.yaml"
pytestmark = pytest.mark.pipeline

Case = tuple[Scenario, Answer, tuple[CostPoint, ...], tuple[LatencyCurve, ...]]


def case_of(scenario: Scenario, answer: Answer | None = None) -> Case:
    answer = answer or plan(scenario)
    demands = demand_grid(scenario)
    chosen = parse_fleet(answer.fleet or "", scenario.system.type_names)
    curves = latency_sweep(scenario, [chosen, *neighbours(chosen)], demands)
    return scenario, answer, cost_sweep(scenario, demands), curves


@pytest.fixture(scope="module")
def paper() -> Case:
    return case_of(load_scenario(PAPER))


@pytest.fixture(scope="module")
def mixed() -> Case:
    return case_of(load_scenario(MIXED))


@pytest.fixture(scope="module")
def short_of_stock() -> Case:
    return case_of(load_scenario(PAPER, overrides=["stock={h200: 80}"]))


def drawn(figure: Any) -> list[Any]:
    """The axes of a figure after a full draw."""
    figure.draw_without_rendering()
    return list(figure.axes)


def words(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def line_at(line: Any, x: float) -> float:
    """Height of a staircase line just right of ``x``."""
    xs, ys = line.get_xdata(), line.get_ydata()
    return float(ys[np.searchsorted(xs, x * (1 + 1e-12), side="right") - 1])


# Cost against demand.


def test_the_staircase_holds_each_cost_up_to_the_next_step() -> None:
    points = [
        CostPoint(1.0, None, 10.0),
        CostPoint(1.5, None, 20.0, step=True),
        CostPoint(2.0, None, 20.0),
        CostPoint(2.2, None, None, step=True),
        CostPoint(3.0, None, None),
    ]
    x, y = staircase(points)
    assert x.tolist() == [1.0, 1.5, 1.5, 2.0, 2.2, 2.2, 3.0]
    assert y[:5].tolist() == [10.0, 10.0, 20.0, 20.0, 20.0]
    assert np.isnan(y[5:]).all()


def test_the_staircase_slopes_where_the_step_is_not_known() -> None:
    x, y = staircase([CostPoint(1.0, None, 10.0), CostPoint(2.0, None, 20.0)])
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [10.0, 20.0])


def test_solved_demands_are_dots_where_a_step_is_not_known(paper: Case) -> None:
    _, answer, points, _ = paper
    rough = [replace(point, step=False) for point in points if not point.step]
    for data, dots in ((points, 0), (rough, 1)):
        (axes,) = drawn(cost_against_demand(data, answer))
        found = [line for line in axes.lines if line.get_marker() == "."]
        assert len(found) == dots
        assert all(len(line.get_xdata()) == len(rough) for line in found)


def test_the_cost_line_holds_the_costs_of_single_plans(paper: Case) -> None:
    scenario, answer, points, _ = paper
    (axes,) = drawn(cost_against_demand(points, answer))
    line = axes.lines[0]
    per_minute = answer.demand_tokens_per_minute / answer.demand_requests_per_s / 1e6
    for share in (0.3, 0.6, 1.0, 1.25, 1.5):
        demand = share * scenario.demand
        workload = scenario.system.workload.scaled(share)
        there = replace(scenario, system=scenario.system.with_workload(workload))
        assert line_at(line, demand * per_minute) == pytest.approx(plan(there).cost_usd_per_hour)
    assert (np.diff(line.get_ydata()) >= 0).all()


def test_the_answers_fleet_is_marked_at_its_demand_and_cost(paper: Case) -> None:
    _, answer, points, _ = paper
    (axes,) = drawn(cost_against_demand(points, answer))
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [(m.get_xdata()[0], m.get_ydata()[0]) for m in marks] == [
        (pytest.approx(5.0), pytest.approx(229.76))
    ]
    assert any("4P4D, 229.76 USD/h" in text for text in words(axes))


def test_the_fleets_are_named_on_the_steps(paper: Case) -> None:
    _, answer, points, _ = paper
    (axes,) = drawn(cost_against_demand(points, answer))
    assert {"1P1D", "2P2D", "3P3D", "3P4D", "4P5D", "5P6D"} <= set(words(axes))


def test_each_type_alone_is_a_line_of_its_costs(mixed: Case) -> None:
    _, answer, points, _ = mixed
    (axes,) = drawn(cost_against_demand(points, answer))
    named = {line.get_label(): line for line in axes.lines}
    assert {"cheapest fleet", "a100 alone", "h100 alone"} <= set(named)
    for gpu in ("a100", "h100"):
        expected = [p.single_type[gpu] for p in points]
        assert named[f"{gpu} alone"].get_ydata().tolist() == pytest.approx(expected)
    assert axes.get_legend() is not None


def test_no_legend_where_there_is_one_gpu_type(paper: Case) -> None:
    _, answer, points, _ = paper
    (axes,) = drawn(cost_against_demand(points, answer))
    assert axes.get_legend() is None


def test_demands_without_a_fleet_are_shaded(short_of_stock: Case) -> None:
    _, answer, points, _ = short_of_stock
    (axes,) = drawn(cost_against_demand(points, answer))
    (shade,) = axes.patches
    first = next(p.demand for p in points if p.cost is None)
    per_minute = answer.demand_tokens_per_minute / answer.demand_requests_per_s / 1e6
    assert shade.get_x() == pytest.approx(first * per_minute)
    assert "no fleet" in words(axes)


@pytest.mark.parametrize("name", ["paper", "mixed", "short_of_stock"])
def test_no_label_covers_another_or_a_line(name: str, request: pytest.FixtureRequest) -> None:
    _, answer, points, _ = request.getfixturevalue(name)
    (axes,) = drawn(cost_against_demand(points, answer))
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    for one, other in itertools.combinations(boxes, 2):
        assert not boxes[one].overlaps(boxes[other]), (one, other)
    path = axes.lines[0].get_transform().transform_path(axes.lines[0].get_path())
    crossed = [text for text, box in boxes.items() if path.intersects_bbox(box, filled=False)]
    assert not crossed


# Latency against demand.


def test_each_slo_has_a_panel_with_bound_demand_and_the_fleets_curve(paper: Case) -> None:
    _, answer, _, curves = paper
    ttft, tpot = drawn(latency_against_demand(curves, answer))
    assert [a.get_ylabel() for a in (ttft, tpot)] == ["mean TTFT (s)", "mean TPOT (ms)"]
    for index, (axes, scale, bound) in enumerate(((ttft, 1.0, 2.0), (tpot, 1e3, 20.0))):
        level, now, *lines = axes.lines
        assert list(level.get_ydata()) == [bound, bound] and level.is_dashed()
        assert list(now.get_xdata()) == [pytest.approx(5.0)] * 2
        assert axes.get_ylim() == (0.0, 2.0 * bound)
        bold = max(lines, key=lambda line: float(line.get_linewidth()))
        assert bold.get_ydata() == pytest.approx(curves[0].seconds[index] * scale, nan_ok=True)


def test_each_panel_names_the_neighbours_that_matter_there(paper: Case) -> None:
    _, answer, _, curves = paper
    ttft, tpot = drawn(latency_against_demand(curves, answer))
    assert {"3P4D", "4P4D", "5P4D"} <= set(words(ttft))
    assert {"4P3D", "4P4D", "4P5D"} <= set(words(tpot))
    assert not {"4P3D", "4P5D"} & set(words(ttft))
    assert not {"3P4D", "5P4D"} & set(words(tpot))
    for axes in (ttft, tpot):
        assert "demand 5 Mtoken/min" in words(axes)
    assert "SLO 2 s" in words(ttft) and "SLO 20 ms" in words(tpot)


def test_neighbours_have_the_colour_of_the_role_that_changed(paper: Case) -> None:
    _, answer, _, curves = paper
    ttft, tpot = drawn(latency_against_demand(curves, answer))
    for axes, role in ((ttft, "prefill"), (tpot, "decode")):
        thin = [line for line in axes.lines[2:] if float(line.get_linewidth()) < 1.0]
        assert {line.get_color() for line in thin} == {style.ROLE_COLOURS[role]}


@pytest.mark.parametrize("name", ["paper", "mixed", "short_of_stock"])
def test_names_of_curves_stay_apart(name: str, request: pytest.FixtureRequest) -> None:
    _, answer, _, curves = request.getfixturevalue(name)
    for axes in drawn(latency_against_demand(curves, answer)):
        boxes = [text.get_window_extent() for text in axes.texts]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_a_mixed_fleet_names_the_pool_that_changed() -> None:
    scenario = load_scenario(MIXED)
    text = "prefill/a100x8=10,prefill/h100x8=1,decode/a100x8=13"
    answer = evaluate(scenario, text)
    chosen = parse_fleet(text, scenario.system.type_names)
    curves = latency_sweep(scenario, [chosen, *neighbours(chosen)], demand_grid(scenario))
    ttft, tpot = drawn(latency_against_demand(curves, answer))
    assert {"11P13D", "−1P a100x8", "+1P h100x8"} <= set(words(ttft))
    assert {"11P13D", "11P12D", "11P14D"} <= set(words(tpot))


def test_of_many_slos_those_nearest_their_bound_are_drawn(paper: Case) -> None:
    _, answer, _, curves = paper
    slos = [
        answer.slos[0].model_copy(update={"statistic": f"p{90 + i}", "predicted_s": 2.0 - 0.1 * i})
        for i in range(8)
    ]
    many = [replace(c, seconds=np.repeat(c.seconds[:1], 8, axis=0)) for c in curves]
    panels = drawn(latency_against_demand(many, answer.model_copy(update={"slos": slos})))
    assert [a.get_ylabel() for a in panels] == [f"P{90 + i} TTFT (s)" for i in range(6)]


def test_three_slos_leave_the_fourth_place_blank() -> None:
    slo = "traffic.0.slo={ttft: {mean: 2 s, p90: 4 s}, tpot: {mean: 20 ms}}"
    _, answer, _, curves = case_of(load_scenario(PAPER, overrides=[slo]))
    assert len(drawn(latency_against_demand(curves, answer))) == 3


def test_small_demands_are_in_thousands_of_tokens() -> None:
    scenario = load_scenario(PAPER, overrides=["traffic.0.rate=30 ktoken/min"])
    _, answer, points, curves = case_of(scenario)
    (cost,) = drawn(cost_against_demand(points, answer))
    assert cost.get_xlabel() == "demand (ktoken/min, prompt + output)"
    assert any("at 30 ktoken/min" in text for text in words(cost))
    for axes in drawn(latency_against_demand(curves, answer)):
        assert "demand 30 ktoken/min" in words(axes)


# Files and style.


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_the_same_answer_gives_the_same_bytes(paper: Case, kind: str) -> None:
    _, answer, points, curves = paper
    costs = [style.figure_bytes(cost_against_demand(points, answer), kind) for _ in "ab"]
    assert costs[0] == costs[1]
    latencies = [style.figure_bytes(latency_against_demand(curves, answer), kind) for _ in "ab"]
    assert latencies[0] == latencies[1]


def test_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    program = (
        "import hashlib\n"
        "from pdalloc.report import style\n"
        "with style.styled():\n"
        "    figure, ((axes,),) = style.new_figure(3.4, 2.0)\n"
        "    axes.set_xlabel('demand × ± −')\n"
        "print([hashlib.sha256(style.figure_bytes(figure, k)).hexdigest() for k in ('png','pdf')])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed, "HOME": str(tmp_path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_files_hold_no_date_and_embed_truetype_fonts(paper: Case) -> None:
    _, answer, points, _ = paper
    figure = cost_against_demand(points, answer)
    pdf, png = (style.figure_bytes(figure, kind) for kind in ("pdf", "png"))
    assert pdf.startswith(b"%PDF") and png.startswith(b"\x89PNG")
    assert b"CreationDate" not in pdf and b"Software" not in png
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf


def test_a_users_settings_neither_matter_nor_change(paper: Case) -> None:
    _, answer, points, _ = paper
    plain = style.figure_bytes(cost_against_demand(points, answer), "png")
    with matplotlib.rc_context({"font.size": 20.0, "axes.grid": True, "savefig.dpi": 50}):
        assert style.figure_bytes(cost_against_demand(points, answer), "png") == plain
        assert matplotlib.rcParams["font.size"] == 20.0


def test_gpus_keep_their_colours_and_differ() -> None:
    first = style.gpu_colours(["a100", "h100"])
    second = style.gpu_colours(["mi300x", "h100", "l4", "h200", "a100", "b200", "l40s"])
    assert first["h100"] == second["h100"] and first["a100"] == second["a100"]
    assert len(set(second.values())) == len(second)


def test_labels_go_only_where_there_is_room() -> None:
    with style.styled():
        figure, ((axes,),) = style.new_figure(2.0, 2.0)
        axes.plot([0, 1], [0.5, 0.5])
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        style.settle(figure)
        space = style.LabelSpace(axes)
        assert space.place("above", 0.3, 0.5, [(0, 3)])
        assert not space.place("above too", 0.3, 0.5, [(0, 3)])  # taken
        assert not space.place("on the line", 0.5, 0.5, [(3, 0)])
        assert not space.place("outside", 0.95, 0.2, [(3, 0)])
        assert space.place("second choice", 0.5, 0.5, [(3, 0), (0, -3)])
        assert space.place("anyway", 0.5, 0.5, [(3, 0)], force=True)
    assert words(axes) == ["above", "second choice", "anyway"]


def test_names_that_would_touch_are_pushed_apart_in_order() -> None:
    with style.styled():
        figure, ((axes,),) = style.new_figure(3.0, 2.0)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        over = [style.name_end(axes, x, 1.0, name) for x, name in ((0.5, "one"), (0.51, "two"))]
        beside = [style.name_end(axes, 0.3, y, name) for y, name in ((0.4, "low"), (0.41, "high"))]
        style.settle(figure)
    one, two = (text.get_window_extent() for text in over)
    low, high = (text.get_window_extent() for text in beside)
    assert one.x1 < two.x0 and low.y1 < high.y0
