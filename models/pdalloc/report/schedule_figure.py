"""The figure of a schedule: GPUs by type over the day, in each role, with the demand."""

from __future__ import annotations

from typing import Any

import numpy as np

from pdalloc.fleet import ROLES
from pdalloc.planning.schedule_answer import ScheduleAnswer
from pdalloc.report import style

WIDTH, HEIGHT = style.PAGE_WIDTH * 0.8, 3.4
ROOM = 1.15
"""Height of an axis, relative to what is drawn."""
FEW_HOURS = (1, 2, 3, 4, 6, 12, 24, 48)
"""Steps between ticks of the time axis."""


def schedule_figure(answer: ScheduleAnswer) -> Any:
    """matplotlib Figure: one panel per role, GPUs stacked by replica type; the demand on top."""
    start = np.array([p.start_hour for p in answer.periods])
    edges = np.append(start, start[-1] + answer.periods[-1].hours)
    demand = np.array([p.demand_requests_per_s for p in answer.periods])
    with style.styled():
        figure, axes = style.new_figure(WIDTH, HEIGHT, len(ROLES), 1)
        for k, role in enumerate(ROLES):
            panel = axes[k, 0]
            _gpus(panel, answer, role, edges)
            _demand(panel, edges, demand)
            panel.set_ylabel(f"{role} GPUs")
            _hours(panel, edges)
            if k + 1 < len(ROLES):
                panel.set_xticklabels([])
        axes[-1, 0].set_xlabel("hour")
    return figure


def _gpus(panel: Any, answer: ScheduleAnswer, role: str, edges: np.ndarray) -> None:
    """Stacked bars as wide as the periods."""
    pools = [p for period in answer.periods for p in period.pools if p.role == role]
    types = {p.replica_type: p for p in pools}
    colours = _colours(answer)
    bottom = np.zeros(len(answer.periods))
    for name, pool in types.items():
        counts = [
            sum(p.replicas for p in period.pools if (p.role, p.replica_type) == (role, name))
            for period in answer.periods
        ]
        gpus = np.array(counts) * pool.gpus_per_replica
        panel.bar(
            edges[:-1], gpus, np.diff(edges), bottom, align="edge", color=colours[name],
            edgecolor="white", linewidth=0.3, label=name,
        )  # fmt: skip
        bottom += gpus
    panel.set_xlim(edges[0], edges[-1])
    panel.set_ylim(0.0, ROOM * bottom.max())
    panel.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=max(len(types), 1), borderaxespad=0.1,
        handlelength=1.0, columnspacing=1.2,
    )  # fmt: skip


def _colours(answer: ScheduleAnswer) -> dict[str, str]:
    """A colour per replica type: that of its GPU where types and GPUs are as many."""
    pools = [p for period in answer.periods for p in period.pools]
    types = {p.replica_type: p.gpu for p in pools}
    if len(set(types.values())) == len(types):
        colours = style.gpu_colours(types.values())
        return {name: colours[gpu] for name, gpu in types.items()}
    return style.gpu_colours(types)


def _demand(panel: Any, edges: np.ndarray, demand: np.ndarray) -> None:
    """Requests/s as a step line on an axis of its own; as high as the GPUs at its peak."""
    right = panel.twinx()
    right.step(edges, np.append(demand, demand[-1]), where="post", color=style.BLACK, lw=1.0)
    right.set_ylim(0.0, ROOM * demand.max())
    right.set_ylabel("demand (req/s)")
    right.spines["right"].set_visible(True)


def _hours(panel: Any, edges: np.ndarray) -> None:
    span = edges[-1] - edges[0]
    step = next((s for s in FEW_HOURS if span / s <= 8), FEW_HOURS[-1])
    panel.set_xticks(np.arange(edges[0], edges[-1] + 1e-9, step))
