"""KV transfers: they begin, share links, and arrive."""

from __future__ import annotations

import numpy as np

from pdalloc.simulation.events import LINK_END, TRANSFER_END
from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.lists import append
from pdalloc.simulation.kernels.full.marks import merge, without_least
from pdalloc.simulation.kernels.full.servers import ALONE, FCFS
from pdalloc.simulation.kernels.full.state import NOBODY, State, schedule


@kernel
def begin_transfer(s: State, now: float, i: int) -> None:
    """The KV cache of request i begins to move."""
    s.times[rows.TRANSFER_START, i] = now
    home = s.whole[rows.HOME, i]
    if home != NOBODY and s.whole[rows.TO_GO, i] > 0:
        append(s, s.servers[home].moving, i)
    latency, work = s.times[rows.LATENCY, i], s.times[rows.WORK, i]
    rules = s.rules[0]
    if rules.sharing == ALONE:
        arrives_at(s, now + (latency + work), i)
        return
    number = s.whole[rows.PREFILL_REPLICA, i] if rules.per_replica == 1 else s.whole[rows.LINK, i]
    link = s.links[number]
    if rules.sharing == FCFS:
        link.free_at = max(now, link.free_at) + work
        arrives_at(s, link.free_at + latency, i)
        return
    if link.count > 0:
        link.virtual += (now - link.since) / link.count
    link.since = now
    s.times[rows.MARK, i] = link.virtual + work
    s.whole[rows.CHILD, i] = NOBODY
    s.whole[rows.OTHER_CHILD, i] = NOBODY
    link.root = merge(s, link.root, i)
    link.count += 1
    next_through(s, now, number)


@kernel
def next_through(s: State, now: float, number: int) -> None:
    """When the transfer of least mark is through if nobody else comes."""
    link = s.links[number]
    left = max(s.times[rows.MARK, link.root] - link.virtual, 0.0)
    link.due = now + left * link.count
    schedule(s, link.due, LINK_END, number)


@part
def end_link(s: State, now: float, number: int) -> None:
    """Processor sharing: one transfer has all its bytes on the way."""
    link = s.links[number]
    if link.due != now:
        return
    i = link.root
    link.root = without_least(s, i)
    link.count -= 1
    link.virtual, link.since = s.times[rows.MARK, i], now
    if link.count > 0:
        next_through(s, now, number)
    else:
        link.virtual, link.due = 0.0, np.nan
    if np.isnan(s.times[rows.TRANSFER_END, i]):  # not cut
        arrives_at(s, now + s.times[rows.LATENCY, i], i)


@kernel
def arrives_at(s: State, time: float, i: int) -> None:
    """The transfer of request i will end at ``time``, s."""
    s.times[rows.DUE, i] = time
    schedule(s, time, TRANSFER_END, i)
