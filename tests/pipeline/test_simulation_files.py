"""The figure of a simulation and its folder: what is drawn is what was simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdalloc.errors import InputError
from pdalloc.planning import Effort, Simulation, simulate
from pdalloc.planning.simulation_answer import SimulationAnswer
from pdalloc.report import style
from pdalloc.report.files import simulation_files, write_files
from pdalloc.report.simulation_figure import RAREST, simulation_figure
from pdalloc.report.simulation_table import STAGE_NAMES
from pdalloc.report.style import figure_bytes
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

Case = tuple[Scenario, Simulation]


# The figure.


FIGURES: dict[int, Any] = {}


def figure_of(simulation: Simulation) -> Any:
    """Its figure, drawn once; simulations of fixtures live as long as the session."""
    if id(simulation) not in FIGURES:
        FIGURES[id(simulation)] = simulation_figure(simulation)
    return FIGURES[id(simulation)]


def test_curves_are_the_tails_of_the_first_replication(case: Case) -> None:
    """At share s of a curve the latency is the (1 - s)-quantile of the log's."""
    scenario, simulation = case
    axes = figure_of(simulation).axes[:3]
    log = simulation.log
    for metric, panel in zip(("ttft", "tpot", "e2e"), axes, strict=True):
        assert panel.get_xlabel() == f"{metric.upper()} (s)" and panel.get_yscale() == "log"
        curves = [line for line in panel.lines if len(line.get_xdata()) > 2]
        assert len(curves) == len(scenario.system.workload.classes)
        for q, curve in enumerate(curves):
            values = getattr(log, metric)[log.traffic_class == q]
            values = values[np.isfinite(values)]
            x, share = curve.get_xdata(), curve.get_ydata()
            assert x == pytest.approx(np.quantile(values, 1.0 - share))
            assert share.min() >= RAREST and np.all(np.diff(x) >= 0.0)


def test_bounds_are_lines_and_percentiles_dots(plain: Case) -> None:
    """The dot of P99 is at one in a hundred: a curve that passes below it keeps the bound."""
    simulation = plain[1]
    axes = figure_of(simulation).axes[:3]
    for metric, panel in zip(("ttft", "tpot", "e2e"), axes, strict=True):
        slos = [slo for slo in simulation.answer.slos if slo.metric == metric]
        lines = [line for line in panel.lines if len(line.get_xdata()) == 2]
        assert [line.get_xdata()[0] for line in lines] == [slo.bound_s for slo in slos]
        dots = [line for line in panel.lines if line.get_marker() == "o"]
        expected = [
            (slo.bound_s, pytest.approx(1.0 - float(slo.statistic[1:]) / 100.0))
            for slo in slos
            if slo.statistic != "mean"
        ]
        assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == expected
        assert [t.get_text() for t in panel.texts] == [
            slo.statistic if slo.statistic == "mean" else slo.statistic.upper() for slo in slos
        ]


def test_bounds_of_several_classes_say_whose_they_are(busy: Case) -> None:
    panels = figure_of(busy[1]).axes
    assert [t.get_text() for t in panels[0].texts] == ["P90 chat"]
    assert [t.get_text() for t in panels[2].texts] == ["mean code"]
    assert [t.get_text() for t in panels[0].get_legend().get_texts()] == ["chat", "code"]


def test_names_of_near_bounds_do_not_cover_each_other(plain: Case) -> None:
    answer = plain[1].answer
    slos = [answer.slos[0].model_copy(update={"bound_s": 0.5 + 0.01 * i}) for i in range(3)]
    figure = simulation_figure(Simulation(answer.model_copy(update={"slos": slos}), plain[1].log))
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 3
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize(("statistic", "dots"), [("p99.9", 1), ("p99.99", 0)])
def test_no_dot_is_drawn_below_the_panel(plain: Case, statistic: str, dots: int) -> None:
    answer = plain[1].answer
    slos = [answer.slos[0].model_copy(update={"statistic": statistic})]
    changed = Simulation(answer.model_copy(update={"slos": slos}), plain[1].log)
    panel = simulation_figure(changed).axes[0]
    found = [line for line in panel.lines if line.get_marker() == "o"]
    assert len(found) == dots
    assert all(dot.get_ydata()[0] >= 0.999 * panel.get_ylim()[0] for dot in found)


def test_the_last_panel_counts_requests_over_time(case: Case) -> None:
    """At every place the stages sum to who has arrived and not left."""
    log = case[1].log
    panel = figure_of(case[1]).axes[3]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("time (s)", "requests")
    lines = panel.lines
    named = {line.get_label() for line in lines}
    assert named <= set(STAGE_NAMES.values()) and {"in prefill", "decoding"} <= named
    assert {t.get_text() for t in panel.get_legend().get_texts()} == named
    at = lines[0].get_xdata()
    gone = np.sort(log.finish if log.left is None else log.left)
    present = np.searchsorted(log.arrival, at, "right") - np.searchsorted(gone, at, "right")
    drawn = np.sum([line.get_ydata() for line in lines], axis=0)
    left_out = 0.01 * drawn.max() * (len(STAGE_NAMES) - len(lines))
    assert np.all(np.abs(present - drawn) <= left_out + 1e-9)


def test_one_token_answers_leave_an_empty_panel(made) -> None:
    figure = simulation_figure(simulate(made.question(), "1P1D", Effort(1500, 3)))
    assert len(figure.axes[1].lines) == 0
    figure.draw_without_rendering()


# Files.

WRITTEN = {"simulation.json", "simulation.png", "simulation.pdf"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not rendered, which takes its time."""
    monkeypatch.setattr(style, "figure_bytes", lambda figure, kind: kind.encode())


def test_the_figure_is_drawn_in_both_formats_and_always_alike(plain: Case, tmp_path: Path) -> None:
    """The same simulation gives the same bytes."""
    write_files(simulation_files(plain[1], tmp_path))
    assert names(tmp_path) == WRITTEN
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        written = (tmp_path / f"simulation.{kind}").read_bytes()
        assert written.startswith(start)
        assert written == figure_bytes(simulation_figure(plain[1]), kind)


def test_a_folder_of_answer_and_figure(case: Case, sketched: None, tmp_path: Path) -> None:
    answer = case[1].answer
    write_files(simulation_files(case[1], tmp_path / "new" / "out"))
    assert names(tmp_path / "new" / "out") == WRITTEN
    text = (tmp_path / "new" / "out" / "simulation.json").read_text(encoding="utf-8")
    assert text == answer.to_json() + "\n"
    assert SimulationAnswer.model_validate_json(text) == answer
    assert "NaN" not in text and "Infinity" not in text
    assert list(json.loads(text)) == list(SimulationAnswer.model_fields)


def test_a_folder_that_cannot_be_made_is_named(plain: Case, sketched: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="cannot make this folder") as caught:
        write_files(simulation_files(plain[1], tmp_path / "file" / "out"))
    assert len(str(caught.value).splitlines()) == 1
    assert names(tmp_path) == {"file"} and (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_keeps_what_was_there(
    plain: Case, sketched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simulation.json").write_text("old")
    written = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if ".pdf" in self.name:
            raise OSError(28, "No space left on device")
        return written(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        write_files(simulation_files(plain[1], tmp_path))
    assert names(tmp_path) == {"simulation.json"}
    assert (tmp_path / "simulation.json").read_text() == "old"
