"""Links that KV transfers share in the reference simulator: work in seconds, served by a rule."""

from __future__ import annotations

import heapq
from collections import defaultdict

from pdalloc.fleet import Fleet
from pdalloc.simulation import hashing
from pdalloc.simulation.options import Network, SimulationOptions
from pdalloc.simulation.requests import Request
from pdalloc.simulation.setup import paths, request_factors
from pdalloc.simulation.traffic import Draws
from pdalloc.system import System


class FcfsLink:
    """One transfer after another at full speed."""

    def __init__(self) -> None:
        self.free_at = 0.0

    def enter(self, now: float, work: float) -> float:
        """When a transfer of ``work`` seconds that comes ``now`` is through, s."""
        self.free_at = max(now, self.free_at) + work
        return self.free_at


class SharedLink:
    r"""Processor sharing: k transfers at once, each at 1/k of the speed.

    Virtual time V goes by 1/k per second, so a transfer that comes at V and needs w seconds of
    work is through when V has reached its *mark* V + w, whoever comes and goes meanwhile.
    ``due`` is when the least mark is reached if nobody else comes; None when empty.
    """

    def __init__(self) -> None:
        self.virtual, self.since = 0.0, 0.0
        self.marks: list[tuple[float, int, Request]] = []
        self.due: float | None = None

    def enter(self, now: float, work: float, request: Request) -> float:
        """``request`` comes with ``work`` seconds; returns the new ``due``."""
        if self.marks:
            self.virtual += (now - self.since) / len(self.marks)
        self.since = now
        heapq.heappush(self.marks, (self.virtual + work, request.index, request))
        return self._next(now)

    def leave(self, now: float) -> Request:
        """The transfer of the least mark is through."""
        self.virtual, _, request = heapq.heappop(self.marks)
        self.since = now
        if self.marks:
            self._next(now)
        else:
            self.virtual, self.due = 0.0, None
        return request

    def _next(self, now: float) -> float:
        self.due = now + max(self.marks[0][0] - self.virtual, 0.0) * len(self.marks)
        return self.due


class KvNetwork:
    """All links of a fleet: ``shared[number]`` (processor sharing) and ``queues[number]``."""

    def __init__(
        self, system: System, fleet: Fleet, draws: Draws, options: SimulationOptions
    ) -> None:
        self.rule = options.network or Network()
        self.bytes: list[float] = (
            system.llm.kv_bytes_per_token * draws.stream.prompt.astype(float)
        ).tolist()
        self.jitter: list[float] = request_factors(self.rule.jitter, draws, hashing.JITTER).tolist()
        self.paths = paths(system, fleet, options)
        self._latency: list[list[float]] = self.paths.latency.tolist()
        self._bandwidth: list[list[float]] = self.paths.bandwidth.tolist()
        self.shared: dict[int, SharedLink] = defaultdict(SharedLink)
        self.queues: dict[int, FcfsLink] = defaultdict(FcfsLink)

    def latency(self, request: Request, prefill_pool: int, decode_pool: int) -> float:
        """Latency of the transfer of ``request`` between these pools, jitter included, s."""
        return self._latency[prefill_pool][decode_pool] * self.jitter[request.index]

    def enter(
        self, now: float, request: Request, prefill_pool: int, decode_pool: int
    ) -> tuple[int | None, float]:
        """A transfer begins: (None, when it ends), or (link, when that link has work done), s."""
        latency = self.latency(request, prefill_pool, decode_pool)
        work = self.bytes[request.index] / self._bandwidth[prefill_pool][decode_pool]
        if self.rule.sharing == "none":
            return None, now + (latency + work)
        source = request.prefill_replica
        number = self.paths.link(self.rule.scope, source, prefill_pool, decode_pool)
        if self.rule.sharing == "fcfs":
            return None, self.queues[number].enter(now, work) + latency
        return number, self.shared[number].enter(now, work, request)
