"""A binary heap of (time, index), least first; equal times by index.

Entry 0 holds the number of entries in its ``index``, the least entry is number 1. The order
is that of ``heapq`` on ``(time, index)`` tuples, all of them different.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdalloc.simulation.kernels.compile import kernel

Heap = NDArray[Any]
ENTRY = np.dtype([("time", np.float64), ("index", np.int64)])


def empty_heap(capacity: int) -> Heap:
    """A heap with room for ``capacity`` entries; memory is used as it fills."""
    heap = np.empty(capacity + 1, ENTRY)
    heap[0] = 0.0, 0
    return heap


@kernel
def least_time(heap: Heap) -> float:
    """The least time, inf for an empty heap."""
    return heap[1].time if heap[0].index > 0 else math.inf


@kernel
def push(heap: Heap, time: float, index: int) -> None:
    """Put (time, index) in its place, moving later ones down on the way up."""
    at = heap[0].index + 1
    heap[0].index = at
    while at > 1:
        above = heap[at >> 1]
        if above.time < time or (above.time == time and above.index < index):
            break
        heap[at].time, heap[at].index = above.time, above.index
        at >>= 1
    heap[at].time, heap[at].index = time, index


@kernel
def pop(heap: Heap) -> int:
    """Take the least entry off and return its index."""
    least, size = heap[1].index, heap[0].index - 1
    heap[0].index = size
    time, index = heap[size + 1].time, heap[size + 1].index
    at = 1
    while 2 * at <= size:
        child = 2 * at
        if child < size:
            one, other = heap[child], heap[child + 1]
            if other.time < one.time or (other.time == one.time and other.index < one.index):
                child += 1
        earlier = heap[child]
        if time < earlier.time or (time == earlier.time and index < earlier.index):
            break
        heap[at].time, heap[at].index = earlier.time, earlier.index
        at = child
    heap[at].time, heap[at].index = time, index
    return int(least)
