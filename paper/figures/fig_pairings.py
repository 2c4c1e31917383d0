"""Which GPU prefills and which decodes, under each pair of bounds and for both traces.

    python paper/figures/fig_pairings.py

Reads experiments/mixed_fleet/results; writes paper/generated/fig_pairings.pdf and .png.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import read_csv

from pdalloc.report import style

ROOT = Path(__file__).resolve().parents[2]
NAME = "fig_pairings"
RESULTS = ROOT / "experiments" / "mixed_fleet" / "results"
GPUS = ("a100", "h100")
BARS = {"prefill": (0.62, "P"), "decode": (0.34, "D")}
"""Role -> foot of its bar within a cell of height 1, and its letter."""
LEFT, RIGHT, THICK, COST_AT = 0.13, 0.97, 0.24, 0.17
"""Ends and height of a bar, and height of the cost, within a cell."""

Row = Mapping[str, str]


def draw(results: Path = RESULTS) -> Any:
    """The figure, from pairings.csv in ``results``: a panel per trace, a cell per pair."""
    rows = read_csv(results / "pairings.csv")
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    with style.styled():
        figure, grid = style.new_figure(style.COLUMN_WIDTH, 1.6 * len(traces) + 0.5, len(traces))
        for trace, axes in zip(traces, grid[:, 0], strict=True):
            _panel(axes, [row for row in rows if row["trace"] == trace])
            axes.set_title(trace, loc="left", pad=3, fontweight="bold")
        for axes in grid[:-1, 0]:
            axes.tick_params(labelbottom=False)
        grid[-1, 0].set_xlabel("bound on mean TTFT (s)")
        figure.supylabel("bound on mean TPOT (ms)", fontsize=style.RC["axes.labelsize"])
        _legend(figure)
    return figure


def _panel(axes: Any, rows: list[Row]) -> None:
    """Cells in a grid: TTFT bounds along x, TPOT bounds along y."""
    ttfts = sorted({float(row["ttft_bound_s"]) for row in rows})
    tpots = sorted({float(row["tpot_mean_bound_ms"]) for row in rows})
    for row in rows:
        x = ttfts.index(float(row["ttft_bound_s"]))
        y = tpots.index(float(row["tpot_mean_bound_ms"]))
        _cell(axes, row, x, y)
    axes.set_xlim(0, len(ttfts))
    axes.set_ylim(0, len(tpots))
    axes.set_xticks([i + 0.5 for i in range(len(ttfts))], [f"{ttft:g}" for ttft in ttfts])
    axes.set_yticks([i + 0.5 for i in range(len(tpots))], [f"{tpot:g}" for tpot in tpots])
    axes.tick_params(length=0)
    for i in range(len(ttfts) + 1):
        axes.axvline(i, color=style.PALE, lw=0.6, clip_on=False)
    for i in range(len(tpots) + 1):
        axes.axhline(i, color=style.PALE, lw=0.6, clip_on=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _cell(axes: Any, row: Row, x: int, y: int) -> None:
    """A bar per role, split by the share of requests of each GPU; cost and saving below."""
    for role, (foot, letter) in BARS.items():
        counts = replicas(row["fleet"], role)
        left = x + LEFT
        for gpu, share in shares(row, role).items():
            width = (RIGHT - LEFT) * share
            colour = style.gpu_colours(GPUS)[gpu]
            axes.barh(y + foot, width, THICK, left=left, align="edge", color=colour, lw=0)
            left += width
        middle = y + foot + 0.5 * THICK
        axes.text(x + 0.07, middle - 0.01, letter, ha="center", va="center", color=style.GREY)
        words = " + ".join(f"{n} {gpu.upper()}" for gpu, n in sorted(counts.items()))
        at = x + 0.5 * (LEFT + RIGHT), middle - 0.01
        axes.text(*at, words, ha="center", va="center", fontsize=5.7)
    saving = float(row["saving_percent"])
    less = f" (−{saving:.1f} %)" if saving > 0.05 else ""
    cost = f"{float(row['cost_usd_per_hour']):.0f} USD/h{less}"
    axes.text(x + 0.5, y + COST_AT, cost, ha="center", va="center", fontsize=6.0)


def shares(row: Row, role: str) -> dict[str, float]:
    """Share of the role's requests per GPU, A100 first."""
    lead, share = row[f"{role}_gpu"], float(row[f"{role}_share_percent"]) / 100.0
    return {gpu: share if gpu == lead else 1.0 - share for gpu in GPUS}


def replicas(fleet: str, role: str) -> dict[str, int]:
    """Replicas per GPU in ``role`` of a fleet such as ``prefill/a100x8=12,decode/h100x8=10``."""
    found: dict[str, int] = {}
    for gpu, count in re.findall(rf"{role}/([a-z0-9]+?)x\d+=(\d+)", fleet):
        found[gpu] = found.get(gpu, 0) + int(count)
    return found


def _legend(figure: Any) -> None:
    """Colours of the bars."""
    from matplotlib.patches import Patch

    colours = style.gpu_colours(GPUS)
    handles = [Patch(color=colours[gpu], lw=0, label=gpu.upper()) for gpu in GPUS]
    title = "P prefill, D decode: share of requests, replicas of 8 GPUs;\n"
    title += "cost (change from the cheapest fleet of one GPU type)"
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=2,
        handlelength=1.2,
        title=title,
        title_fontsize=6.5,
        alignment="left",
    )


def main(folder: Path = ROOT / "paper" / "generated", results: Path = RESULTS) -> None:
    """Write the figure as PDF and PNG to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(results)
    for kind in ("pdf", "png"):
        (folder / f"{NAME}.{kind}").write_bytes(style.figure_bytes(figure, kind))


if __name__ == "__main__":
    main()
