"""The paper's figures: drawn from the committed results, the same bytes each time, readable."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from paper.figures import fig_delay_laws, fig_diverging, fig_pairings, fig_paper_case

from pdalloc.errors import InputError

pytestmark = pytest.mark.pipeline

FIGURES = [fig_paper_case, fig_pairings, fig_diverging, fig_delay_laws]
HEADS = {"pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda module: module.NAME)
def test_a_script_writes_the_same_files_each_time(figure, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    figure.main(first)
    figure.main(second)
    assert {path.name for path in first.iterdir()} == {f"{figure.NAME}.{kind}" for kind in HEADS}
    for kind, head in HEADS.items():
        content = (first / f"{figure.NAME}.{kind}").read_bytes()
        assert content.startswith(head)
        assert content == (second / f"{figure.NAME}.{kind}").read_bytes()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda module: module.NAME)
def test_no_words_cover_each_other_or_leave_the_page(figure):
    drawn = figure.draw()
    drawn.draw_without_rendering()
    words = [text for axes in drawn.axes for text in axes.texts if text.get_text()]
    boxes = {text: text.get_window_extent() for text in words}
    for one, other in itertools.combinations(words, 2):
        assert not boxes[one].overlaps(boxes[other]), (one.get_text(), other.get_text())
    page = drawn.bbox.padded(1.0)
    for text, box in boxes.items():
        assert page.x0 <= box.x0, text.get_text()
        assert box.x1 <= page.x1, text.get_text()


def test_a_cell_of_the_pairings_holds_its_words():
    drawn = fig_pairings.draw()
    drawn.draw_without_rendering()
    for axes in drawn.axes:
        for text in axes.texts:
            box = text.get_window_extent().transformed(axes.transData.inverted())
            assert int(box.x0) == int(box.x1), text.get_text()


def test_replicas_are_read_off_a_fleet():
    fleet = "prefill/a100x8=5,prefill/h100x4=10,prefill/h100x8=1,decode/h100x8=2"
    assert fig_pairings.replicas(fleet, "prefill") == {"a100": 5, "h100": 11}
    assert fig_pairings.replicas(fleet, "decode") == {"h100": 2}


def test_shares_of_a_role_add_up_to_one():
    row = {"prefill_gpu": "h100", "prefill_share_percent": "82"}
    assert fig_pairings.shares(row, "prefill") == pytest.approx({"a100": 0.18, "h100": 0.82})


def test_missing_results_say_what_to_run(tmp_path):
    with pytest.raises(InputError, match=r"pairings\.csv: no such file; run the experiment"):
        fig_pairings.draw(tmp_path)
