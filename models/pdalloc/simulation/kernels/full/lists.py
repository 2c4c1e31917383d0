"""Lists of requests that can be taken apart anywhere: queues, passes, batches.

A request is in at most one list at a time, so NEXT and PREVIOUS serve all of them. ``which``
numbers the list.
"""

from __future__ import annotations

from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.full.rows import NEXT, PREVIOUS
from pdalloc.simulation.kernels.full.state import NOBODY, State


@kernel
def append(s: State, which: int, i: int) -> None:
    """Put request i last."""
    queue = s.lists[which]
    s.whole[NEXT, i] = NOBODY
    s.whole[PREVIOUS, i] = queue.tail
    if queue.tail == NOBODY:
        queue.head = i
    else:
        s.whole[NEXT, queue.tail] = i
    queue.tail = i
    queue.length += 1


@kernel
def prepend(s: State, which: int, i: int) -> None:
    """Put request i first."""
    queue = s.lists[which]
    s.whole[NEXT, i] = queue.head
    s.whole[PREVIOUS, i] = NOBODY
    if queue.head == NOBODY:
        queue.tail = i
    else:
        s.whole[PREVIOUS, queue.head] = i
    queue.head = i
    queue.length += 1


@kernel
def remove(s: State, which: int, i: int) -> None:
    """Take request i out, wherever it is in the list."""
    queue = s.lists[which]
    before, after = s.whole[PREVIOUS, i], s.whole[NEXT, i]
    if before == NOBODY:
        queue.head = after
    else:
        s.whole[NEXT, before] = after
    if after == NOBODY:
        queue.tail = before
    else:
        s.whole[PREVIOUS, after] = before
    queue.length -= 1


@kernel
def take_all(s: State, which: int) -> int:
    """Empty the list; returns its first request, from which NEXT leads to the others."""
    head = s.lists[which].head
    s.lists[which].head = NOBODY
    s.lists[which].tail = NOBODY
    s.lists[which].length = 0
    return int(head)
