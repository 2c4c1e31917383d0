"""The decode steps of a run, worked out again from its log.

Who joined when is all that a replica's steps depend on, so the core path need not write them
down: it says when each request joined and who came next, and this file plays the same additions
once more. A portion of the steps at a time, for they need not fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.plain.replica import NOBODY, Replicas
from pdalloc.simulation.kernels.plain.table import (
    DECODE_START,
    FIRST_TOKEN,
    JOINED_NEXT,
    OUTPUT,
    PROMPT,
)

Mask = NDArray[np.bool_]
PLACE = np.dtype(
    [
        # The number of the next step and its start (s), and who joins next.
        ("step", np.int64),
        ("now", np.float64),
        ("next", np.int64),
        # Who decodes: all, the context tokens that they hold, the kept ones.
        ("batch", np.int64),
        ("context", np.float64),
        ("kept", np.int64),
    ]
)
"""How far a replica has been played."""
PORTION = 1 << 13
"""Steps played at a time: what is written about them is read while it is in the cache."""


@dataclass(frozen=True)
class Portion:
    """Steps that follow each other: ``starts``, ``seconds``, ``counts``; shape (steps,).

    ``counts``: kept requests that have a token before the step and get one at its end.
    ``own``: gaps that end with a kept request's first step, its first token having been made
    before, s.
    """

    starts: Array
    seconds: Array
    counts: Ints
    own: Array


@dataclass(frozen=True)
class Steps:
    """The decode steps of a run that is over, whose state this is; ``slots`` in a ring."""

    times: Array
    whole: Ints
    decodes: Replicas
    base: Array
    slots: int

    def portions(self, r: int, keep: Mask) -> Iterator[Portion]:
        """The steps of replica ``r``; ``keep`` says which requests count, (n,).

        The arrays of a portion are written over by the next one.
        """
        left = int(self.decodes[r]["step"] - self.decodes[r]["woken"])
        ring, place = np.zeros((self.slots, 3), np.int64), np.zeros(1, PLACE)
        place["next"] = self.decodes[r]["first_joined"]
        steps, counts, own = (
            np.empty((2, PORTION)),
            np.empty(PORTION, np.int64),
            np.empty(len(keep)),
        )
        state = self.times, self.whole, self.decodes, self.base, ring, keep, r, place
        while left > 0:
            here = min(left, PORTION)
            owned = play_steps(*state, steps[:, :here], counts, own)
            yield Portion(steps[0, :here], steps[1, :here], counts[:here], own[:owned])
            left -= here

    def of(self, r: int) -> tuple[Array, Array]:
        """(starts, lengths) of all steps of replica ``r``, s."""
        nobody = np.zeros(self.times.shape[1], np.bool_)
        parts = [np.stack([p.starts, p.seconds]) for p in self.portions(r, nobody)]
        starts, seconds = np.concatenate([np.empty((2, 0)), *parts], axis=1)
        return starts, seconds


@kernel
def play_steps(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    base: Array,
    ring: Ints,
    keep: Mask,
    r: int,
    place: Replicas,
    steps: Array,
    counts: Ints,
    own: Array,
) -> int:
    """Fill ``steps``, (start, seconds) by step, their ``counts`` and ``own``; how many own gaps.

    ``ring[j mod ring]``: requests that leave after step j, the context that they hold, and how
    many of them are kept.
    """
    d, p, slots = decodes[r], place[0], len(ring) - 1
    now, batch, context, kept, i, owned = p.now, p.batch, p.context, p.kept, p.next, 0
    factor, slope, by_prefill, step, k = d.factor, d.slope, d.by_prefill, p.step, 0
    while k < steps.shape[1]:
        if batch == 0:
            now = times[DECODE_START, i]
        counts[k], first = kept, i
        while i != NOBODY and times[DECODE_START, i] <= now:
            last = (step + k + whole[OUTPUT, i] - by_prefill - 1) & slots
            ring[last, 0] += 1
            ring[last, 1] += whole[PROMPT, i] + whole[OUTPUT, i]
            ring[last, 2] += keep[i]
            batch += 1
            context += whole[PROMPT, i] + by_prefill
            kept += keep[i]
            i = whole[JOINED_NEXT, i]
        per_step, joins = base[d.pool, batch], times[DECODE_START, i] if i != NOBODY else math.inf
        seconds = factor * (per_step + slope * context)
        steps[0, k], steps[1, k] = now, seconds
        now += seconds
        while first != i:
            if keep[first] and times[FIRST_TOKEN, first] < now:
                own[owned] = now - times[FIRST_TOKEN, first]
                owned += 1
            first = whole[JOINED_NEXT, first]
        slot = (step + k) & slots
        k += 1
        # Nobody comes or goes in the steps after this one.
        while ring[slot, 0] == 0 and now < joins and k < steps.shape[1]:
            context += batch
            seconds = factor * (per_step + slope * context)
            steps[0, k], steps[1, k], counts[k] = now, seconds, kept
            now += seconds
            slot = (step + k) & slots
            k += 1
        context += batch - ring[slot, 1]
        batch -= ring[slot, 0]
        kept -= ring[slot, 2]
        ring[slot, :] = 0
    p.now, p.batch, p.context, p.kept, p.next = now, batch, context, kept, i
    p.step = step + k
    return owned
