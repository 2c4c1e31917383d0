"""A decode replica of the reference simulator: continuous batching within its KV memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from pdalloc.latency.measured import MeasuredDecode
from pdalloc.latency.service import Latency
from pdalloc.simulation import hashing
from pdalloc.simulation.options import KvMemory, MultiToken, SimulationOptions
from pdalloc.simulation.requests import Request
from pdalloc.simulation.setup import noise_factor


def step_time(latency: Latency) -> Callable[[int, int], float]:
    """Seconds of one step by (requests, their context tokens in all), as plain numbers.

    A measured table does not look at the context: its times are kept per batch.
    """
    b, s = np.empty(1), np.empty(1)

    def evaluate(batch: int, context: int) -> float:
        b[0], s[0] = batch, context
        return float(latency.step_seconds(b, s)[0])

    if not isinstance(latency.decode, MeasuredDecode):
        return evaluate
    per_batch = cache(lambda batch: evaluate(batch, 0))
    return lambda batch, _: per_batch(batch)


def recompute_time(latency: Latency) -> Callable[[int], float]:
    """Seconds to compute the KV cache of a context of so many tokens, none of it cached."""
    n, zero = np.empty(1), np.zeros(1)

    def evaluate(context: int) -> float:
        n[0] = context
        return float(latency.prefill_seconds(n, zero)[0])

    return evaluate


def accepted(option: MultiToken, key: int, request: Request) -> int:
    """Tokens that a step would give ``request``, at least 1 and at most what it still needs."""
    if option.mean == 1.0:
        return 1
    u = hashing.uniform(key, hashing.ACCEPTED, request.index, request.left)
    if option.law == "fixed":
        tokens = math.floor(option.mean) + (u < option.mean - math.floor(option.mean))
    else:
        tokens = 1 + math.floor(math.log(u) / math.log(1.0 - 1.0 / option.mean))
    return min(tokens, request.left)


@dataclass(frozen=True)
class DecodeTimes:
    """Times of one replica type, s: ``step(B, S)`` and ``recompute(context)``."""

    step: Callable[[int, int], float]
    recompute: Callable[[int], float]


class DecodeReplica:
    """Continuous batching of at most ``limit`` requests, one or more tokens each per step.

    ``queue`` holds requests whose KV cache is here, ``lost`` those whose cache must be
    recomputed, ``pending`` those that wait for KV space before their transfer; ``group`` are
    the replicas that share them (all of a central queue, or itself). ``load`` counts assigned
    unfinished requests, also those whose cache still moves; ``used`` counts held KV tokens of
    ``memory``; ``busy`` holds from the event that wakes it until a turn finds nothing to do;
    ``due`` is when the running step or recompute pass ends.
    """

    def __init__(
        self,
        times: DecodeTimes,
        limit: float,
        memory: float = math.inf,
        options: SimulationOptions | None = None,
        key: int = 0,
        slow: float = 1.0,
    ) -> None:
        self.index = 0
        self.group = [self]
        self.times, self.limit, self.memory, self.slow = times, limit, memory, slow
        self.options, self.key = options or SimulationOptions(), key
        self.queue: deque[Request] = deque()
        self.lost: deque[Request] = deque()
        self.pending: deque[Request] = deque()
        self.load = 0
        self.used = 0
        self.up = True
        self.busy = False
        self.due: float | None = None
        self.batch: list[Request] = []
        self.recomputing: Request | None = None
        self.step_starts: list[float] = []
        self.step_seconds: list[float] = []
        self.recompute_starts: list[float] = []
        self.recompute_seconds: list[float] = []

    @property
    def kv(self) -> KvMemory | None:
        """The rule of its KV memory, None when memory is not counted."""
        return self.options.kv

    def need(self, request: Request) -> int:
        """KV tokens that ``request`` must hold to be here."""
        if self.kv is None:
            return 0
        return request.context if self.kv.reserve == "context" else request.prompt + request.output

    def fits(self, request: Request) -> bool:
        """Whether there is KV space for ``request`` now, the watermark kept free."""
        if self.kv is None or self.used == 0:
            return True
        return self.used + self.need(request) <= (1.0 - self.kv.watermark) * self.memory

    def hold(self, request: Request) -> None:
        """Reserve what ``request`` needs now, instead of what it held."""
        self.used += self.need(request) - request.held
        request.held = self.need(request)

    def release(self, request: Request) -> None:
        """``request`` needs no KV space any more."""
        self.used -= request.held
        request.held = 0

    def turn(self, now: float) -> float | None:
        """Start a recompute pass or a step; returns its end, or None if idle."""
        if self.lost and len(self.batch) < self.limit and self.fits(self.lost[0]):
            seconds = self._recompute(now)
        else:
            while self.queue and len(self.batch) < self.limit:
                self._join(self.queue.popleft())
            self.busy = bool(self.batch)
            if not self.batch:
                return None
            seconds = self._step(now)
        self.due = now + seconds
        return self.due

    def _join(self, request: Request) -> None:
        request.home, request.decode_replica = self, self.index
        self.batch.append(request)

    def _recompute(self, now: float) -> float:
        request = self.recomputing = self.lost.popleft()
        self.hold(request)
        seconds = self.slow * self.times.recompute(request.context)
        self.recompute_starts.append(now)
        self.recompute_seconds.append(seconds)
        return seconds

    def _step(self, now: float) -> float:
        seconds = self.times.step(len(self.batch), sum(r.context for r in self.batch))
        noise, number = self.options.step_noise, len(self.step_starts)
        if noise is not None:
            seconds *= noise_factor(noise, self.key, hashing.STEP_NOISE, self.index, number)
        seconds *= self.slow
        for request in self.batch:
            if request.decode_start is None:
                request.decode_start = now
        self.step_starts.append(now)
        self.step_seconds.append(seconds)
        return seconds

    def end(self, now: float) -> list[Request]:
        """The step or recompute pass is over; returns the requests that are done."""
        self.due = None
        if self.recomputing is not None:
            self._join(self.recomputing)
            self.recomputing = None
            return []
        done = self.give_tokens(now)
        self.account(done)
        return done

    def give_tokens(self, now: float) -> list[Request]:
        """Each request of the batch gets its tokens of a step; those that are done leave it."""
        several = self.options.multi_token
        for request in self.batch:
            tokens = 1 if several is None else accepted(several, self.key, request)
            request.context += tokens
            request.left -= tokens
            if request.first_token is None or request.tokens is not None:
                request.gain(now, tokens)
        done = [request for request in self.batch if request.left == 0]
        if done:
            self.batch = [request for request in self.batch if request.left > 0]
        return done

    def account(self, done: list[Request]) -> None:
        """Release who is done; let the rest grow, preempting who joined last while too much."""
        if self.kv is None:
            return
        for request in done:
            self.release(request)
        for request in self.batch:
            self.hold(request)
        while self.used > self.memory:
            youngest = self.batch.pop()
            self.lose(youngest)
            self.lost.appendleft(youngest)

    def lose(self, request: Request) -> None:
        """The KV cache of ``request`` is gone."""
        self.release(request)
        request.recomputes += 1
        request.home = None

    def fail(self, now: float) -> list[Request]:
        """All is lost; returns the requests of the batch and the one being recomputed, in order.

        What it was doing gives no token.
        """
        if self.due is not None:
            recomputing = self.recomputing is not None
            starts = self.recompute_starts if recomputing else self.step_starts
            seconds = self.recompute_seconds if recomputing else self.step_seconds
            seconds[-1] = now - starts[-1]
        lost, self.batch = self.batch, []
        for request in lost:
            self.lose(request)
        if self.recomputing is not None:
            self.release(self.recomputing)
            lost = [*lost, self.recomputing]
        self.recomputing, self.due, self.busy = None, None, False
        return lost
