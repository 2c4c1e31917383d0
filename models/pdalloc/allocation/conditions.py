"""What a fleet must bear beyond its demand: headroom, lost replicas, types that do not fit."""

from __future__ import annotations

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.serving import serves
from pdalloc.fleet import DECODE, PREFILL, Fleet


def misfits(problem: AllocationProblem, fleet: Fleet) -> list[tuple[str, str]]:
    """(prefill type, decode type) of ``fleet`` that do not fit each other."""
    if problem.compatible is None:
        return []
    return [
        (p.replica_type, d.replica_type)
        for p in fleet.in_role(PREFILL)
        for d in fleet.in_role(DECODE)
        if (p.replica_type, d.replica_type) not in problem.compatible
    ]


def remainders(fleet: Fleet, lost: int) -> dict[tuple[str, str], Fleet]:
    """What is left of ``fleet`` when a pool, by (role, type), loses up to ``lost`` replicas."""
    return {
        key: Fleet.of({**fleet.counts, key: max(n - lost, 0)}) for key, n in fleet.counts.items()
    }


def broken_conditions(problem: AllocationProblem, fleet: Fleet) -> list[str]:
    """Where ``fleet`` misses headroom, redundancy or compatibility, in words."""
    broken = [
        f"prefill/{p} and decode/{d} do not fit each other" for p, d in misfits(problem, fleet)
    ]
    planned = problem.with_headroom()
    if problem.headroom > 0.0 and not serves(planned, fleet):
        broken.append(f"the SLOs break within the headroom of {problem.headroom:.0%}")
    if problem.redundancy > 0:
        for (role, name), left in remainders(fleet, problem.redundancy).items():
            if not serves(planned, left):
                broken.append(f"the SLOs break when {problem.redundancy} of {role}/{name} are lost")
    return broken
