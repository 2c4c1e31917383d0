"""The decode steps of a run, worked out again from its log.

Who joined when is all that a replica's steps depend on, so the core path need not write them
down: it says when each request joined, and this file plays the same additions once more.
"""

from __future__ import annotations

import numpy as np

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.plain.decode import empty_ring
from pdalloc.simulation.kernels.plain.replica import Replicas
from pdalloc.simulation.kernels.plain.table import DECODE_REPLICA, DECODE_START, OUTPUT, PROMPT


def steps_of(
    times: Array, whole: Ints, decodes: Replicas, base: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Starts and lengths of the steps of each replica, s, of a run that is over."""
    tokens = whole[OUTPUT] - decodes["by_prefill"][0]
    order = np.argsort(times[DECODE_START], kind="stable")
    order = order[tokens[order] > 0]
    slots = empty_ring(1, int(tokens.max(initial=1))).shape[1]
    ring = np.zeros((slots, 2), np.int64)
    starts, seconds = [], []
    for r in range(len(decodes)):
        mine = order[whole[DECODE_REPLICA, order] == r]
        steps = np.empty((2, int(decodes[r]["step"] - decodes[r]["woken"])))
        play_steps(times, whole, decodes, base, ring, r, mine, steps)
        starts.append(steps[0])
        seconds.append(steps[1])
    return tuple(starts), tuple(seconds)


@kernel
def play_steps(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    base: Array,
    ring: Ints,
    r: int,
    mine: Ints,
    steps: Array,
) -> None:
    """Fill ``steps``, (start, seconds) by step, from the requests ``mine`` in order of joining.

    ``ring[j mod ring]``: requests that leave after step j and the context that they hold.
    """
    d = decodes[r]
    now, batch, context, next_one = 0.0, 0, 0.0, 0
    for j in range(steps.shape[1]):
        if batch == 0:
            now = times[DECODE_START, mine[next_one]]
        while next_one < len(mine) and times[DECODE_START, mine[next_one]] <= now:
            i = mine[next_one]
            last = (j + whole[OUTPUT, i] - d.by_prefill - 1) & (len(ring) - 1)
            ring[last, 0] += 1
            ring[last, 1] += whole[PROMPT, i] + whole[OUTPUT, i]
            batch += 1
            context += whole[PROMPT, i] + d.by_prefill
            next_one += 1
        seconds = d.factor * (base[d.pool, batch] + d.slope * context)
        steps[0, j], steps[1, j] = now, seconds
        now += seconds
        slot = j & (len(ring) - 1)
        context += batch - ring[slot, 1]
        batch -= ring[slot, 0]
        ring[slot, 0], ring[slot, 1] = 0, 0
