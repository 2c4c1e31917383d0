"""The decode replicas: continuous batching, each replica played ahead on its own.

Between the caches that reach it a replica needs nobody else, so it is played from step
boundary to step boundary up to the next one (:func:`advance`). A request that joins at step j
with L tokens to get leaves at the end of step j + L - 1: it is put in that step's slot of a
ring, ``leaving[r, (j + L - 1) mod ring]`` (its first request, then by NEXT). So a step costs one
addition to the time however many it decodes. The additions are those of the reference, in
its order: every time is the same to the last bit.

A *boundary* is the end of a step and, for a replica that was idle, the instant that wakes it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.plain.replica import NOBODY, Replicas
from pdalloc.simulation.kernels.plain.table import (
    DECODE_REPLICA,
    DECODE_START,
    FINISH,
    FIRST_TOKEN,
    JOINED_NEXT,
    NEXT,
    OUTPUT,
    PROMPT,
)

Ring = NDArray[np.int32]


def empty_ring(replicas: int, most_steps: int) -> Ring:
    """Slots for requests of up to ``most_steps`` steps, a power of two, nobody in them."""
    ring = 1 << max(most_steps - 1, 1).bit_length()
    return np.full((replicas, ring), NOBODY, np.int32)


@kernel
def advance(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    leaving: Ring,
    base: Array,
    r: int,
    until: float,
) -> None:
    """Play the boundaries of replica r before ``until`` (s)."""
    d = decodes[r]
    end, step, batch, context = d.boundary, d.step, d.batch, d.context
    ring, factor, slope = leaving.shape[1] - 1, d.factor, d.slope
    while end < until:
        context += batch
        if leaving[r, step & ring] != NOBODY:
            gone, freed = leave(times, whole, leaving, r, step & ring, end)
            batch -= gone
            context -= freed
            d.load -= gone
            d.finished += gone
        step += 1
        first = decodes[d.queue].head
        after = first
        while after != NOBODY and batch < d.limit:
            batch += 1
            context += whole[PROMPT, after] + d.by_prefill
            after = whole[NEXT, after]
        if batch == 0:
            end = math.inf
            break
        now, per_step = end, base[d.pool, batch]
        end += factor * (per_step + slope * context)
        if after != first:
            decodes[d.queue].head = after
            join(times, whole, decodes, leaving, r, step, first, after, now, end)
        # Nobody joins before `until` now: the queue is empty or the batch full.
        while end < until and leaving[r, step & ring] == NOBODY:
            context += batch
            step += 1
            end += factor * (per_step + slope * context)
    d.boundary, d.step, d.batch, d.context = end, step, batch, context


@kernel
def join(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    leaving: Ring,
    r: int,
    step: int,
    first: int,
    after: int,
    now: float,
    end: float,
) -> None:
    """Step ``step``, from ``now`` to ``end``, takes the requests from ``first`` to ``after``.

    ``after`` is the first that waits on.
    """
    d = decodes[r]
    ring, by_prefill, before = leaving.shape[1] - 1, d.by_prefill, d.last_joined
    i = first
    while i != after:
        following = whole[NEXT, i]
        if before == NOBODY:
            d.first_joined = i
        else:
            whole[JOINED_NEXT, before] = i
        whole[JOINED_NEXT, i] = NOBODY
        before = i
        times[DECODE_START, i] = now
        whole[DECODE_REPLICA, i] = r
        if by_prefill == 0:
            times[FIRST_TOKEN, i] = end
        last = (step + whole[OUTPUT, i] - by_prefill - 1) & ring
        whole[NEXT, i] = leaving[r, last]
        leaving[r, last] = i
        i = following
    d.last_joined = before


@kernel
def leave(
    times: Array, whole: Ints, leaving: Ring, r: int, slot: int, now: float
) -> tuple[int, int]:
    """Those in ``slot`` have all their tokens; (how many, the context tokens they held)."""
    i = leaving[r, slot]
    leaving[r, slot] = NOBODY
    gone, freed = 0, 0
    while i != NOBODY:
        times[FINISH, i] = now
        gone += 1
        freed += whole[PROMPT, i] + whole[OUTPUT, i]
        i = whole[NEXT, i]
    return gone, freed


@kernel
def leaving_next(whole: Ints, decodes: Replicas, leaving: Ring, r: int) -> int:
    """How many requests leave at the next boundary of replica r."""
    i = leaving[r, decodes[r].step & (leaving.shape[1] - 1)]
    count = 0
    while i != NOBODY:
        count += 1
        i = whole[NEXT, i]
    return count
