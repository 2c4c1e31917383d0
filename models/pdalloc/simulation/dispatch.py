"""How one pool spreads its requests over its replicas."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from pdalloc.fleet import Dispatch
from pdalloc.simulation.requests import Request


class Replica(Protocol):
    """What dispatch looks at."""

    queue: deque[Request]
    load: int
    up: bool


ReplicaT = TypeVar("ReplicaT", bound=Replica)


class Dispatcher(Generic[ReplicaT]):
    """``random``; ``round_robin`` in turn; ``least_loaded``: least ``load``, the first of equals;
    ``central_queue``: one queue, whoever is free first takes the oldest.

    ``up`` are the replicas that are up (all, if none is): only they are chosen. ``shared`` names
    the queues that are one under ``central_queue``.
    """

    def __init__(
        self, rule: Dispatch, replicas: list[ReplicaT], shared: tuple[str, ...] = ("queue",)
    ) -> None:
        self.rule = rule
        self.replicas = replicas
        self.up = replicas
        self._turn = -1
        if rule == "central_queue":
            for replica in replicas:
                for name in shared:
                    setattr(replica, name, getattr(replicas[0], name))

    def look(self) -> None:
        """Replicas have failed or were repaired."""
        self.up = [replica for replica in self.replicas if replica.up] or self.replicas

    def candidates(self, pick: float) -> list[ReplicaT]:
        """The replicas that may serve the next request: one, or all that share a queue."""
        if self.rule == "central_queue":
            return self.replicas
        if self.rule == "random":
            return [self.up[int(pick * len(self.up))]]
        if self.rule == "round_robin":
            self._turn = (self._turn + 1) % len(self.replicas)
            while self.replicas[self._turn] not in self.up:
                self._turn = (self._turn + 1) % len(self.replicas)
            return [self.replicas[self._turn]]
        return [min(self.up, key=lambda replica: replica.load)]
