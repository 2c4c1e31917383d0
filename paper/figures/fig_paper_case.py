"""TTFT and TPOT of the paper's case against demand: predictions, and its cluster's points.

    python paper/figures/fig_paper_case.py

Reads experiments/paper_2603_04716; writes paper/generated/fig_paper_case.pdf and .png.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from experiments.results import numbers, read_csv

from pdalloc.report import style

ROOT = Path(__file__).resolve().parents[2]
NAME = "fig_paper_case"
CASE = ROOT / "experiments" / "paper_2603_04716"
DECODE = {"3P3D": ("3D", style.ORANGE), "4P4D": ("4D", style.BLUE), "4P5D": ("5D", style.GREEN)}
PREFILL = {"3P4D": "3P", "4P4D": "4P"}
"""Fleets drawn: TTFT depends on the prefill replicas alone, TPOT on the decode replicas."""
POINTS = {"3P3D": style.ORANGE, "3P4D": style.BLUE}
FITTED = "3P3D"
DASHES: dict[str, Any] = {"bench_curve": "-", "calibrated": (0, (3.2, 1.4))}
DEMANDS, TTFT_S, TPOT_MS = (3.3, 5.75), (0.0, 4.3), (14.0, 26.0)
"""Limits of the axes."""

Rows = list[dict[str, str]]


def draw(case: Path = CASE) -> Any:
    """The figure, from the results and measured points under ``case``."""
    results, measured = case / "results", read_csv(case / "measured.csv")
    sweep = read_csv(results / "sweep.csv")
    demand = numbers(read_csv(results / "fleets.csv"), "demand_mtoken_per_min")[0]
    bounds = {row["metric"]: float(row["bound_s"]) for row in read_csv(results / "simulated.csv")}
    with style.styled():
        figure, grid = style.new_figure(style.COLUMN_WIDTH, 4.3, rows=2)
        upper, lower = grid[:, 0]
        _frame(upper, TTFT_S, bounds["ttft"], demand)
        _frame(lower, TPOT_MS, 1e3 * bounds["tpot"], demand)
        _ttft(upper, sweep, measured)
        _tpot(lower, sweep, measured)
        upper.tick_params(labelbottom=False)
        lower.set_xlabel("demand (Mtoken/min, prompt + output)")
        figure.legend(handles=_handles(), loc="outside upper left", ncols=2, handlelength=2.2)
    return figure


def _frame(axes: Any, limits: tuple[float, float], bound: float, demand: float) -> None:
    """Limits, the SLO dashed, and the demand to be served dotted."""
    axes.set_xlim(*DEMANDS)
    axes.set_ylim(*limits)
    axes.axhline(bound, color=style.GREY, lw=0.7, ls=(0, (6, 4)), zorder=1)
    axes.axvline(demand, color=style.GREY, lw=0.7, ls=":", zorder=1)
    at: dict[str, Any] = {"textcoords": "offset points", "color": style.GREY, "fontsize": 6.5}
    axes.annotate("SLO", (DEMANDS[1], bound), (-2, 2), ha="right", va="bottom", **at)
    axes.annotate("demand", (demand, limits[0]), (2, 2), ha="left", va="bottom", **at)


def _curve(sweep: Rows, variant: str, fleet: str, column: str) -> tuple[Any, Any]:
    rows = [row for row in sweep if row["variant"] == variant and row["fleet"] == fleet]
    return np.array(numbers(rows, "demand_mtoken_per_min")), np.array(numbers(rows, column))


def _ttft(axes: Any, sweep: Rows, measured: Rows) -> None:
    for fleet, name in PREFILL.items():
        x, y = _curve(sweep, "bench_curve", fleet, "ttft_mean_s")
        axes.plot(x, y, color=style.BLACK, lw=1.2)
        _name(axes, x, y, name, style.BLACK)
    _points(axes, measured, "ttft_mean_s")
    axes.set_ylabel("mean TTFT (s)")


def _tpot(axes: Any, sweep: Rows, measured: Rows) -> None:
    for fleet, (name, colour) in DECODE.items():
        for variant, dashes in DASHES.items():
            x, y = _curve(sweep, variant, fleet, "tpot_mean_ms")
            axes.plot(x, y, ls=dashes, color=colour, lw=1.2)
            _name(axes, x, y, name, colour)
    _points(axes, measured, "tpot_mean_ms")
    axes.set_ylabel("mean TPOT (ms)")


def _name(axes: Any, x: Any, y: Any, name: str, colour: str) -> None:
    """Write ``name`` where a rising curve leaves the axes, by the top or by the right."""
    seen, top = np.isfinite(y), axes.get_ylim()[1]
    leaves = float(np.interp(top, y[seen], x[seen]))
    by_top = leaves < DEMANDS[1]
    at = (leaves, top) if by_top else (DEMANDS[1], float(np.interp(DEMANDS[1], x[seen], y[seen])))
    axes.annotate(
        name,
        at,
        (0, 2) if by_top else (3, 0),
        textcoords="offset points",
        ha="center" if by_top else "left",
        va="bottom" if by_top else "center",
        color=colour,
        annotation_clip=False,
    )


def _points(axes: Any, measured: Rows, column: str) -> None:
    for fleet in POINTS:
        rows = [row for row in measured if row["fleet"] == fleet]
        x, y = numbers(rows, "demand_mtoken_per_min"), numbers(rows, column)
        axes.plot(x, y, ls="", zorder=4, **_marker(fleet))


def _marker(fleet: str) -> dict[str, Any]:
    face = "white" if fleet == FITTED else POINTS[fleet]
    return {"marker": "o", "ms": 4.2, "mew": 1.0, "mec": POINTS[fleet], "mfc": face}


def _handles() -> list[Any]:
    """What dashes and markers mean."""
    from matplotlib.lines import Line2D

    grey: dict[str, Any] = {"color": style.GREY, "lw": 1.2}
    return [
        Line2D([], [], ls=DASHES["bench_curve"], label="predicted, benchmark", **grey),
        Line2D([], [], ls=DASHES["calibrated"], label="predicted, calibrated", **grey),
        Line2D([], [], ls="", label="measured 3P3D (fitted)", **_marker("3P3D")),
        Line2D([], [], ls="", label="measured 3P4D", **_marker("3P4D")),
    ]


def main(folder: Path = ROOT / "paper" / "generated", case: Path = CASE) -> None:
    """Write the figure as PDF and PNG to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(case)
    for kind in ("pdf", "png"):
        (folder / f"{NAME}.{kind}").write_bytes(style.figure_bytes(figure, kind))


if __name__ == "__main__":
    main()
