"""The figure of a comparison: what each solver's fleet costs, and how long it took."""

from __future__ import annotations

import math
from typing import Any

from pdalloc.planning.compare import CompareAnswer, SolverAnswer
from pdalloc.report import style
from pdalloc.report.compare_table import gap

ROW, MARGIN = 0.23, 0.62
"""Inches per solver, and for the axes around them."""
COLOURS = {"optimal": style.BLUE, "feasible": style.SKY, "breaks": style.VERMILLION}
WORDS = {
    "optimal": "proven optimal",
    "feasible": "keeps every SLO",
    "breaks": "breaks an SLO, or the stock",
}
LEAST_SECONDS = 1e-3


def compare_figure(answer: CompareAnswer) -> Any:
    """matplotlib Figure: cost bars with fleet and gap, and solve times on a log axis."""
    rows = answer.solvers
    with style.styled():
        height = MARGIN + ROW * max(len(rows), 3)
        figure, ((left, right),) = style.new_figure(style.PAGE_WIDTH, height, 1, 2)
        left.get_gridspec().set_width_ratios([3.2, 1.0])
        _costs(left, answer)
        _times(right, rows)
        for axes in (left, right):
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_yticks(range(len(rows)))
        left.set_yticklabels([row.solver for row in rows])
        right.set_yticklabels([])
    return figure


def _costs(axes: Any, answer: CompareAnswer) -> None:
    rows = answer.solvers
    most = max((row.cost_usd_per_hour or 0.0 for row in rows), default=0.0) or 1.0
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    look: dict[str, Any] = {"va": "center", "fontsize": 6.5, "bbox": paper}
    for i, row in enumerate(rows):
        if row.fleet is None or row.cost_usd_per_hour is None:
            words = "refuses this problem" if row.status == "refused" else "finds no fleet"
            axes.text(0.01 * most, i, words, color=style.GREY, **look)
            continue
        cost, broken = row.cost_usd_per_hour, row.status == "breaks"
        fill = {"facecolor": "none", "hatch": "////", "lw": 0.8} if broken else {"lw": 0}
        colour = COLOURS[row.status]
        axes.barh(i, cost, height=0.66, **({"color": colour} | fill | {"edgecolor": colour}))
        axes.text(cost + 0.016 * most, i, _label(row), **look)
    if answer.bound_usd_per_hour is not None:
        axes.axvline(answer.bound_usd_per_hour, color=style.BLACK, lw=0.8, ls=(0, (5, 3)))
    axes.set_xlim(0.0, 1.32 * most)
    axes.set_xlabel("cost (USD/hour); dashed: proven least" if answer.proven else "cost (USD/hour)")
    _legend(axes, rows)


def _label(row: SolverAnswer) -> str:
    return f"{row.xpyd}, {gap(row)}" if row.gap is not None and gap(row) != "0" else str(row.xpyd)


def _legend(axes: Any, rows: list[SolverAnswer]) -> None:
    from matplotlib.patches import Patch

    seen = {row.status for row in rows if row.fleet is not None}
    handles = [
        Patch(facecolor="none" if s == "breaks" else c, edgecolor=c, label=WORDS[s],
              hatch="////" if s == "breaks" else None, lw=0.8)
        for s, c in COLOURS.items() if s in seen
    ]  # fmt: skip
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2,
        handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip


def _times(axes: Any, rows: list[SolverAnswer]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    timed = {i: max(r.seconds, LEAST_SECONDS) for i, r in enumerate(rows) if r.seconds}
    axes.plot(list(timed.values()), list(timed), "o", color=style.BLACK, ms=3.5)
    axes.set_xscale("log")
    low = math.floor(math.log10(min(timed.values(), default=0.1)))
    high = max(math.ceil(math.log10(max(timed.values(), default=0.1))), low + 2)
    decades = range(low, high + 1)
    axes.set_xlim(10.0**low, 10.0**high)
    axes.xaxis.set_major_locator(FixedLocator([10.0**k for k in decades]))
    axes.xaxis.set_major_formatter(FixedFormatter([_tick(k) for k in decades]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("time")
    axes.grid(axis="x", color=style.PALE, lw=0.4)


def _tick(power: int) -> str:
    """``10 ms``, ``1 s``."""
    return f"{10**power} s" if power >= 0 else f"{10 ** (power + 3):g} ms"
