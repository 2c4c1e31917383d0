"""From reaching a decode pool to the first step: a step boundary, or a slot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.laws import Array, Atoms, Exponentials, Law, Mixture
from pdalloc.queueing.decode.batches import Batches
from pdalloc.queueing.decode.slots import slot_factors
from pdalloc.queueing.decode.spread import POOLED, replica_spectrum
from pdalloc.queueing.decode.station import DecodeStation
from pdalloc.queueing.departures import relaxation

FOLLOWS, HALF_FOLLOW = 0.75, 9.0
"""Share of arrivals that follow a departure under least_loaded, and the arrivals at the pool in
one step at which half of that do (fitted: simulated boundary waits within 7 %)."""
UNIFORM_NODES = (np.arange(4) + 0.5) / 4
"""The boundary wait, uniform over a step, is carried by these four equally likely shares."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """``own`` is the law of a replica's batch, ``pool`` that by which all slots are taken."""

    station: DecodeStation
    own: Batches
    pool: Batches

    @property
    def _servers(self) -> float:
        """Slots that a waiting request waits for at once."""
        pooled = self.station.dispatch in POOLED
        return self.station.slots * (self.station.replicas if pooled else 1)

    @cached_property
    def _factors(self) -> tuple[float, float]:
        return slot_factors(self.station.work, self._servers, self.pool.load)

    @cached_property
    def probability(self) -> float:
        """P(an arrival finds no slot free)."""
        if self.pool.full <= 0.0:
            return 0.0
        return min(self.pool.full * self._factors[0] * self._met, 1.0)

    @property
    def _met(self) -> float:
        """Share of those who come while as many as all slots are there that find none free.

        Under ``least_loaded`` a slot stays free beside others' queues until the next arrival
        takes it: where a replica's last waiting request has gone, exp(-w) of the time with w
        waiting at each. Simulated: .69 to .94 where this gives .71 to .99.
        """
        r = self.station.replicas
        if r == 1 or self.station.dispatch != "least_loaded":
            return 1.0
        return -math.expm1(-1.0 / ((1.0 - self.pool.load) * r))

    @cached_property
    def mean_slot_wait(self) -> float:
        """Mean wait for a slot over all requests, seconds."""
        if self.probability <= 0.0:
            return 0.0
        busy = self.station.work.mean_steps * float(self.pool.seconds[-1])
        alone = self.pool.full * busy / (self._servers * (1.0 - self.pool.load))
        s = self.station.work.scv
        return alone * self._factors[1] * (self._arrival_scv + s) / (1.0 + s)

    @property
    def _arrival_scv(self) -> float:
        """F of the stream that the waiting room gets, at the frequency at which it forgets."""
        spectrum = replica_spectrum(self.station)
        if spectrum is None:
            return 1.0
        busy = self.station.work.mean_steps * float(self.pool.seconds[-1])
        return float(spectrum(np.array([relaxation(self.pool.load, self._servers, busy)]))[0])

    @property
    def slot_wait(self) -> Exponentials:
        """Law of the wait for a slot, seconds: 0, or exponential."""
        p = self.probability
        means = np.array([0.0, self.mean_slot_wait / p if p > 0.0 else 0.0])
        return Exponentials(means, np.array([1.0 - p, p]), np.zeros(2))

    @cached_property
    def _joining(self) -> Array:
        """Share of time at each batch at which an arrival joins at the next boundary."""
        share = self.own.share.copy()
        if self.own.full > 0.0:
            share[-1] = max(share[-1] - self.probability, 0.0)
        return share

    @cached_property
    def mean_boundary(self) -> float:
        """Mean wait for a step under way to end, seconds: the first of R under central_queue."""
        share = np.where(self.own.batch > 0, self._joining, 0.0)
        return float(share @ self.own.seconds) * float(self._nodes.mean())

    @cached_property
    def _nodes(self) -> Array:
        """Shares of a step that an arrival waits, equally likely."""
        share = self._boundary_share
        nodes: Array = 1.0 - (1.0 - UNIFORM_NODES) ** (share / (1.0 - share))
        kept: Array = nodes / nodes.mean() * share
        return kept

    @property
    def _boundary_share(self) -> float:
        """Mean share of a step that an arrival waits.

        1/2, and 1/(R + 1) for the first of R. Under ``least_loaded`` an arrival tends to go
        where a request has just left, at a boundary: nearer a whole step the more requests come
        to the pool in one step.
        """
        r, dispatch = self.station.replicas, self.station.dispatch
        if r == 1 or dispatch in ("random", "round_robin"):
            return 0.5
        if dispatch == "central_queue":
            return 1.0 / (r + 1.0)
        mean = float(self.own.share @ self.own.batch)
        in_a_step = r * mean / self.station.work.mean_steps
        return 0.5 + 0.5 * FOLLOWS * (1.0 - 1.0 / r) * in_a_step / (in_a_step + HALF_FOLLOW)

    def law(self, with_first_step: bool) -> Law:
        """An arrival finds the batch as it is over time: it joins at a boundary, or queues."""
        own, p = self.own, self.probability
        after = np.append(own.seconds[1:], own.seconds[-1]) * float(with_first_step)
        under_way = np.where(own.batch > 0, own.seconds, 0.0)
        values = after[:, None] + under_way[:, None] * self._nodes
        share = self._joining / self._joining.sum()
        weights = np.repeat(share / UNIFORM_NODES.size, UNIFORM_NODES.size)
        joining = Atoms(values.ravel(), weights)
        if p <= 0.0:
            return joining
        mean = np.array([self.mean_slot_wait / p])
        step = own.seconds[-1:] * float(with_first_step)
        return Mixture((joining, Exponentials(mean, np.ones(1), step)), (1.0 - p, p))
