"""An explanation in plain sentences, each with its numbers and units."""

from __future__ import annotations

import math

from pdalloc.fleet import ROLES
from pdalloc.planning.answer import JointSloAnswer, SloAnswer
from pdalloc.planning.compare import steady_state
from pdalloc.planning.explain import BY
from pdalloc.planning.explain_answer import (
    AssumptionAnswer,
    ChangeAnswer,
    ExplainAnswer,
    JointSloExplained,
    MeritAnswer,
    SloExplained,
)
from pdalloc.planning.margins import MOST
from pdalloc.report.slo_rows import slo_bound, slo_name, slo_predicted
from pdalloc.report.words import percent, tokens_per_minute, usd

NOTHING = 5e-3
"""USD/hour that is not worth a word."""


def headline(answer: ExplainAnswer) -> str:
    """The fleet, its cost, and whether anything cheaper would do."""
    if answer.fleet is None:
        return f"No fleet keeps every SLO: {answer.reason}."
    gpus = " + ".join(f"{count} x {gpu}" for gpu, count in answer.gpus_by_type.items())
    start = f"{answer.xpyd} on {gpus} at {usd(answer.cost_usd_per_hour)} USD/h"
    if answer.status == "infeasible":
        return f"{start} breaks: {answer.reason}. {_best(answer)}"
    if answer.fleet == answer.best_fleet:
        proof = " (proven)" if answer.best_proven else " found; that is not proven"
        return f"{start} is the cheapest fleet that keeps every SLO{proof}."
    return f"{start} keeps every SLO. {_best(answer)}"


def _best(answer: ExplainAnswer) -> str:
    """The cheapest fleet beside a given one."""
    if answer.best_cost_usd_per_hour is None:
        return "No fleet does."
    more = answer.best_cost_usd_per_hour - (answer.cost_usd_per_hour or 0.0)
    words = f"{usd(abs(more))} USD/h {'more' if more > 0 else 'less'}"
    cost = usd(answer.best_cost_usd_per_hour)
    return f"The cheapest that does is {answer.best_xpyd} at {cost} USD/h, {words}."


def why_this_many(answer: ExplainAnswer) -> list[str]:
    """Fractions by formula, rounded, and what the rounding costs."""
    lines = []
    for f in answer.fractions:
        formula = f" ({f.formula})" if f.formula else ""
        lines.append(
            f"{f.role.capitalize()}: one {f.replica_type} replica admits {f.admits_per_s:.4g} "
            f"req/s within the SLOs, so {answer.demand_requests_per_s:.4g} req/s need "
            f"{f.count:.2f} replicas{formula}; {_rounding(f.count, f.replicas)}."
        )
    lines += [_merit([m for m in answer.merit if m.role == role]) for role in ROLES]
    lines = [line for line in lines if line]
    relaxed, cost = answer.relaxed_usd_per_hour, answer.cost_usd_per_hour
    if relaxed is not None and cost is not None and answer.status != "infeasible":
        more = cost - relaxed
        if more > NOTHING and len(answer.fractions) == 2:
            lines.append(
                f"In fractions the fleet would cost {usd(relaxed)} USD/h: whole replicas cost "
                f"{usd(more)} USD/h ({100.0 * more / relaxed:.1f} %) on top."
            )
    return lines


def _merit(types: list[MeritAnswer]) -> str:
    """The merit order of one role in a sentence; nothing where one type may serve it."""
    if not types:
        return ""
    order = ", ".join(
        f"{m.replica_type} {m.usd_per_hour_per_request_per_s:.2f} (has {m.replicas})" for m in types
    )
    words = f"{types[0].role.capitalize()} in merit order, USD/h per req/s admitted: {order}."
    if any(m.replicas for m in types[1:]):
        words += " Dearer ones come in where whole replicas, or the stock, make them worth it."
    return words


def _rounding(count: float, replicas: int) -> str:
    up = math.ceil(count * (1.0 - 1e-9))
    if replicas == up:
        return f"rounded up, {replicas}"
    return f"rounded up {up}, and the fleet has {replicas}"


def what_binds(answer: ExplainAnswer) -> list[str]:
    """What one replica fewer breaks, pool by pool."""
    return [_fewer(c, answer) for c in answer.changes if c.change == -1]


def _fewer(c: ChangeAnswer, answer: ExplainAnswer) -> str:
    pool = f"{c.role} {c.replica_type}"
    start = f"With one {pool} replica fewer"
    if c.keeps and answer.status != "infeasible":
        return f"{start} every SLO still holds, for {usd(c.cost_usd_per_hour)} USD/h."
    if not all(map(steady_state, c.promises)):
        return f"{start} there is no steady state."
    parts = [
        f"{name(slo)} is {slo_predicted(slo)} against {slo_bound(slo)}"
        for slo in c.promises
        if not slo.kept
    ]
    return f"{start} {' and '.join(parts)}." if parts else f"{start} every SLO holds."


def what_slos_cost(answer: ExplainAnswer) -> list[str]:
    """What each SLO costs, and its price at the margin of the relaxation."""
    base = answer.best_cost_usd_per_hour
    if base is None:
        return [_mends(s) for s in answer.explained if s.without.cost_usd_per_hour is not None]
    lines = [_cost_of(s, base) for s in answer.explained]
    priced = [
        f"{name(s.slo)} {usd(-price * s.slo.bound_s / 100.0)} USD/h"
        for s in answer.slos
        if (price := s.relaxed_usd_per_hour_per_s) is not None
    ]
    if priced:
        lines.append(
            f"In fractions 1 % on a bound is worth: {', '.join(priced)} (finite difference, "
            "stock aside)."
        )
    return lines


def _cost_of(s: SloExplained | JointSloExplained, base: float) -> str:
    without = s.without.cost_usd_per_hour
    title = name(s.slo)
    if without is None or base - without <= NOTHING:
        return f"{title} costs nothing: without it the cheapest fleet costs the same."
    words = f"{title} costs {usd(base - without)} USD/h: without it {s.without.xpyd} would do"
    if isinstance(s, JointSloExplained):
        return f"{words}."
    tighter, looser = s.tighter.cost_usd_per_hour, s.looser.cost_usd_per_hour
    by = f"{100 * BY:.0f} %"
    tight = "no fleet keeps it" if tighter is None else _difference(tighter - base)
    loose = "nothing changes" if looser is None else _difference(looser - base)
    return f"{words}. {by} tighter: {tight}; {by} looser: {loose}."


def _difference(more: float) -> str:
    if abs(more) <= NOTHING:
        return "the same cost"
    return f"{usd(abs(more))} USD/h {'more' if more > 0 else 'less'}"


def _mends(s: SloExplained | JointSloExplained) -> str:
    cost = usd(s.without.cost_usd_per_hour)
    return f"Without {name(s.slo)} there would be a fleet: {s.without.xpyd} at {cost} USD/h."


def what_it_leans_on(answer: ExplainAnswer) -> list[str]:
    """How far demand can grow; which assumption breaks the fleet first; prices."""
    if not answer.assumptions:
        return []
    if answer.status == "infeasible":
        return [_to_mend(answer.assumptions)]
    growth = next(a for a in answer.assumptions if a.name == "demand")
    lines = [_growth(answer, growth)]
    first = answer.assumptions[0]
    if first.margin is not None and first.margin < MOST:
        others = [a for a in answer.assumptions[1:] if a.margin is not None and a.margin < MOST]
        rest = ", ".join(f"{a.name} {percent(a.margin)}" for a in others)
        lines.append(
            f"It leans most on {first.name}: beyond {percent(first.margin)} {_breaks(first)}."
            + (f" Then: {rest}." if rest else "")
        )
    if answer.prices:
        edges = " or ".join(f"{p.name} beyond {percent(p.margin)}" for p in answer.prices)
        lines.append(f"Another fleet becomes cheapest with the {edges}.")
    if answer.fleet == answer.best_fleet and len(answer.gpus_by_type) == 1 and not answer.prices:
        lines.append("No price between half and double its own makes another fleet cheapest.")
    return lines


def _growth(answer: ExplainAnswer, growth: AssumptionAnswer) -> str:
    margin = growth.margin or 0.0
    if margin >= MOST:
        return f"Demand can grow at least {1.0 + MOST:.0f}-fold."
    most = tokens_per_minute((1.0 + margin) * answer.demand_tokens_per_minute)
    return f"Demand can grow by {percent(margin)[1:]} to {most}; beyond, {_breaks(growth)}."


def _breaks(a: AssumptionAnswer) -> str:
    if not a.effect or a.effect.startswith(("KV", "no ")):
        return a.effect or "an SLO breaks"
    return f"{a.effect} {'break' if ', ' in a.effect else 'breaks'}"


def _to_mend(found: list[AssumptionAnswer]) -> str:
    mending = [a for a in found if a.margin is not None and a.margin < 0.0]
    if not mending:
        return "No single change of those looked at would let this fleet keep every SLO."
    words = " or ".join(f"{a.name} {percent(a.margin)}" for a in mending)
    return f"This fleet would keep every SLO with {words}; nothing else alone helps."


def name(slo: SloAnswer | JointSloAnswer) -> str:
    """``TTFT P99``; of a joint SLO its limits, in one line."""
    return slo_name(slo).replace("\n", " ")


def change_cells(slo: SloAnswer | JointSloAnswer) -> str:
    """``16.92 ms``; with a mark where the bound is broken."""
    return slo_predicted(slo) + ("" if slo.kept or not steady_state(slo) else " !")
