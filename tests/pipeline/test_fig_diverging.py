"""The figure of the diverging fleet: from the committed results, the same bytes, readable."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import write_csv
from experiments.simulator import diverging
from paper.figures import fig_diverging

from pdalloc.errors import InputError

pytestmark = pytest.mark.pipeline

HEADS = {"pdf": b"%PDF", "png": b"\x89PNG"}


def test_the_script_writes_the_same_files_each_time(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    fig_diverging.main(first)
    fig_diverging.main(second)
    names = {f"{fig_diverging.NAME}.{kind}" for kind in HEADS}
    assert {path.name for path in first.iterdir()} == names
    for kind, head in HEADS.items():
        content = (first / f"{fig_diverging.NAME}.{kind}").read_bytes()
        assert content.startswith(head)
        assert content == (second / f"{fig_diverging.NAME}.{kind}").read_bytes()


def test_no_words_cover_each_other_or_leave_the_page():
    drawn = fig_diverging.draw()
    drawn.draw_without_rendering()
    words = [text for axes in drawn.axes for text in axes.texts]
    boxes = {text: text.get_window_extent() for text in words}
    for one, other in itertools.combinations(words, 2):
        assert not boxes[one].overlaps(boxes[other]), (one.get_text(), other.get_text())
    for text, box in boxes.items():
        assert box.x1 <= drawn.bbox.padded(1.0).x1, text.get_text()


def test_a_line_is_a_fleet_of_the_results(tmp_path):
    """Drawn from fresh short results: a panel per law, a line per fleet, named by what it does."""
    fleets = {"mean": (3, 5), "azure": (6,)}
    write_csv(tmp_path / fig_diverging.BACKLOG, diverging.backlog_rows(1, 30.0, fleets))
    rows = diverging.fleet_rows(1, 30.0, 2, fleets)
    write_csv(tmp_path / fig_diverging.FLEETS, rows)
    panels = fig_diverging.draw(tmp_path).axes
    assert [len(axes.lines) for axes in panels] == [2, 1]
    names = [text.get_text() for text in panels[0].texts]
    assert names[0].startswith("3D +")
    assert names[1] == f"5D {rows[1]['tpot_mean_ms']:.0f} ms"
    assert panels[0].get_ylim() == panels[1].get_ylim()


def test_missing_results_say_what_to_run(tmp_path):
    with pytest.raises(InputError, match=r"diverging_backlog\.csv: no such file; run the exper"):
        fig_diverging.draw(tmp_path)
