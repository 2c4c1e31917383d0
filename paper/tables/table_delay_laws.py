"""How accurate the delay laws of M/G/c are: median, 95th percentile and worst error.

    python paper/tables/table_delay_laws.py

Reads experiments/delay_laws/results/accuracy.csv; writes paper/generated/table_delay_laws.tex
(needs booktabs).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import read_csv
from paper.figures.fig_delay_laws import GRID, RESULTS, ROOT, default, spreads

NAME = "table_delay_laws"
STATISTICS = {"mean_wait": "mean wait", "p_wait": "$P(W>0)$", "p99_wait": "P99 wait"}
SPREADS = ("median_percent", "p95_percent", "worst_percent")
TITLES = {
    "bjorklund_elldin": r"Bj\"orklund--Elldin",
    "boxma_cohen_huffels": "Boxma--Cohen--Huffels",
    "cosmetatos": "Cosmetatos",
    "dispersion": r"\emph{dispersion}",
    "fast_server": r"\emph{fast server}",
    "hayward": r"\emph{dispersion, simpler tail}",
    "kimura": "Kimura",
    "lee_longton": "Lee--Longton",
    "mphc": "M/H$_2$/c, three moments",
    "takahashi": "Takahashi",
    "tijms_van_hoorn_federgruen": "Tijms--van Hoorn--Federgruen",
    "whitt_1993": "Whitt 1993",
}
"""Name of a law in print; this project's in italics."""

Rows = Sequence[Mapping[str, str]]


def table(rows: Rows) -> str:
    """The LaTeX tabular of the rows of accuracy.csv, the best P99 first, the default in bold."""
    found = {
        (r["law"], r["statistic"]): [*(float(r[k]) for k in SPREADS), float(r["cells"])]
        for r in rows
        if r["regime"] == GRID
    }
    lines = [_line(law, found) for law in reversed(spreads(rows, "p99_wait"))]
    groups = " & ".join(rf"\multicolumn{{3}}{{c}}{{{name} (\%)}}" for name in STATISTICS.values())
    rules = "".join(rf"\cmidrule(lr){{{first}-{first + 2}}}" for first in (3, 6, 9))
    columns = " & ".join(["law", "cases", *["median & 95th & worst"] * len(STATISTICS)])
    return "\n".join(
        [
            r"\begin{tabular}{lr" + "rrr" * len(STATISTICS) + "}",
            r"\toprule",
            rf" & & {groups} \\ {rules}",
            rf"{columns} \\ \midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _line(law: str, found: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """A law: cases, then three numbers per statistic."""
    cells = [TITLES[law], f"{found[law, 'mean_wait'][-1]:.0f}"]
    for statistic in STATISTICS:
        cells += [percent(value) for value in found[law, statistic][:-1]]
    if law == default():
        cells = [rf"\textbf{{{cell}}}" for cell in cells]
    return " & ".join(cells) + r" \\"


def percent(value: float) -> str:
    """Two digits.

    >>> percent(0.0561), percent(0.299), percent(5.64), percent(83.1)
    ('0.056', '0.30', '5.6', '83')
    """
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:#.2g}"


def main(folder: Path = ROOT / "paper" / "generated", results: Path = RESULTS) -> None:
    """Write the table to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    text = table(read_csv(results / "accuracy.csv"))
    (folder / f"{NAME}.tex").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
