"""Dedicated pools as tables and sentences for a terminal: the sum first, then each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdalloc.planning.dedicated_answer import DedicatedAnswer, PartAnswer, SharedAnswer, TriedAnswer
from pdalloc.report.table import PROVEN, add_row, new_table, print_answer, say
from pdalloc.report.words import tokens_per_minute, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PROMISES = {"class": "SLOs over each class", "bucket": "SLOs in each bucket"}


def print_dedicated(answer: DedicatedAnswer, console: Console | None = None) -> None:
    """Print ``answer`` for people: totals, shared pools beside it, then every part.

    ``console`` as in :func:`pdalloc.report.table.print_answer`. What several parts warn of is
    said once.
    """
    from rich.console import Console

    out = console or Console()
    say(
        out, f"{answer.title}, variant {answer.variant}" if answer.variant else answer.title, "bold"
    )
    say(out, headline(answer), "red" if answer.status == "infeasible" else "green")
    demand = tokens_per_minute(answer.demand_tokens_per_minute)
    say(out, f"Demand {demand} ({answer.demand_requests_per_s:.4g} req/s).")
    if answer.parts:
        out.print(_totals(answer))
    for shared in answer.shared:
        say(out, shared_words(shared))
    if answer.tried:
        say(out, tried_words(answer.tried))
    for line in answer.warnings:
        say(out, f"Warning: {line}", "yellow")
    said: set[str] = set(answer.warnings)
    for part in answer.parts:
        say(out, "")
        _print_part(part, said, out)


def headline(answer: DedicatedAnswer) -> str:
    """GPUs, status, cost and proof in words; why not, where there is no answer."""
    if not answer.parts:
        return f"No dedicated pools keep every SLO: {answer.reason}"
    gpus = " + ".join(f"{count} x {gpu}" for gpu, count in answer.gpus_by_type.items())
    cost = f"{usd(answer.cost_usd_per_hour)} USD/h"
    start = f"Dedicated pools on {gpus}"
    if answer.status == "infeasible":
        return f"{start} break: {answer.reason}; they cost {cost}"
    status = "optimal" if answer.status == "optimal" else "every SLO is kept"
    total, bound = answer.cost_usd_per_hour or 0.0, answer.bound_usd_per_hour or 0.0
    proven = total - bound <= PROVEN * max(total, 1.0)
    proof = f"proven by {answer.proof}" if proven else f"at least {usd(bound)} is needed"
    per_token = f"{usd(answer.cost_usd_per_million_tokens)} USD per million tokens"
    return f"{start}: {status}, {cost} ({proof}), {per_token}"


def tried_words(tried: list[TriedAnswer]) -> str:
    """``Buckets tried: none 442.00, chat[<=214] chat[>214] 459.68 USD/h.``"""
    each = [f"{' '.join(t.buckets) or 'none'} {usd(t.cost_usd_per_hour)}" for t in tried]
    return f"Buckets tried: {', '.join(each)} USD/h."


def shared_words(shared: SharedAnswer) -> str:
    """``Shared pools (...): 12P13D, 442.00 USD/h; dedicated pools cost 8.0 % more.``"""
    start = f"Shared pools ({PROMISES[shared.promise]})"
    if shared.fleet is None:
        return f"{start}: none ({shared.reason})."
    words = f"{start}: {shared.xpyd}, {usd(shared.cost_usd_per_hour)} USD/h"
    if shared.status == "feasible":
        words += f" (at least {usd(shared.bound_usd_per_hour)} is needed)"
    change = shared.dedicated_change
    if change is None:
        return f"{words}."
    if abs(change) < PROVEN:
        return f"{words}; dedicated pools cost as much."
    return f"{words}; dedicated pools cost {abs(change):.1%} {'more' if change > 0 else 'less'}."


def _totals(answer: DedicatedAnswer) -> Table:
    columns = [("classes", False), ("fleet", False), ("req", True), ("tokens", True)]
    table = new_table("Parts", [*columns, ("GPUs", True), ("USD/h", True)])
    for part in answer.parts:
        a = part.answer
        add_row(
            table,
            ", ".join(part.classes),
            a.xpyd or "-",
            f"{part.rate_share:.1%}",
            f"{part.token_share:.1%}",
            " + ".join(f"{count} {gpu}" for gpu, count in a.gpus_by_type.items()),
            usd(a.cost_usd_per_hour),
        )
    gpus = " + ".join(f"{count} {gpu}" for gpu, count in answer.gpus_by_type.items())
    add_row(table, "all", "", "100.0%", "100.0%", gpus, usd(answer.cost_usd_per_hour))
    return table


def _print_part(part: PartAnswer, said: set[str], out: Console) -> None:
    """The part's own answer, without what was said before, and what cannot decode it."""
    new = {
        kind: [line for line in getattr(part.answer, kind) if line not in said]
        for kind in ("warnings", "estimates")
    }
    said |= {*new["warnings"], *new["estimates"]}
    print_answer(part.answer.model_copy(update=new), out)
    if part.left_out:
        names = ", ".join(part.left_out)
        say(out, f"Left out: {names} cannot hold the longest request of this part.")
