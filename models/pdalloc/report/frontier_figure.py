"""The figure of a frontier: a staircase of the least cost with the fleet at each corner."""

from __future__ import annotations

from typing import Any

import numpy as np

from pdalloc.planning.frontier import DEMAND
from pdalloc.planning.frontier_answer import FrontierAnswer, Stretch
from pdalloc.report import style
from pdalloc.report.frontier_table import axis_words

WIDTH, HEIGHT = style.PAGE_WIDTH * 0.72, 2.9
TICKS = (1, 2, 3, 5, 7)


def frontier_figure(answer: FrontierAnswer) -> Any:
    """matplotlib Figure: cost (USD/hour) against the bound (log axis) or the demand."""
    scale, unit = _unit(answer)
    with style.styled():
        figure, ((axes,),) = style.new_figure(WIDTH, HEIGHT)
        x = np.array([p.value for p in answer.points]) * scale
        y = np.array([p.cost_usd_per_hour for p in answer.points], float)
        axes.step(x, y, where="post", color=style.BLACK, zorder=3)
        if answer.over != DEMAND:
            axes.set_xscale("log")
        axes.set_xlim(x[0], x[-1] if len(x) > 1 else x[0] * 1.1)
        known = y[np.isfinite(y)]
        axes.set_ylim(0.0, 1.12 * known.max() if known.size else 1.0)
        _log_ticks(axes, answer)
        _no_fleet(axes, answer, scale)
        axes.set_xlabel(f"{axis_words(answer)} ({unit})")
        axes.set_ylabel("least cost (USD/hour)")
        _labels(axes, answer, scale)
    return figure


def _unit(answer: FrontierAnswer) -> tuple[float, str]:
    """(factor, unit) of the horizontal axis."""
    if answer.over != DEMAND:
        return (1e3, "ms") if answer.here < 1.0 else (1.0, "s")
    per_minute = 60.0 * answer.tokens_per_request
    large = answer.here * per_minute >= 1e5
    return per_minute / (1e6 if large else 1e3), "Mtoken/min" if large else "ktoken/min"


def _log_ticks(axes: Any, answer: FrontierAnswer) -> None:
    if answer.over == DEMAND:
        return
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_xlim()
    places = [d * 10.0**k for k in range(-3, 6) for d in TICKS if low <= d * 10.0**k <= high]
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _no_fleet(axes: Any, answer: FrontierAnswer, scale: float) -> None:
    for stretch in answer.stretches:
        if stretch.point.cost_usd_per_hour is not None:
            continue
        low, high = stretch.start * scale, stretch.end * scale
        axes.axvspan(low, high, color=style.PALE, alpha=0.4, lw=0)
        middle = (low * high) ** 0.5 if axes.get_xscale() == "log" else 0.5 * (low + high)
        axes.text(
            middle, 0.5, "no fleet", transform=axes.get_xaxis_transform(), rotation=90,
            ha="center", va="center", color=style.GREY,
        )  # fmt: skip


def _labels(axes: Any, answer: FrontierAnswer, scale: float) -> None:
    """The scenario's own value, then the fleets of the stretches, widest on paper first."""
    own = _own(answer)
    here = answer.here * scale
    if own is not None:
        cost = own.point.cost_usd_per_hour or 0.0
        axes.plot([here, here], [0.0, cost], color=style.VERMILLION, lw=0.8, ls=":", zorder=2)
        axes.plot(here, cost, "o", color=style.VERMILLION, ms=4, zorder=4, clip_on=False)
    style.settle(axes.figure)
    space = style.LabelSpace(axes)
    if own is not None:
        words = f"{own.point.xpyd}, {own.point.cost_usd_per_hour:,.2f} USD/h"
        spots: list[tuple[float, float]] = [(6, -10), (-6, -10), (6, -24), (-6, -24), (6, 8)]
        space.place(words, here, cost, spots, force=True, color=style.VERMILLION, fontsize=7.0)
    for stretch in sorted(answer.stretches, key=lambda s: -_width(axes, s, scale)):
        if stretch is own or stretch.point.cost_usd_per_hour is None or stretch == own:
            continue
        x, y = stretch.start * scale, stretch.point.cost_usd_per_hour
        near: list[tuple[float, float]] = [(3, 2.5), (3, -2.5), (-3, -2.5), (-3, 2.5)]
        space.place(str(stretch.point.xpyd), x, y, near, fontsize=6.5)


def _own(answer: FrontierAnswer) -> Stretch | None:
    """The stretch that holds the scenario's own value, where there is a fleet."""
    if not answer.points or not answer.points[0].value <= answer.here <= answer.points[-1].value:
        return None
    before = [s for s in answer.stretches if s.start <= answer.here]
    return before[-1] if before and before[-1].point.fleet is not None else None


def _width(axes: Any, stretch: Stretch, scale: float) -> float:
    """Inches-like width of a stretch on the axis."""
    ends = np.array([[stretch.start * scale, 0.0], [stretch.end * scale, 0.0]])
    return float(np.diff(axes.transData.transform(ends)[:, 0])[0])
