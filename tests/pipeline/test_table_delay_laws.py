"""The table of the delay laws: from the committed results, the same each time, LaTeX that holds."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import read_csv
from paper.figures import fig_delay_laws
from paper.tables import table_delay_laws as script

from pdalloc.errors import InputError

pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def rows():
    return read_csv(fig_delay_laws.RESULTS / "accuracy.csv")


@pytest.fixture(scope="module")
def body(rows):
    """The cells of each law's line, marks of bold taken off."""
    inside = script.table(rows).split(r"\midrule")[1].split(r"\bottomrule")[0]
    lines = [line.removesuffix(r"\\").strip() for line in inside.strip().splitlines()]
    return [[re.sub(r"\\textbf\{(.*)\}$", r"\1", x) for x in line.split(" & ")] for line in lines]


def test_the_script_writes_the_same_file_each_time(tmp_path):
    script.main(tmp_path / "first")
    script.main(tmp_path / "second")
    first, second = (tmp_path / name / f"{script.NAME}.tex" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes() != b""


def test_every_line_has_the_columns_that_the_head_has(rows, body):
    text = script.table(rows)
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns is not None and {len(line) for line in body} == {len(columns.group(1))}
    assert text.count("{") == text.count("}") and text.endswith("\\end{tabular}\n")


def test_the_laws_are_those_of_the_figure_in_its_order(rows, body):
    order = list(fig_delay_laws.spreads(rows, "p99_wait"))[::-1]
    assert [line[0] for line in body] == [script.TITLES[law] for law in order]
    assert set(script.TITLES) == set(fig_delay_laws.TITLES)


def test_the_default_alone_is_bold(rows):
    bold = [line for line in script.table(rows).splitlines() if "textbf" in line]
    assert len(bold) == 1 and script.TITLES[fig_delay_laws.default()] in bold[0]


def test_numbers_are_those_of_the_results_to_their_digits(rows, body):
    wanted = {
        (r["law"], r["statistic"]): [float(r[k]) for k in script.SPREADS]
        for r in rows
        if r["regime"] == fig_delay_laws.GRID
    }
    names = {title: law for law, title in script.TITLES.items()}
    for name, cases, *shown in body:
        values = [v for s in script.STATISTICS for v in wanted[names[name], s]]
        assert [float(x) for x in shown] == pytest.approx(values, rel=0.051)
        assert int(cases) > 100


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0"), (0.996, "1.0"), (9.94, "9.9"), (9.96, "10"), (83.1, "83")]
)
def test_percentages_have_two_digits(value, text):
    assert script.percent(value) == text


def test_missing_results_say_what_to_run(tmp_path):
    with pytest.raises(InputError, match=r"accuracy\.csv: no such file; run the experiment"):
        script.main(tmp_path, tmp_path)
