r"""The reference simulator: the whole fleet, event by event, one token at a time.

A request arrives -> waits for a prefill replica -> is prefilled -> its KV cache moves ->
waits for a decode batch -> decodes one token per step -> leaves. Short and obviously right
rather than fast; it reads the system only and none of the formulas that it judges.

* *Routing*: a pool with probability proportional to its rate, then a replica by the pool's
  dispatch rule (:class:`Dispatcher`). The prefill replica is chosen on arrival, the decode
  replica when the prefill ends (its KV space is needed from then on).
* *Prefill*: first come first served, one prompt at a time.
* *Transfer*: latency plus bytes / bandwidth, no contention.
* *Decode*: continuous batching. At each step boundary the oldest waiting requests join until
  the batch holds K; a step of B requests with S context tokens in all takes t(B, S); each
  request of the batch gets one token at its end. A request's context is its prompt plus
  the output tokens that exist when the step starts.
* *Equal times*: departures (prefill end, step end), then arrivals (at prefill, at decode),
  then step starts; within a kind by request or replica index. So who arrives exactly at a
  boundary joins there, and the order never depends on floating-point luck.

Everything random is drawn before the run (:class:`Draws`): another simulator that is given
the same draws must give the same log.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet, Role
from pdalloc.latency.measured import MeasuredDecode
from pdalloc.latency.service import Latency
from pdalloc.records import RequestLog
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws, Rates, Seed, draw
from pdalloc.system import System

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]
"""Called with (requests finished, requests in all) about a hundred times a run."""

PREFILL_END, STEP_END, ARRIVAL, TRANSFER_END, STEP_START = range(5)
"""Kinds of event, in the order in which events of one instant happen."""


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way: what is left to do, and when each stage happened (s)."""

    index: int
    arrival: float
    prompt: int
    steps: int
    context: int
    prefill: list[PrefillReplica] = field(default_factory=list)
    decode: list[DecodeReplica] = field(default_factory=list)
    prefill_replica: int = -1
    decode_replica: int = -1
    prefill_start: float | None = None
    prefill_end: float | None = None
    transfer_end: float | None = None
    decode_start: float | None = None
    first_token: float | None = None
    finish: float | None = None


class PrefillReplica:
    """First come first served, one prompt at a time.

    ``seconds[i]`` is the prefill time of request i here; ``load`` counts assigned unfinished
    prompt tokens, the running prompt whole.
    """

    def __init__(self, seconds: list[float]) -> None:
        self.index = 0
        self.queue: deque[Request] = deque()
        self.load = 0
        self.seconds = seconds
        self.running: Request | None = None

    @property
    def busy(self) -> bool:
        return self.running is not None

    def start(self, now: float) -> float:
        """Begin the oldest waiting prompt; returns when it will end, s."""
        request = self.running = self.queue.popleft()
        request.prefill_start, request.prefill_replica = now, self.index
        return now + self.seconds[request.index]

    def end(self, now: float) -> Request:
        """The running prompt is done."""
        request, self.running = self.running, None
        assert request is not None
        request.prefill_end = now
        return request


class DecodeReplica:
    """Continuous batching of at most ``limit`` requests, a token each per step.

    ``load`` counts assigned unfinished requests, also those whose KV cache is still moving;
    ``busy`` holds from the event that wakes it until a step finds nobody to decode.
    """

    def __init__(self, step_time: Callable[[int, int], float], limit: float) -> None:
        self.index = 0
        self.queue: deque[Request] = deque()
        self.load = 0
        self.step_time, self.limit = step_time, limit
        self.batch: list[Request] = []
        self.busy = False
        self.step_starts: list[float] = []
        self.step_seconds: list[float] = []

    def start_step(self, now: float) -> float | None:
        """Let waiting requests join and start a step; returns its end, or None if idle."""
        while self.queue and len(self.batch) < self.limit:
            request = self.queue.popleft()
            request.decode_start, request.decode_replica = now, self.index
            self.batch.append(request)
        self.busy = bool(self.batch)
        if not self.batch:
            return None
        seconds = self.step_time(len(self.batch), sum(r.context for r in self.batch))
        self.step_starts.append(now)
        self.step_seconds.append(seconds)
        return now + seconds

    def end_step(self, now: float) -> list[Request]:
        """A token to each request of the batch; returns those that are done."""
        for request in self.batch:
            request.context += 1
            request.steps -= 1
            if request.first_token is None:
                request.first_token = now
        done = [request for request in self.batch if request.steps == 0]
        if done:
            self.batch = [request for request in self.batch if request.steps > 0]
        return done


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


ReplicaT = TypeVar("ReplicaT", PrefillReplica, DecodeReplica)


class Dispatcher(Generic[ReplicaT]):
    """How one pool spreads its requests.

    ``random``; ``round_robin`` in turn; ``least_loaded``: least ``load``, the first of equals;
    ``central_queue``: one queue, whoever is free first takes the oldest.
    """

    def __init__(self, rule: Dispatch, replicas: list[ReplicaT]) -> None:
        self.rule = rule
        self.replicas: list[ReplicaT] = replicas
        self._turn = -1
        if rule == "central_queue":
            for replica in replicas:
                replica.queue = replicas[0].queue

    def candidates(self, pick: float) -> list[ReplicaT]:
        """The replicas that may serve the next request: one, or all that share a queue."""
        if self.rule == "central_queue":
            return self.replicas
        if self.rule == "random":
            return [self.replicas[int(pick * len(self.replicas))]]
        if self.rule == "round_robin":
            self._turn = (self._turn + 1) % len(self.replicas)
            return [self.replicas[self._turn]]
        return [min(self.replicas, key=lambda replica: replica.load)]


class _Simulator:
    """The fleet, the requests and the event queue of one run."""

    def __init__(
        self, system: System, fleet: Fleet, draws: Draws, progress: Progress | None
    ) -> None:
        stream, mix = draws.stream, draws.stream.as_mix()
        self.stream, self.rule, self.progress = stream, system.first_token, progress
        self.transfer: list[float] = system.transfer_seconds(mix).tolist()
        self.pool = {role: draws.pool[role].tolist() for role in ROLES}
        self.pick = {role: draws.pick[role].tolist() for role in ROLES}
        self.prefill_pools = prefill_pools(system, fleet, draws)
        self.decode_pools = decode_pools(system, fleet)
        self.prefills = [r for pool in self.prefill_pools for r in pool.replicas]
        self.decodes = [r for pool in self.decode_pools for r in pool.replicas]
        for i, prefill in enumerate(self.prefills):
            prefill.index = i
        for i, decode in enumerate(self.decodes):
            decode.index = i
        made_by_prefill = int(system.first_token != "decode")
        steps = system.decode_steps(mix).astype(int).tolist()
        needs = zip(stream.arrival.tolist(), stream.prompt.tolist(), steps, strict=True)
        self.requests = [
            Request(i, arrival, prompt, left, prompt + made_by_prefill)
            for i, (arrival, prompt, left) in enumerate(needs)
        ]
        self.events: list[tuple[float, int, int]] = []
        self.finished = 0

    def run(self) -> Run:
        happens = {
            PREFILL_END: self._end_prefill,
            STEP_END: self._end_step,
            ARRIVAL: self._arrive,
            TRANSFER_END: self._end_transfer,
            STEP_START: self._start_step,
        }
        self._schedule(self.requests[0].arrival, ARRIVAL, 0)
        while self.events:
            now, kind, index = heapq.heappop(self.events)
            happens[kind](now, index)
        return Run(
            self._log(),
            tuple(np.array(replica.step_starts) for replica in self.decodes),
            tuple(np.array(replica.step_seconds) for replica in self.decodes),
        )

    def _schedule(self, time: float, kind: int, index: int) -> None:
        heapq.heappush(self.events, (time, kind, index))

    def _arrive(self, now: float, i: int) -> None:
        if i + 1 < len(self.requests):
            self._schedule(self.requests[i + 1].arrival, ARRIVAL, i + 1)
        request = self.requests[i]
        pool = self.prefill_pools[self.pool[PREFILL][i]]
        request.prefill = pool.candidates(self.pick[PREFILL][i])
        for replica in request.prefill:
            replica.load += request.prompt
        request.prefill[0].queue.append(request)
        for replica in request.prefill:
            if not replica.busy:
                self._schedule(replica.start(now), PREFILL_END, replica.index)
                break

    def _end_prefill(self, now: float, index: int) -> None:
        done = self.prefills[index]
        request = done.end(now)
        for replica in request.prefill:
            replica.load -= request.prompt
        if done.queue:
            self._schedule(done.start(now), PREFILL_END, index)
        pool = self.decode_pools[self.pool[DECODE][request.index]]
        request.decode = pool.candidates(self.pick[DECODE][request.index])
        for target in request.decode:
            target.load += 1
        if self.rule == "prefill":
            request.first_token = now
            if request.steps == 0:  # nothing to decode, so no KV cache moves
                self._leave_without_decode(now, request)
                return
        self._schedule(now + self.transfer[request.index], TRANSFER_END, request.index)

    def _end_transfer(self, now: float, i: int) -> None:
        request = self.requests[i]
        request.transfer_end = now
        if self.rule == "transfer":
            request.first_token = now
            if request.steps == 0:
                self._leave_without_decode(now, request)
                return
        request.decode[0].queue.append(request)
        for replica in request.decode:
            if not replica.busy:
                replica.busy = True
                self._schedule(now, STEP_START, replica.index)
                break

    def _start_step(self, now: float, index: int) -> None:
        end = self.decodes[index].start_step(now)
        if end is not None:
            self._schedule(end, STEP_END, index)

    def _end_step(self, now: float, index: int) -> None:
        for request in self.decodes[index].end_step(now):
            self._finish(now, request)
        self._schedule(now, STEP_START, index)

    def _leave_without_decode(self, now: float, request: Request) -> None:
        """One token was all: it is logged at the decode replica that it was meant for."""
        if request.transfer_end is None:
            request.transfer_end = now
        request.decode_start, request.decode_replica = now, request.decode[0].index
        self._finish(now, request)

    def _finish(self, now: float, request: Request) -> None:
        request.finish = now
        for replica in request.decode:
            replica.load -= 1
        self.finished += 1
        total = len(self.requests)
        if self.progress is not None and self.finished % max(total // 100, 1) == 0:
            self.progress(self.finished, total)

    def _log(self) -> RequestLog:
        rows = self.requests
        return RequestLog(
            arrival=self.stream.arrival,
            prefill_start=np.array([r.prefill_start for r in rows], float),
            prefill_end=np.array([r.prefill_end for r in rows], float),
            transfer_end=np.array([r.transfer_end for r in rows], float),
            decode_start=np.array([r.decode_start for r in rows], float),
            first_token=np.array([r.first_token for r in rows], float),
            finish=np.array([r.finish for r in rows], float),
            prompt_tokens=self.stream.prompt,
            output_tokens=self.stream.output,
            traffic_class=self.stream.traffic_class,
            prefill_replica=np.array([r.prefill_replica for r in rows], np.int64),
            decode_replica=np.array([r.decode_replica for r in rows], np.int64),
        )


def prefill_pools(system: System, fleet: Fleet, draws: Draws) -> list[Dispatcher[PrefillReplica]]:
    """One dispatcher per prefill pool, in fleet order."""
    pools, stream = [], draws.stream
    for pool in fleet.in_role(PREFILL):
        latency = system.replica_types[pool.replica_type].latency
        seconds = latency.prefill_seconds(stream.prompt.astype(float), stream.cached)
        if latency.prefill_noise == "exponential":
            seconds = seconds * draws.noise
        times = seconds.tolist()
        replicas = [PrefillReplica(times) for _ in range(pool.replicas)]
        pools.append(Dispatcher(system.dispatch[PREFILL], replicas))
    return pools


def decode_pools(system: System, fleet: Fleet) -> list[Dispatcher[DecodeReplica]]:
    """One dispatcher per decode pool, in fleet order."""
    pools, context = [], mean_context(system)
    for pool in fleet.in_role(DECODE):
        kind = system.replica_types[pool.replica_type]
        seconds, limit = step_time(kind.latency), kind.batch_limit(context)
        replicas = [DecodeReplica(seconds, limit) for _ in range(pool.replicas)]
        pools.append(Dispatcher(system.dispatch[DECODE], replicas))
    return pools


def mean_context(system: System) -> float:
    """Tokens a decoding request holds at a random step: E[P L + L^2/2] / E[L], L its steps."""
    mix = system.workload.mix()
    steps = system.decode_steps(mix)
    if not steps.any():
        return float(mix.weight @ mix.prompt)
    return float(mix.weight @ (mix.prompt * steps + 0.5 * steps**2) / (mix.weight @ steps))


def replica_types(fleet: Fleet, role: Role) -> tuple[str, ...]:
    """The type of each replica of ``role``, by the indices that a log gives them."""
    return tuple(pool.replica_type for pool in fleet.in_role(role) for _ in range(pool.replicas))


def replay(system: System, fleet: Fleet, draws: Draws, progress: Progress | None = None) -> Run:
    """Run the requests in ``draws`` through ``fleet``: the log and every decode step."""
    return _Simulator(system, fleet, draws, progress).run()


def simulate(
    system: System,
    fleet: Fleet,
    rates: Rates,
    requests: int,
    seed: Seed,
    progress: Progress | None = None,
) -> RequestLog:
    """Times of ``requests`` requests of ``system.workload`` on ``fleet``, from empty to empty.

    ``rates[role, replica type]`` in requests/s are the weights by which pools share the
    traffic; the same ``seed`` gives the same log. Raises InputError for rates that do not
    fit the fleet, or when a replica's KV space does not hold one request.
    """
    draws = draw(system.workload, fleet, rates, requests, seed)
    return replay(system, fleet, draws, progress).log
