r"""How many requests the KV memory of a decode replica holds: a random number.

A request needs d tokens to be admitted and holds h of them: its *full* length P + L from the
start, or its *context*, which grows. Seen over time, requests are weighed by their steps. With
S_k what k of them hold and M the memory, k fit with probability :math:`F_k = P(S_k \le M)`, and k
are there when the next one does not fit with :math:`B_k = F_k - P(S_k + d \le M)`. A replica whose
queue never empties spends time on k in proportion to :math:`B_k t(k)/k`, so it serves

.. math:: \lambda^* = 1 \Big/ \Big( E[n] \frac{\sum_k B_k t(k)/k}{\sum_k B_k} + \pi R \Big)

requests/s (Rumyantsev and Morozov 2017, "Stability criterion of a multiserver model with
simultaneous service", for exponential stays: what completions see is a renewal count of needs).
Equal needs give K = floor(M/d) exactly.

Under ``context`` a batch that outgrows the memory preempts its youngest, of about y tokens. Between
two completions, geometric in number of steps, k requests grow by :math:`g = k/(e^{k/E[n]} - 1)`
tokens on average, so :math:`\pi = g/y` requests are recomputed (R seconds each) per one served.
What moves to the replica holds its tokens too: M is less by :math:`\lambda E[d X]`, X the transfer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from pdalloc.errors import InputError
from pdalloc.laws import Array
from pdalloc.queueing.decode.work import DecodeWork

Reserve = Literal["context", "full"]
CELLS = 511
"""Cells of memory on which sums of what requests hold are added up."""
PARTS = 8
"""Points of a context that grows."""
KEPT = 16
"""Tables kept, a few MB each: no more types are asked about by turns."""
NEVER = 1e-9
"""P(k requests fit) below which they never do."""
UNEVEN = 0.3
"""Few slots: who stays long holds up those behind (simulated with steps of SCV 1 to 5)."""
MOST_CROWDING = 12.0
YOUNG = 0.125
"""Share of its tokens that a preempted request has made (simulated: .1 to .2)."""


@dataclass(frozen=True)
class Space:
    """KV memory of one replica: ``tokens``, a ``watermark`` share of them kept free on admission.

    ``recompute(tokens)`` seconds of a pass that rebuilds so much KV; ``moving`` token-seconds
    that a request holds while its KV cache moves. No more than ``max_batch`` decode at once, so
    whether more would fit is not asked.
    """

    tokens: float
    reserve: Reserve = "context"
    watermark: float = 0.0
    recompute: Callable[[float], float] = lambda tokens: 0.0
    moving: float = 0.0
    max_batch: float = math.inf

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tokens) and self.tokens > 0):
            raise InputError(f"KV memory must be a positive number of tokens, got {self.tokens:g}")

    def needs(self, work: DecodeWork) -> Needs:
        """What requests of ``work`` ask of it; InputError where not one fits."""
        return needs(work, (1.0 - self.watermark) * self.tokens, self.reserve, self.max_batch)


@dataclass(frozen=True, eq=False)
class Needs:
    """What requests of ``work`` hold under ``reserve``, and how many of them fit ``tokens``.

    Counted to one beyond ``max_batch``, which tells whether the batch or the memory ends first.
    """

    work: DecodeWork
    tokens: float
    reserve: Reserve
    max_batch: float = math.inf

    def __post_init__(self) -> None:
        values, weights = self.held
        if float(values @ weights) > self.tokens:
            raise InputError(
                f"{self.tokens:g} KV tokens do not hold one request of {values @ weights:.0f} "
                "tokens on average; use more GPUs per replica"
            )

    @cached_property
    def asked(self) -> Array:
        """Tokens that admission asks for, per point of the work; (n,)."""
        w = self.work
        return w.context + w.growth * w.steps if self.reserve == "full" else w.context

    @cached_property
    def held(self) -> tuple[Array, Array]:
        """Law of the tokens that a request holds at a random step: (values, weights)."""
        w = self.work
        share = w.weight * w.steps / w.mean_steps
        if self.reserve == "full":
            return self.asked, share
        part = (np.arange(PARTS) + 0.5) / PARTS
        grown = w.growth[:, None] * np.maximum(w.steps - 1.0, 0.0)[:, None] * part
        return (w.context[:, None] + grown).ravel(), np.repeat(share / PARTS, PARTS)

    @property
    def asked_scv(self) -> float:
        """SCV of what an arrival asks for."""
        mean = float(self.work.weight @ self.asked)
        return max(float(self.work.weight @ self.asked**2) / mean**2 - 1.0, 0.0)

    @cached_property
    def _equal(self) -> float | None:
        """The need of every request where all hold the same, tokens."""
        values = np.unique(np.concatenate([self.held[0], self.asked]))
        return float(values[0]) if len(values) == 1 else None

    @cached_property
    def _tables(self) -> tuple[Array, Array]:
        """P(S_k <= x) and P(S_k + d <= x) at CELLS + 1 values of x up to the memory; (k, x)."""
        size = 2 * (CELLS + 1)
        held = np.fft.rfft(_lattice(*self.held, self.tokens), size)
        asked = np.fft.rfft(_lattice(self.asked, self.work.weight, self.tokens), size)
        mass = np.zeros(CELLS + 1)
        mass[0] = 1.0
        fits: list[Array] = []
        more: list[Array] = []
        while mass.sum() > NEVER and len(fits) <= self.max_batch + 1.0:
            fits.append(np.cumsum(mass))
            sums = np.fft.rfft(mass, size)
            both = np.fft.irfft(np.stack([sums * asked, sums * held]), size)[:, : CELLS + 1]
            both = np.clip(both, 0.0, None)
            more.append(np.cumsum(both[0]))
            mass = both[1]
        return np.array(fits), np.array(more)

    @cached_property
    def most(self) -> int:
        """The most requests that may fit, counted to ``max_batch`` + 1."""
        if self._equal is not None:
            whole = math.floor(self.tokens / self._equal + 1e-9)
            return int(max(min(whole, self.max_batch + 1.0), 1))
        return max(len(self._tables[0]) - 1, 1)

    def fitting(self, tokens: float) -> tuple[Array, Array]:
        """(F_k, B_k) of k = 0..``most`` requests in ``tokens``, at most the memory."""
        if self._equal is not None:
            k, last = np.arange(self.most + 1), math.floor(tokens / self._equal + 1e-9)
            return (k <= last).astype(float), (k == last).astype(float)
        at = min(max(tokens / self.tokens, 0.0), 1.0) * CELLS
        low = min(int(at), CELLS - 1)
        part = at - low
        fits, more = (t[:, low] * (1.0 - part) + t[:, low + 1] * part for t in self._tables)
        return fits, np.maximum(fits - more, 0.0)


def _lattice(values: Array, weights: Array, tokens: float) -> Array:
    """Mean-preserving masses on CELLS + 1 points of [0, ``tokens``], what lies beyond left out."""
    at = values / tokens * CELLS
    low = np.floor(at)
    part = at - low
    inside, mass = low <= CELLS, np.zeros(CELLS + 3)
    index = low[inside].astype(np.intp)
    np.add.at(mass, index, (weights * (1.0 - part))[inside])
    np.add.at(mass, index + 1, (weights * part)[inside])
    found: Array = mass[: CELLS + 1]
    return found


@lru_cache(maxsize=KEPT)
def needs(work: DecodeWork, tokens: float, reserve: Reserve, max_batch: float = math.inf) -> Needs:
    """Those of ``work`` in ``tokens``, kept."""
    return Needs(work, tokens, reserve, max_batch)


@dataclass(frozen=True, eq=False)
class Room:
    """What a replica with ``space`` holds when ``rate`` requests/s come to it.

    ``sizes`` 0..K, ``fits`` F_k and ``blocks`` B_k of each, ``seconds`` t(k).
    """

    work: DecodeWork
    space: Space
    rate: float
    sizes: Array
    fits: Array
    blocks: Array
    seconds: Array
    by_memory: float = 1.0

    @cached_property
    def saturated(self) -> Array:
        """Shares of time at each size while somebody waits."""
        shares = self.blocks * self.seconds / np.maximum(self.sizes, 1.0)
        kept: Array = shares / shares.sum()
        return kept

    @cached_property
    def slots(self) -> float:
        """Effective number: as many slots would serve as much, at constant step time."""
        return float(self.blocks.sum() / (self.blocks / np.maximum(self.sizes, 1.0)).sum())

    @cached_property
    def preempted(self) -> float:
        """Tokens that a preempted request holds, y."""
        made = self.work.growth * self.work.steps
        return float(self.work.weight @ (self.work.context + YOUNG * made))

    @cached_property
    def preemptions(self) -> float:
        """pi: preemptions per request served, while somebody always waits."""
        if self.space.reserve == "full":
            return 0.0
        made = float(self.work.weight @ (self.work.growth * self.work.steps))
        grown = self.slots / math.expm1(self.slots / self.work.mean_steps)
        kept_free = math.exp(-self.space.watermark * self.space.tokens / made)
        smooth = grown * made / self.work.mean_steps / self.preempted * kept_free
        return smooth * self._crowding

    @cached_property
    def _crowding(self) -> float:
        """Preemptions over what they were if the memory were not a few needs' whole multiple.

        Of those admitted, sum (F_k - B_k - F_k+1) find no space when they have grown.
        """
        of = self.space.needs(self.work)
        values, weights = of.held
        asked = float(self.work.weight @ of.asked)
        smooth = float(values @ weights) / asked - 1.0
        admitted = float(self.blocks.sum())
        if len(self.fits) <= of.most:  # a batch limit comes first: who waits for it fits
            return self.by_memory
        if smooth <= 0.0:
            return 1.0
        return min(max((1.0 - admitted) / admitted / smooth, 0.0), MOST_CROWDING)

    @cached_property
    def interval(self) -> float:
        """Mean seconds between completions while somebody waits, recompute passes left out."""
        shares = self.blocks * self.seconds / np.maximum(self.sizes, 1.0)
        uneven = max(self.work.scv - 1.0, 0.0) * self.space.needs(self.work).asked_scv
        longer = 1.0 + UNEVEN * uneven / self.slots**2
        return longer * self.work.mean_steps * float(shares.sum() / self.blocks.sum())

    @cached_property
    def capacity(self) -> float:
        """lambda*, requests/s."""
        passes = self.preemptions * self.space.recompute(self.preempted)
        return 1.0 / (self.interval + passes)


def room(
    work: DecodeWork,
    space: Space,
    rate: float,
    step_time: Callable[[Array], Array],
    max_batch: float = math.inf,
) -> Room:
    """Of a replica with ``step_time(batch)`` seconds and at most ``max_batch`` requests."""
    of = space.needs(work)
    fits, blocks = of.fitting(of.tokens - rate * space.moving)
    by_memory = 1.0
    if len(fits) - 1 > max_batch:
        most = int(max_batch)
        fits, blocks = fits[: most + 1], blocks[: most + 1].copy()
        by_memory = float(blocks[1:].sum()) / max(float(blocks[1:-1].sum() + fits[most]), 1e-300)
        blocks[most] = fits[most]
    blocks = blocks.copy()
    blocks[0] = 0.0  # an empty replica takes anyone
    if blocks.sum() <= 0.0:
        blocks[min(1, len(blocks) - 1)] = 1.0
    sizes = np.arange(len(fits), dtype=float)
    seconds = step_time(np.maximum(sizes, 1.0))
    return Room(work, space, rate, sizes, fits, blocks, seconds, by_memory)


def memory_slots(work: DecodeWork, tokens: float, reserve: Reserve = "context") -> float:
    """Effective slots of ``tokens`` of KV memory on one replica, a real number >= 1.

    Raises InputError when not even one mean request fits, or for a memory that is no positive
    number.

    >>> work = DecodeWork(*(np.array([x]) for x in (50.0, 100.0, 1.0, 49.0, 1.0)))
    >>> memory_slots(work, 1575.0, "full")  # 150 tokens each
    10.0
    """
    return room(work, Space(tokens, reserve), 0.0, np.ones_like).slots
