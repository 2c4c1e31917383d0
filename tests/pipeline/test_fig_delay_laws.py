"""The figure of the delay laws draws what the results say; what the README says of them."""

import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.delay_laws.accuracy import cases
from experiments.delay_laws.services import service
from experiments.results import read_csv, write_csv
from paper.figures import fig_delay_laws as figure
from paper.tables.table_delay_laws import percent

from pdalloc.errors import InputError
from pdalloc.queueing.delay_laws import all_laws

pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def accuracy():
    return read_csv(figure.RESULTS / "accuracy.csv")


@pytest.fixture(scope="module")
def panels():
    return figure.draw().axes


def test_a_row_per_approximation_that_claims_the_grid(accuracy, panels):
    approximate = {
        r["law"] for r in accuracy if r["regime"] == figure.GRID and not all_laws()[r["law"]].exact
    }
    assert set(figure.spreads(accuracy, "p99_wait")) == approximate <= set(figure.TITLES)
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    assert len(names) == len(approximate) >= 10


def test_the_default_is_on_top_and_alone_in_its_colour(accuracy, panels):
    """The default is ranked by mean and P99: here it has the least 95th percentile of both."""
    for statistic in figure.WAITS:
        spreads = figure.spreads(accuracy, statistic)
        assert spreads[figure.default()].p95 == min(s.p95 for s in spreads.values())
    *others, top = panels[0].get_yticklabels()
    assert top.get_text() == figure.TITLES[figure.default()]
    assert top.get_color() not in {label.get_color() for label in others}


def test_a_line_goes_from_the_median_to_the_worst(accuracy, panels):
    for statistic, axes in zip(figure.WAITS, panels[:2], strict=True):
        best = figure.spreads(accuracy, statistic)[figure.default()]
        top = len(axes.get_yticks()) - 1
        at_top = [line.get_xdata() for line in axes.lines if np.all(line.get_ydata() == top)]
        ends = sorted({float(x) for xs in at_top for x in xs})
        assert ends == [best.median, best.p95, best.worst]
        low, high = axes.get_xlim()
        assert all(low < x < high for line in axes.lines for x in line.get_xdata())


def test_every_affine_decode_cell_is_a_dot_per_statistic(panels):
    cells = read_csv(figure.RESULTS / "decode_cells.csv")
    affine = [r for r in cells if r["family"] == "affine"]
    dots = [line for line in panels[2].lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in dots) == len(affine) * len(figure.DECODE)
    bottom, top = panels[2].get_ylim()
    assert all(bottom < y < top for line in dots for y in line.get_ydata())


def test_dispatch_is_compared_at_the_simulated_pools():
    """Random is M/G/1, the same at every size; one queue is best and least loaded next."""
    waits = {(str(p.dispatch), p.servers): p for p in figure.compared()}
    assert len(waits) == 4 * len(figure.SERVERS)
    for c in figure.SERVERS:
        order = ("central_queue", "least_loaded", "round_robin", "random")
        for better, worse in itertools.pairwise(order):
            assert waits[better, c].law < waits[worse, c].law
            assert waits[better, c].simulated < waits[worse, c].simulated
    small, large = (waits["random", c].law for c in figure.SERVERS)
    assert small == pytest.approx(large)
    # Pollaczek-Khinchine: E[W] = rho (1 + SCV) / (2 (1 - rho)) E[S]
    rho, scv = figure.UTILISATION, service(figure.SERVICE).scv
    assert small == pytest.approx(rho * (1 + scv) / (2 * (1 - rho)), rel=1e-6)


def test_the_grid_has_the_cases_that_it_says(accuracy):
    many = [1 for grid, _, at, known in cases() if grid == "mgc" and at.servers > 1
            and known["mean_wait"] == known["mean_wait"]]  # fmt: skip
    assert figure._cells(accuracy) == len(many)


def test_other_results_give_another_figure(accuracy, tmp_path):
    """Nothing is typed: with all errors doubled every line moves."""
    doubled = [r | {k: str(2 * float(r[k])) for k in r if k.endswith("_percent")} for r in accuracy]
    write_csv(tmp_path / "accuracy.csv", doubled)
    write_csv(tmp_path / "decode_cells.csv", read_csv(figure.RESULTS / "decode_cells.csv"))
    before, after = figure.draw().axes[0].lines, figure.draw(tmp_path).axes[0].lines
    for old, new in zip(before, after, strict=True):
        assert np.allclose(new.get_xdata(), 2 * np.asarray(old.get_xdata()))


def test_missing_results_say_what_to_run(tmp_path):
    with pytest.raises(InputError, match=r"accuracy\.csv: no such file; run the experiment"):
        figure.draw(tmp_path)


def test_the_readme_says_what_the_results_say(accuracy):
    """Errors of the default, of the best published law, of the decode laws, and the weakest."""
    readme = (figure.ROOT / "README.md").read_text("utf-8")
    text = " ".join(readme.split("## How well the laws hold")[1].split("\n## ")[0].split())
    mean, p99 = (figure.spreads(accuracy, s) for s in figure.WAITS)
    mine = [
        percent(x) for at in (mean, p99) for x in (at["dispersion"].p95, at["dispersion"].worst)
    ]
    assert figure.default() == "dispersion"
    assert f"{figure._cells(accuracy)} cases: mean wait within {mine[0]} % in 95 %" in text
    assert f"(worst {mine[1]} %), P99 within {mine[2]} % (worst {mine[3]} %)" in text
    published = [law for law in mean if law not in figure.OWN and law != "mphc"]
    best = [percent(min(at[law].p95 for law in published)) for at in (mean, p99)]
    assert f"published formula keeps {best[0]} % and {best[1]} %" in text
    aside = {
        r["statistic"]: (percent(float(r["p95_percent"])), percent(float(r["worst_percent"])))
        for r in accuracy
        if (r["law"], r["regime"]) == ("dispersion", "held-out service laws")
    }
    (m, m_worst), (p, p_worst) = aside["mean_wait"], aside["p99_wait"]
    assert f"fixed: {m} % and {p} % (worst {m_worst} % and {p_worst} %)" in text
    least = [
        r
        for r in accuracy
        if r["law"] == "least_assigned" and r["regime"].startswith("least_loaded, Poisson")
    ]
    p95 = max(float(r["p95_percent"]) for r in least if r["statistic"] == "mean_wait")
    worst = max(float(r["worst_percent"]) for r in least if r["statistic"] == "p99_wait")
    assert f"wait within {percent(p95)} % in 95 % of cases, worst P99 {percent(worst)} %)" in text


def test_the_readme_says_what_the_decode_results_say():
    readme = (figure.ROOT / "README.md").read_text("utf-8")
    text = " ".join(readme.split("## How well the laws hold")[1].split("\n## ")[0].split())
    rows = read_csv(figure.RESULTS / "decode_accuracy.csv")
    total = {r["statistic"]: r for r in rows if r["family"] == "all"}
    (tpot_bar, tpot, itl_bar, itl) = re.findall(
        r"TPOT within ([0-9.]+) % in (\d+) % of them, P99 ITL within (\d+) % in (\d+) %", text
    )[0]
    for key, bar, share in (("mean_tpot", tpot_bar, tpot), ("itl_p99", itl_bar, itl)):
        assert float(bar) == float(total[key]["bar_percent"])
        assert int(share) == int(100 * float(total[key]["share_within_bar"]) + 0.5)
    assert f"simulation, {total['mean_tpot']['cells']} cases" in text
    fluid, slot = (
        abs(float(total[k]["worst_percent"])) for k in ("fluid_mean_tpot", "mean_slot_wait")
    )
    assert f"fluid law is off by up to {percent(fluid)} %" in text
    assert f"decode slot (worst {percent(slot)} %)" in text
