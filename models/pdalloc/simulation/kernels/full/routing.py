"""From the end of a prefill pass to the decode replica's queue."""

from __future__ import annotations

import numpy as np

from pdalloc.simulation.events import STEP_START
from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.clients import finish
from pdalloc.simulation.kernels.full.dispatch import add_load, decode_target, group_end
from pdalloc.simulation.kernels.full.lists import append, remove, take_all
from pdalloc.simulation.kernels.full.memory import admit, release, unblock
from pdalloc.simulation.kernels.full.network import begin_transfer
from pdalloc.simulation.kernels.full.prefill import start_passes
from pdalloc.simulation.kernels.full.state import NOBODY, State, gain, schedule
from pdalloc.simulation.kernels.plain.table import AT_PREFILL, AT_TRANSFER


@part
def end_prefill(s: State, now: float, k: int) -> None:
    """A pass of prefill replica ``k`` is over."""
    server = s.servers[k]
    if server.due != now:  # the pass was lost
        return
    server.due = np.nan
    partial = server.partial
    if s.rules[0].back_pressure == 1:
        server.blocking += s.lists[server.members].length - (partial != NOBODY)
    i = take_all(s, server.members)
    while i != NOBODY and i != partial:
        following = s.whole[rows.NEXT, i]
        s.times[rows.PREFILL_END, i] = now
        add_load(s, s.whole[rows.PREFILL_TARGET, i], -s.whole[rows.PROMPT, i])
        route(s, now, i)
        i = following
    start_passes(s, now, k, k + 1)


@part
def route(s: State, now: float, i: int) -> None:
    """Request i is prefilled: choose the decode replica."""
    k = decode_target(s, i)
    s.whole[rows.DECODE_TARGET, i] = k
    add_load(s, k, 1)
    if s.rules[0].first_token == AT_PREFILL:
        gain(s, now, i, 0, 1)
        if s.whole[rows.TO_GO, i] == 0:  # nothing to decode, so no KV cache moves
            leave_without_decode(s, now, i)
            unblock(s, now, i)
            return
    if s.rules[0].kv == 1:
        append(s, s.servers[k].pending, i)
        admit(s, now, k)
    else:
        s.whole[rows.HOME, i] = k if group_end(s, k) == k + 1 else NOBODY
        begin_transfer(s, now, i)


@part
def end_transfer(s: State, now: float, i: int) -> None:
    """The KV cache of request i is there."""
    if s.times[rows.DUE, i] != now:  # the transfer was cut
        return
    k, home = s.whole[rows.DECODE_TARGET, i], s.whole[rows.HOME, i]
    transfer_over(s, now, i)
    if s.whole[rows.TO_GO, i] == 0:
        leave_without_decode(s, now, i)
        if home != NOBODY:
            release(s, home, i)
        memory_freed(s, now, k)
    elif home != NOBODY:
        append(s, s.servers[home].waiting, i)
        wake(s, now, home)
    else:
        append(s, s.servers[k].waiting, i)
        for each in range(k, group_end(s, k)):
            if s.servers[each].up == 1 and s.servers[each].busy == 0:
                wake(s, now, each)
                break


@kernel
def transfer_over(s: State, now: float, i: int) -> None:
    """The transfer of request i has ended or was cut."""
    home = s.whole[rows.HOME, i]
    if home != NOBODY and s.whole[rows.TO_GO, i] > 0:
        remove(s, s.servers[home].moving, i)
    s.times[rows.TRANSFER_END, i] = now
    s.times[rows.DUE, i] = np.nan
    if s.rules[0].first_token == AT_TRANSFER:
        gain(s, now, i, 0, 1)


@kernel
def wake(s: State, now: float, k: int) -> None:
    """Decode replica ``k``, if up and idle, takes a turn once all of this instant have come."""
    server = s.servers[k]
    if server.up == 1 and server.busy == 0:
        server.busy = 1
        schedule(s, now, STEP_START, k - s.rules[0].prefills)


@kernel
def memory_freed(s: State, now: float, first: int) -> None:
    """KV space of a group may have been freed, or taken from one who must recompute."""
    if s.rules[0].kv == 1:
        admit(s, now, first)
    if s.lists[s.servers[first].lost].head != NOBODY:
        for k in range(first, group_end(s, first)):
            wake(s, now, k)


@kernel
def leave_without_decode(s: State, now: float, i: int) -> None:
    """One token was all: it is logged at the decode replica that it was meant for."""
    if np.isnan(s.times[rows.TRANSFER_END, i]):
        s.times[rows.TRANSFER_START, i] = now
        s.times[rows.TRANSFER_END, i] = now
    home = s.whole[rows.HOME, i]
    k = home if home != NOBODY else s.whole[rows.DECODE_TARGET, i]
    s.times[rows.DECODE_START, i] = now
    s.whole[rows.DECODE_REPLICA, i] = k - s.rules[0].prefills
    finish(s, now, i)
