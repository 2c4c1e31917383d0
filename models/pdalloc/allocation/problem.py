r"""The allocation problem as data, and what a solver answers.

.. math:: \min \sum_{s,r} c_r n_{s,r} \quad \text{s.t.} \quad
          \sum_r \kappa_{s,r} n_{s,r} \ge \lambda, \quad
          \sum_{s,r: g(r) = g} k_r n_{s,r} \le \text{stock}_g, \quad n \in \mathbb{Z}_+,

with kappa the admissible rate of a replica. When an SLO spans both stages, kappa of prefill
depends on how decode is loaded; under dispatch rules that pool replicas, kappa also grows with
n (:mod:`pdalloc.capacity`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pdalloc.capacity import Capacity
from pdalloc.errors import InputError
from pdalloc.fleet import Fleet, Role

COST_DIGITS = 9
"""Costs are rounded to a nano-dollar: sums of equal prices are ties, whatever their order."""
SloScope = Literal["pool", "population"]
Status = Literal["optimal", "feasible", "infeasible"]


@dataclass(frozen=True)
class Option:
    """One (role, replica type) that may be deployed.

    ``gpus`` and ``usd_per_hour`` per replica; ``owned`` replicas cost nothing; at most
    ``most`` replicas.
    """

    role: Role
    replica_type: str
    gpu: str
    gpus: int
    usd_per_hour: float
    owned: int = 0
    most: float = math.inf

    def cost(self, replicas: int) -> float:
        """USD/hour of ``replicas`` replicas beyond the owned ones."""
        return self.usd_per_hour * max(replicas - self.owned, 0)


@dataclass(frozen=True)
class AllocationProblem:
    """Serve ``demand`` requests/s in every role at least cost.

    ``stock`` GPUs per GPU name; a GPU that is not named is unlimited. ``slo_scope``: each pool
    keeps every SLO by itself, or all requests of a class together do. ``headroom``: share of
    the demand to be served beside it. ``redundancy``: replicas of any one pool that may be lost
    while every SLO is still kept. ``compatible``: (prefill type, decode type) pairs that fit
    each other (None: all); every prefill type of a fleet must fit every decode type, because a
    request's decode replica is chosen whatever its prefill replica is.
    """

    capacity: Capacity
    demand: float
    options: tuple[Option, ...]
    stock: Mapping[str, int] = field(default_factory=dict)
    slo_scope: SloScope = "pool"
    headroom: float = 0.0
    redundancy: int = 0
    compatible: frozenset[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        if not self.headroom >= 0.0:
            raise InputError(f"headroom: must not be negative, got {self.headroom:g}")
        if self.redundancy < 0:
            raise InputError(f"redundancy: must not be negative, got {self.redundancy}")

    @property
    def conditioned(self) -> bool:
        """Whether more is asked than that the fleet as it stands serves the demand."""
        return self.redundancy > 0 or self.compatible is not None

    def with_headroom(self) -> AllocationProblem:
        """The same problem at the demand that has the headroom on it."""
        return replace(self, demand=self.demand * (1.0 + self.headroom), headroom=0.0)

    def in_role(self, role: Role) -> tuple[Option, ...]:
        """The options of one role."""
        return tuple(option for option in self.options if option.role == role)

    def rate(self, option: Option) -> float:
        """Admissible requests/s per replica; an upper bound unless the capacity is linear."""
        r = self.capacity.system.replica_types[option.replica_type]
        return self.capacity.relaxed_rate(option.role, r, self.demand)

    def cost(self, fleet: Fleet) -> float:
        """USD/hour of ``fleet``, owned replicas free."""
        total = sum(o.cost(fleet.count(o.role, o.replica_type)) for o in self.options)
        return round(total, COST_DIGITS)

    def gpus(self, fleet: Fleet) -> dict[str, int]:
        """GPUs by GPU name."""
        used: dict[str, int] = {}
        for o in self.options:
            count = fleet.count(o.role, o.replica_type)
            if count:
                used[o.gpu] = used.get(o.gpu, 0) + count * o.gpus
        return used


@dataclass(frozen=True)
class Allocation:
    """A solver's answer.

    ``bound`` is a proven lower bound on the cost in USD/hour (None where the solver proves
    none); ``details`` holds numbers of the solver's own, by name; ``reason`` says in words
    why there is no fleet, or why this one does not keep the SLOs.
    """

    status: Status
    solver: str
    fleet: Fleet
    cost: float | None
    bound: float | None
    reason: str = ""
    details: Mapping[str, float | str] = field(default_factory=dict)
    alternatives: tuple[Fleet, ...] = ()


def infeasible(solver: str, reason: str) -> Allocation:
    """The answer that no fleet keeps the SLOs."""
    return Allocation("infeasible", solver, Fleet(()), None, None, reason)
