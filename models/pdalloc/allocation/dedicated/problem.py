r"""Dedicated pools as data: an allocation problem per part, one stock for all of them.

.. math:: \min \sum_{s,r} c_r \Bigl(\sum_q n_{q,s,r} - o_{s,r}\Bigr)^+ \quad\text{s.t.}\quad
          n_q \text{ serves part } q, \quad
          \sum_{q,s,r: g(r) = g} k_r n_{q,s,r} \le \text{stock}_g, \quad
          \sum_q n_{q,s,r} \le \text{most}_{s,r},

with o the owned replicas, which parts may use in any division. Each part keeps its own SLOs on
its own pools; a KV link belongs to one prefill replica, so parts meet in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pdalloc.allocation.problem import COST_DIGITS, AllocationProblem, Option, Status
from pdalloc.errors import InputError
from pdalloc.fleet import Fleet

Key = tuple[str, str]
"""(role, replica type)."""


@dataclass(frozen=True)
class Part:
    """Classes that share pools: their name in messages, and their problem as if alone.

    The problem's own stock, owned replicas and limits are those of all parts together.
    """

    name: str
    problem: AllocationProblem


@dataclass(frozen=True)
class DedicatedProblem:
    """Serve every part by pools of its own, at least cost together.

    ``options`` with what all parts share: owned replicas, and at most so many replicas; a part
    may have fewer options. ``stock`` GPUs per GPU name, owned ones in it, over all parts and
    roles; a GPU that is not named is unlimited.
    """

    parts: tuple[Part, ...]
    options: tuple[Option, ...]
    stock: Mapping[str, int]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names):
            raise InputError(f"parts need names that differ, got {', '.join(names) or 'no part'}")
        known = {(o.role, o.replica_type) for o in self.options}
        for part in self.parts:
            for o in part.problem.options:
                if (o.role, o.replica_type) not in known:
                    raise InputError(f"part {part.name}: no option {o.role}/{o.replica_type}")

    @classmethod
    def of(
        cls, whole: AllocationProblem, parts: Mapping[str, AllocationProblem]
    ) -> DedicatedProblem:
        """``parts`` under the stock, owned replicas and limits of ``whole``."""
        shared = {(o.role, o.replica_type): o for o in whole.options}
        found = []
        for name, p in parts.items():
            options = tuple(shared[o.role, o.replica_type] for o in p.options)
            found.append(Part(name, replace(p, options=options, stock=whole.stock)))
        return cls(tuple(found), whole.options, whole.stock)

    def with_headroom(self) -> DedicatedProblem:
        """The same problem at the demands that have the headroom on them."""
        return self.changed([part.problem.with_headroom() for part in self.parts])

    def changed(self, problems: Sequence[AllocationProblem]) -> DedicatedProblem:
        """The same parts with other problems, in the same order."""
        pairs = zip(self.parts, problems, strict=True)
        return replace(self, parts=tuple(Part(part.name, p) for part, p in pairs))

    def totals(self, fleets: Sequence[Fleet]) -> dict[Key, int]:
        """Replicas over all parts, by (role, type)."""
        keys = [(o.role, o.replica_type) for o in self.options]
        return {key: sum(fleet.count(*key) for fleet in fleets) for key in keys}

    def cost(self, fleets: Sequence[Fleet]) -> float:
        """USD/hour of all parts' fleets, owned replicas free."""
        totals = self.totals(fleets)
        return round(sum(o.cost(totals[o.role, o.replica_type]) for o in self.options), COST_DIGITS)

    def gpus(self, fleets: Sequence[Fleet]) -> dict[str, int]:
        """GPUs over all parts, by GPU name."""
        totals, used = self.totals(fleets), dict[str, int]()
        for o in self.options:
            used[o.gpu] = used.get(o.gpu, 0) + o.gpus * totals[o.role, o.replica_type]
        return {gpu: count for gpu, count in used.items() if count}

    def violations(self, fleets: Sequence[Fleet]) -> list[str]:
        """Where the fleets together exceed stock or limits, in words."""
        totals, used = self.totals(fleets), self.gpus(fleets)
        broken = [
            f"{used[gpu]} {gpu} GPUs against {held} in stock"
            for gpu, held in self.stock.items()
            if used.get(gpu, 0) > held
        ]
        for o in self.options:
            count = totals[o.role, o.replica_type]
            if count > o.most:
                broken.append(
                    f"{count} replicas of {o.role}/{o.replica_type} against a limit of {o.most:g}"
                )
        return broken

    def rest(self, index: int, fleets: Sequence[Fleet]) -> AllocationProblem:
        """The problem of part ``index`` with what the others' fleets leave.

        Owned replicas go to earlier parts first. ``fleets`` by part; a part without a fleet as
        yet (:data:`NOTHING`) takes nothing.
        """
        others = [f for i, f in enumerate(fleets) if i != index]
        before = self.totals(fleets[:index])
        taken, used = self.totals(others), self.gpus(others)
        options = tuple(
            replace(
                o,
                owned=max(o.owned - before[o.role, o.replica_type], 0),
                most=max(o.most - taken[o.role, o.replica_type], 0),
            )
            for o in self.parts[index].problem.options
        )
        stock = {gpu: max(held - used.get(gpu, 0), 0) for gpu, held in self.stock.items()}
        return replace(self.parts[index].problem, options=options, stock=stock)


NOTHING = Fleet(())


@dataclass(frozen=True)
class DedicatedAllocation:
    """A fleet per part, in the order of the parts; none where there is no answer.

    ``cost`` and the proven lower ``bound`` in USD/hour over all parts; ``method`` says how the
    bound was proven; ``reason`` why there is no fleet.
    """

    status: Status
    fleets: tuple[Fleet, ...]
    cost: float | None
    bound: float | None
    method: str = ""
    reason: str = ""

    @property
    def gap(self) -> float:
        """Cost less bound, USD/hour; infinite where either is not known."""
        if self.cost is None or self.bound is None:
            return math.inf
        return self.cost - self.bound
