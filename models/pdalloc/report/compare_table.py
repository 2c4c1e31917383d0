"""A comparison of solvers on a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import itertools
from typing import TYPE_CHECKING

from pdalloc.planning.answer import SloAnswer
from pdalloc.planning.compare import CompareAnswer, SolverAnswer
from pdalloc.report.table import (
    add_row,
    measured,
    new_table,
    say,
    seconds,
    sign,
    tokens_per_minute,
    usd,
    verdict,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STATUS = {
    "optimal": "proven",
    "feasible": "keeps",
    "breaks": "BREAKS",
    "no fleet": "no fleet",
    "refused": "refuses",
}


def print_compare(answer: CompareAnswer, console: Console | None = None) -> None:
    """Print ``answer``: one row per solver, what broke or was refused, then the simulation."""
    from rich.console import Console

    out = console or Console()
    say(out, heading(answer.title, answer.variant), "bold")
    demand = tokens_per_minute(answer.demand_tokens_per_minute)
    say(out, f"Demand {demand} ({answer.demand_requests_per_s:.4g} req/s). {_bound(answer)}")
    out.print(_solvers(answer.solvers))
    for line in reasons(answer.solvers):
        say(out, line)
    for row in answer.solvers:
        if "path" in row.details:
            say(out, iteration(row))
    if any(slo.simulated_s is not None for row in answer.solvers for slo in row.slos):
        out.print(_simulated(answer.solvers, sign(out, "±", "+-")))
    for line in answer.warnings:
        say(out, f"Warning: {line}", "yellow")


def heading(title: str, variant: str | None) -> str:
    """Title and variant."""
    return f"{title}, variant {variant}" if variant else title


def _bound(answer: CompareAnswer) -> str:
    if answer.bound_usd_per_hour is None:
        return "No solver proves a bound."
    kind = "Proven optimum" if answer.proven else "Proven lower bound"
    return f"{kind}: {usd(answer.bound_usd_per_hour)} USD/h."


def _solvers(rows: list[SolverAnswer]) -> Table:
    columns = [("solver", False), ("answer", False), ("fleet", False), ("USD/h", True)]
    columns += [("gap", True), ("time", True), ("tightest SLO", False)]
    table = new_table("Solvers", columns)
    for r in rows:
        look = "" if r.keeps else "red" if r.status == "breaks" else "dim"
        cells = [r.solver, STATUS[r.status], r.xpyd or "-", usd(r.cost_usd_per_hour), gap(r)]
        add_row(table, *cells, duration(r.seconds), tightest(r), look=look)
    return table


def reasons(rows: list[SolverAnswer]) -> list[str]:
    """Why a fleet breaks, is not found or not sought; solvers that say the same share a line."""
    said: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.reason:
            said.setdefault((STATUS[row.status], row.reason), []).append(row.solver)
    return [f"{', '.join(who)} - {what}: {why}" for (what, why), who in said.items()]


def gap(row: SolverAnswer) -> str:
    """``+25.0 %`` over the proven bound; ``0`` at the optimum."""
    if row.gap is None:
        return "-"
    return "0" if abs(row.gap) < 5e-7 else f"{100.0 * row.gap:+.1f} %"


def duration(value: float | None) -> str:
    """Wall time: whole milliseconds below a second.

    >>> duration(0.0512), duration(2.25), duration(None)
    ('51 ms', '2.2 s', '-')
    """
    if value is None:
        return "-"
    return f"{1e3 * value:.0f} ms" if value < 0.9995 else f"{value:.1f} s"


def tightest(row: SolverAnswer) -> str:
    """The SLO nearest its bound, or furthest above it, as a share of the bound."""
    if not row.slos or row.fleet is None:
        return "-"
    if any(slo.predicted_s is None for slo in row.slos):
        return "no steady state"
    worst = max(row.slos, key=lambda slo: (slo.predicted_s or 0.0) / slo.bound_s)
    share = 100.0 * (worst.predicted_s or 0.0) / worst.bound_s
    return f"{name_of(worst)} at {share:.4g} %"


def name_of(slo: SloAnswer) -> str:
    """``TTFT mean``."""
    statistic = slo.statistic if slo.statistic == "mean" else slo.statistic.upper()
    return f"{slo.metric.upper()} {statistic}"


def iteration(row: SolverAnswer) -> str:
    """The rounds of an iteration in a sentence."""
    d = row.details
    path = " -> ".join(name for name, _ in itertools.groupby(str(d["path"]).split()))
    failed = f"{d['failures']:.0f} of whose fleets broke an SLO"
    return f"{row.solver}: {d['ended']} after {d['rounds']:.0f} rounds, {failed}: {path}"


def _simulated(rows: list[SolverAnswer], plus_minus: str) -> Table:
    columns = [("fleet", False), ("SLO", False), ("bound", True), ("predicted", True)]
    table = new_table("Simulated", [*columns, ("simulated", True), ("verdict", False)])
    several = len({slo.traffic_class for row in rows for slo in row.slos}) > 1
    shown = set()
    for row in rows:
        if row.fleet in shown or not row.slos:
            continue
        shown.add(row.fleet)
        for i, slo in enumerate(row.slos):
            name = f"{slo.traffic_class} {name_of(slo)}" if several else name_of(slo)
            predicted = "unstable" if slo.predicted_s is None else seconds(slo.predicted_s)
            judged = slo.simulated_verdict or verdict(slo)
            cells = [(row.xpyd or "-") if i == 0 else "", name, seconds(slo.bound_s), predicted]
            look = "red" if judged == "breaks" or not slo.kept else ""
            add_row(table, *cells, measured(slo, plus_minus), judged, look=look)
    return table


def compare_csv(answer: CompareAnswer) -> str:
    """One row per solver and SLO; solvers without a fleet have one row. Units in the headers."""
    own = ["solver", "exact", "status", "fleet", "xpyd", "gpus", "cost_usd_per_hour", "gap"]
    own += ["seconds", "cold_seconds"]
    each = list(SloAnswer.model_fields)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*own, *each, "reason"])
    for row in answer.solvers:
        values = [getattr(row, name) for name in own]
        for slo in row.slos:
            writer.writerow([*values, *(getattr(slo, name) for name in each), row.reason])
        if not row.slos:
            writer.writerow([*values, *([None] * len(each)), row.reason])
    return text.getvalue()
