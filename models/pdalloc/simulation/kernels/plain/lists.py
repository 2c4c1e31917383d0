"""First-in first-out lists of requests, linked through the NEXT row of the table.

The replica that keeps a list has its ``head`` and ``tail``. A request waits in at most one
list at a time, so one row serves all lists.
"""

from __future__ import annotations

from pdalloc.records import Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.plain.replica import NOBODY, Replicas
from pdalloc.simulation.kernels.plain.table import NEXT


@kernel
def append(replicas: Replicas, keeper: int, whole: Ints, i: int) -> None:
    """Put request i last."""
    whole[NEXT, i] = NOBODY
    if replicas[keeper].head == NOBODY:
        replicas[keeper].head = i
    else:
        whole[NEXT, replicas[keeper].tail] = i
    replicas[keeper].tail = i


@kernel
def take_first(replicas: Replicas, keeper: int, whole: Ints) -> int:
    """Take the first request off a list that is not empty."""
    i = replicas[keeper].head
    replicas[keeper].head = whole[NEXT, i]
    return int(i)
