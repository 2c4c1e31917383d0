"""A prefill replica of the reference simulators: passes over waiting prompts, first come first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdalloc.latency.service import Latency
from pdalloc.simulation.options import PassBudget
from pdalloc.simulation.requests import Request


@dataclass(frozen=True)
class PrefillTimes:
    """Prefill times of one replica type.

    ``factor[i]`` is the noise of request i and ``whole[i]`` its prefill time alone, noise
    included, s; ``seconds(tokens, squares)`` the mean time of a pass (``Latency.pass_seconds``).
    """

    whole: list[float]
    factor: list[float]
    seconds: Callable[[float, float], float]


def pass_time(latency: Latency) -> Callable[[float, float], float]:
    """``Latency.pass_seconds`` as a function of plain numbers."""
    x, q = np.empty(1), np.empty(1)

    def evaluate(tokens: float, squares: float) -> float:
        x[0], q[0] = tokens, squares
        return float(latency.pass_seconds(x, q)[0])

    return evaluate


class PrefillReplica:
    """First come first served: one prompt at a time, or passes of up to ``budget`` tokens.

    ``load`` counts assigned unfinished prompt tokens, the running prompts whole; ``partial``
    is a prompt of which earlier passes did a part; ``blocking`` counts finished prompts that
    it must keep (back-pressure); ``due`` is when the running pass ends; ``group`` are the
    replicas that share the queue (all of a central queue, or itself).
    """

    def __init__(
        self, times: PrefillTimes, budget: PassBudget | None = None, slow: float = 1.0
    ) -> None:
        self.index = 0
        self.group = [self]
        self.times, self.budget, self.slow = times, budget, slow
        self.queue: deque[Request] = deque()
        self.partial: Request | None = None
        self.load = 0
        self.up = True
        self.blocking = 0
        self.due: float | None = None
        self.members: list[Request] = []
        self.finishing: list[Request] = []
        self.pass_starts: list[float] = []
        self.pass_seconds: list[float] = []

    @property
    def ready(self) -> bool:
        """Whether it may start a pass: up, idle and holding no finished prompt."""
        return self.up and self.due is None and not self.blocking

    @property
    def has_prompts(self) -> bool:
        """Whether a prompt waits here, begun or not."""
        return bool(self.queue) or self.partial is not None

    def start(self, now: float) -> float:
        """Begin a pass over the oldest waiting prompts; returns when it will end, s."""
        if self.budget is None:
            first = self.queue.popleft()
            self.members, self.finishing = [first], [first]
            seconds = self.slow * self.times.whole[first.index]
        else:
            tokens, squares = self._fill(self.budget)
            factor = self.times.factor[self.members[0].index]
            seconds = self.slow * (factor * self.times.seconds(tokens, squares))
        for request in self.members:
            request.prefill_replica = self.index
            if request.prefill_start is None:
                request.prefill_start = now
        self.pass_starts.append(now)
        self.pass_seconds.append(seconds)
        self.due = now + seconds
        return self.due

    def _fill(self, budget: PassBudget) -> tuple[float, float]:
        """Choose the prompts of a pass; returns its sum(n - h) and sum(n^2 - h^2)."""
        self.members, self.finishing = [], []
        tokens, squares = 0.0, 0.0
        while self.has_prompts:
            request = self.partial or self.queue[0]
            part = request.prompt - request.at
            room = budget.tokens - tokens
            if budget.split:
                if room <= 0:
                    break
                whole = part <= room
                part = min(part, room)
            elif self.members and tokens + part > budget.tokens:
                break
            else:
                whole = True
            end = float(request.prompt) if whole else request.at + part
            tokens += part
            squares += end**2 - request.at**2
            request.at = end
            self._take(request, whole)
        return tokens, squares

    def _take(self, request: Request, whole: bool) -> None:
        """``request`` is in the pass, ``whole`` when nothing of it remains after it."""
        if self.partial is None:
            self.queue.popleft()
        self.partial = None if whole else request
        self.members.append(request)
        if whole:
            self.finishing.append(request)

    def end(self, now: float) -> list[Request]:
        """The pass is over; returns the prompts that it finished, in order."""
        done, self.members, self.finishing, self.due = self.finishing, [], [], None
        for request in done:
            request.prefill_end = now
        return done

    def fail(self, now: float) -> list[Request]:
        """The pass is lost; returns the prompts that must start again, in order."""
        lost = self.members or ([] if self.partial is None else [self.partial])
        if self.due is not None:
            self.pass_seconds[-1] = now - self.pass_starts[-1]
        self.members, self.finishing, self.partial, self.due = [], [], None, None
        for request in lost:
            request.at, request.prefill_start = request.cached, None
        return lost
