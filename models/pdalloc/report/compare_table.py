"""A comparison of solvers on a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import itertools
import math
from typing import TYPE_CHECKING

from pdalloc.planning.answer import JointSloAnswer, SloAnswer
from pdalloc.planning.compare import CompareAnswer, SolverAnswer, steady_state
from pdalloc.report.slo_rows import measured, slo_bound, slo_name, slo_predicted, verdict
from pdalloc.report.table import add_row, new_table, say, sign
from pdalloc.report.words import tokens_per_minute, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SLO_COLUMNS = (
    *("traffic_class", "slo", "unit", "bound", "predicted", "simulated", "simulated_half_width"),
    *("kept", "binding", "simulated_verdict"),
)
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
        if "relaxation_usd_per_hour" in row.details:
            say(out, relaxation(row))
    if any(slo.simulated_verdict for row in answer.solvers for slo in row.promises):
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
    if not row.promises or row.fleet is None:
        return "-"
    if not all(map(steady_state, row.promises)):
        return "no steady state"
    worst = max(row.promises, key=load)
    return f"{slo_name(worst)} at {100.0 * load(worst):.4g} %".replace("\n", " ")


def load(slo: SloAnswer | JointSloAnswer) -> float:
    """The predicted value over the bound; of a joint SLO, of the requests that are late."""
    if isinstance(slo, JointSloAnswer):
        late = 1.0 if slo.predicted_share is None else 1.0 - slo.predicted_share
        return late / (1.0 - slo.share)
    return math.inf if slo.predicted_s is None else slo.predicted_s / slo.bound_s


def iteration(row: SolverAnswer) -> str:
    """The rounds of an iteration in a sentence."""
    d = row.details
    path = " -> ".join(name for name, _ in itertools.groupby(str(d["path"]).split()))
    failed = f"{d['failures']:.0f} of whose fleets broke an SLO"
    return f"{row.solver}: {d['ended']} after {d['rounds']:.0f} rounds, {failed}: {path}"


def relaxation(row: SolverAnswer) -> str:
    """What fractional replicas would cost, and what they are, in a sentence."""
    named = ((key[6:-1], n) for key, n in row.details.items() if key.startswith("count["))
    counts = ", ".join(f"{name} {n:.2f}" for name, n in named if float(n) >= 0.005)
    cost = usd(float(row.details["relaxation_usd_per_hour"]))
    return f"{row.solver}: fractional replicas would cost {cost} USD/h ({counts})"


def _simulated(rows: list[SolverAnswer], plus_minus: str) -> Table:
    columns = [("fleet", False), ("SLO", False), ("bound", True), ("predicted", True)]
    table = new_table("Simulated", [*columns, ("simulated", True), ("verdict", False)])
    several = len({slo.traffic_class for row in rows for slo in row.promises}) > 1
    shown = set()
    for row in rows:
        if row.fleet in shown or not row.promises:
            continue
        shown.add(row.fleet)
        for i, slo in enumerate(row.promises):
            name = f"{slo.traffic_class} {slo_name(slo)}" if several else slo_name(slo)
            judged = slo.simulated_verdict or verdict(slo)
            cells = [(row.xpyd or "-") if i == 0 else "", name, slo_bound(slo), slo_predicted(slo)]
            look = "red" if judged == "breaks" or not slo.kept else ""
            add_row(table, *cells, measured(slo, plus_minus), judged, look=look)
    return table


def compare_csv(answer: CompareAnswer) -> str:
    """One row per solver and SLO; solvers without a fleet have one row.

    ``unit`` is that of bound, prediction and simulation: s, or the share of requests in time.
    """
    own = ["solver", "exact", "status", "fleet", "xpyd", "gpus", "cost_usd_per_hour", "gap"]
    own += ["seconds", "cold_seconds"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*own, *SLO_COLUMNS, "reason"])
    for row in answer.solvers:
        values = [getattr(row, name) for name in own]
        for slo in row.promises:
            writer.writerow([*values, *_slo_cells(slo), row.reason])
        if not row.promises:
            writer.writerow([*values, *([None] * len(SLO_COLUMNS)), row.reason])
    return text.getvalue()


def _slo_cells(slo: SloAnswer | JointSloAnswer) -> list[object]:
    """The cells of SLO_COLUMNS."""
    if isinstance(slo, JointSloAnswer):
        numbers = (slo.share, slo.predicted_share, slo.simulated_share, slo.simulated_half_width)
    else:
        numbers = (slo.bound_s, slo.predicted_s, slo.simulated_s, slo.simulated_half_width_s)
    unit = "share" if isinstance(slo, JointSloAnswer) else "s"
    name = slo_name(slo).replace("\n", " ")
    return [slo.traffic_class, name, unit, *numbers, slo.kept, slo.binding, slo.simulated_verdict]
