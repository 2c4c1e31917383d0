"""The requests of a run as kernels see them: two tables, a column per request.

``times`` holds float64 seconds and ``whole`` int64 numbers; the rows are named here. Rows of
a RequestLog are filled in as things happen. Until then, PREFILL_END holds the seconds that
the prefill will take, TRANSFER_END those of the transfer, FINISH NaN, and each replica row
the one that a request is meant for (the first of its pool where a rule is still to choose).
"""

from __future__ import annotations

import numpy as np

from pdalloc.records import Array, Ints
from pdalloc.system import FirstToken

ARRIVAL, PREFILL_START, PREFILL_END, TRANSFER_END, DECODE_START, FIRST_TOKEN, FINISH = range(7)
TIMES = (
    "arrival",
    "prefill_start",
    "prefill_end",
    "transfer_end",
    "decode_start",
    "first_token",
    "finish",
)
"""Rows of ``times``, by number and as a RequestLog names them."""
PROMPT, OUTPUT, PREFILL_REPLICA, DECODE_REPLICA, NEXT, JOINED_NEXT = range(6)
"""Rows of ``whole``; NEXT is the request after this one in the list that it waits in, JOINED_NEXT
the one that joined the batch of the same decode replica after it.
"""

AT_PREFILL, AT_TRANSFER, AT_DECODE = range(3)
FIRST_TOKENS: tuple[FirstToken, ...] = ("prefill", "transfer", "decode")
"""Where the first token is made, by number."""


def empty_table(requests: int) -> tuple[Array, Ints]:
    """(times, whole) with room for ``requests`` requests; memory is used as it fills."""
    return np.empty((7, requests)), np.empty((6, requests), np.int64)
