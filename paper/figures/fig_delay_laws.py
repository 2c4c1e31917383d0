"""How far delay laws are from simulation and exact values, and what dispatch costs.

    python paper/figures/fig_delay_laws.py

Reads experiments/delay_laws/results and the simulated waits in tests/data/queueing; writes
paper/generated/fig_delay_laws.pdf and .png.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from experiments.delay_laws.services import service
from experiments.results import numbers, read_csv

from pdalloc.fleet import Dispatch
from pdalloc.queueing.delay_laws import all_laws, delay_law
from pdalloc.queueing.station import Station
from pdalloc.report import style

ROOT = Path(__file__).resolve().parents[2]
NAME = "fig_delay_laws"
RESULTS = ROOT / "experiments" / "delay_laws" / "results"
GRIDS = ROOT / "tests" / "data" / "queueing"
GRID = "whole M/G/c grid"
OWN = {"dispersion", "fast_server", "hayward"}
"""Laws whose mean at many servers is this project's."""
TITLES = {
    "bjorklund_elldin": "Björklund-Elldin", "boxma_cohen_huffels": "Boxma-Cohen-Huffels",
    "cosmetatos": "Cosmetatos", "dispersion": "dispersion", "fast_server": "fast server",
    "hayward": "dispersion, simpler tail", "kimura": "Kimura", "lee_longton": "Lee-Longton",
    "mphc": "M/H$_2$/c fit, SCV > 1", "takahashi": "Takahashi",
    "tijms_van_hoorn_federgruen": "Tijms et al.", "whitt_1993": "Whitt",
}  # fmt: skip
"""Name of a law in print; Hayward's, at Poisson arrivals, is what it says here."""
WAITS = {"mean_wait": "mean wait", "p99_wait": "P99 wait"}
LOG_LIMITS = (0.15, 130.0)
DECODE = {
    "fluid_mean_tpot": ("fluid law, mean TPOT", style.VERMILLION),
    "mean_tpot": ("batch law, mean TPOT", style.BLUE),
    "itl_p99": ("batch law, P99 ITL", style.SKY),
}
"""Statistic -> its name and colour."""
BASES = (10.0, 40.0, 200.0)
SERVICE, UTILISATION, SERVERS = "EMP", 0.8, {4: style.GREEN, 16: style.PURPLE}
"""Of the pools whose dispatch is compared; servers by colour."""

Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Spread:
    """|error| of a law over a grid, percent."""

    median: float
    p95: float
    worst: float


@dataclass(frozen=True)
class Compared:
    """Mean wait of a pool under a dispatch rule by its law and simulated, mean services."""

    dispatch: Dispatch
    servers: int
    law: float
    simulated: float


def spreads(rows: Sequence[Mapping[str, str]], statistic: str) -> dict[str, Spread]:
    """Approximations by name, from rows of accuracy.csv; the least 95th percentile last."""
    found = {
        row["law"]: Spread(*(float(row[f"{k}_percent"]) for k in ("median", "p95", "worst")))
        for row in rows
        if (row["regime"], row["statistic"]) == (GRID, statistic)
        and not all_laws()[row["law"]].exact
    }
    return dict(sorted(found.items(), key=lambda item: -item[1].p95))


def default() -> str:
    """The law that M/G/c gets."""
    return delay_law(Station(UTILISATION * 4, service(SERVICE), 4)).name


def compared(grids: Path = GRIDS) -> list[Compared]:
    """Every dispatch rule at each number of servers."""
    rows = read_csv(grids / "dispatch_grid.csv") + [
        row | {"dispatch": "central_queue", "ca2": "1"} for row in read_csv(grids / "mgc_grid.csv")
    ]
    mine = [r for r in rows if r["dist"] == SERVICE and float(r["ca2"]) == 1.0]
    known = {(r["dispatch"], int(r["c"])): r["EW"] for r in mine if float(r["rho"]) == UTILISATION}
    found = []
    for dispatch in get_args(Dispatch):
        for c in SERVERS:
            at = Station(UTILISATION * c, service(SERVICE), c, dispatch=dispatch)
            law = delay_law(at).mean_wait
            found.append(Compared(dispatch, c, law, float(known[dispatch, c])))
    return found


def draw(results: Path = RESULTS, grids: Path = GRIDS) -> Any:
    """The figure, from the CSVs in ``results`` and ``grids``."""
    accuracy, cells = read_csv(results / "accuracy.csv"), read_csv(results / "decode_cells.csv")
    with style.styled():
        figure, grid = style.new_figure(style.PAGE_WIDTH, 4.4, 2, 2)
        order = list(spreads(accuracy, "p99_wait"))
        for axes, statistic in zip(grid[0], WAITS, strict=True):
            _rivals(axes, spreads(accuracy, statistic), order)
            axes.set_xlabel(f"error of {WAITS[statistic]} (%)")
        grid[0, 1].tick_params(labelleft=False)
        cases = f"2 to 200 servers, one queue, {_cells(accuracy)} cases"
        _title(grid[0, 0], "a", f"{cases}: median, 95th percentile, worst")
        _decode(grid[1, 0], cells)
        _title(grid[1, 0], "b", "decode pools against simulation")
        _dispatch(grid[1, 1], compared(grids))
        _title(grid[1, 1], "c", f"what dispatch costs at utilisation {UTILISATION:g}")
    return figure


def _cells(accuracy: Sequence[Mapping[str, str]]) -> int:
    """Cases of the grid."""
    return max(int(row["cells"]) for row in accuracy if row["regime"] == GRID)


def _title(axes: Any, letter: str, words: str) -> None:
    axes.set_title(f"({letter}) {words}", loc="left", pad=4, fontweight="bold")


def _rivals(axes: Any, found: Mapping[str, Spread], order: Sequence[str]) -> None:
    """A line per law from median to worst, a mark at each of the three."""
    axes.set_xscale("log")
    axes.set_xlim(*LOG_LIMITS)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_xticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.grid(axis="x", color=style.PALE, lw=0.4, alpha=0.6)
    axes.set_yticks(range(len(order)), [TITLES[law] for law in order])
    axes.tick_params(axis="y", length=0)
    for y, law in enumerate(order):
        at = found[law]
        colour = style.BLUE if law == default() else style.BLACK
        axes.plot([at.median, at.worst], [y, y], color=colour, lw=0.7, zorder=2)
        axes.plot([at.median, at.p95], [y, y], color=colour, lw=2.2, zorder=2)
        axes.plot(at.median, y, "o", ms=4.0, mfc="white", mec=colour, mew=1.0, zorder=3)
        axes.plot(at.worst, y, "|", ms=5.0, color=colour, mew=1.0, zorder=3)
    for label, law in zip(axes.get_yticklabels(), order, strict=True):
        label.set_color(style.BLUE if law == default() else style.BLACK)
        label.set_fontstyle("italic" if law in OWN else "normal")


def _decode(axes: Any, cells: Rows) -> None:
    """A dot per cell, in columns by base over per-request time and statistic.

    Within a column the load grows to the right.
    """
    axes.axhline(0.0, color=style.GREY, lw=0.6, zorder=1)
    for i, base in enumerate(BASES):
        rows = [r for r in cells if r["family"] == "affine" and float(r["base"]) == base]
        for j, (statistic, (_, colour)) in enumerate(DECODE.items()):
            error = np.array(numbers(rows, f"{statistic}_error_percent"))
            load = np.array(numbers(rows, "rho"))
            x = i + 0.27 * (j - 1) + 0.2 * (load - load.mean())
            axes.plot(x, error, "o", ms=2.6, mfc=colour, mec="white", mew=0.25, zorder=2)
    axes.set_xticks(range(len(BASES)), [f"{base:g}" for base in BASES])
    axes.set_xlim(-0.5, len(BASES) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("base time of a step / time per request in it")
    axes.set_ylabel("error (%)")
    handles = [_mark(colour, name) for name, colour in DECODE.values()]
    axes.legend(handles=handles, loc="lower right", handletextpad=0.1, labelspacing=0.3)


def _dispatch(axes: Any, pools: Sequence[Compared]) -> None:
    """A row per rule: the law as an upright stroke, simulated as a dot."""
    rules = list(dict.fromkeys(p.dispatch for p in pools))[::-1]
    axes.set_xscale("log")
    axes.set_xlim(0.08, 12.0)
    axes.set_ylim(-0.6, len(rules) - 0.4)
    axes.grid(axis="x", color=style.PALE, lw=0.4, alpha=0.6)
    for pool in pools:
        colour = SERVERS[pool.servers]
        y = rules.index(pool.dispatch) + (0.17 if pool.servers == min(SERVERS) else -0.17)
        axes.plot(pool.simulated, y, "o", ms=4.5, color=colour, mec="none", zorder=2)
        axes.plot(pool.law, y, "|", ms=8.0, color=style.BLACK, mew=0.9, zorder=3)
    axes.set_yticks(range(len(rules)), [rule.replace("_", " ") for rule in rules])
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
    axes.minorticks_off()
    axes.set_xlabel("mean wait (mean services)")
    handles = [_mark(colour, f"simulated, {c} replicas") for c, colour in SERVERS.items()]
    handles.append(_mark(style.BLACK, "law", "|"))
    axes.legend(handles=handles, loc="upper left", handletextpad=0.1, labelspacing=0.3)


def _mark(colour: str, name: str, marker: str = "o") -> Any:
    """An entry of a legend."""
    from matplotlib.lines import Line2D

    size = 4.0 if marker == "o" else 7.0
    return Line2D([], [], ls="", color=colour, label=name, marker=marker, ms=size)


def main(folder: Path = ROOT / "paper" / "generated", results: Path = RESULTS) -> None:
    """Write the figure as PDF and PNG to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(results)
    for kind in ("pdf", "png"):
        (folder / f"{NAME}.{kind}").write_bytes(style.figure_bytes(figure, kind))


if __name__ == "__main__":
    main()
