"""A schedule on a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pdalloc.fleet import ROLES
from pdalloc.planning.schedule_answer import (
    HOURLY,
    PEAK,
    ScheduleAnswer,
    ScheduleCosts,
)
from pdalloc.report.compare_table import heading
from pdalloc.report.frontier_table import pools
from pdalloc.report.slo_rows import measured, slo_bound, slo_name, slo_predicted, verdict
from pdalloc.report.table import PROVEN, add_row, new_table, say, sign
from pdalloc.report.words import number, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STOPPED = "Stopped: the best schedule so far."


def print_schedule(answer: ScheduleAnswer, console: Console | None = None) -> None:
    """Print ``answer``: a row per period, then the costs beside those of its rivals."""
    from rich.console import Console

    out = console or Console()
    say(out, heading(answer.title, answer.variant), "bold")
    say(out, headline(answer))
    if answer.periods:
        out.print(_periods(answer))
        out.print(_costs(answer))
    for line in remarks(answer):
        say(out, line)
    if answer.validated:
        out.print(_simulated(answer, sign(out, "±", "+-")))
    for line in answer.warnings:
        say(out, f"Warning: {line}", "yellow")
    if answer.interrupted:
        say(out, STOPPED, "yellow")


def headline(answer: ScheduleAnswer) -> str:
    """What the schedule costs and how near that is to the least; why not, where there is none."""
    if answer.cost is None:
        return f"No schedule: {answer.reason}"
    proof = "proven least" if answer.status == "optimal" else _gap(answer)
    words = "every" if answer.cyclic else "over"
    return (
        f"{usd(answer.cost.total_usd)} USD {words} {answer.hours:g} hours ({proof}), "
        f"{usd(answer.cost.total_usd / answer.hours)} USD/h on average."
    )


def _gap(answer: ScheduleAnswer) -> str:
    """Bound and gap in words."""
    if answer.bound_usd is None or answer.gap is None:
        return "not proven cheapest"
    return f"at least {usd(answer.bound_usd)} is needed: a gap of {100.0 * answer.gap:.2f} %"


def clock(hour: float) -> str:
    """Hours after the beginning as a clock shows them.

    >>> clock(7.0), clock(13.5), clock(31.25)
    ('07:00', '13:30', '31:15')
    """
    minutes = round(60.0 * hour)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _periods(answer: ScheduleAnswer) -> Table:
    columns = [("from", False), ("req/s", True)]
    columns += [(role, False) for role in ROLES]
    columns += [("starts", False), ("stops", False), ("load P/D", True), ("USD/h", True)]
    table = new_table("Fleets", columns)
    used = {(q.role, q.replica_type) for p in answer.periods for q in p.pools}
    mixed = [role for role in ROLES if sum(r == role for r, _ in used) > 1]
    for p in answer.periods:
        load = "/".join(number(p.utilisation[role], ".0%") for role in ROLES).replace("%", "")
        add_row(
            table,
            clock(p.start_hour),
            f"{p.demand_requests_per_s:.4g}",
            *(pools(p.fleet, role) for role in ROLES),
            changed(p.started, mixed),
            changed(p.stopped, mixed),
            f"{load} %",
            usd(p.cost_usd_per_hour),
        )
    return table


def changed(counts: Mapping[str, int], mixed: Collection[str] = ROLES) -> str:
    """Replicas that start or stop, with the letter of their role; its type in ``mixed`` roles.

    >>> changed({"prefill/a": 2, "decode/b": 1}), changed({"prefill/a": 2}, ["decode"])
    ('2P a, 1D b', '2P')
    """
    words = []
    for name, count in counts.items():
        role, kind = name.split("/")
        words.append(f"{count}{role[0].upper()}{f' {kind}' if role in mixed else ''}")
    return ", ".join(words)


def _costs(answer: ScheduleAnswer) -> Table:
    columns = [("", False), ("running", True), ("starts", True), ("start USD", True)]
    columns += [("stop USD", True), ("USD", True), ("", True)]
    table = new_table(f"Costs over {answer.hours:g} hours", columns)
    rows = [*([] if answer.cost is None else [answer.cost]), *answer.rivals]
    for row in rows:
        more = 0.0 if answer.cost is None else row.total_usd - answer.cost.total_usd
        relative = 100.0 * more / answer.cost.total_usd if answer.cost else 0.0
        add_row(
            table,
            row.name,
            usd(row.running_usd),
            str(row.starts),
            usd(row.starting_usd),
            usd(row.stopping_usd),
            usd(row.total_usd),
            f"{relative:+.1f} %" if row is not answer.cost else "",
            look="bold" if row is answer.cost else "",
        )
    return table


def remarks(answer: ScheduleAnswer) -> list[str]:
    """What is saved against the rivals, and which of them breaks a limit."""
    lines = []
    rivals = {r.name: r for r in answer.rivals}
    saved = answer.saving(PEAK)
    if saved is not None and answer.cost is not None:
        kept = usd(rivals[PEAK].total_usd - answer.cost.total_usd)
        lines.append(f"Against the peak fleet all the time it saves {kept} USD ({saved:.1%}).")
    saved = answer.saving(HOURLY)
    if saved is not None and answer.cost is not None:
        lines.append(_against_hourly(answer, answer.cost, rivals[HOURLY], saved))
    return lines


def _against_hourly(
    answer: ScheduleAnswer, cost: ScheduleCosts, hourly: ScheduleCosts, saved: float
) -> str:
    broken = []
    for words, count, limit in (
        ("starts", hourly.most_starts, answer.most_starts),
        ("stops", hourly.most_stops, answer.most_stops),
    ):
        if limit is not None and count > limit:
            broken.append(f"{words} {count} replicas at once, limit {limit}")
    if broken:
        return f"Each period's own optimum would break a limit: it {' and '.join(broken)}."
    if saved <= PROVEN:
        return "Each period's own optimum costs no more, its starts and stops counted."
    kept = usd(hourly.total_usd - cost.total_usd)
    return (
        f"Against each period's own optimum, with its {hourly.starts} starts counted, it saves "
        f"{kept} USD ({saved:.2%}) with {cost.starts} starts."
    )


def _simulated(answer: ScheduleAnswer, plus_minus: str) -> Table:
    """The SLOs of each distinct fleet and demand; the plan's verdict and the simulation's."""
    columns = [("from", False), ("req/s", True), ("SLO", False), ("bound", True)]
    columns += [("predicted", True), ("simulated", True), ("verdict", False)]
    table = new_table("Simulated at steady demand", columns)
    seen: set[tuple[str, float]] = set()
    for p in answer.periods:
        if (p.fleet, p.demand_requests_per_s) in seen:
            continue
        seen.add((p.fleet, p.demand_requests_per_s))
        for row in p.promises:
            add_row(
                table,
                clock(p.start_hour),
                f"{p.demand_requests_per_s:.4g}",
                slo_name(row),
                slo_bound(row),
                slo_predicted(row),
                measured(row, plus_minus),
                verdict(row),
                look="red" if row.simulated_verdict == "breaks" else "",
            )
    return table


def schedule_csv(answer: ScheduleAnswer) -> str:
    """One row per period; units in the headers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["start_hour", "hours", "demand_requests_per_s", "demand_tokens_per_minute", "fleet",
         "xpyd", "gpus", "starts", "stops", "cost_usd_per_hour", "own_optimum",
         "own_optimum_usd_per_hour", "prefill_utilisation", "decode_utilisation"]
    )  # fmt: skip
    for p in answer.periods:
        tokens = 60.0 * p.demand_requests_per_s * answer.tokens_per_request
        row = [p.start_hour, p.hours, p.demand_requests_per_s, tokens, p.fleet, p.xpyd]
        row += [sum(p.gpus_by_type.values()), sum(p.started.values()), sum(p.stopped.values())]
        row += [p.cost_usd_per_hour, p.own_optimum, p.own_optimum_usd_per_hour]
        writer.writerow([*row, *(p.utilisation[role] for role in ROLES)])
    return text.getvalue()
