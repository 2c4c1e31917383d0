"""An answer as tables and sentences for a terminal (or a pipe: then without colour)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdalloc.planning.answer import Answer, MarginAnswer, PoolAnswer
from pdalloc.planning.margins import MOST
from pdalloc.report.slo_rows import (
    agreement,
    lateness,
    measured,
    slo_bound,
    slo_name,
    slo_predicted,
    verdict,
)
from pdalloc.report.words import digits_of, number, percent, seconds, tokens_per_minute, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "add_row", "digits_of", "measured", "new_table", "number", "percent", "print_answer", "say",
    "seconds", "sign", "tokens_per_minute", "usd", "verdict",
]  # fmt: skip
PROVEN = 1e-6
"""Relative gap between cost and bound below which a cost is called proven."""
MARGINS = (
    ("demand", "demand", "demand"),
    ("slower prefill", "prefill times", "prefill"),
    ("slower decode", "decode times", "decode"),
    ("longer outputs", "output lengths", "output_length"),
)
"""What may grow, in words; the same when it has to shrink; field of MarginAnswer."""


def print_answer(answer: Answer, console: Console | None = None) -> None:
    """Print ``answer`` for people: fleet, pools, SLOs, margins, caveats.

    ``console`` is rich's; by default standard output, 80 columns wide when it is piped.
    """
    from rich.console import Console

    out = console or Console()
    say(out, title(answer), "bold")
    say(out, headline(answer), "red" if answer.status == "infeasible" else "green")
    say(out, demand(answer))
    if answer.pools:
        out.print(_pools(answer.pools))
    for link in answer.links:
        out.print(
            f"{link.link}: {link.utilisation:.0%} used; sharing adds "
            f"{1e3 * link.mean_delay_s:.3g} ms to a KV transfer"
        )
    plus_minus = sign(out, "±", "+-")
    if answer.promises and answer.fleet:
        out.print(_slos(answer, plus_minus))
    for line in [*lateness(answer, plus_minus), *remarks(answer)]:
        say(out, line)
    if answer.alternatives:
        out.print(_alternatives(answer))
    for kind, lines in (("Warning", answer.warnings), ("Estimate", answer.estimates)):
        for line in lines:
            say(out, f"{kind}: {line}", "yellow")


def say(out: Console, line: str, look: str = "") -> None:
    """Print a line of plain words: no markup, nothing highlighted, wrapped at words."""
    out.print(line, style=look, markup=False, highlight=False, emoji=False)


def sign(out: Console, fine: str, plain: str) -> str:
    """``fine`` where the terminal's encoding has it, else ``plain``."""
    try:
        fine.encode(out.encoding)
    except (UnicodeEncodeError, LookupError):
        return plain
    return fine


def title(answer: Answer) -> str:
    """Title and variant."""
    return f"{answer.title}, variant {answer.variant}" if answer.variant else answer.title


def demand(answer: Answer) -> str:
    """Demand in tokens and requests, and what each GPU carries of it."""
    tokens, requests = answer.demand_tokens_per_minute, answer.demand_requests_per_s
    words = f"Demand {tokens_per_minute(tokens)} ({requests:.4g} req/s)"
    if answer.tokens_per_minute_per_gpu is None:
        return f"{words}."
    return f"{words}, {answer.tokens_per_minute_per_gpu:,.0f} tokens/min per GPU."


def headline(answer: Answer) -> str:
    """Fleet, status and cost in words; why not, when no fleet keeps the SLOs."""
    if answer.fleet is None:
        return f"No fleet keeps every SLO: {answer.reason}"
    gpus = " + ".join(f"{count} x {gpu}" for gpu, count in answer.gpus_by_type.items())
    cost = f"{usd(answer.cost_usd_per_hour)} USD/h"
    per_token = f"{usd(answer.cost_usd_per_million_tokens)} USD per million tokens"
    start = f"{answer.xpyd} on {gpus}"
    if answer.status == "infeasible":
        return f"{start} breaks: {answer.reason}; it costs {cost}"
    status = "optimal" if answer.status == "optimal" else "keeps every SLO"
    return f"{start}: {status}, {cost} ({_proof(answer)}), {per_token}"


def _proof(answer: Answer) -> str:
    cost, bound = answer.cost_usd_per_hour or 0.0, answer.bound_usd_per_hour
    if bound is None:
        return "not proven cheapest"
    if cost - bound <= PROVEN * max(cost, 1.0):
        return "proven"
    return f"at least {usd(bound)} is needed"


def new_table(heading: str, columns: list[tuple[str, bool]]) -> Table:
    """An empty table; ``columns`` are (heading, whether it holds numbers)."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=heading,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        header_style="dim",
    )
    for name, numeric in columns:
        table.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
    return table


def add_row(table: Table, *cells: str, look: str = "") -> None:
    """A row of plain text, in one style."""
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells), style=look)


def _pools(pools: list[PoolAnswer]) -> Table:
    owned = any(pool.owned for pool in pools)
    columns = [("role", False), ("type", False), ("replicas", True), ("GPUs", True)]
    columns += [("owned", True)] if owned else []
    columns += [("req/s", True), ("share", True), ("load", True), ("batch", True), ("USD/h", True)]
    table = new_table("Pools", columns)
    for p in pools:
        cells = [p.role, p.replica_type, str(p.replicas), str(p.replicas * p.gpus_per_replica)]
        cells += [str(p.owned)] if owned else []
        cells += [number(p.rate_per_s, ".2f"), number(p.rate_share, ".0%")]
        cells += ["overload" if p.utilisation is None else f"{p.utilisation:.1%}"]
        cells += [number(p.mean_batch, ".1f"), usd(p.cost_usd_per_hour)]
        add_row(table, *cells)
    return table


def _slos(answer: Answer, plus_minus: str) -> Table:
    rows = answer.promises
    simulated = any(measured(row, plus_minus) != "-" for row in rows)
    several = len({row.traffic_class for row in rows}) > 1
    columns = [("class", False)] if several else []
    columns += [("SLO", False), ("bound", True), ("predicted", True)]
    columns += [("simulated", True), ("agrees", False)] if simulated else []
    heading = "SLOs" if answer.slo_scope == "pool" else "SLOs over all requests"
    table = new_table(heading, [*columns, ("verdict", False)])
    for row in rows:
        cells = [row.traffic_class] if several else []
        cells += [slo_name(row), slo_bound(row), slo_predicted(row)]
        cells += [measured(row, plus_minus), agreement(row)] if simulated else []
        add_row(table, *cells, verdict(row), look="red" if "BROKEN" in verdict(row) else "")
    return table


def _alternatives(answer: Answer) -> Table:
    table = new_table(
        "Next-cheapest fleets", [("", False), ("pools", False), ("USD/h", True), ("", True)]
    )
    for other in answer.alternatives:
        more = other.cost_usd_per_hour - (answer.cost_usd_per_hour or 0.0)
        cost = usd(other.cost_usd_per_hour)
        add_row(table, other.xpyd, other.fleet.replace(",", ", "), cost, f"{more:+,.2f}")
    return table


def remarks(answer: Answer) -> list[str]:
    """Margins, most demand served, what mixing saves, and the solver's own numbers."""
    lines = []
    if answer.margin is not None:
        lines.append(_margins(answer.margin))
    lines += _limit(answer)
    if answer.single_type:
        lines.append(_mixing(answer))
    if answer.details:
        lines.append(_details(answer.details))
    return lines


def _margins(margin: MarginAnswer) -> str:
    values = {field: getattr(margin, field) for _, _, field in MARGINS}
    if all(v is not None and v > -5e-5 for v in values.values()):
        words = ", ".join(f"{grow} {percent(values[f])}" for grow, _, f in MARGINS)
        return f"Margins (one at a time): {words}."
    parts = []
    for _, shrink, f in MARGINS:
        value = values[f]
        mends = value is not None and value <= -5e-5
        parts.append(f"{shrink} {percent(value)}" if mends else f"{shrink} alone: never")
    return f"To keep every SLO (one at a time): {', '.join(parts)}."


def _limit(answer: Answer) -> list[str]:
    most, at_least = answer.demand_limit_tokens_per_minute, ""
    if most is None:
        if answer.margin is None or (answer.margin.demand or 0.0) < MOST:
            return []
        most, at_least = answer.demand_tokens_per_minute * (1.0 + MOST), "at least "
    requests = most / answer.demand_tokens_per_minute * answer.demand_requests_per_s
    return [
        f"Most demand within the SLOs: {at_least}{tokens_per_minute(most)} ({requests:.4g} req/s)."
    ]


def _mixing(answer: Answer) -> str:
    costs = answer.single_type
    listed = ", ".join(
        f"{gpu} {'no fleet' if cost is None else f'{usd(cost)} USD/h'}"
        for gpu, cost in costs.items()
    )
    known = [(cost, gpu) for gpu, cost in costs.items() if cost is not None]
    if not known:
        return f"One GPU type alone: {listed}; only a mixed fleet keeps the SLOs."
    cheapest, gpu = min(known)
    saved = cheapest - (answer.cost_usd_per_hour or 0.0)
    if saved <= PROVEN * cheapest:
        return f"One GPU type alone: {listed}; mixing saves nothing."
    return (
        f"One GPU type alone: {listed}; mixing saves {usd(saved)} USD/h "
        f"({100 * saved / cheapest:.1f} %) against {gpu}."
    )


def _details(details: dict[str, float | str]) -> str:
    left = dict(details)
    sentences = []
    keys = (
        "prefill_tokens_per_s_per_replica",
        "decode_tokens_per_s_per_replica",
        "prefill_replicas",
        "decode_replicas",
        "ratio",
        "rounds_to",
    )
    if all(key in left for key in keys):
        tp, td, xp, yd, ratio, fleet = (left.pop(key) for key in keys)
        sentences.append(
            f"Paper's method: {tp:,.0f} prefill and {td:,.0f} decode tokens/s per replica, so "
            f"{xp:.2f} P and {yd:.2f} D (ratio {ratio:.2f}); rounds to {fleet}."
        )
    if "repaired_from" in left:
        before, added = left.pop("repaired_from"), left.pop("added")
        sentences.append(
            f"Repaired: the plan was {before}; with {str(added).replace(',', ', ')} added the "
            "simulation, too, keeps every SLO."
        )
    if left:
        words = ", ".join(
            f"{key.replace('_', ' ')} {value if isinstance(value, str) else f'{value:.4g}'}"
            for key, value in left.items()
        )
        sentences.append(f"Solver: {words}.")
    return " ".join(sentences)
