"""KV memory of the decode replicas: what a request holds, and who is admitted when."""

from __future__ import annotations

from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.dispatch import group_end
from pdalloc.simulation.kernels.full.lists import remove
from pdalloc.simulation.kernels.full.network import begin_transfer
from pdalloc.simulation.kernels.full.prefill import start_passes
from pdalloc.simulation.kernels.full.state import NOBODY, State, context_of


@kernel
def need(s: State, i: int) -> int:
    """KV tokens that request i must hold to be at a replica."""
    if s.rules[0].kv == 0:
        return 0
    if s.rules[0].full == 1:
        return int(s.whole[rows.PROMPT, i] + s.whole[rows.OUTPUT, i])
    return context_of(s, i)


@kernel
def fits(s: State, k: int, i: int) -> bool:
    """Whether server ``k`` has KV space for request i now, the watermark kept free."""
    server = s.servers[k]
    if s.rules[0].kv == 0 or server.used == 0:
        return True
    return bool(server.used + need(s, i) <= (1.0 - s.rules[0].watermark) * server.memory)


@kernel
def hold(s: State, k: int, i: int) -> None:
    """Request i holds what it needs at ``k`` now, instead of what it held."""
    tokens = need(s, i)
    s.servers[k].used += tokens - s.whole[rows.HELD, i]
    s.whole[rows.HELD, i] = tokens


@kernel
def release(s: State, k: int, i: int) -> None:
    """Request i needs no KV space at ``k`` any more."""
    s.servers[k].used -= s.whole[rows.HELD, i]
    s.whole[rows.HELD, i] = 0


@kernel
def admit(s: State, now: float, first: int) -> None:
    """Transfers to the group that begins at ``first``, in order, while the next has KV space.

    Whose KV cache was lost comes first: nobody is admitted while one waits.
    """
    pending, lost = s.servers[first].pending, s.servers[first].lost
    while s.lists[pending].head != NOBODY and s.lists[lost].head == NOBODY:
        home = roomiest(s, first)
        i = s.lists[pending].head
        if home == NOBODY or not fits(s, home, i):
            return
        remove(s, pending, i)
        s.whole[rows.HOME, i] = home
        hold(s, home, i)
        begin_transfer(s, now, i)
        unblock(s, now, i)


@part
def roomiest(s: State, first: int) -> int:
    """The server of the group that is up with the most KV space, the first of equals."""
    best, most = NOBODY, 0.0
    for k in range(first, group_end(s, first)):
        free = s.servers[k].memory - s.servers[k].used
        if s.servers[k].up == 1 and (best == NOBODY or free > most):
            best, most = k, free
    return best


@kernel
def unblock(s: State, now: float, i: int) -> None:
    """The prefill replica of request i need not keep its KV cache any more."""
    if s.rules[0].back_pressure == 1:
        source = s.whole[rows.PREFILL_REPLICA, i]
        s.servers[source].blocking -= 1
        start_passes(s, now, source, source + 1)
