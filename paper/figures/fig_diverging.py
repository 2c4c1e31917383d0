"""Requests that wait for a decode slot, over time, in a published fleet and in larger ones.

    python paper/figures/fig_diverging.py

Reads experiments/simulator; writes paper/generated/fig_diverging.pdf and .png.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import yaml
from experiments.results import numbers, read_csv

from pdalloc.report import style

ROOT = Path(__file__).resolve().parents[2]
NAME = "fig_diverging"
CASE = ROOT / "experiments" / "simulator"
BACKLOG, FLEETS = "diverging_backlog.csv", "diverging_fleets.csv"
PANELS = {
    "mean": "every request {prompt_tokens} + {output_tokens} tokens",
    "azure": "lengths of the published Azure law",
}
"""Lengths -> title of its panel."""
COLOURS = {3: style.VERMILLION, 4: style.ORANGE, 5: style.BLUE, 6: style.GREEN}
"""By decode replicas."""
PER_THOUSAND, TICKS = 1e-3, 5

Rows = list[dict[str, str]]


def draw(results: Path = CASE / "results", published: Path = CASE / "fleet_sim.yaml") -> Any:
    """The figure, from the CSVs in ``results``: a panel per law of lengths, a line per fleet."""
    backlog, fleets = read_csv(results / BACKLOG), read_csv(results / FLEETS)
    peer = yaml.safe_load(published.read_text(encoding="utf-8"))
    with style.styled():
        figure, grid = style.new_figure(style.COLUMN_WIDTH, 3.6, rows=len(PANELS))
        for (lengths, title), axes in zip(PANELS.items(), grid[:, 0], strict=True):
            axes.set_ylim(*_limits(backlog))
            mine = [row for row in backlog if row["lengths"] == lengths]
            _panel(axes, mine, [row for row in fleets if row["lengths"] == lengths])
            axes.set_yticks(range(0, math.floor(axes.get_ylim()[1]) + 1, TICKS))
            axes.set_title(title.format(**peer["case"]), loc="left", pad=3, fontweight="bold")
        for axes in grid[:-1, 0]:
            axes.tick_params(labelbottom=False)
        grid[-1, 0].set_xlabel("time (s)")
        figure.supylabel("waiting for decode (thousands)", fontsize=style.RC["axes.labelsize"])
        figure.suptitle(_answer(peer), x=0.02, ha="left", fontsize=6.5, color=style.GREY)
        style.settle(figure)
    return figure


def _answer(peer: Any) -> str:
    """What the other planner says of its fleet."""
    answer = peer["answer"]
    return (
        f"published for {peer['case']['rate_req_per_s']} requests/s:"
        f" {answer['prefill_replicas']}P{answer['decode_replicas']}D,"
        f" serves {answer['capacity_req_per_s']:g} requests/s,\n"
        f"TTFT {answer['ttft_ms']} ms, TPOT {answer['tpot_ms']} ms. Simulated with its constants;\n"
        "by each line how fast it grows, or TPOT where it is stable"
    )


def _panel(axes: Any, backlog: Rows, fleets: Rows) -> None:
    """The lines of one law of lengths, a name at the end of each."""
    axes.set_xlim(0.0, max(numbers(backlog, "time_s")))
    for fleet in fleets:
        replicas = fleet["decode_replicas"]
        rows = [row for row in backlog if row["decode_replicas"] == replicas]
        time = numbers(rows, "time_s")
        waiting = [PER_THOUSAND * count for count in numbers(rows, "waiting_requests")]
        colour = COLOURS[int(replicas)]
        axes.plot(time, waiting, color=colour, clip_on=False)
        style.name_end(axes, time[-1], waiting[-1], _name(fleet), color=colour)


def _name(fleet: dict[str, str]) -> str:
    """Decode replicas, and how fast the queue grows or, if it does not, mean TPOT."""
    if fleet["stable"] == "yes":
        return f"{fleet['decode_replicas']}D {float(fleet['tpot_mean_ms']):.0f} ms"
    return f"{fleet['decode_replicas']}D +{float(fleet['growth_req_per_s']):.0f}/s"


def _limits(backlog: Rows) -> tuple[float, float]:
    """The same vertical axis for all panels, thousands of requests."""
    top = PER_THOUSAND * max(numbers(backlog, "waiting_requests"))
    return -0.02 * top, 1.02 * top


def main(folder: Path = ROOT / "paper" / "generated", results: Path = CASE / "results") -> None:
    """Write the figure as PDF and PNG to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(results)
    for kind in ("pdf", "png"):
        (folder / f"{NAME}.{kind}").write_bytes(style.figure_bytes(figure, kind))


if __name__ == "__main__":
    main()
