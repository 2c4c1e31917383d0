"""Failures and repairs in the reference simulator: what is lost, and who goes where.

Servers are numbered: prefill replicas, then decode replicas. A pass, step or recompute pass
under way is lost. Prompts of a prefill replica are dispatched again, begun ones first; under a
central queue begun ones go to its front. Requests whose KV cache was, or was on its way to, a
decode replica are dispatched again and recomputed where they come to; under a central queue
they go to the front of those to be recomputed. Finished prompts that back-pressure keeps at a
prefill replica are staged off the GPU: they survive, and still block it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdalloc.fleet import DECODE, PREFILL
from pdalloc.simulation.decode_replica import DecodeReplica
from pdalloc.simulation.events import FAILURE, REPAIR
from pdalloc.simulation.options import Failures
from pdalloc.simulation.prefill_replica import PrefillReplica
from pdalloc.simulation.requests import Request
from pdalloc.simulation.setup import down_seconds, up_seconds

if TYPE_CHECKING:
    from pdalloc.simulation.reference import Simulator


class Outages:
    """All failures of one run."""

    def __init__(self, simulator: Simulator, rule: Failures) -> None:
        self.sim, self.rule = simulator, rule
        self.count = [0] * (len(simulator.prefills) + len(simulator.decodes))
        for server in range(len(self.count)):
            self._next_failure(0.0, server)

    def _next_failure(self, now: float, server: int) -> None:
        up = up_seconds(self.sim.draws.key, self.rule, server, self.count[server])
        self.sim.schedule(now + up, FAILURE, server)

    def _look(self) -> None:
        for prefill in self.sim.entrances:
            prefill.look()
        for decode in self.sim.decode_pools:
            decode.look()

    def _central(self, replica: PrefillReplica | DecodeReplica) -> bool:
        """Whether ``replica`` shares its queue with the others of its pool."""
        role = PREFILL if isinstance(replica, PrefillReplica) else DECODE
        return self.sim.system.dispatch[role] == "central_queue"

    def _replica(self, server: int) -> PrefillReplica | DecodeReplica:
        prefills = len(self.sim.prefills)
        if server < prefills:
            return self.sim.prefills[server]
        return self.sim.decodes[server - prefills]

    def fail(self, now: float, server: int) -> None:
        """``server`` goes down."""
        down = down_seconds(self.sim.draws.key, self.rule, server, self.count[server])
        self.count[server] += 1
        self.sim.schedule(now + down, REPAIR, server)
        replica = self._replica(server)
        replica.up = False
        self._look()
        if isinstance(replica, PrefillReplica):
            self._fail_prefill(now, replica)
        else:
            self._fail_decode(now, replica)

    def repair(self, now: float, server: int) -> None:
        """``server`` is up again and looks for work."""
        self._next_failure(now, server)
        replica = self._replica(server)
        replica.up = True
        self._look()
        if isinstance(replica, PrefillReplica):
            self.sim.start_prefills(now, [replica])
            return
        if replica.queue or replica.lost:
            self.sim.wake(now, [replica])
        self.sim.admit(now, replica.group)

    def _fail_prefill(self, now: float, replica: PrefillReplica) -> None:
        lost = replica.fail(now)
        if self._central(replica):
            replica.queue.extendleft(reversed(lost))
            self.sim.start_prefills(now, replica.group)
            return
        moved = [*lost, *replica.queue]
        replica.queue.clear()
        for request in moved:
            self.sim.leave_prefill(request)
            self.sim.enqueue(now, request, self.sim.candidates(request))

    def _fail_decode(self, now: float, replica: DecodeReplica) -> None:
        lost = replica.fail(now)
        if not self._central(replica) or self.sim.options.kv is not None:
            lost += self._cut(now, replica)
        if self._central(replica):
            replica.lost.extendleft(reversed(lost))
            self.sim.wake(now, replica.group)
            return
        lost, pending = [*lost, *replica.lost], list(replica.pending)
        replica.lost.clear()
        replica.pending.clear()
        for request in lost:
            target = self._move(request)
            target.lost.append(request)
            self.sim.wake(now, [target])
        for request in pending:
            target = self._move(request)
            target.pending.append(request)
            self.sim.admit(now, [target])

    def _cut(self, now: float, replica: DecodeReplica) -> list[Request]:
        """Requests that wait for a slot at ``replica``, and those in transfer to it, by index."""
        moving = [
            r
            for r in self.sim.requests
            if r.home is replica and r.left > 0 and r.transfer_start is not None
            if r.transfer_end is None
        ]
        for request in moving:
            self.sim.end_transfer(now, request)
        cut = [*replica.queue, *moving]
        replica.queue.clear()
        for request in cut:
            replica.lose(request)
        return cut

    def _move(self, request: Request) -> DecodeReplica:
        """Dispatch ``request`` again; returns its new decode replica."""
        for replica in request.decodes:
            replica.load -= 1
        request.home = None
        request.decodes = self.sim.decode_candidates(request)
        for replica in request.decodes:
            replica.load += 1
        return request.decodes[0]
