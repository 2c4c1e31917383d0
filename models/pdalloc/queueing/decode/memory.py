r"""How many requests the KV memory of a decode replica holds.

A request holds r tokens for its stay: its *full* length P + L, or its *context*, which grows.
Seen over time, requests are weighed by their steps, so M tokens hold M / E*[r]. While the head of
the queue does not fit, part of the memory stays empty: the part of its need that the free space
covers, half of a length-biased need on average (the renewal argument of a residual life),

.. math:: K = \frac{M - E[d^2] / (2 E[d])}{E^*[r]}, \qquad E^*[r] = E[n r]/E[n],

d what admission asks for: P + L, or P and the first token. Simulated (M = 12 and 32 contexts,
utilisation .7 and .85): mean TPOT within 2 %; mean wait -6 to -52 % for ``full`` and -5 to -67 %
for ``context``, where M over the mean context has -49 to -93 % and -5 to -83 %. The number held
varies with who is held, which no batch limit does: P99 ITL is low by up to 17 %.
"""

from __future__ import annotations

import math
from typing import Literal

from pdalloc.errors import InputError
from pdalloc.queueing.decode.work import DecodeWork

Reserve = Literal["context", "full"]


def memory_slots(work: DecodeWork, tokens: float, reserve: Reserve = "context") -> int:
    """K for ``tokens`` of KV memory on one replica; at least 1 where one mean request fits.

    Raises InputError when not even that fits, or for a memory that is no positive number.

    >>> import numpy as np
    >>> from pdalloc.queueing.decode.work import decode_work
    >>> work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    >>> memory_slots(work, 1575.0, "full")  # 150 tokens each, half of one lies empty
    10
    """
    if not (math.isfinite(tokens) and tokens > 0):
        raise InputError(f"KV memory must be a positive number of tokens, got {tokens:g}")
    total = work.context + work.growth * work.steps
    asked = total if reserve == "full" else work.context + 1.0
    held = work.mean_context
    if reserve == "full":
        held = float(work.weight @ (work.steps * total)) / work.mean_steps
    if tokens < held:
        raise InputError(
            f"{tokens:g} KV tokens do not hold one request of {held:.0f} tokens on average; "
            "use more GPUs per replica"
        )
    empty = float(work.weight @ asked**2) / (2.0 * float(work.weight @ asked))
    return max(math.floor((tokens - empty) / held + 1e-9), 1)
