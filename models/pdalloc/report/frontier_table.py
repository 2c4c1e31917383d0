"""A frontier on a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from pdalloc.fleet import ROLES
from pdalloc.planning.frontier import DEMAND
from pdalloc.planning.frontier_answer import FrontierAnswer, Stretch
from pdalloc.report.compare_table import heading
from pdalloc.report.table import add_row, new_table, say
from pdalloc.report.words import seconds, tokens_per_minute, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_ROWS = 20
STOPPED = "Stopped: values that are not listed were not looked at."


def print_frontier(answer: FrontierAnswer, console: Console | None = None) -> None:
    """Print ``answer``: one row per stretch of one cost, the scenario's own value marked."""
    from rich.console import Console

    out = console or Console()
    say(out, heading(answer.title, answer.variant), "bold")
    say(
        out,
        f"The least cost against the {axis_words(answer)}; now {value_words(answer, answer.here)}.",
    )
    if answer.stretches:
        out.print(_stretches(answer))
    for line in remarks(answer):
        say(out, line)
    if answer.interrupted:
        say(out, STOPPED, "yellow")


def axis_words(answer: FrontierAnswer) -> str:
    """``bound of TTFT mean``, with its class where there are several."""
    if answer.over == DEMAND:
        return "demand"
    klass, _, name = answer.over.rpartition("/")
    metric, _, statistic = name.partition(".")
    title = statistic if statistic == "mean" else statistic.upper()
    return f"bound of {metric.upper()} {title}" + (f" of {klass}" if klass else "")


def value_words(answer: FrontierAnswer, value: float) -> str:
    """A bound in ms or s, or a demand in tokens/min and requests/s."""
    if answer.over != DEMAND:
        return seconds(value)
    return f"{tokens_per_minute(60.0 * value * answer.tokens_per_request)} ({value:.4g} req/s)"


def _stretches(answer: FrontierAnswer) -> Table:
    several = any(p.fleet is not None and p.fleet.count("=") > 2 for p in answer.points)
    several = several or len({g for p in answer.points for g in p.gpus_by_type}) > 1
    columns = [("from", True), ("to", True), ("fleet", False)]
    columns += [("prefill", False), ("decode", False)] if several else []
    table = new_table("Cheapest fleets", [*columns, ("USD/h", True), ("", True)])
    shown = _widest(answer)
    before: float | None = None
    for stretch in answer.stretches:
        cost = stretch.point.cost_usd_per_hour
        step = "" if cost is None or before is None else f"{cost - before:+,.2f}"
        before = cost
        if stretch not in shown:
            continue
        start = _short(answer, stretch.start)
        cells = [start if stretch.exact else f"<= {start}", _short(answer, stretch.end)]
        cells.append(stretch.point.xpyd or "no fleet")
        cells += [pools(stretch.point.fleet, role) for role in ROLES] if several else []
        look = "bold" if _holds_here(answer, stretch) else "dim" if cost is None else ""
        add_row(table, *cells, usd(cost), step, look=look)
    return table


def _widest(answer: FrontierAnswer) -> list[Stretch]:
    """At most MOST_ROWS stretches, the widest and the scenario's own."""

    def width(s: Stretch) -> float:
        if _holds_here(answer, s):
            return math.inf
        return s.end / s.start if answer.over != DEMAND else s.end - s.start

    return sorted(answer.stretches, key=lambda s: -width(s))[:MOST_ROWS]


def pools(fleet: str | None, role: str) -> str:
    """The pools of one role in words.

    >>> pools("prefill/a=2,prefill/b=1,decode/a=3", "prefill")
    '2 a + 1 b'
    """
    found = [part.split("/")[1].split("=") for part in (fleet or "").split(",") if role in part]
    return " + ".join(f"{count} {name}" for name, count in found)


def _short(answer: FrontierAnswer, value: float) -> str:
    return seconds(value) if answer.over != DEMAND else f"{value:.4g} req/s"


def _holds_here(answer: FrontierAnswer, stretch: Stretch) -> bool:
    last = stretch.end == answer.points[-1].value
    return stretch.start <= answer.here and (answer.here < stretch.end or last)


def remarks(answer: FrontierAnswer) -> list[str]:
    """What changes next to the scenario's own value, and why there is no fleet at an end."""
    lines = []
    stretches = answer.stretches
    here = next((i for i, s in enumerate(stretches) if _holds_here(answer, s)), None)
    if here is not None and stretches[here].point.cost_usd_per_hour is not None:
        lines += [_beside(answer, stretches, here, i) for i in (here - 1, here + 1)]
    for stretch in stretches:
        if stretch.point.reason:
            edge, side = (
                (stretch.start, "above") if answer.over == DEMAND else (stretch.last, "below")
            )
            lines.append(f"No fleet at {_short(answer, edge)} and {side}: {stretch.point.reason}.")
    if len(stretches) > MOST_ROWS:
        lines.append(f"{len(stretches) - MOST_ROWS} narrow stretches are left out here.")
    if any(not s.exact for s in stretches):
        lines.append("<=: the change lies between this value and the one before it.")
    if any(p.cost_usd_per_hour is not None and not p.proven for p in answer.points):
        lines.append("Some fleets are the best under one routing rule, not proven cheapest.")
    return [line for line in lines if line]


def _beside(answer: FrontierAnswer, stretches: list[Stretch], here: int, other: int) -> str:
    """The neighbour stretch in a sentence; nothing at the ends of the range."""
    if not 0 <= other < len(stretches):
        return ""
    edge = stretches[max(here, other)].start
    now, then = (stretches[i].point.cost_usd_per_hour for i in (here, other))
    side = "below" if other < here else "from"
    if then is None or now is None:
        return ""
    verb = "costs" if then > now else "saves"
    return (
        f"{side.capitalize()} {value_words(answer, edge)} it {verb} {usd(abs(then - now))} USD/h "
        f"({100.0 * (then / now - 1.0):+.1f} %): {stretches[other].point.xpyd}."
        if now
        else ""
    )


def frontier_csv(answer: FrontierAnswer) -> str:
    """One row per point; the unit of ``value`` is in its header."""
    unit = "requests_per_s" if answer.over == DEMAND else "s"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["over", f"value_{unit}", "corner", "fleet", "xpyd", "gpus", "cost_usd_per_hour",
         "proven", "reason"]
    )  # fmt: skip
    for p in answer.points:
        gpus = sum(p.gpus_by_type.values()) if p.fleet else None
        row = [answer.over, p.value, p.corner, p.fleet, p.xpyd, gpus]
        writer.writerow([*row, p.cost_usd_per_hour, p.proven, p.reason])
    return text.getvalue()
