"""The prefill replicas: first come first served, one prompt at a time."""

from __future__ import annotations

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.heap import Heap, pop, push
from pdalloc.simulation.kernels.plain.lists import append, take_first
from pdalloc.simulation.kernels.plain.replica import CENTRAL, NOBODY, Replicas, choose
from pdalloc.simulation.kernels.plain.table import (
    ARRIVAL,
    PREFILL_END,
    PREFILL_REPLICA,
    PREFILL_START,
    PROMPT,
)


@kernel
def arrive(times: Array, whole: Ints, prefills: Replicas, ends: Heap, i: int) -> None:
    """Request i arrives, waits, and starts where a replica is idle."""
    r = choose(prefills, whole[PREFILL_REPLICA, i])
    prefills[r].load += whole[PROMPT, i]
    append(prefills, prefills[r].queue, whole, i)
    after = prefills[r].after if prefills[r].rule == CENTRAL else r + 1
    for candidate in range(r, after):
        if prefills[candidate].running == NOBODY:
            start(times, whole, prefills, ends, candidate, times[ARRIVAL, i])
            break


@kernel
def start(times: Array, whole: Ints, prefills: Replicas, ends: Heap, r: int, now: float) -> None:
    """Replica r begins the oldest prompt that waits for it."""
    i = take_first(prefills, prefills[r].queue, whole)
    prefills[r].running = i
    times[PREFILL_START, i] = now
    whole[PREFILL_REPLICA, i] = r
    push(ends, now + times[PREFILL_END, i], r)


@kernel
def end_first(times: Array, whole: Ints, prefills: Replicas, ends: Heap, now: float) -> int:
    """The prompt that ends first is done and the next one starts; returns the request."""
    r = pop(ends)
    i = prefills[r].running
    prefills[r].running = NOBODY
    times[PREFILL_END, i] = now
    prefills[r].load -= whole[PROMPT, i]
    if prefills[prefills[r].queue].head != NOBODY:
        start(times, whole, prefills, ends, r, now)
    return int(i)
