"""Clients: they arrive, are refused, give up, come again, and leave."""

from __future__ import annotations

import math

import numpy as np

from pdalloc.records import FINISHED, REJECTED, TIMED_OUT
from pdalloc.simulation.events import ARRIVAL, TIMEOUT
from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.dispatch import add_load, group_end, prefill_target
from pdalloc.simulation.kernels.full.lists import remove
from pdalloc.simulation.kernels.full.prefill import enqueue, ready
from pdalloc.simulation.kernels.full.state import State, schedule


@part
def arrive(s: State, now: float, i: int) -> None:
    """Request i comes, for the first time or again."""
    rules = s.rules[0]
    if s.whole[rows.RETRIES, i] == 0 and i + 1 < rules.requests:
        schedule(s, s.times[rows.ARRIVAL, i + 1], ARRIVAL, i + 1)
    k = prefill_target(s, i)
    after = group_end(s, k)
    if s.lists[s.servers[k].waiting].length >= rules.max_queue * (after - k):
        full = True
        for each in range(k, after):
            if ready(s, each):
                full = False
        if full:
            give_up(s, now, i, REJECTED)
            return
    enqueue(s, now, i, k)
    if rules.timeout < math.inf:
        s.times[rows.DEADLINE, i] = now + rules.timeout
        schedule(s, now + rules.timeout, TIMEOUT, i)


@part
def time_out(s: State, now: float, i: int) -> None:
    """Request i has waited long enough, if no pass has taken it yet."""
    if s.times[rows.DEADLINE, i] != now or not np.isnan(s.times[rows.PREFILL_START, i]):
        return
    k = s.whole[rows.PREFILL_TARGET, i]
    remove(s, s.servers[k].waiting, i)
    add_load(s, k, -s.whole[rows.PROMPT, i])
    give_up(s, now, i, TIMED_OUT)


@kernel
def give_up(s: State, now: float, i: int, status: int) -> None:
    """Not served this time: the client comes again or is gone."""
    s.times[rows.DEADLINE, i] = np.nan
    if s.whole[rows.RETRIES, i] < s.rules[0].retries:
        s.whole[rows.RETRIES, i] += 1
        schedule(s, now + s.rules[0].retry_delay, ARRIVAL, i)
    else:
        leave(s, now, i, status)


@kernel
def finish(s: State, now: float, i: int) -> None:
    """Request i has its whole answer."""
    add_load(s, s.whole[rows.DECODE_TARGET, i], -1)
    s.times[rows.FINISH, i] = now
    leave(s, now, i, FINISHED)


@kernel
def leave(s: State, now: float, i: int, status: int) -> None:
    """Request i is gone for good."""
    s.whole[rows.STATUS, i] = status
    s.times[rows.LEFT, i] = now
    s.rules[0].gone += 1
