"""The two figures of a plan: its cost, and its latencies, against demand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.planning.answer import Answer, SloAnswer
from pdalloc.planning.sweeps import CostPoint, LatencyCurve
from pdalloc.report import style

Array = NDArray[np.float64]

MOST_PANELS = 6
CEILING = 2.0
"""Latency panels end at this many times the bound."""
SAME = 0.012
"""Curves closer than this share of the panel are one to the eye."""


class _Demand:
    """The demand axis: Mtoken/min (ktoken/min where small) from requests/s."""

    def __init__(self, answer: Answer) -> None:
        per_request = answer.demand_tokens_per_minute / answer.demand_requests_per_s
        large = answer.demand_tokens_per_minute >= 1e5
        self.unit = "Mtoken/min" if large else "ktoken/min"
        self.factor = per_request / (1e6 if large else 1e3)
        self.here = answer.demand_requests_per_s * self.factor

    @property
    def label(self) -> str:
        return f"demand ({self.unit}, prompt + output)"


def cost_against_demand(points: Sequence[CostPoint], answer: Answer) -> Any:
    """matplotlib Figure: least cost (USD/hour) against demand, with the fleets on the steps.

    ``points`` as :func:`pdalloc.planning.sweeps.cost_sweep` gives them. Where the exact place
    of a step is not known the line slopes between the two demands solved, which are dots.
    """
    demand = _Demand(answer)
    with style.styled():
        figure, ((axes,),) = style.new_figure(style.PAGE_WIDTH * 0.72, 2.9)
        x, y = staircase(points)
        axes.plot(x * demand.factor, y, color=style.BLACK, label="cheapest fleet", zorder=3)
        if _sampled(points):
            axes.plot(x * demand.factor, y, ".", color=style.BLACK, ms=4, zorder=3)
        _single_type_lines(axes, points, demand)
        axes.set_xlim(points[0].demand * demand.factor, points[-1].demand * demand.factor)
        axes.set_ylim(0, 1.06 * max(_highest(points), answer.cost_usd_per_hour or 0.0))
        axes.set_xlabel(demand.label)
        axes.set_ylabel("cost (USD/hour)")
        _no_fleet_beyond(axes, points, demand)
        _fleet_labels(axes, points, answer, demand)
    return figure


def staircase(points: Sequence[CostPoint]) -> tuple[Array, Array]:
    """Vertices (requests/s, USD/hour) of the least cost; NaN where no fleet keeps the SLOs."""
    vertices: list[tuple[float, float | None]] = []
    for before, point in zip([points[0], *points], points, strict=False):
        if point.step:  # the cost before holds up to here
            vertices.append((point.demand, before.cost))
        vertices.append((point.demand, point.cost))
    x, y = np.array(vertices, float).T
    return x, y


def _sampled(points: Sequence[CostPoint]) -> bool:
    """Whether the place of some step is not known."""
    pairs = itertools.pairwise(points)
    return any(right.cost != left.cost and not right.step for left, right in pairs)


def _highest(points: Sequence[CostPoint]) -> float:
    singles = [c for p in points for c in p.single_type.values() if c is not None]
    return max([*(p.cost for p in points if p.cost is not None), *singles], default=1.0)


def _single_type_lines(axes: Any, points: Sequence[CostPoint], demand: _Demand) -> None:
    """Faint, and wider than the staircase, so that they show where they coincide with it."""
    gpus = list(dict.fromkeys(gpu for point in points for gpu in point.single_type))
    for gpu, colour in style.gpu_colours(gpus).items():
        pairs = [(p.demand * demand.factor, p.single_type.get(gpu)) for p in points]
        x, y = np.array(pairs, float).T
        axes.step(
            x,
            y,
            where="post",
            color=colour,
            linewidth=3.5,
            alpha=0.55,
            zorder=1,
            label=f"{gpu} alone",
            solid_joinstyle="miter",
        )
    if gpus:
        axes.legend(loc="upper left", handlelength=1.6, borderaxespad=0.2)


def _no_fleet_beyond(axes: Any, points: Sequence[CostPoint], demand: _Demand) -> None:
    served = [i for i, p in enumerate(points) if p.cost is not None]
    if not served or served[-1] == len(points) - 1:
        return
    start = points[served[-1] + 1].demand * demand.factor
    axes.axvspan(start, points[-1].demand * demand.factor, color=style.PALE, alpha=0.4, lw=0)
    axes.text(
        0.5 * (start + points[-1].demand * demand.factor),
        0.5,
        "no fleet",
        transform=axes.get_xaxis_transform(),
        rotation=90,
        ha="center",
        va="center",
        color=style.GREY,
    )


def _fleet_labels(axes: Any, points: Sequence[CostPoint], answer: Answer, demand: _Demand) -> None:
    """The answer's fleet at its demand, then the names of the steps, widest first."""
    cost = answer.cost_usd_per_hour
    if cost is not None:
        axes.plot([demand.here] * 2, [0, cost], color=style.VERMILLION, lw=0.8, ls=":", zorder=2)
        axes.plot(demand.here, cost, "o", color=style.VERMILLION, ms=4, zorder=4, clip_on=False)
    style.settle(axes.figure)
    space = style.LabelSpace(axes)
    if cost is not None:
        words = f"{answer.xpyd}, {cost:,.2f} USD/h\nat {demand.here:.3g} {demand.unit}"
        space.place(
            words,
            demand.here,
            cost,
            [(8, -14), (8, -26), (8, -40), (-8, -60), (-8, -80), (-8, 8)],
            force=True,
            color=style.VERMILLION,
            linespacing=1.25,
        )
    steps = _plateaus(points)
    for width, point in sorted(steps, key=lambda item: -item[0]):
        if point.xpyd == answer.xpyd and point.cost == cost:
            continue
        spots = [(0.0, (2, -2.5)), (0.5, (0, -2.5))]
        if not point.single_type:  # nothing else is drawn above the line
            spots.append((1.0, (-2, 2.5)))
        for along, spot in spots:
            x = (point.demand + along * width) * demand.factor
            if space.place(point.xpyd or "", x, point.cost or 0.0, [spot], fontsize=6.5):
                break


def _plateaus(points: Sequence[CostPoint]) -> list[tuple[float, CostPoint]]:
    """(width in requests/s, first point) of each stretch of one cost."""
    found: list[tuple[float, CostPoint]] = []
    first = points[0]
    for point in [*points[1:], None]:
        if point is not None and point.cost == first.cost:
            continue
        if first.cost is not None:
            end = points[-1].demand if point is None else point.demand
            found.append((end - first.demand, first))
        if point is not None:
            first = point
    return found


def latency_against_demand(curves: Sequence[LatencyCurve], answer: Answer) -> Any:
    """matplotlib Figure: one panel per SLO; ``curves[0]`` is the answer's fleet, bold.

    The other curves (as :func:`pdalloc.planning.sweeps.neighbours` makes them) are thin, in
    the colour of the role that changed, and named where they leave the panel. Of more than
    MOST_PANELS SLOs those nearest their bound are shown.
    """
    demand = _Demand(answer)
    shown = _panels(answer.slos)
    columns = min(len(shown), 2)
    rows = -(-len(shown) // columns)
    width = style.PAGE_WIDTH if columns == 2 else style.PAGE_WIDTH * 0.6
    several = len({slo.traffic_class for slo in answer.slos}) > 1
    with style.styled():
        figure, grid = style.new_figure(width, 2.5 * rows + 0.1, rows, columns)
        for index, axes in zip(shown, grid.flat, strict=False):
            slo = answer.slos[index]
            _panel(axes, slo, index, curves, demand)
            of_class = f", {slo.traffic_class}" if several else ""
            axes.set_ylabel(f"{_statistic(slo)} {slo.metric.upper()}{of_class} ({_unit(slo)})")
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        style.settle(figure)
        for index, axes in zip(shown, grid.flat, strict=False):
            _label_panel(axes, answer.slos[index], demand)
    return figure


def _panels(slos: Sequence[SloAnswer]) -> list[int]:
    """Indices of the SLOs drawn: all, or the MOST_PANELS nearest their bounds."""
    order = sorted(
        range(len(slos)), key=lambda i: -(slos[i].predicted_s or np.inf) / slos[i].bound_s
    )
    return sorted(order[:MOST_PANELS])


def _statistic(slo: SloAnswer) -> str:
    return slo.statistic if slo.statistic == "mean" else slo.statistic.upper()


def _unit(slo: SloAnswer) -> str:
    return "ms" if slo.bound_s < 1.0 else "s"


def _panel(
    axes: Any, slo: SloAnswer, index: int, curves: Sequence[LatencyCurve], demand: _Demand
) -> None:
    """One SLO: bound dashed, demand dotted, the curves, and their names where they leave."""
    scale = 1e3 if _unit(slo) == "ms" else 1.0
    top = CEILING * slo.bound_s * scale
    chosen = curves[0]
    axes.axhline(slo.bound_s * scale, color=style.BLACK, lw=0.8, ls=(0, (5, 3)), zorder=1)
    axes.axvline(demand.here, color=style.GREY, lw=0.8, ls=":", zorder=1)
    axes.set_xlim(chosen.demands[0] * demand.factor, chosen.demands[-1] * demand.factor)
    axes.set_ylim(0, top)
    axes.set_xlabel(demand.label)
    drawn = _points(chosen, index, slo.bound_s)
    for curve in curves:
        bold = curve is chosen
        points = _points(curve, index, slo.bound_s)
        if not bold and (
            _elsewhere(slo.metric, chosen.fleet, curve.fleet) or _alike(points, drawn)
        ):
            continue
        x, y = curve.demands * demand.factor, curve.seconds[index] * scale
        colour, above = _colour(chosen.fleet, curve.fleet), 3 if bold else 2
        axes.plot(x, y, lw=1.8 if bold else 0.9, color=colour, zorder=above)
        style.name_end(
            axes,
            *_exit(x, y, top),
            _name(chosen.fleet, curve.fleet),
            color=colour,
            zorder=above,
            fontsize=6.5,
            fontweight="bold" if bold else "normal",
        )


def _points(curve: LatencyCurve, index: int, bound: float) -> Array:
    """The visible part of a curve in shares of the panel, finely spaced; shape (n, 2)."""
    seen = np.isfinite(curve.seconds[index])
    y = curve.seconds[index][seen] / (CEILING * bound)
    x = curve.demands[seen] / curve.demands[-1]
    along = np.linspace(0, len(x) - 1, 500)
    x, y = np.interp(along, np.arange(len(x)), x), np.interp(along, np.arange(len(y)), y)
    points: Array = np.column_stack([x, y])[y <= 1.0]
    return points


def _alike(one: Array, other: Array) -> bool:
    """Whether the curve that ends first lies on the other one to the eye."""
    if not len(one) or not len(other):
        return True
    short, long = sorted((one, other), key=lambda points: float(points[-1, 0]))
    gaps = np.hypot(*(short[:, None, :] - long[None, :, :]).transpose(2, 0, 1)).min(axis=1)
    return bool(gaps.max() <= SAME)


def _elsewhere(metric: str, chosen: Fleet, other: Fleet) -> bool:
    """Whether a change is left out for clarity: fleets of many pools, and the other stage."""
    stage = {"ttft": PREFILL, "tpot": DECODE, "itl": DECODE}.get(metric)
    role, _, _ = _changed(chosen, other)
    return len(chosen.pools) > 2 and stage not in (None, role)


def _exit(x: Array, y: Array, top: float) -> tuple[float, float]:
    """Where a curve leaves a panel of height ``top``, or its last point."""
    over = np.flatnonzero(y > top)
    if over.size and over[0] > 0:
        return float(
            np.interp(top, y[over[0] - 1 : over[0] + 1], x[over[0] - 1 : over[0] + 1])
        ), top
    if over.size:
        return float(x[0]), top
    last = np.flatnonzero(np.isfinite(y))[-1]
    return float(x[last]), float(y[last])


def _label_panel(axes: Any, slo: SloAnswer, demand: _Demand) -> None:
    """The bound and the demand in words, where they cover nothing."""
    unit = _unit(slo)
    bound = slo.bound_s * (1e3 if unit == "ms" else 1.0)
    space = style.LabelSpace(axes)
    left, right = axes.get_xlim()
    text = f"SLO {bound:.4g} {unit}"
    for x, away in ((left, 3), (right, -3)):
        if space.place(text, x, bound, [(away, 2), (away, -2)]):
            break
    here = f"demand {demand.here:.3g} {demand.unit}"
    for height in (0.04, 0.14, 0.9, 0.8):
        y = height * axes.get_ylim()[1]
        if space.place(here, demand.here, y, [(3, 0.01), (-3, 0.01)], color=style.GREY):
            break


def _changed(chosen: Fleet, other: Fleet) -> tuple[str, str, int]:
    """(role, replica type, difference) of the pool in which two fleets differ."""
    for role, name in dict.fromkeys([*chosen.counts, *other.counts]):
        difference = other.count(role, name) - chosen.count(role, name)
        if difference:
            return role, name, difference
    return "", "", 0


def _colour(chosen: Fleet, other: Fleet) -> str:
    return style.ROLE_COLOURS.get(_changed(chosen, other)[0], style.BLACK)


def _name(chosen: Fleet, other: Fleet) -> str:
    """``3P4D``, or ``-1P a100x8`` where the role has several pools."""
    role, name, difference = _changed(chosen, other)
    if len(chosen.in_role(role)) <= 1:
        return other.xpyd
    sign = "+" if difference > 0 else "−"
    return f"{sign}{abs(difference)}{role[0].upper()} {name}"
