r"""The law of a decode pool whose KV memory is counted token by token.

The batch follows the product form of :mod:`.batches` times the chance that it fits, as in a loss
system of random needs (Kaufman 1981, eq. 6, and state-dependent speed); who does not fit waits,
and everybody behind. With :math:`\alpha_k` that form, F, B as in :mod:`.memory`, b = sum of alpha
B, and c the SCV of what an arrival asks for, times (FEW/K)^FADES,

.. math:: P(W>0) = \frac{b + w}{\sum \alpha F + w}, \qquad w = (1 + c)\frac{\rho\, b}{1-\rho},

w the time while somebody waits: a birth-and-death tail whose first wait lasts until (1 + c) mean
needs are released. In heavy traffic the wait is that of one server that works on seconds v = n (a
h/M + s) of each request, so

.. math:: E[W] = P(W>0)\, \frac{1 + c_v^2}{2} \, \frac{1 + \kappa (1-\rho)}{\lambda^* (1-\rho)},

kappa = LIGHT + LIGHT_NEEDS c fitted; arrivals that are not Poisson change 1 + c_v^2 to F + c_v^2.

Measured (``experiments/delay_laws/results/memory.csv``, 90 cells of M = 12 and 32 contexts, rho .6
to .9): mean TPOT median 0.5 %, 95 % within 4 %, worst 8 %. Mean wait where 5 % wait: median 7 %,
95 % within 50 %, worst 56 %: low by half where answers are as long as their prompts (full
correlation), as M over the mean context is throughout (-49 to -93 % under ``full``).

A preempted request waits about STALL completions and its recompute pass. How often that happens
is pi P(W>0) per request (simulated), never in its very first steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from pdalloc.laws import Array, Law
from pdalloc.queueing.decode.batches import Batches, log_shares
from pdalloc.queueing.decode.law import WHOLE, DecodeLaw
from pdalloc.queueing.decode.memory import Needs, Room, Space, room
from pdalloc.queueing.decode.station import DecodeStation
from pdalloc.queueing.decode.waiting import Waiting

LIGHT, LIGHT_NEEDS = 0.4, 0.4
"""Fitted: mean waits of the cells within 20 % where one request in 20 waits."""
FEW, FADES = 10.0, 0.75
"""Fitted: P(W > 0) with K = 4 to 64; c counts whole where K = FEW requests fit."""
STALL = 1.3
"""Completions until a preempted request is back (simulated: 1.2 to 1.7)."""
LIKELY = 1e-12
"""P(somebody waits) below which nobody does."""
EDGE = 0.3
"""Requests over which a pool of equal needs goes from free to full."""
EMPTY = Space(1.0)


@dataclass(frozen=True, eq=False)
class MemoryStation(DecodeStation):
    """A decode pool whose replicas hold what fits their ``space``, and at most ``slots``."""

    space: Space = EMPTY

    @cached_property
    def room(self) -> Room:
        """What one replica holds at its rate."""
        return room(self.work, self.space, self.replica_rate, self.seconds, self.slots)

    @cached_property
    def capacity(self) -> float:
        """Requests/s at which the whole pool is fully busy while this rate's transfers go on."""
        return self.replicas * self.room.capacity

    @cached_property
    def limit(self) -> float:
        """Where what moves leaves space for no more: the rate that is its own capacity."""

        def spare(rate: float) -> float:
            at = room(self.work, self.space, rate, self.seconds, self.slots)
            return at.capacity - rate

        most = room(self.work, self.space, 0.0, self.seconds, self.slots).capacity
        if spare(most) >= 0.0:
            return self.replicas * most
        return self.replicas * float(brentq(spare, 0.0, most, xtol=1e-9 * most))


@dataclass(frozen=True, eq=False)
class MemoryLaw(DecodeLaw):
    """Delays of a :class:`MemoryStation`."""

    station: MemoryStation

    @property
    def room(self) -> Room:
        """What one replica holds."""
        return self.station.room

    @property
    def before_transfer(self) -> Law:
        """Law of the wait for space, seconds: a transfer begins once it is reserved."""
        return self.slot_wait

    @cached_property
    def _needs(self) -> Needs:
        return self.station.space.needs(self.station.work)

    @property
    def _uneven(self) -> float:
        """c: SCV of what an arrival asks for, felt the less the more requests fit."""
        few: float = (FEW / self.room.slots) ** FADES
        return self._needs.asked_scv * few

    # -- the batch

    def _batches(self, variance: float) -> Batches:
        return self._held(variance, self.room.fits, self.room.blocks, 1.0)

    def _held(self, variance: float, fits: Array, blocks: Array, share_of: float) -> Batches:
        """Law of a replica's batch; ``full`` is P(W > 0), ``load`` rho.

        ``share_of`` the pool is a replica where all replicas take from one queue.
        """
        at, rho = self.room, self.station.utilisation
        quantum = (1.0 - self.point.feedback) * variance / max(self.point.batch, 1e-300)
        if abs(quantum - 1.0) < WHOLE:
            quantum = 1.0
        work = self.rate * self.steps
        log_share = log_shares(at.sizes, np.log(work * at.seconds), quantum)
        alpha = np.exp(log_share - log_share.max())
        free, blocked = float(alpha @ fits), quantum / share_of * float(alpha @ blocks)
        waits = (1.0 + self._uneven) * rho * blocked / (1.0 - rho)
        share = alpha * fits / (free + waits) + waits / (free + waits) * at.saturated
        probability = (blocked + waits) / (free + waits)
        if probability < LIKELY:
            probability = 0.0
        return Batches(at.sizes, share, at.seconds, min(probability, 1.0), rho)

    @cached_property
    def _pool_batches(self) -> Batches:
        """That by which everybody waits: one queue's replicas fill together."""
        r = self.station.replicas
        if self.station.dispatch != "central_queue" or r == 1:
            return self.batches
        values, weights = self._needs.held
        mean = float(values @ weights)
        scv = max(float(values**2 @ weights) / mean**2 - 1.0, 0.0)
        sizes = self.room.sizes
        spread = np.sqrt(sizes * scv / r + EDGE**2)
        fits = ndtr((self.room.slots + 0.5 - sizes) / spread)
        blocks = (fits - np.append(fits[1:], 0.0)) / r
        return self._held(self._spread.pool.var_batch, fits, blocks, 1.0 / r)

    @cached_property
    def waiting(self) -> Waiting:
        """Waits for space and for a boundary."""
        given, scv = self._mean_wait, self._work_square - 1.0
        return MemoryWaiting(self.station, self.batches, self._pool_batches, given, scv)

    @cached_property
    def _work_square(self) -> float:
        """1 + c_v^2 of the seconds that a request takes of a full replica."""
        work, at, space = self.station.work, self.room, self.station.space
        grown = work.growth * np.maximum(work.steps - 1.0, 0.0) / 2.0
        held = self._needs.asked if space.reserve == "full" else work.context + grown
        base = max(float(at.seconds @ at.saturated) - self._slope * at.slots, 0.0)
        used = at.slots * float(work.weight @ (work.steps * held)) / work.mean_steps
        seconds = work.steps * (base * held / used + self._slope)
        return float(work.weight @ seconds**2) / float(work.weight @ seconds) ** 2

    @property
    def _mean_wait(self) -> float:
        """Mean wait of those who wait, under Poisson arrivals, seconds."""
        rho = self.station.utilisation
        light = 1.0 + (LIGHT + LIGHT_NEEDS * self._uneven) * (1.0 - rho)
        pooled = self.station.dispatch == "central_queue"
        capacity = self.room.capacity * (self.station.replicas if pooled else 1)
        return 0.5 * self._work_square * light / (capacity * (1.0 - rho))

    @property
    def _slope(self) -> float:
        """Seconds that one more request adds to a step where memory is full."""
        k, t = self.room.slots, self.room.seconds
        i = min(max(int(k), 1), len(t) - 2) if len(t) > 2 else 0
        return max(float(t[i + 1] - t[i]), 0.0) if len(t) > 2 else 0.0

    # -- preemption

    @cached_property
    def preemptions(self) -> float:
        """Per request."""
        return 0.0 if self._idle else self.room.preemptions * self.wait_probability

    @cached_property
    def _pass(self) -> float:
        """Seconds of a recompute pass."""
        return self.station.space.recompute(self.room.preempted)

    @cached_property
    def _paused(self) -> float:
        """Steps take so many times as long, as recompute passes come between."""
        return 1.0 + self.rate * self.preemptions * self._pass

    @property
    def _stall(self) -> float:
        """Mean seconds from a preemption until the request decodes again."""
        return STALL * self.room.interval + self._pass

    def _stalled(self, steps: Array) -> Array:
        """Preemptions per step of requests of ``steps`` steps (n,)."""
        if self.preemptions <= 0.0:
            return np.zeros_like(steps)
        asked = float(self.station.work.weight @ self._needs.asked)
        young = asked / (4.0 * self.room.slots)  # steps in which what was left over is used up
        own = -np.expm1(-steps / young)
        work = self.station.work
        mean = float(work.weight @ -np.expm1(-work.steps / young))
        return self.preemptions * own / mean / np.maximum(steps, 1.0)

    @cached_property
    def mean_step(self) -> float:
        """As without preemption, and what that adds; seconds."""
        return super().mean_step * self._paused + self._stall * self._mean_stalled

    @cached_property
    def _mean_stalled(self) -> float:
        work = self.station.work
        some = work.gaps > 0
        if not some.any():
            return 0.0
        return float(work.weight[some] @ self._stalled(work.steps[some]) / work.weight[some].sum())

    def request_means(self, steps: Array, context: Array) -> Array:
        """As without preemption, and what that adds; (n,) seconds."""
        own = self._stalled(np.asarray(steps, float)) - self._mean_stalled
        means: Array = super().request_means(steps, context) + self._stall * own
        return means

    def step_variance(self, steps: Array) -> Array:
        """As without preemption, and that of stalls, exponential; (n,) s^2."""
        stalls = 2.0 * self._stall**2 * self._stalled(np.asarray(steps)) / np.maximum(steps, 1.0)
        found: Array = super().step_variance(steps) + stalls
        return found

    @property
    def greatest_step(self) -> float:
        """inf where requests are preempted."""
        return math.inf if self.preemptions > 0.0 else super().greatest_step


@dataclass(frozen=True, eq=False)
class MemoryWaiting(Waiting):
    """``pool.full`` is the chance of a wait, ``given`` the mean seconds of those who wait.

    ``scv`` is that of the seconds that a request takes of a full replica.
    """

    given: float
    scv: float

    @cached_property
    def probability(self) -> float:
        """P(an arrival finds no space, or somebody waiting for it)."""
        return self.pool.full

    @cached_property
    def mean_slot_wait(self) -> float:
        """Mean wait for space over all requests, seconds."""
        bursts = (self._arrival_scv + self.scv) / (1.0 + self.scv)
        return self.probability * self.given * bursts

    @cached_property
    def _joining(self) -> Array:
        """Everybody joins at a boundary: whose transfer ends meets one under way."""
        return self.own.share
