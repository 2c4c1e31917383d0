"""The figure of a frontier: a staircase of the least cost with the fleet at each corner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pdalloc.fleet import ROLES
from pdalloc.planning.frontier import DEMAND
from pdalloc.planning.frontier_answer import FrontierAnswer, Stretch
from pdalloc.report import style
from pdalloc.report.frontier_table import axis_words

WIDTH, HEIGHT = style.PAGE_WIDTH * 0.72, 2.9
TICKS = ((1, 2, 5), (1, 2, 3, 5, 7), (*range(10, 20), *range(20, 100, 5)), tuple(range(10, 100)))
"""Mantissas of the ticks of a logarithmic axis, coarse to fine."""
FEW_TICKS = 4
NEAR = 0.5
"""Costs whose least exceeds this share of the greatest are shown without the zero."""


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
        axes.set_ylim(*_cost_limits(known))
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


def _cost_limits(costs: np.ndarray) -> tuple[float, float]:
    """Ends of the cost axis: from zero, unless the costs are all near each other."""
    if not costs.size:
        return 0.0, 1.0
    low, high = float(costs.min()), float(costs.max())
    if high > 0.0 and low > NEAR * high and high > low:
        return low - 0.35 * (high - low), high + 0.15 * (high - low)
    return 0.0, 1.12 * high or 1.0


def _log_ticks(axes: Any, answer: FrontierAnswer) -> None:
    if answer.over == DEMAND:
        return
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_xlim()
    for mantissas in TICKS:
        places = sorted({m * 10.0**k for m in mantissas for k in range(-4, 6)})
        places = [x for x in places if low * (1.0 - 1e-9) <= x <= high * (1.0 + 1e-9)]
        if len(places) >= FEW_TICKS:
            break
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
        axes.plot(
            [here, here],
            [axes.get_ylim()[0], cost],
            color=style.VERMILLION,
            lw=0.8,
            ls=":",
            zorder=2,
        )
        axes.plot(here, cost, "o", color=style.VERMILLION, ms=4, zorder=4, clip_on=False)
    name = _names(answer)
    _name_types(axes, answer)
    style.settle(axes.figure)
    space = style.LabelSpace(axes)
    if own is not None:
        words = f"{name(own)}, {own.point.cost_usd_per_hour:,.2f} USD/h"
        spots: list[tuple[float, float]] = [(6, -10), (-6, -10), (6, -24), (-6, -24), (6, 8)]
        space.place(words, here, cost, spots, force=True, color=style.VERMILLION, fontsize=7.0)
    for stretch in sorted(answer.stretches, key=lambda s: -_width(axes, s, scale)):
        if stretch is own or stretch.point.cost_usd_per_hour is None or stretch == own:
            continue
        x, y = stretch.start * scale, stretch.point.cost_usd_per_hour
        near: list[tuple[float, float]] = [(3, 2.5), (3, -2.5), (-3, -2.5), (-3, 2.5)]
        space.place(name(stretch), x, y, near, fontsize=6.5)


def _pools(answer: FrontierAnswer) -> list[str]:
    """Every pool of any fleet, as ``prefill/h200x8``, sorted."""
    labels = [label for p in answer.points for label in (p.fleet or "").split(",")]
    return sorted({label.split("=")[0] for label in labels if label})


def _name_types(axes: Any, answer: FrontierAnswer) -> None:
    """Which types the counts of a mixed role belong to, in the corner that the curve leaves."""
    lines = []
    for role in ROLES:
        types = [pool.split("/")[1] for pool in _pools(answer) if pool.startswith(role)]
        if len(types) > 1:
            lines.append(f"{role[0].upper()}: {' + '.join(types)}")
    height, side = (0.02, "bottom") if answer.over == DEMAND else (0.99, "top")
    axes.text(
        0.99, height, "\n".join(lines), transform=axes.transAxes, ha="right", va=side,
        color=style.GREY, fontsize=6.5,
    )  # fmt: skip


def _names(answer: FrontierAnswer) -> Callable[[Stretch], str]:
    """How a stretch's fleet is called: 3P4D, or 2+7P13D where a role mixes types anywhere."""
    pools = _pools(answer)

    def name(stretch: Stretch) -> str:
        counts = dict(part.split("=") for part in str(stretch.point.fleet).split(","))
        each = (
            "+".join(counts.get(pool, "0") for pool in pools if pool.startswith(role))
            for role in ROLES
        )
        return "{}P{}D".format(*each)

    return name


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
