"""From the end of a prefill to the queue of a decode replica."""

from __future__ import annotations

import math

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.plain.central import advance_pool
from pdalloc.simulation.kernels.plain.decode import Ring, advance, leaving_next
from pdalloc.simulation.kernels.plain.lists import append
from pdalloc.simulation.kernels.plain.replica import CENTRAL, LEAST_LOADED, Replicas, choose
from pdalloc.simulation.kernels.plain.table import DECODE_REPLICA, DECODE_START, FINISH


@kernel
def assign(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    leaving: Ring,
    base: Array,
    i: int,
    now: float,
    after_ends: bool,
) -> None:
    """Choose the decode replica of request i, whose prefill ends now (s).

    Loads are those before the steps that end at this very instant, unless ``after_ends``.
    """
    meant = whole[DECODE_REPLICA, i]
    pool = decodes[meant]
    if pool.rule == LEAST_LOADED:
        for r in range(pool.first, pool.after):
            if decodes[r].boundary < now:
                advance(times, whole, decodes, leaving, base, r, now)
            if after_ends and decodes[r].boundary == now:
                decodes[r].load -= leaving_next(whole, decodes, leaving, r)
    chosen = choose(decodes, meant)
    if pool.rule == LEAST_LOADED and after_ends:
        for r in range(pool.first, pool.after):
            if decodes[r].boundary == now:
                decodes[r].load += leaving_next(whole, decodes, leaving, r)
    decodes[chosen].load += 1
    whole[DECODE_REPLICA, i] = chosen


@kernel
def leave_without_decode(times: Array, whole: Ints, decodes: Replicas, i: int, now: float) -> None:
    """One token was all: request i is done where it was going to decode."""
    times[DECODE_START, i] = now
    times[FINISH, i] = now
    r = whole[DECODE_REPLICA, i]
    decodes[r].load -= 1
    decodes[r].finished += 1


@kernel
def receive(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    leaving: Ring,
    base: Array,
    i: int,
    now: float,
) -> None:
    """The cache of request i is there: it waits, and wakes a replica that is idle."""
    r = whole[DECODE_REPLICA, i]
    after = r + 1
    if decodes[r].rule == CENTRAL:
        after = decodes[r].after
        advance_pool(times, whole, decodes, leaving, base, r, now)
    else:
        advance(times, whole, decodes, leaving, base, r, now)
    append(decodes, decodes[r].queue, whole, i)
    for candidate in range(r, after):
        if decodes[candidate].boundary == math.inf:
            decodes[candidate].boundary = now
            decodes[candidate].woken += 1
            break


@kernel
def advance_all(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    leaving: Ring,
    base: Array,
    until: float,
) -> None:
    """Play every boundary before ``until`` (s)."""
    for r in range(len(decodes)):
        if decodes[r].rule != CENTRAL:
            advance(times, whole, decodes, leaving, base, r, until)
        elif decodes[r].first == r:
            advance_pool(times, whole, decodes, leaving, base, r, until)
