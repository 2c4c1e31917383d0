"""The whole state of a run with options, as one tuple of arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.full.rows import (
    FIRST_TOKEN,
    OUTPUT,
    PROMPT,
    TO_GO,
)
from pdalloc.simulation.kernels.full.servers import Servers
from pdalloc.simulation.kernels.heap import Heap, push
from pdalloc.simulation.kernels.plain.decode import Ring

NOBODY = -1
SCRATCH = 0
"""The list that belongs to no server."""
KIND = 1 << 40
"""Events are numbered kind x KIND + index, so that they sort by kind, then index."""


class State(NamedTuple):
    """What kernels read and write.

    ``times`` and ``whole``: the requests (:mod:`rows`); ``servers``, ``rules``, ``links`` and
    ``lists`` (:mod:`servers`); ``events``; ``ring[d, j mod size]``: the first of those that
    decode replica d is done with after j steps; ``base``: step times; ``knots``: x and y of
    measured prefill curves; ``diary``: starts and lengths of passes and steps (s) and
    ``tokens``: when each output token came (s), from ``first_of[i]`` on for request i, all
    empty where nobody asks.
    """

    times: Array
    whole: Ints
    servers: Servers
    rules: NDArray[Any]
    links: NDArray[Any]
    lists: NDArray[Any]
    events: Heap
    ring: Ring
    base: Array
    knots: Array
    diary: Array
    tokens: Array
    first_of: Ints


@kernel
def schedule(s: State, time: float, kind: int, index: int) -> None:
    """``kind`` will happen to server, link or request ``index`` at ``time``, s."""
    push(s.events, time, kind * KIND + index)


@kernel
def write_down(s: State, place: int, start: float, seconds: float) -> None:
    """A pass or step that begins, at ``place`` in the diary."""
    if s.diary.shape[1] > 0:
        s.diary[0, place] = start
        s.diary[1, place] = seconds


@kernel
def gain(s: State, now: float, i: int, made: int, tokens: int) -> None:
    """The user sees ``tokens`` more tokens of request i after the ``made`` first ones."""
    if np.isnan(s.times[FIRST_TOKEN, i]):
        s.times[FIRST_TOKEN, i] = now
    if len(s.tokens) > 0:
        for place in range(s.first_of[i] + made, s.first_of[i] + made + tokens):
            s.tokens[place] = now


@kernel
def context_of(s: State, i: int) -> int:
    """Prompt tokens and output tokens that exist, of a request whose TO_GO is up to date."""
    return int(s.whole[PROMPT, i] + s.whole[OUTPUT, i] - s.whole[TO_GO, i])
