"""The requests of a run with options: two tables, a column per request.

``times`` holds float64 (seconds unless said), ``whole`` int64. The first rows are those of a
RequestLog; rows that no option needs are never touched and take no memory.
"""

from __future__ import annotations

(
    ARRIVAL,
    PREFILL_START,
    PREFILL_END,
    TRANSFER_END,
    DECODE_START,
    FIRST_TOKEN,
    FINISH,
    LEFT,
    TRANSFER_START,
    DEADLINE,
    DUE,
    SECONDS,
    FACTOR,
    CACHED,
    AT,
    LATENCY,
    WORK,
    MARK,
    PREFILL_PICK,
    DECODE_PICK,
) = range(20)
"""Rows of ``times``.

LEFT: when it left the system either way. DEADLINE: when it gives up waiting, DUE: when its
transfer ends, NaN where neither is to come. SECONDS of prefill alone, noise (FACTOR)
included. CACHED tokens of the prompt; AT: tokens that are in the KV cache while it is
prefilled. LATENCY and WORK of its transfer; MARK: virtual time at which a shared link is
through with it. PREFILL_PICK, DECODE_PICK: uniform, for the first dispatch.
"""
TIMES = 20
LOGGED = 9
"""The first rows, which are NaN until the time is known (ARRIVAL is known)."""

(
    PROMPT,
    OUTPUT,
    PREFILL_REPLICA,
    DECODE_REPLICA,
    STATUS,
    RETRIES,
    RECOMPUTES,
    NEXT,
    PREVIOUS,
    SLOT_NEXT,
    SLOT_PREVIOUS,
    CHILD,
    OTHER_CHILD,
    TO_GO,
    LAST_STEP,
    HELD,
    HOME,
    PREFILL_POOL,
    DECODE_POOL,
    PREFILL_TARGET,
    DECODE_TARGET,
    PREFILL_DISPATCHES,
    DECODE_DISPATCHES,
    LINK,
) = range(24)
"""Rows of ``whole``.

NEXT and PREVIOUS in the list that it is in, SLOT_NEXT and SLOT_PREVIOUS in the slot of a ring,
CHILD and OTHER_CHILD in the heap of a shared link (where it stays when its transfer is cut).
TO_GO: tokens still to be decoded; while a replica keeps
count, LAST_STEP: how many steps the replica will have done then. HELD: KV tokens that are its
own at its HOME. PREFILL_POOL and DECODE_POOL: the first server of its pool; PREFILL_TARGET and
DECODE_TARGET: the server that it was sent to, the first of the pool under a central queue.
LINK: the shared link, where it does not follow from the prefill replica.
"""
WHOLE = 24
