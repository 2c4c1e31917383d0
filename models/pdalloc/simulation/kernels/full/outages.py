"""Failures and repairs: what is lost, and who goes where.

Apart from the event loop, because they are rare and take long to compile.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.simulation import hashing
from pdalloc.simulation.events import FAILURE, REPAIR
from pdalloc.simulation.kernels.chance import uniform
from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.batch import take_out
from pdalloc.simulation.kernels.full.decode import lose
from pdalloc.simulation.kernels.full.dispatch import (
    add_load,
    decode_target,
    prefill_target,
)
from pdalloc.simulation.kernels.full.lists import append, prepend, take_all
from pdalloc.simulation.kernels.full.memory import admit, release
from pdalloc.simulation.kernels.full.prefill import enqueue, start_passes
from pdalloc.simulation.kernels.full.routing import transfer_over, wake
from pdalloc.simulation.kernels.full.state import KIND, NOBODY, SCRATCH, State, schedule
from pdalloc.simulation.kernels.heap import pop
from pdalloc.simulation.kernels.plain.replica import CENTRAL


@kernel
def begin_outages(s: State) -> None:
    """The first failure of every server is on its way."""
    for k in range(len(s.servers)):
        next_failure(s, 0.0, k)


@kernel
def play_outages(s: State) -> None:
    """Play failures and repairs while the next event is one."""
    while s.events[0].index > 0 and s.rules[0].gone < s.rules[0].requests:
        now, kind, index = s.events[1].time, s.events[1].index // KIND, s.events[1].index % KIND
        if kind == FAILURE:
            pop(s.events)
            fail(s, now, index)
        elif kind == REPAIR:
            pop(s.events)
            repair(s, now, index)
        else:
            return


@kernel
def next_failure(s: State, now: float, k: int) -> None:
    """Server ``k`` is up from now on, until it fails."""
    rules = s.rules[0]
    up = -math.log(uniform(rules.key, hashing.UP_TIME, k, s.servers[k].failures, 0))
    schedule(s, now + rules.mtbf * up, FAILURE, k)


@kernel
def fail(s: State, now: float, k: int) -> None:
    """Server ``k`` goes down."""
    server, rules = s.servers[k], s.rules[0]
    down = -math.log(uniform(rules.key, hashing.DOWN_TIME, k, server.failures, 0))
    server.failures += 1
    schedule(s, now + rules.mttr * down, REPAIR, k)
    cut_short(s, now, k)
    server.due = np.nan
    server.up = 0
    if k < rules.prefills:
        fail_prefill(s, now, k)
    else:
        fail_decode(s, now, k)


@part
def cut_short(s: State, now: float, k: int) -> None:
    """What server ``k`` was doing ends now, in the diary."""
    server = s.servers[k]
    if s.diary.shape[1] == 0 or np.isnan(server.due):
        return
    place = server.diary + server.begun - 1
    if k >= s.rules[0].prefills and server.recomputing != NOBODY:
        place = server.recompute_diary + server.recomputes - 1
    s.diary[1, place] = now - s.diary[0, place]


@kernel
def repair(s: State, now: float, k: int) -> None:
    """Server ``k`` is up again and looks for work."""
    next_failure(s, now, k)
    server = s.servers[k]
    server.up = 1
    if k < s.rules[0].prefills:
        start_passes(s, now, k, k + 1)
        return
    if s.lists[server.waiting].head != NOBODY or s.lists[server.lost].head != NOBODY:
        wake(s, now, k)
    if s.rules[0].kv == 1:
        admit(s, now, server.first if server.rule == CENTRAL else k)


@part
def fail_prefill(s: State, now: float, k: int) -> None:
    """Prompts of the pass and the partial one start again, first; then those that wait."""
    server = s.servers[k]
    if server.partial != NOBODY and s.lists[server.members].head == NOBODY:
        append(s, server.members, server.partial)
    server.partial = NOBODY
    i = s.lists[server.members].head
    while i != NOBODY:
        s.times[rows.AT, i] = s.times[rows.CACHED, i]
        s.times[rows.PREFILL_START, i] = np.nan
        i = s.whole[rows.NEXT, i]
    i = s.lists[server.members].tail
    while i != NOBODY:  # to the front of the queue, in their order
        before = s.whole[rows.PREVIOUS, i]
        prepend(s, server.waiting, i)
        i = before
    take_all(s, server.members)
    if server.rule == CENTRAL:
        start_passes(s, now, server.first, server.after)
        return
    i = take_all(s, server.waiting)
    while i != NOBODY:
        following = s.whole[rows.NEXT, i]
        add_load(s, k, -s.whole[rows.PROMPT, i])
        enqueue(s, now, i, prefill_target(s, i))
        i = following


@part
def fail_decode(s: State, now: float, k: int) -> None:
    """KV caches are lost: they are recomputed, elsewhere if the queue is not shared."""
    server = s.servers[k]
    central = server.rule == CENTRAL
    server.busy, server.fresh = 0, 0
    gather(s, now, k, not central or s.rules[0].kv == 1)
    if central:
        i = s.lists[SCRATCH].tail
        while i != NOBODY:  # to the front, in their order
            before = s.whole[rows.PREVIOUS, i]
            prepend(s, server.lost, i)
            i = before
        take_all(s, SCRATCH)
        for each in range(server.first, server.after):
            wake(s, now, each)
        return
    pass_on(s, server.lost, SCRATCH)
    pending = take_all(s, server.pending)
    i = take_all(s, SCRATCH)
    while i != NOBODY:
        following = s.whole[rows.NEXT, i]
        target = move(s, i)
        append(s, s.servers[target].lost, i)
        wake(s, now, target)
        i = following
    i = pending
    while i != NOBODY:
        following = s.whole[rows.NEXT, i]
        target = move(s, i)
        append(s, s.servers[target].pending, i)
        admit(s, now, target)
        i = following


@part
def gather(s: State, now: float, k: int, cut: bool) -> None:
    """Those whose KV cache fails with server ``k`` come to the list SCRATCH.

    The batch and the one being recomputed; with ``cut`` also those that wait for a slot and
    those in transfer, by index.
    """
    server = s.servers[k]
    while s.lists[server.members].head != NOBODY:
        i = s.lists[server.members].head
        take_out(s, k, i)
        lose(s, k, i)
        append(s, SCRATCH, i)
    if server.recomputing != NOBODY:
        release(s, k, server.recomputing)
        append(s, SCRATCH, server.recomputing)
        server.recomputing = NOBODY
    if not cut:
        return
    i = s.lists[server.waiting].head
    while i != NOBODY:
        lose(s, k, i)
        i = s.whole[rows.NEXT, i]
    pass_on(s, server.waiting, SCRATCH)
    while s.lists[server.moving].head != NOBODY:
        i = least_of(s, server.moving)
        transfer_over(s, now, i)
        lose(s, k, i)
        append(s, SCRATCH, i)


@part
def least_of(s: State, which: int) -> int:
    """The request of least index in a list that is not empty."""
    i = s.lists[which].head
    least = i
    while i != NOBODY:
        least = min(least, i)
        i = s.whole[rows.NEXT, i]
    return int(least)


@kernel
def pass_on(s: State, one: int, other: int) -> None:
    """All of list ``one``, in order, to the end of list ``other``."""
    i = take_all(s, one)
    while i != NOBODY:
        following = s.whole[rows.NEXT, i]
        append(s, other, i)
        i = following


@kernel
def move(s: State, i: int) -> int:
    """Dispatch request i again; returns its new decode replica, as a server."""
    add_load(s, s.whole[rows.DECODE_TARGET, i], -1)
    s.whole[rows.HOME, i] = NOBODY
    k = decode_target(s, i)
    s.whole[rows.DECODE_TARGET, i] = k
    add_load(s, k, 1)
    return k
