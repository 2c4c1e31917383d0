"""The event loop of the core path: arrivals, prefill ends and transfer ends in order.

Equal times: prefill ends, arrivals, transfer ends, as in the reference. Steps are no events
here: a decode replica is played ahead when somebody needs to know its state.
"""

from __future__ import annotations

import math

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.heap import Heap, least_time, pop, push
from pdalloc.simulation.kernels.plain.decode import Ring
from pdalloc.simulation.kernels.plain.prefill import arrive, end_first
from pdalloc.simulation.kernels.plain.replica import Replicas
from pdalloc.simulation.kernels.plain.routing import (
    advance_all,
    assign,
    leave_without_decode,
    receive,
)
from pdalloc.simulation.kernels.plain.table import (
    ARRIVAL,
    AT_PREFILL,
    AT_TRANSFER,
    FIRST_TOKEN,
    OUTPUT,
    TRANSFER_END,
)


@kernel
def play(
    times: Array,
    whole: Ints,
    prefills: Replicas,
    ends: Heap,
    moving: Heap,
    decodes: Replicas,
    leaving: Ring,
    base: Array,
    rule: int,
    begin: int,
    end: int,
) -> None:
    """Play the events from the arrival of request ``begin`` up to that of ``end``.

    With the last request, all events that are left. ``ends``: running prefills by replica;
    ``moving``: transfers by request; ``rule``: where the first token is made.
    """
    total = times.shape[1]
    i = begin
    while i < end or end == total:
        arrival = times[ARRIVAL, i] if i < end else math.inf
        prefilled, moved = least_time(ends), least_time(moving)
        if prefilled <= arrival and prefilled <= moved:
            if prefilled == math.inf:
                break
            done = end_first(times, whole, prefills, ends, prefilled)
            # Whoever arrived now came after the steps that end now, and started at once.
            after_ends = i > 0 and times[ARRIVAL, i - 1] == prefilled
            assign(times, whole, decodes, leaving, base, done, prefilled, after_ends)
            if rule == AT_PREFILL:
                times[FIRST_TOKEN, done] = prefilled
                if whole[OUTPUT, done] == 1:
                    times[TRANSFER_END, done] = prefilled
                    leave_without_decode(times, whole, decodes, done, prefilled)
                    continue
            push(moving, prefilled + times[TRANSFER_END, done], done)
        elif arrival <= moved:
            arrive(times, whole, prefills, ends, i)
            i += 1
        else:
            done = pop(moving)
            times[TRANSFER_END, done] = moved
            if rule == AT_TRANSFER:
                times[FIRST_TOKEN, done] = moved
                if whole[OUTPUT, done] == 1:
                    leave_without_decode(times, whole, decodes, done, moved)
                    continue
            receive(times, whole, decodes, leaving, base, done, moved)
    until = math.inf if end == total else times[ARRIVAL, end - 1]
    advance_all(times, whole, decodes, leaving, base, until)
