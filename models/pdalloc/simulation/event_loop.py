"""What the reference simulators share: the clock, clients that come and leave, the log."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from pdalloc.fleet import PREFILL, ROLES, Role
from pdalloc.records import FINISHED, REJECTED, TIMED_OUT, RequestLog
from pdalloc.simulation import hashing
from pdalloc.simulation.dispatch import Dispatcher
from pdalloc.simulation.events import ARRIVAL, TIMEOUT
from pdalloc.simulation.options import Clients, SimulationOptions
from pdalloc.simulation.requests import Request, log_of, requests_of
from pdalloc.simulation.statistics import Array
from pdalloc.simulation.traffic import Draws
from pdalloc.system import System

Progress = Callable[[int, int], None]
"""Called with (requests gone, requests in all) about a hundred times a run."""
Happens = Mapping[int, Callable[[float, int], None]]
"""What to do, by kind of event."""


class Entrance(Protocol):
    """A replica at which requests arrive."""

    queue: deque[Request]
    load: int
    up: bool

    @property
    def ready(self) -> bool:
        """Whether it takes a prompt that comes now without a wait."""
        ...


EntranceT = TypeVar("EntranceT", bound=Entrance)


class EventLoop(ABC, Generic[EntranceT]):
    """Requests, events in order of (time, kind, index), arrivals and departures of one run."""

    entrances: list[Dispatcher[EntranceT]]

    def __init__(
        self,
        system: System,
        draws: Draws,
        progress: Progress | None,
        options: SimulationOptions,
    ) -> None:
        self.system, self.draws = system, draws
        self.options, self.progress = options, progress
        self.rule, self.clients = system.first_token, options.clients or Clients()
        self.pool: dict[Role, list[int]] = {role: draws.pool[role].tolist() for role in ROLES}
        self.pick: dict[Role, list[float]] = {role: draws.pick[role].tolist() for role in ROLES}
        self.requests = requests_of(
            draws.stream,
            system.decode_steps(draws.stream.as_mix()).astype(int).tolist(),
            int(system.first_token != "decode"),
            keep_tokens=not options.off,
        )
        self.events: list[tuple[float, int, int]] = []
        self.gone = 0

    def play(self, happens: Happens) -> None:
        """Let everything happen, from the first arrival until the last request is gone."""
        self.schedule(self.requests[0].arrival, ARRIVAL, 0)
        while self.gone < len(self.requests):
            now, kind, index = heapq.heappop(self.events)
            happens[kind](now, index)

    def schedule(self, time: float, kind: int, index: int) -> None:
        """``kind`` will happen to replica, link or request ``index`` at ``time``, s."""
        heapq.heappush(self.events, (time, kind, index))

    @abstractmethod
    def enqueue(self, now: float, request: Request, replicas: list[EntranceT]) -> None:
        """``request`` waits for the first of ``replicas`` that is free, which may be now."""

    @abstractmethod
    def dequeue(self, request: Request) -> None:
        """``request`` gives up waiting."""

    def arrive(self, now: float, i: int) -> None:
        """Request i comes, for the first time or again."""
        request = self.requests[i]
        if request.retries == 0 and i + 1 < len(self.requests):
            self.schedule(self.requests[i + 1].arrival, ARRIVAL, i + 1)
        replicas = self.candidates(request)
        full = len(replicas[0].queue) >= self.clients.max_queue * len(replicas)
        if full and not any(replica.ready for replica in replicas):
            self._give_up(now, request, REJECTED)
            return
        self.enqueue(now, request, replicas)
        if self.clients.timeout < np.inf:
            request.deadline = now + self.clients.timeout
            self.schedule(request.deadline, TIMEOUT, i)

    def candidates(self, request: Request) -> list[EntranceT]:
        """Where ``request`` may be prefilled, by its pool's rule; counts the dispatch."""
        pick, k = self.pick[PREFILL][request.index], request.prefill_dispatches
        if k > 0:
            pick = hashing.uniform(self.draws.key, hashing.PREFILL_PICK, request.index, k)
        request.prefill_dispatches += 1
        return self.entrances[self.pool[PREFILL][request.index]].candidates(pick)

    def time_out(self, now: float, i: int) -> None:
        """Request i has waited long enough, if no pass has taken it yet."""
        request = self.requests[i]
        if request.deadline == now and request.prefill_start is None:
            self.dequeue(request)
            self._give_up(now, request, TIMED_OUT)

    def _give_up(self, now: float, request: Request, status: int) -> None:
        """Not served this time: the client comes again or is gone."""
        request.deadline = None
        if request.retries < self.clients.retries:
            request.retries += 1
            self.schedule(now + self.clients.retry_delay, ARRIVAL, request.index)
        else:
            self._leave(now, request, status)

    def finish(self, now: float, request: Request) -> None:
        """``request`` has its whole answer."""
        request.finish = now
        self._leave(now, request, FINISHED)

    def _leave(self, now: float, request: Request, status: int) -> None:
        request.status, request.gone = status, now
        self.gone += 1
        total = len(self.requests)
        if self.progress is not None and self.gone % max(total // 100, 1) == 0:
            self.progress(self.gone, total)

    def log(self) -> RequestLog:
        """The log of a run that is over."""
        return log_of(self.draws.stream, self.requests, self.options.off)

    def token_times(self) -> tuple[Array, ...] | None:
        """When each output token of each request came, s; None where the steps tell."""
        if self.options.steps_tell:
            return None
        return tuple(np.array(request.tokens or (), float) for request in self.requests)


def columns(replicas: Sequence[object], name: str) -> tuple[Array, ...]:
    """The attribute ``name`` (a list of s) of each replica as arrays."""
    return tuple(np.array(getattr(replica, name), float) for replica in replicas)
