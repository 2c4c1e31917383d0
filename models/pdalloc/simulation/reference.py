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
* *Equal times*: departures (a prefill pass, a step, a link's work ends), failures, repairs,
  timeouts, arrivals (at prefill, at decode), then step starts; within a kind by request or
  replica index. So who arrives exactly at a boundary joins there, and the order never depends
  on floating-point luck.

:class:`SimulationOptions` adds to these rules (docs/simulation.md says how they meet).
Everything random is drawn before the run (:class:`Draws`) or looked up by name: another
simulator that is given the same draws must give the same log.
"""

from __future__ import annotations

from collections.abc import Callable

from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.records import RequestLog
from pdalloc.simulation import hashing
from pdalloc.simulation.colocated import ColocatedSimulator
from pdalloc.simulation.decode_replica import DecodeReplica, step_time
from pdalloc.simulation.event_loop import EventLoop, Progress, columns
from pdalloc.simulation.events import (
    ARRIVAL,
    FAILURE,
    LINK_END,
    PREFILL_END,
    REPAIR,
    STEP_END,
    STEP_START,
    TIMEOUT,
    TRANSFER_END,
)
from pdalloc.simulation.links import KvNetwork
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.simulation.outages import Outages
from pdalloc.simulation.pools import decode_pools, prefill_pools
from pdalloc.simulation.prefill_replica import PrefillReplica
from pdalloc.simulation.requests import Request
from pdalloc.simulation.setup import check, replica_types
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws, Rates, Seed, draw
from pdalloc.system import System


class Simulator(EventLoop[PrefillReplica]):
    """A fleet of prefill and decode replicas, and the links between them."""

    def __init__(
        self,
        system: System,
        fleet: Fleet,
        draws: Draws,
        progress: Progress | None,
        options: SimulationOptions,
    ) -> None:
        check(system, fleet, draws, options)
        super().__init__(system, draws, progress, options)
        self.entrances = prefill_pools(system, fleet, draws, options)
        self.decode_pools = decode_pools(system, fleet, draws, options)
        self.prefills = [r for pool in self.entrances for r in pool.replicas]
        self.decodes = [r for pool in self.decode_pools for r in pool.replicas]
        self.network = KvNetwork(system, fleet, draws, options)
        self.back_pressure = options.kv is not None and options.kv.back_pressure

    def run(self) -> Run:
        """Play the run; returns its log and every pass and step."""
        happens: dict[int, Callable[[float, int], None]] = {
            PREFILL_END: self._end_prefill,
            STEP_END: self._end_step,
            LINK_END: self._end_link,
            TIMEOUT: self.time_out,
            ARRIVAL: self.arrive,
            TRANSFER_END: self._end_transfer,
            STEP_START: self._start_step,
        }
        if self.options.failures is not None:
            outages = Outages(self, self.options.failures)
            happens |= {FAILURE: outages.fail, REPAIR: outages.repair}
        self.play(happens)
        return Run(
            self.log(),
            columns(self.decodes, "step_starts"),
            columns(self.decodes, "step_seconds"),
            columns(self.prefills, "pass_starts"),
            columns(self.prefills, "pass_seconds"),
            columns(self.decodes, "recompute_starts"),
            columns(self.decodes, "recompute_seconds"),
            self.token_times(),
        )

    # Prefill.

    def enqueue(self, now: float, request: Request, replicas: list[PrefillReplica]) -> None:
        """``request`` waits for the first of ``replicas`` that is free, which may be now."""
        request.prefills = replicas
        for replica in replicas:
            replica.load += request.prompt
        replicas[0].queue.append(request)
        self.start_prefills(now, replicas)

    def dequeue(self, request: Request) -> None:
        """``request`` gives up waiting."""
        request.prefills[0].queue.remove(request)
        self.leave_prefill(request)

    def start_prefills(self, now: float, replicas: list[PrefillReplica]) -> None:
        """Those of ``replicas`` that are free start a pass, in order, while prompts wait."""
        for replica in replicas:
            if replica.has_prompts and replica.ready:
                self.schedule(replica.start(now), PREFILL_END, replica.index)

    def leave_prefill(self, request: Request) -> None:
        """``request`` no longer counts as load of its prefill replicas."""
        for replica in request.prefills:
            replica.load -= request.prompt

    def _end_prefill(self, now: float, index: int) -> None:
        replica = self.prefills[index]
        if replica.due != now:  # the pass was lost
            return
        done = replica.end(now)
        if self.back_pressure:
            replica.blocking += len(done)
        for request in done:
            self.leave_prefill(request)
            self._route(now, request)
        self.start_prefills(now, [replica])

    # Transfer.

    def _route(self, now: float, request: Request) -> None:
        """Prefilled: choose the decode replica, whose KV space is needed from now on."""
        group = request.decodes = self.decode_candidates(request)
        for target in group:
            target.load += 1
        if self.rule == "prefill":
            request.gain(now)
            if request.left == 0:  # nothing to decode, so no KV cache moves
                self._leave_without_decode(now, request)
                self._unblock(now, request)
                return
        if self.options.kv is not None:
            group[0].pending.append(request)
            self.admit(now, group)
        else:
            request.home = group[0] if len(group) == 1 else None
            self._begin_transfer(now, request)

    def decode_candidates(self, request: Request) -> list[DecodeReplica]:
        """Where ``request`` may be decoded, by its pool's rule; counts the dispatch."""
        pick, k = self.pick[DECODE][request.index], request.decode_dispatches
        if k > 0:
            pick = hashing.uniform(self.draws.key, hashing.DECODE_PICK, request.index, k)
        request.decode_dispatches += 1
        return self.decode_pools[self.pool[DECODE][request.index]].candidates(pick)

    def admit(self, now: float, group: list[DecodeReplica]) -> None:
        """Begin transfers to ``group`` in order of waiting, while the next one has KV space.

        Whose KV cache was lost comes first: nobody is admitted while one waits.
        """
        pending = group[0].pending
        while pending and not group[0].lost:
            up = [replica for replica in group if replica.up]
            if not up:
                return
            home = max(up, key=lambda replica: replica.memory - replica.used)
            if not home.fits(pending[0]):
                return
            request = pending.popleft()
            request.home = home
            home.hold(request)
            self._begin_transfer(now, request)
            self._unblock(now, request)

    def _unblock(self, now: float, request: Request) -> None:
        """The prefill replica of ``request`` need not keep its KV cache any more."""
        if self.back_pressure:
            source = self.prefills[request.prefill_replica]
            source.blocking -= 1
            self.start_prefills(now, [source])

    def _begin_transfer(self, now: float, request: Request) -> None:
        request.transfer_start = now
        pools = self.pool[PREFILL][request.index], self.pool[DECODE][request.index]
        link, through = self.network.enter(now, request, *pools)
        if link is None:
            self._arrives_at(through, request)
        else:
            self.schedule(through, LINK_END, link)

    def _end_link(self, now: float, number: int) -> None:
        """Processor sharing: one transfer has all its bytes on the way."""
        link = self.network.shared[number]
        if link.due != now:
            return
        request = link.leave(now)
        if link.due is not None:
            self.schedule(link.due, LINK_END, number)
        if request.transfer_end is None:  # not cut
            pools = self.pool[PREFILL][request.index], self.pool[DECODE][request.index]
            self._arrives_at(now + self.network.latency(request, *pools), request)

    def _arrives_at(self, time: float, request: Request) -> None:
        request.due = time
        self.schedule(time, TRANSFER_END, request.index)

    def _end_transfer(self, now: float, i: int) -> None:
        request = self.requests[i]
        if request.due != now:
            return
        self.end_transfer(now, request)
        group = request.decodes
        if request.left == 0:
            self._leave_without_decode(now, request)
            if request.home is not None:
                request.home.release(request)
            self._memory_freed(now, group)
        elif request.home is not None:
            request.home.queue.append(request)
            self.wake(now, [request.home])
        else:
            group[0].queue.append(request)
            self.wake(now, [r for r in group if r.up and not r.busy][:1])

    def end_transfer(self, now: float, request: Request) -> None:
        """The KV cache is there, or its transfer was cut."""
        request.transfer_end, request.due = now, None
        if self.rule == "transfer":
            request.gain(now)

    # Decode.

    def wake(self, now: float, replicas: list[DecodeReplica]) -> None:
        """Those of ``replicas`` that are up and idle take a turn once all have arrived."""
        for replica in replicas:
            if replica.up and not replica.busy:
                replica.busy = True
                self.schedule(now, STEP_START, replica.index)

    def _start_step(self, now: float, index: int) -> None:
        replica = self.decodes[index]
        if not replica.busy or replica.due is not None:
            return
        end = replica.turn(now)
        if end is not None:
            self.schedule(end, STEP_END, index)

    def _end_step(self, now: float, index: int) -> None:
        replica = self.decodes[index]
        if replica.due != now:
            return
        for request in replica.end(now):
            self._finish(now, request)
        if replica.lost or replica.pending:
            self._memory_freed(now, replica.group)
        self.schedule(now, STEP_START, index)

    def _memory_freed(self, now: float, group: list[DecodeReplica]) -> None:
        """KV space may have been freed, or taken from one who must recompute."""
        if self.options.kv is not None:
            self.admit(now, group)
        if group[0].lost:
            self.wake(now, group)

    # Leaving.

    def _leave_without_decode(self, now: float, request: Request) -> None:
        """One token was all: it is logged at the decode replica that it was meant for."""
        if request.transfer_end is None:
            request.transfer_start = request.transfer_end = now
        target = request.home or request.decodes[0]
        request.decode_start, request.decode_replica = now, target.index
        self._finish(now, request)

    def _finish(self, now: float, request: Request) -> None:
        for replica in request.decodes:
            replica.load -= 1
        self.finish(now, request)


def replay(
    system: System,
    fleet: Fleet,
    draws: Draws,
    progress: Progress | None = None,
    options: SimulationOptions = PLAIN,
) -> Run:
    """Run the requests in ``draws`` through ``fleet``: the log and every decode step.

    Raises InputError for options that do not fit the fleet.
    """
    if options.colocated is not None:
        both = ColocatedSimulator(system, fleet, draws, progress, options, options.colocated)
        return both.run()
    return Simulator(system, fleet, draws, progress, options).run()


def simulate(
    system: System,
    fleet: Fleet,
    rates: Rates,
    requests: int,
    seed: Seed,
    progress: Progress | None = None,
    options: SimulationOptions = PLAIN,
) -> RequestLog:
    """Times of ``requests`` requests of ``system.workload`` on ``fleet``, from empty to empty.

    ``rates[role, replica type]`` in requests/s are the weights by which pools share the
    traffic; the same ``seed`` gives the same log. Raises InputError for rates or options that
    do not fit the fleet, or when a replica's KV space does not hold one request.
    """
    draws = draw(system.workload, fleet, rates, requests, seed)
    return replay(system, fleet, draws, progress, options).log


__all__ = ["Progress", "replay", "replica_types", "simulate", "step_time"]
