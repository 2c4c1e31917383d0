"""The figure of a simulated fleet: who waits how long, and where requests are over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pdalloc.report import style
from pdalloc.report.simulation_table import STAGE_NAMES
from pdalloc.simulation.summary import queue_lengths

if TYPE_CHECKING:
    from pdalloc.planning.simulation import Simulation

METRICS = ("ttft", "tpot", "e2e")
POINTS = 400
"""Places on a curve."""
RAREST = 1e-3
"""Share of requests down to which the tail is drawn; fewer are few in one replication."""
STAGE_COLOURS = {
    "queue_prefill": style.SKY,
    "in_prefill": style.BLUE,
    "in_transfer": style.GREEN,
    "queue_decode": style.ORANGE,
    "in_decode": style.VERMILLION,
}
CLASS_LINES = ("-", "--", "-.", ":")


def simulation_figure(simulation: Simulation) -> Any:
    """matplotlib Figure of the first replication.

    Panels: share of requests slower than x for TTFT, TPOT and E2E with the bounds on them, and
    the number of requests in each stage over time.
    """
    with style.styled():
        figure, ((ttft, tpot), (e2e, stages)) = style.new_figure(style.PAGE_WIDTH, 4.2, 2, 2)
        for axes, metric in zip((ttft, tpot, e2e), METRICS, strict=True):
            _tail(axes, simulation, metric)
        _stages(stages, simulation)
        handles, names = stages.get_legend_handles_labels()
        stages.legend(handles, names, loc="upper left", ncols=2, columnspacing=1.0)
        style.settle(figure)
    return figure


def _tail(axes: Any, simulation: Simulation, metric: str) -> None:
    """Share of requests slower than x, on a logarithmic scale; bounds where they are asked."""
    answer, log = simulation.answer, simulation.log
    classes = list(dict.fromkeys(row.traffic_class for row in answer.latencies))
    values = getattr(log, metric)
    for q, name in enumerate(classes):
        mine = np.sort(values[(log.traffic_class == q) & np.isfinite(values)])
        if len(mine):
            share = np.geomspace(1.0, max(RAREST, 1.0 / len(mine)), POINTS)
            line = CLASS_LINES[q % len(CLASS_LINES)]
            slower = np.quantile(mine, 1.0 - share)
            axes.plot(slower, share, line, color=style.BLACK, label=name)
    for slo in answer.slos:
        if slo.metric == metric:
            name = slo.statistic if slo.statistic == "mean" else slo.statistic.upper()
            whose = f"{name} {slo.traffic_class}" if len(classes) > 1 else name
            _bound(axes, slo.bound_s, slo.statistic, whose)
    for joint in answer.joint_slos:
        if metric in joint.within_s:
            name = f"{100.0 * joint.share:g} % joint"
            whose = f"{name} {joint.traffic_class}" if len(classes) > 1 else name
            _bound(axes, joint.within_s[metric], f"p{100.0 * joint.share:g}", whose)
    axes.set_yscale("log")
    axes.set_ylim(RAREST, 1.0)
    axes.set_xlim(left=0.0)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(f"{metric.upper()} (s)")
    axes.set_ylabel("share of requests slower")
    if len(classes) > 1:
        axes.legend(loc="upper right")


def _bound(axes: Any, seconds: float, statistic: str, name: str) -> None:
    """A vertical line; for a percentile a dot where the curve must be left of or below.

    A dot below what is drawn of the tail is left out.
    """
    axes.axvline(seconds, color=style.VERMILLION, lw=0.8)
    share = 0.0 if statistic == "mean" else 1.0 - float(statistic[1:]) / 100.0
    if share >= RAREST * (1.0 - 1e-9):
        axes.plot([seconds], [share], "o", ms=3.5, color=style.VERMILLION, clip_on=False)
    axes.annotate(
        name,
        (seconds, 1.0),
        (0.0, 2.0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        color=style.VERMILLION,
        fontsize=6.5,
    )


def _stages(axes: Any, simulation: Simulation) -> None:
    """Requests in each stage, those that are ever more than a hundredth of the most."""
    log = simulation.log
    at = np.linspace(log.arrival[0], log.arrival[-1], POINTS)
    series = queue_lengths(log, at)
    most = max(1, max(int(numbers.max()) for numbers in series.values()))
    for stage, numbers in series.items():
        if numbers.max() >= 0.01 * most:
            axes.plot(at, numbers, color=STAGE_COLOURS[stage], lw=0.8, label=STAGE_NAMES[stage])
    axes.set_xlim(at[0], at[-1])
    axes.set_ylim(0, 1.35 * most)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("requests")
