"""An explanation on a terminal: sentences, and tables of SLOs, replicas and assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdalloc.planning.explain import BY
from pdalloc.planning.explain_answer import BoundCost, ExplainAnswer, SloExplained
from pdalloc.report import explain_words as words
from pdalloc.report.compare_table import heading, load
from pdalloc.report.slo_rows import slo_bound, slo_name, slo_predicted
from pdalloc.report.table import add_row, new_table, say
from pdalloc.report.words import percent, tokens_per_minute, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_SLOS = 3
"""SLOs that the table of changes has columns for: those nearest their bounds."""
STOPPED = "Stopped: what is not shown was not worked out."


def print_explanation(answer: ExplainAnswer, console: Console | None = None) -> None:
    """Print ``answer``, the answer first, its reasons after it."""
    from rich.console import Console

    out = console or Console()
    say(out, heading(answer.title, answer.variant), "bold")
    say(out, words.headline(answer), "red" if answer.status == "infeasible" else "green")
    demand = tokens_per_minute(answer.demand_tokens_per_minute)
    say(out, f"Demand {demand} ({answer.demand_requests_per_s:.4g} req/s).")
    _section(out, "Why this many", words.why_this_many(answer))
    _section(out, "What binds", words.what_binds(answer))
    if answer.changes:
        out.print(_changes(answer))
    _section(out, "What the SLOs cost", words.what_slos_cost(answer))
    if answer.explained:
        out.print(_slos(answer))
    _section(out, "What it leans on", words.what_it_leans_on(answer))
    if answer.assumptions:
        out.print(_assumptions(answer))
    for line in answer.warnings:
        say(out, f"Warning: {line}", "yellow")
    if answer.interrupted:
        say(out, STOPPED, "yellow")


def _section(out: Console, title: str, lines: list[str]) -> None:
    if not lines:
        return
    say(out, f"\n{title}", "bold")
    for line in lines:
        say(out, line)


def _changes(answer: ExplainAnswer) -> Table:
    now = [s.slo for s in answer.explained] or answer.changes[0].promises
    shown = sorted(range(len(now)), key=lambda i: -load(now[i]))[:MOST_SLOS]
    shown.sort()
    columns = [("replicas", False), ("fleet", False), ("USD/h", True), ("", True)]
    table = new_table("One more, one fewer", columns)
    several = len({slo.traffic_class for slo in now}) > 1
    for i in shown:
        label = f"{now[i].traffic_class} " if several else ""
        table.add_column(f"{label}{slo_name(now[i])}", justify="right", no_wrap=True)
    if answer.explained:
        cells = [words.change_cells(now[i]) for i in shown]
        add_row(table, "as it is", answer.xpyd or "", usd(answer.cost_usd_per_hour), "", *cells)
    for c in answer.changes:
        more = c.cost_usd_per_hour - (answer.cost_usd_per_hour or 0.0)
        label = f"{c.change:+d} {c.role} {c.replica_type}" + ("" if c.allowed else " (not allowed)")
        cells = [words.change_cells(c.promises[i]) for i in shown]
        look = "" if c.keeps else "red"
        add_row(table, label, c.xpyd, usd(c.cost_usd_per_hour), f"{more:+,.2f}", *cells, look=look)
    return table


def _slos(answer: ExplainAnswer) -> Table:
    by = f"{100 * BY:.0f} %"
    columns = [("SLO", False), ("bound", True), ("predicted", True), ("slack", True)]
    columns += [("without", True), (f"{by} looser", True), (f"{by} tighter", True)]
    table = new_table("Cheapest fleet with other bounds (USD/h)", columns)
    several = len({s.slo.traffic_class for s in answer.explained}) > 1
    for s in answer.explained:
        name = f"{s.slo.traffic_class} {slo_name(s.slo)}" if several else slo_name(s.slo)
        slack = "-" if s.slack is None else f"{100.0 * s.slack:.1f} %"
        costs = [_cost(s.without)]
        costs += [_cost(s.looser), _cost(s.tighter)] if isinstance(s, SloExplained) else ["-", "-"]
        look = "" if s.slo.kept else "red"
        cells = [name, slo_bound(s.slo), slo_predicted(s.slo), slack, *costs]
        add_row(table, *cells, look=look)
    return table


def _cost(bound: BoundCost) -> str:
    return "no fleet" if bound.cost_usd_per_hour is None else usd(bound.cost_usd_per_hour)


def _assumptions(answer: ExplainAnswer) -> Table:
    columns = [("assumption", False), ("stands up to", True), ("beyond it", False)]
    table = new_table("Assumptions, one at a time", columns)
    for a in [*answer.assumptions, *answer.prices]:
        change = "never" if a.margin is None else percent(a.margin)
        add_row(table, a.name, change, a.effect.replace(",", ", ").replace(",  ", ", ") or "-")
    return table
