"""What a plan misses at a price, as sentences."""

from __future__ import annotations

from pdalloc.planning.answer import Answer, ShedAnswer, ShortfallAnswer
from pdalloc.report.words import usd

PROVEN = 1e-6
"""Relative gap between total and bound below which a total is called the least."""


def shortfall(answer: Answer) -> list[str]:
    """What is shed and its price, the total with its proof, and what the rest is about."""
    found = answer.shortfall
    if found is None or found.total_usd_per_hour is None:
        return []
    lines = [_shed(row) for row in found.shed] + [_total(answer, found)]
    if any(row.requests_per_s > 0.0 for row in found.shed) and answer.fleet is not None:
        lines.append(
            f"Served are {answer.demand_requests_per_s:.4g} of "
            f"{found.offered_requests_per_s:.4g} req/s; pools, SLOs and margins are of what is "
            "served."
        )
    return lines


def nothing_served(answer: Answer) -> str:
    """The headline where all is shed."""
    return "Nothing is served: to shed every request costs least"


def _shed(row: ShedAnswer) -> str:
    price = f"{1e3 * row.usd_per_shed_request:.4g} USD per 1000 of them"
    if row.requests_per_s <= 0.0:
        return f"Shed of {row.traffic_class}: nothing ({price} would be the price)."
    return (
        f"Shed of {row.traffic_class}: {row.requests_per_s:.4g} req/s, {100.0 * row.share:.3g} % "
        f"(at most {100.0 * row.most_share:.3g} %), {usd(row.usd_per_hour)} USD/h ({price})."
    )


def _total(answer: Answer, found: ShortfallAnswer) -> str:
    parts = [f"fleet {usd(answer.cost_usd_per_hour)}"]
    parts += [f"shed {usd(found.shed_usd_per_hour)}"] if found.shed else []
    parts += [f"late {usd(found.lateness_usd_per_hour)}"] if answer.lateness else []
    total, bound = found.total_usd_per_hour or 0.0, found.bound_usd_per_hour
    words = f"Total: {' + '.join(parts)} = {usd(total)} USD/h"
    if bound is None:
        return f"{words}."
    if total - bound <= PROVEN * max(total, 1.0):
        return f"{words}, proven least."
    return f"{words}; at least {usd(bound)} is needed."
