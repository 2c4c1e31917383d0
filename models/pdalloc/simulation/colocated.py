r"""Co-located serving, the baseline of disaggregation: every replica prefills and decodes.

The fleet lists its pools in both roles; prefill replica r and decode replica r are the same
machine. Arrivals, dispatch (by the prefill role's pools and rule; ``load`` counts a replica's
unfinished requests), clients, step noise and several tokens per step are those of
:mod:`pdalloc.simulation.reference`; no KV cache moves, so ``transfer_end`` is ``prefill_end``.

A replica works in passes. When one ends, the requests that decode get their tokens, then the
prompts that it finished join them, then (KV option) the batch grows; arrivals of that instant
join before the next pass, which is, under

* ``prefill_first``: waiting prompts, whole, first come first served, the first always and more
  while their tokens fit the budget; if none may start, a decode step of the whole batch;
* ``chunked``: a decode step of the whole batch which also takes prompt parts, first come first
  served, while tokens are left of the budget (each decoding request takes one).

A prompt starts only with a slot (those that decode and those in the pass are at most K) and,
with the KV option, when its KV fits (as admission of the reference: watermark, ``context`` or
``full``); it then holds both. A batch that outgrows the memory preempts who joined it last: it
goes to the front of the waiting prompts with its whole context to compute, none cached.

A pass of prompts alone takes the prefill time of its tokens; with a decode step it adds what
prompts add to an empty prefill pass, :math:`t_p(x, q) - t_p(0, 0)`: weights are read once.
"""

from __future__ import annotations

from collections.abc import Callable

from pdalloc.fleet import PREFILL, Fleet
from pdalloc.simulation import hashing
from pdalloc.simulation.decode_replica import DecodeReplica, DecodeTimes
from pdalloc.simulation.dispatch import Dispatcher
from pdalloc.simulation.event_loop import EventLoop, Progress, columns
from pdalloc.simulation.events import ARRIVAL, STEP_END, STEP_START, TIMEOUT
from pdalloc.simulation.options import Colocated, SimulationOptions
from pdalloc.simulation.pools import batch_memory, decode_times, prefill_times
from pdalloc.simulation.prefill_replica import PrefillTimes
from pdalloc.simulation.requests import Request
from pdalloc.simulation.setup import check, noise_factor, slow_factors
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws
from pdalloc.system import System


class MixedReplica(DecodeReplica):
    """A replica that prefills and decodes in the same passes.

    ``queue`` holds waiting prompts, preempted requests in front; ``partial`` is a prompt of
    which earlier passes did a part; ``parts`` are the prompts in the running pass and
    ``finishing`` those that it completes; ``decoding`` tells whether it is also a step;
    ``peers`` are the replicas that share the queue (all of a central queue, or itself).
    """

    def __init__(
        self,
        policy: Colocated,
        times: tuple[PrefillTimes, DecodeTimes],
        limits: tuple[float, float],
        options: SimulationOptions,
        key: int,
        slow: float,
    ) -> None:
        super().__init__(times[1], *limits, options, key, slow)
        self.policy, self.prefill = policy, times[0]
        self.partial: Request | None = None
        self.parts: list[Request] = []
        self.finishing: list[Request] = []
        self.decoding = False
        self.peers = [self]
        self.pass_starts: list[float] = []
        self.pass_seconds: list[float] = []

    @property
    def ready(self) -> bool:
        """Whether it is idle, so that a prompt that comes now need not wait."""
        return not self.busy

    def turn(self, now: float) -> float | None:
        """Start a pass; returns its end, or None if idle."""
        chunked = self.policy.policy == "chunked"
        room = self.policy.tokens - (len(self.batch) if chunked else 0)
        tokens, squares = self._fill(room, chunked)
        self.decoding = bool(self.batch) and (chunked or not self.parts)
        self.busy = self.decoding or bool(self.parts)
        if not self.busy:
            return None
        seconds = 0.0
        if self.parts:
            seconds = self._prompt_seconds(tokens, squares)
            self.pass_starts.append(now)
        if self.decoding:
            seconds += self._step_seconds(now)
        seconds *= self.slow
        if self.parts:
            self.pass_seconds.append(seconds)
        if self.decoding:
            self.step_starts.append(now)
            self.step_seconds.append(seconds)
        for request in self.parts:
            request.prefill_replica = request.decode_replica = self.index
            if request.prefill_start is None:
                request.prefill_start = now
        self.due = now + seconds
        return self.due

    def _fill(self, room: float, split: bool) -> tuple[float, float]:
        """Choose the prompts of a pass; returns its sum(n - h) and sum(n^2 - h^2)."""
        self.parts, self.finishing = [], []
        tokens, squares = 0.0, 0.0
        while self.partial is not None or self.queue:
            request = self.partial or self.queue[0]
            part, left = goal(request) - request.at, room - tokens
            if (split and left <= 0) or (not split and self.parts and part > left):
                break
            if self.partial is None:
                if len(self.batch) + len(self.parts) >= self.limit or not self.fits(request):
                    break
                self.hold(self.queue.popleft())
            whole = part <= left or not split
            end = float(goal(request)) if whole else request.at + left
            tokens += part if whole else left
            squares += end**2 - request.at**2
            request.at = end
            self.partial = None if whole else request
            self.parts.append(request)
            if whole:
                self.finishing.append(request)
        return tokens, squares

    def _prompt_seconds(self, tokens: float, squares: float) -> float:
        seconds = self.prefill.seconds(tokens, squares)
        if self.decoding:
            seconds = max(seconds - self.prefill.seconds(0.0, 0.0), 0.0)
        return self.prefill.factor[self.parts[0].index] * seconds

    def _step_seconds(self, now: float) -> float:
        seconds = self.times.step(len(self.batch), sum(r.context for r in self.batch))
        noise, number = self.options.step_noise, len(self.step_starts)
        if noise is not None:
            seconds *= noise_factor(noise, self.key, hashing.STEP_NOISE, self.index, number)
        for request in self.batch:
            if request.decode_start is None:
                request.decode_start = now
        return seconds

    def end_pass(self, now: float, first_token_by_prefill: bool) -> list[Request]:
        """The pass is over; returns the requests that are done."""
        self.due = None
        done = self.give_tokens(now) if self.decoding else []
        for request in self.finishing:
            if request.prefill_end is None:
                request.prefill_end = request.transfer_start = request.transfer_end = now
                if first_token_by_prefill:
                    request.gain(now)
            if request.left == 0:
                request.decode_start = now
                done.append(request)
            else:
                self.batch.append(request)
        self.account(done)
        return done

    def lose(self, request: Request) -> None:
        """The KV cache of ``request`` is gone: all of it must be computed again."""
        super().lose(request)
        request.at = 0.0


def goal(request: Request) -> int:
    """Tokens whose KV cache must be computed before ``request`` can decode."""
    return request.prompt if request.prefill_end is None else request.context


class ColocatedSimulator(EventLoop[MixedReplica]):
    """A fleet of replicas that do both roles."""

    def __init__(
        self,
        system: System,
        fleet: Fleet,
        draws: Draws,
        progress: Progress | None,
        options: SimulationOptions,
        policy: Colocated,
    ) -> None:
        check(system, fleet, draws, options)
        super().__init__(system, draws, progress, options)
        self.entrances, rule = [], system.dispatch[PREFILL]
        self.replicas: list[MixedReplica] = []
        self.entered: dict[int, list[MixedReplica]] = {}
        slow = slow_factors(fleet, PREFILL, options)
        for pool in fleet.in_role(PREFILL):
            kind = system.replica_types[pool.replica_type]
            times = prefill_times(kind, draws, options), decode_times(kind)
            limits = batch_memory(system, kind, options)
            first = len(self.replicas)
            for factor in slow[first : first + pool.replicas]:
                replica = MixedReplica(policy, times, limits, options, draws.key, factor)
                replica.index = len(self.replicas)
                self.replicas.append(replica)
            pool_replicas = self.replicas[first:]
            self.entrances.append(Dispatcher(rule, pool_replicas))
            for replica in pool_replicas:
                replica.lost = replica.queue  # preempted requests wait with the prompts
                replica.peers = pool_replicas if rule == "central_queue" else [replica]

    def run(self) -> Run:
        """Play the run; returns its log and every pass and step."""
        happens: dict[int, Callable[[float, int], None]] = {
            STEP_END: self._end_pass,
            TIMEOUT: self.time_out,
            ARRIVAL: self.arrive,
            STEP_START: self._start_pass,
        }
        self.play(happens)
        return Run(
            self.log(),
            columns(self.replicas, "step_starts"),
            columns(self.replicas, "step_seconds"),
            columns(self.replicas, "pass_starts"),
            columns(self.replicas, "pass_seconds"),
            token_times=self.token_times(),
            both_roles=True,
        )

    def enqueue(self, now: float, request: Request, replicas: list[MixedReplica]) -> None:
        """``request`` waits for the first of ``replicas`` that is free, which may be now."""
        self.entered[request.index] = replicas
        for replica in replicas:
            replica.load += 1
        replicas[0].queue.append(request)
        self._wake(now, [replica for replica in replicas if replica.ready][:1])

    def dequeue(self, request: Request) -> None:
        """``request`` gives up waiting."""
        self._forget(request)[0].queue.remove(request)

    def _forget(self, request: Request) -> list[MixedReplica]:
        """``request`` no longer counts as load of its replicas."""
        replicas = self.entered.pop(request.index)
        for replica in replicas:
            replica.load -= 1
        return replicas

    def _wake(self, now: float, replicas: list[MixedReplica]) -> None:
        for replica in replicas:
            if not replica.busy:
                replica.busy = True
                self.schedule(now, STEP_START, replica.index)

    def _start_pass(self, now: float, index: int) -> None:
        end = self.replicas[index].turn(now)
        if end is not None:
            self.schedule(end, STEP_END, index)

    def _end_pass(self, now: float, index: int) -> None:
        replica = self.replicas[index]
        for request in replica.end_pass(now, self.rule != "decode"):
            self._forget(request)
            self.finish(now, request)
        if replica.queue:
            self._wake(now, replica.peers)
        self.schedule(now, STEP_START, index)
