r"""MILP rounds: exact answers also where SLOs couple the stages.

With coupled stages the rates of :mod:`pdalloc.allocation.linear` are upper bounds (idle
partners), so its MILP is a relaxation. Once the decode counts d are fixed, the prefill rates
:math:`\kappa(d)` at which the fleet is routed are numbers. Each d that a round proposes with
too little prefill adds a cut:

    *either* some decode count differs from d *or*
    :math:`\sum_{i \in prefill} \kappa_i(d)\, n_i \ge \lambda`.

**Exactness.** A fleet (n, d) keeps the SLOs just when its prefill covers the demand at
kappa(d), so a cut removes none that does: every round is a relaxation, its optimum a lower
bound, and the first answer that keeps the SLOs attains it. **Termination.** A cut removes the
answer it was made from, and decode counts return only with enough prefill: in a box of
counts the rounds end. The box is proven after the fact: a count beyond it would cost more
than the answer by itself, or else the box grows.

No monotonicity is used. "Some count must exceed a failed fleet's" would be a shorter cut, if
one more replica could never break an SLO. That is so when traffic may be split at will (leave
the new replica idle), but not under the routing rule of :mod:`pdalloc.capacity`, where every
decode type that is there is loaded to the common level: a type added to a fleet may break
an SLO that the fleet kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pdalloc.allocation.certify import certify
from pdalloc.allocation.covers import MOST_REPLICAS
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.linear import COVERED, Array, Cut, LinearData, linear_data, useful
from pdalloc.allocation.problem import Allocation, AllocationProblem, infeasible
from pdalloc.allocation.tables.rows import capacity_rows, learn
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES

MOST_ROUNDS = 60
"""MILPs solved before a coupled problem is given up."""

Minimise = Callable[[LinearData], tuple[Array, float] | None]
"""A backend: (counts (n,), proven lower bound in USD/hour), or None when infeasible."""


def solve_in_rounds(problem: AllocationProblem, solver: str, minimise: Minimise) -> Allocation:
    """The cheapest fleet, certified; ``minimise`` solves one MILP.

    Raises UnsupportedError for pools that share a queue under SLOs that span both stages, when
    MOST_ROUNDS do not settle a coupled problem, or when the answer breaks a constraint by less
    than a MILP solver's tolerance.
    """
    problem = problem.with_headroom()
    if problem.conditioned and not problem.capacity.linear:
        raise UnsupportedError(
            f"solver {solver!r} knows redundancy and compatible types for dispatch: random and "
            "SLOs of one stage each; leave one of them out"
        )
    if problem.slo_scope == "population":
        raise UnsupportedError(
            f"solver {solver!r} knows slo_scope: pool; use --solver exact for population"
        )
    data = linear_data(problem)
    if any(problem.capacity.pooled(role) for role in ROLES):
        if problem.capacity.coupled:
            raise UnsupportedError(
                f"solver {solver!r} knows dispatch: random where an SLO spans both stages; "
                "use --solver exact"
            )
        return _solve_by_sizes(problem, solver, minimise, data)
    if not all(data.share[data.members(role)].any() for role in ROLES):
        return infeasible(solver, explain_infeasible(problem))
    for rounds in range(1, MOST_ROUNDS + 1):
        found = minimise(data)
        counts = None if found is None else np.round(found[0])
        after = _next_round(problem, data, counts) if problem.capacity.coupled else None
        if after is not None:
            data = after
        elif found is None or counts is None:
            return infeasible(solver, explain_infeasible(problem))
        else:
            return _answer(problem, solver, data, counts, found[1], rounds)
        if data.ceiling.max() > MOST_REPLICAS:
            break
    raise UnsupportedError(
        f"solver {solver!r} has not settled this problem, whose SLOs span both stages, after "
        f"{rounds} rounds; use --solver exact"
    )


def _solve_by_sizes(
    problem: AllocationProblem, solver: str, minimise: Minimise, data: LinearData
) -> Allocation:
    """One MILP after the other over capacity tables, until the answer's entries are exact."""
    rows = capacity_rows(problem)
    if rows is None:
        raise UnsupportedError(f"solver {solver!r}: tables grow too long; use --solver exact")
    place = {(row.option.role, row.option.replica_type): row for row in rows}
    by_option = [place[o.role, o.replica_type] for o in data.options]
    pooled = {i: r for i, r in enumerate(by_option) if problem.capacity.pooled(r.option.role)}
    ceiling = data.ceiling.copy()
    for i, row in pooled.items():
        ceiling[i] = row.most
    for rounds in range(1, MOST_ROUNDS + 1):
        sizes = {i: row.upper() for i, row in pooled.items()}
        found = minimise(replace(data, ceiling=ceiling, sizes=sizes))
        if found is None:
            return infeasible(solver, explain_infeasible(problem))
        counts = np.round(found[0])
        if not learn(problem, pooled.values(), data.fleet(counts)):
            return _answer(problem, solver, data, counts, found[1], rounds)
    raise UnsupportedError(
        f"solver {solver!r} has not settled this problem after {rounds} rounds of tables; "
        "use --solver exact"
    )


def _next_round(
    problem: AllocationProblem, data: LinearData, counts: Array | None
) -> LinearData | None:
    """``data`` with a cut against ``counts`` or a wider box; None when they are settled."""
    cost = math.inf
    if counts is not None:
        share = _prefill_shares(problem, data, counts)
        if share @ counts < COVERED:
            cut = Cut(data.only(DECODE, counts), share)
            return replace(data, cuts=(*data.cuts, cut))
        cost = data.cost(counts)
    reach = data.reach(cost)
    if np.all(reach <= data.ceiling):
        return None
    return replace(data, ceiling=np.maximum(data.ceiling, np.minimum(reach, 2 * data.ceiling)))


def _prefill_shares(problem: AllocationProblem, data: LinearData, counts: Array) -> Array:
    """Share of the demand per prefill replica beside these decode counts, else 0; (n,)."""
    if not problem.capacity.coupled:
        return data.only(PREFILL, data.share)
    decodes = {p.replica_type: p.replicas for p in data.fleet(data.only(DECODE, counts)).pools}
    prefills = {data.options[i].replica_type: 1 for i in data.members(PREFILL)}
    rates = problem.capacity.prefill_rates(prefills, decodes, problem.demand)
    share = np.zeros_like(data.share)
    share[data.members(PREFILL)] = [rates[name] / problem.demand for name in prefills]
    return useful(share)


def _answer(
    problem: AllocationProblem,
    solver: str,
    data: LinearData,
    counts: Array,
    bound: float,
    rounds: int,
) -> Allocation:
    fleet = data.fleet(_trimmed(problem, data, counts))
    check = certify(problem, fleet)
    if not check.certified:
        raise UnsupportedError(
            f"solver {solver!r} is at its tolerance: {fleet} fails by a hair "
            f"({'; '.join(check.broken)}); use --solver exact"
        )
    cost = problem.cost(fleet)
    details = {"rounds": rounds, "cuts": len(data.cuts)}
    if problem.capacity.only_by_rule:
        return Allocation("feasible", solver, fleet, cost, None, details=details)
    return Allocation("optimal", solver, fleet, cost, min(bound, cost), details=details)


def _trimmed(problem: AllocationProblem, data: LinearData, counts: Array) -> Array:
    """``counts`` without replicas that carry nothing: owned ones are free to a MILP.

    With coupled stages only prefill is trimmed: an idle decode replica speeds up the others.
    """
    counts = counts.copy()
    if data.redundancy:
        return _without_idle(data, counts)
    if any(problem.capacity.pooled(role) for role in ROLES):
        return counts
    shares = [_prefill_shares(problem, data, counts)]
    if not problem.capacity.coupled:
        shares.append(data.only(DECODE, data.share))
    for role, share in zip(ROLES, shares, strict=False):
        for i in sorted(data.members(role), key=lambda i: -data.gpus[i]):
            surplus = float(share @ counts) - COVERED
            idle = math.floor(surplus / share[i]) if share[i] > 0 else counts[i]
            counts[i] -= min(counts[i], max(idle, 0))
    return counts


def _without_idle(data: LinearData, counts: Array) -> Array:
    """``counts`` without replicas that are missed by nobody, whatever pool loses some."""
    for i in sorted(range(len(counts)), key=lambda i: -data.gpus[i]):
        role = data.options[i].role
        while counts[i] > 0.0:
            counts[i] -= 1.0
            if data.surplus(role, counts) < 0.0:
                counts[i] += 1.0
                break
    return counts
