"""Why no fleet works, in words, with the nearest bound or stock that would."""

from __future__ import annotations

import itertools
from dataclasses import replace

from pdalloc.allocation.covers import MOST_REPLICAS, covers
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.prediction import DecodeState, PrefillState
from pdalloc.slo.interface import Objective
from pdalloc.slo.objective import milliseconds

ROOM = 1.0 + 1e-9
UNCONDITIONED = (
    "no fleet within stock and limits keeps the SLOs with the replicas that may be lost and the "
    "types that fit each other, though one does without these conditions; relax them"
)


def explain_infeasible(problem: AllocationProblem) -> str:
    """One line: the full link, the SLO that service time alone breaks, or the missing stock."""
    if problem.conditioned and _plain_works(problem):
        return UNCONDITIONED
    paths, full = _idle_paths(problem)
    if not paths:
        return full or "a role has no replica type that may serve it; add a replica type"
    unreachable = [
        _floor_sentence(problem, slo, index, paths)
        for slo, index in problem.capacity.slo_classes
        if min(problem.capacity.value(slo, index, p, d) for p, d in paths) * ROOM >= slo.bound
    ]
    if unreachable:
        return "; ".join(unreachable)
    if all(problem.capacity.slack(p, d) <= 0 for p, d in paths):
        return "each SLO can be met, but no pair of replica types meets all of them at once"
    return _shortage_sentence(problem)


def _plain_works(problem: AllocationProblem) -> bool:
    from pdalloc.allocation.solvers.exact import SOLVER

    return SOLVER.solve(replace(problem, redundancy=0, compatible=None)).cost is not None


def _idle_paths(problem: AllocationProblem) -> tuple[list[tuple[PrefillState, DecodeState]], str]:
    """Paths without load, and in words the shared links that cannot carry the demand of others."""
    predictor, types = problem.capacity.predictor, problem.capacity.system.replica_types
    prefills = [types[o.replica_type] for o in problem.in_role(PREFILL)]
    decodes = [types[o.replica_type] for o in problem.in_role(DECODE)]
    paths, full = [], []
    for r, q in itertools.product(prefills, decodes):
        p, d = predictor.prefill(r, 0.0), predictor.decode(q, 0.0)
        try:
            predictor.transfers.shared(p, q)
            paths.append((p, d))
        except UnstableError as error:
            full.append(str(error))
    return paths, "; ".join(dict.fromkeys(full))


def _floor_sentence(
    problem: AllocationProblem,
    slo: Objective,
    index: int,
    paths: list[tuple[PrefillState, DecodeState]],
) -> str:
    capacity = problem.capacity
    floor, p, _ = min(
        ((capacity.value(slo, index, p, d), p, d) for p, d in paths), key=lambda item: item[0]
    )
    return slo.unreachable_text(floor, _where(problem, slo, index, p))


def _where(problem: AllocationProblem, slo: Objective, index: int, p: PrefillState) -> str:
    """What an unloaded request's time goes to, in words."""
    if slo.limits.keys().isdisjoint({"ttft", "e2e"}):
        return " (one request decoding alone)"
    system = problem.capacity.system
    mix = problem.capacity.predictor.mix.of_class(index)
    times = p.replica_type.latency.prefill_seconds(mix.prompt, mix.cached)
    prefill = milliseconds(float(mix.weight @ times))
    moved = milliseconds(float(mix.weight @ system.transfer_seconds(mix)))
    return f" (prefill {prefill} + KV transfer {moved} on average)"


def _shortage_sentence(problem: AllocationProblem) -> str:
    free = replace(
        problem, stock={}, options=tuple(replace(o, most=float("inf")) for o in problem.options)
    )
    fleet = _unlimited_fleet(free)
    if fleet is None:
        return (
            f"under the SLOs {free.demand:.4g} req/s would take more than {MOST_REPLICAS:,} "
            "replicas of any type in some role; lower the demand, or loosen the SLO near its floor"
        )
    missing = [
        f"{used} {gpu} GPUs against {problem.stock[gpu]} in stock "
        f"({used - problem.stock[gpu]} short)"
        for gpu, used in free.gpus(fleet).items()
        if gpu in problem.stock and used > problem.stock[gpu]
    ]
    limits = [
        f"{fleet.count(o.role, o.replica_type)} replicas of {o.role}/{o.replica_type} against a "
        f"limit of {o.most:g}"
        for o in problem.options
        if fleet.count(o.role, o.replica_type) > o.most
    ]
    if not missing and not limits:
        return (
            f"no fleet within stock and limits keeps every SLO at {problem.demand:.4g} req/s; "
            "raise stock or limits, loosen the SLO that spans both stages, or lower the demand"
        )
    needs = " and ".join(missing + limits)
    return (
        f"stock or limits are too small for {problem.demand:.4g} req/s: the cheapest fleet "
        f"without them, {fleet.xpyd} ({fleet}), needs {needs}; raise them or lower the demand"
    )


def _unlimited_fleet(free: AllocationProblem) -> Fleet | None:
    """The cheapest fleet with neither stock nor limits; None when even that has none."""
    if not free.capacity.linear:
        from pdalloc.allocation.solvers.exact import SOLVER

        return SOLVER.solve(free).fleet if _reachable(free) else None
    counts: dict[tuple[str, str], int] = {}
    for role in ROLES:
        options = free.in_role(role)
        found = next(covers(options, [free.rate(o) for o in options], free.demand, {}), None)
        if found is None:
            return None
        counts |= {(o.role, o.replica_type): n for o, n in zip(options, found[1], strict=True)}
    return Fleet.of(counts)


def _reachable(free: AllocationProblem) -> bool:
    """Whether some type of each role admits enough for a finite fleet."""
    return all(
        any(free.rate(o) * MOST_REPLICAS >= free.demand for o in free.in_role(role))
        for role in ROLES
    )
