"""A simulated fleet as tables and sentences for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdalloc.planning.simulation_answer import EstimateAnswer, SimulationAnswer
from pdalloc.report.slo_rows import simulated, simulated_lateness, slo_bound, slo_name
from pdalloc.report.table import (
    add_row,
    new_table,
    say,
    sign,
)
from pdalloc.report.words import interval, number, seconds, time_interval, tokens_per_minute, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STAGE_NAMES = {
    "queue_prefill": "waiting for prefill",
    "in_prefill": "in prefill",
    "in_transfer": "moving",
    "queue_decode": "waiting for a slot",
    "in_decode": "decoding",
}
LOOKS = {"keeps": "", "too close to call": "yellow", "too few to judge": "yellow", "breaks": "red"}
"""A verdict's colour; each verdict is worse than the one before."""


def print_simulation(answer: SimulationAnswer, console: Console | None = None) -> None:
    """Print ``answer`` for people: SLOs, latencies, pools, what became of the requests."""
    from rich.console import Console

    out = console or Console()
    plus_minus = sign(out, "±", "+-")
    title = answer.title if answer.variant is None else f"{answer.title}, variant {answer.variant}"
    say(out, title, "bold")
    say(out, headline(answer), LOOKS[worst_verdict(answer)] or "green")
    say(out, effort(answer))
    out.print(_slos(answer, plus_minus))
    out.print(_latencies(answer, plus_minus))
    out.print(_pools(answer, plus_minus))
    for line in remarks(answer, plus_minus):
        say(out, line)
    for kind, lines in (("Warning", answer.warnings), ("Estimate", answer.estimates)):
        for line in lines:
            say(out, f"{kind}: {line}", "yellow")


def worst_verdict(answer: SimulationAnswer) -> str:
    """The worst of all SLOs' verdicts."""
    return max((row.verdict for row in answer.promises), key=list(LOOKS).index)


def headline(answer: SimulationAnswer) -> str:
    """Fleet, verdict and cost in one line."""
    gpus = " + ".join(f"{count} x {gpu}" for gpu, count in answer.gpus_by_type.items())
    fleet = f"{answer.fleet} co-located" if answer.xpyd is None else answer.xpyd
    found = {
        "keeps": "keeps every SLO in simulation",
        "breaks": "breaks an SLO in simulation",
        "too close to call": "is too close to call",
        "too few to judge": "saw too few requests to be judged",
    }[worst_verdict(answer)]
    return f"{fleet} on {gpus} {found}, {usd(answer.cost_usd_per_hour)} USD/h"


def effort(answer: SimulationAnswer) -> str:
    """Demand, and how much was simulated."""
    return (
        f"Demand {tokens_per_minute(answer.demand_tokens_per_minute)} "
        f"({answer.demand_requests_per_s:.4g} req/s); {answer.replications} replications of "
        f"{answer.requests:,} requests, the first and last tenth of each left out, 95 % intervals."
    )


def with_interval(estimate: EstimateAnswer, plus_minus: str, scale: float, unit: str) -> str:
    """``777 ± 12 ms``: both to the second digit of the half-width."""
    return interval(estimate.value, estimate.half_width, plus_minus, scale, unit)


def _time(estimate: EstimateAnswer, plus_minus: str) -> str:
    return time_interval(estimate.value, estimate.half_width, plus_minus)


def _slos(answer: SimulationAnswer, plus_minus: str) -> Table:
    rows = answer.promises
    several = len({row.traffic_class for row in rows}) > 1
    columns = [("class", False)] if several else []
    columns += [("SLO", False), ("bound", True), ("simulated", True), ("verdict", False)]
    table = new_table("SLOs", columns)
    for row in rows:
        cells = [row.traffic_class] if several else []
        cells += [slo_name(row), slo_bound(row), simulated(row, plus_minus)]
        add_row(table, *cells, row.verdict, look=LOOKS[row.verdict])
    return table


def _latencies(answer: SimulationAnswer, plus_minus: str) -> Table:
    several = len({row.traffic_class for row in answer.latencies}) > 1
    columns = [("class", False)] if several else []
    columns += [("", False), ("mean", True)]
    table = new_table("Latencies", columns + [(f"P{p}", True) for p in (50, 90, 95, 99)])
    for row in answer.latencies:
        cells = [row.traffic_class] if several else []
        cells += [row.metric.upper(), _time(row.mean_s, plus_minus)]
        cells += [seconds(e.value) for e in (row.p50_s, row.p90_s, row.p95_s, row.p99_s)]
        add_row(table, *cells)
    return table


def _pools(answer: SimulationAnswer, plus_minus: str) -> Table:
    columns = [("role", False), ("type", False), ("replicas", True), ("GPUs", True)]
    table = new_table("Pools", [*columns, ("req/s", True), ("busy", True)])
    for p in answer.pools:
        cells = [p.role, p.replica_type, str(p.replicas), str(p.replicas * p.gpus_per_replica)]
        busy = with_interval(p.utilisation, plus_minus, 100.0, " %")
        add_row(table, *cells, number(p.rate_per_s, ".2f"), busy)
    return table


def remarks(answer: SimulationAnswer, plus_minus: str) -> list[str]:
    """Attainment, goodput, who got nothing, queue lengths, cost per token."""
    met = with_interval(answer.attainment, plus_minus, 100.0, " %")
    goodput = with_interval(answer.goodput_requests_per_s, plus_minus, 1.0, "")
    bounds = answer.attainment_bounds
    together = " at once" if len(bounds) > 1 else ""
    lines = [
        f"Attainment {met} of requests keep {'; '.join(bounds)}{together}: goodput {goodput} req/s."
    ]
    lines += simulated_lateness(answer.lateness, plus_minus)
    happened = [
        f"{with_interval(estimate, plus_minus, 100.0, '')} {words}"
        for words, estimate in (
            ("time out for good", answer.timeout_share),
            ("are rejected for good", answer.rejected_share),
            ("retries", answer.retries_per_request),
            ("KV caches lost and recomputed", answer.recomputes_per_request),
        )
        if estimate.value > 0.0
    ]
    if happened:
        lines.append(f"Of 100 requests {', '.join(happened)}.")
    stages = ", ".join(f"{STAGE_NAMES[s]} {e.value:.3g}" for s, e in answer.stages.items())
    lines.append(f"Requests present on average: {stages}.")
    if answer.usd_per_million_tokens is not None:
        lines.append(
            f"{usd(answer.usd_per_million_tokens.value)} USD per million tokens served; Little's "
            f"law within {abs(answer.littles_law_gap.value):.1%}."
        )
    return lines
