r"""The law of a decode pool: step times, waits for a slot, and what requests see of them.

From the second moments of one replica (:mod:`.spread`) and the law of its batch
(:mod:`.batches`): with k requests a step takes

.. math:: t \mid B{=}k \;=\; t(k) + (s' - s)(k - E B) + \text{gamma}, \quad
          s' = Cov(B,t)/Var B, \quad Var = Var\,t - s'^2 Var B,

s the slope of t(k) at mean context; exactly t(k) without a context term. Each gap of a request
is a step seen in proportion to the requests that it gives a token. Mean TPOT is exact for affine
steps, Poisson arrivals and no limit (the covariances are); for long answers and c = 0 it is
(a + b)/(1 - rho), and ITL is t(1 + N), N negative binomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.laws import Array, Atoms, Exponentials, Law, Mixture, StopLossLaw, constant
from pdalloc.queueing.decode.batches import Batches, batches
from pdalloc.queueing.decode.fluctuations import transforms
from pdalloc.queueing.decode.itl import blurred
from pdalloc.queueing.decode.slots import slot_factors
from pdalloc.queueing.decode.spread import POOLED, Spread, spread
from pdalloc.queueing.decode.station import DecodeStation
from pdalloc.queueing.request_tpot import GammaMixture, group_requests

UNIFORM_NODES = (np.arange(4) + 0.5) / 4
"""The boundary wait, uniform over a step, is carried by these four equally likely shares."""
MOST_FEEDBACK = 0.995
"""Share of its own cause that a step time may feed back, where a table is steeper than linear."""
IDLE = 1e-12


@dataclass(frozen=True, eq=False)
class DecodeLaw:
    """Delays of ``station``; what is worked out is kept."""

    station: DecodeStation

    # -- operating point -----------------------------------------------------------------

    @property
    def rate(self) -> float:
        """Requests/s on one replica."""
        return self.station.replica_rate

    @property
    def steps(self) -> float:
        """E[n] steps per request."""
        return self.station.work.mean_steps

    @property
    def utilisation(self) -> float:
        """rho: offered over greatest rate."""
        return self.station.utilisation

    @cached_property
    def fluid_batch(self) -> float:
        """m = lambda E[n] t(m), the batch without fluctuations, requests."""
        station, work = self.station, self.rate * self.steps
        if station.affine is not None:
            a, b, c = station.affine
            feedback = self.rate * transforms(station.work).load((b, c))
            if feedback < 1.0 and work * a / (1.0 - feedback) <= station.slots:
                return work * a / (1.0 - feedback)
        low, high = 0.0, min(station.slots, 2.0)
        while high < station.slots and work * self._seconds(high) > high:
            low, high = high, min(2.0 * high, station.slots)
        while high - low > 1e-9 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if work * self._seconds(middle) > middle else (low, middle)
        return high

    def _seconds(self, batch: float) -> float:
        """Step seconds at the mean context; on the line through 1 and 2 below 1."""
        if batch >= 1.0:
            return float(self.station.seconds(np.array([batch]))[0])
        one, two = self.station.seconds(np.array([1.0, 2.0]))
        return max(float(one - (1.0 - batch) * (two - one)), 0.5 * float(one))

    @property
    def fluid_step(self) -> float:
        """t(m), seconds: the mean over steps."""
        return self._seconds(self.fluid_batch)

    @cached_property
    def slopes(self) -> tuple[float, float]:
        """(b, c): s/request and s/token of the step time about the fluid batch."""
        station = self.station
        if station.affine is not None:
            b, c = station.affine[1:]
        else:
            m, held = max(self.fluid_batch, 1.0), station.work.mean_context
            low, high = max(m - math.sqrt(m), 1.0), min(m + math.sqrt(m) + 1.0, station.slots)
            high = max(high, low + 1.0)
            batch = np.array([low, high, m, m])
            context = np.array([m, m, low, high]) * held
            t = station.step_time(batch, context)
            b = max(float(t[1] - t[0]) / (high - low), 0.0)
            c = max(float(t[3] - t[2]) / ((high - low) * held), 0.0) if held > 0 else 0.0
        feedback = self.rate * transforms(station.work).load((b, c))
        shrink = min(1.0, MOST_FEEDBACK / feedback) if feedback > 0.0 else 1.0
        return b * shrink, c * shrink

    @cached_property
    def feedback(self) -> float:
        """rho of the line: seconds of later steps that a second of step time brings about."""
        return self.rate * transforms(self.station.work).load(self.slopes)

    @cached_property
    def _spread(self) -> Spread:
        return spread(self.station, self.fluid_step, self.slopes)

    @property
    def _idle(self) -> bool:
        return self.rate * self.steps * self._seconds(1.0) < IDLE

    # -- the batch and its steps ---------------------------------------------------------

    @cached_property
    def batches(self) -> Batches:
        """Law of one replica's batch over time."""
        return self._batches(self._spread.own.var_batch)

    def _batches(self, variance: float) -> Batches:
        m = max(self._spread.own.batch, 1e-300)
        quantum = (1.0 - self.feedback) * variance / m
        return batches(self.station, self._rounded(quantum), self.fluid_batch, math.sqrt(variance))

    def _rounded(self, quantum: float) -> float:
        """1 where the product form is exact (or as good as), else ``quantum``."""
        plain = (
            self.slopes[1] == 0.0
            and self.station.arrival_scv == 1.0
            and (self.station.dispatch == "random" or self.station.replicas == 1)
        )
        return 1.0 if plain else quantum

    @cached_property
    def _seen(self) -> Array:
        """Share of gaps at each batch; (n,)."""
        law, m = self.batches, self._spread.own
        slope = m.gap_batch / m.var_batch
        seen = law.share / law.seconds * np.maximum(1.0 + slope * (law.batch - m.batch), 0.0)
        seen = np.where(law.batch > 0, seen, 0.0)
        total = float(seen.sum())
        if total <= 0.0:
            seen = np.where(law.batch == max(1.0, law.batch[0]), 1.0, 0.0)
            total = float(seen.sum())
        shares: Array = seen / total
        return shares

    @cached_property
    def gap(self) -> StopLossLaw:
        """Law of a step that ends a gap, seconds."""
        if self._idle:
            return constant(self._seconds(1.0))
        law, m = self.batches, self._spread.own
        b, c = self.slopes
        if c == 0.0:
            return self._settled(law.seconds, np.zeros_like(law.seconds), law.seconds * 0.0)
        held = self.station.work.mean_context
        tilt = m.batch_step / m.var_batch - (b + c * held)
        centre = law.seconds + tilt * (law.batch - m.batch)
        rest = max(m.var_step - m.batch_step**2 / m.var_batch, 0.0)
        variance = rest * law.batch / m.batch
        floor = np.minimum(law.seconds - c * held * law.batch, centre)
        return self._settled(floor, centre - floor, variance)

    def _settled(self, floors: Array, means: Array, variances: Array) -> StopLossLaw:
        """The law with its mean set right where that is known: affine steps, no full batch."""
        seen, m = self._seen, self._spread.own
        if self.station.affine is not None and self.batches.full == 0.0 and self._shifts:
            base = self.station.affine[0]
            mean = float(seen @ (floors + means))
            factor = (m.step + m.itl_lift - base) / (mean - base)
            floors, means = base + factor * (floors - base), factor * means
            variances = factor**2 * variances
        return blurred(floors, means, variances, seen)

    @property
    def _shifts(self) -> bool:
        """Not where batches are whole and their law is exact anyway."""
        return self.slopes[1] > 0.0

    @cached_property
    def mean_itl(self) -> float:
        """Mean of the gaps between tokens, seconds; those of one step are 0."""
        return (1.0 - self.station.work.zero_gaps) * self._mean_gap

    @cached_property
    def _mean_gap(self) -> float:
        m = self._spread.own
        if self._idle:
            return self._seconds(1.0)
        known = self.station.affine is not None and self.batches.full == 0.0
        return m.step + m.itl_lift if known else self.gap.mean

    @cached_property
    def mean_step(self) -> float:
        """Mean over requests of the mean step time between their tokens, seconds."""
        if self._idle:
            return self._seconds(1.0)
        return self._mean_gap + (self._spread.own.tpot_lift - self._spread.own.itl_lift)

    @property
    def mean_tpot(self) -> float:
        """Mean TPOT over requests with at least two tokens, seconds."""
        return self.mean_step * self.station.work.steps_per_gap

    @cached_property
    def itl(self) -> StopLossLaw:
        """Law of a gap between tokens, seconds (0 within a step of several tokens)."""
        zero = self.station.work.zero_gaps
        if zero <= 0.0:
            return self.gap
        atoms = self.gap if isinstance(self.gap, Atoms) else self.gap.points  # type: ignore[attr-defined]
        return Atoms(
            np.append(0.0, atoms.values), np.append(zero, (1.0 - zero) * atoms.weights)
        )

    @property
    def mean_batch(self) -> float:
        """Mean batch of one replica over time, requests."""
        return float(self.batches.share @ self.batches.batch)

    def batch_quantile(self, p: float) -> float:
        """Least batch that a share ``p`` of the time is not exceeded, requests."""
        law = self.batches
        i = int(np.searchsorted(np.cumsum(law.share), p))
        return float(law.batch[min(i, len(law.batch) - 1)])

    @property
    def greatest_step(self) -> float:
        """Seconds of a full batch's step; inf where the slots never fill or contexts differ."""
        fills = self.batches.full > 0.0 and self.slopes[1] == 0.0
        return float(self.batches.seconds[-1]) if fills else math.inf

    # -- waiting -------------------------------------------------------------------------

    @property
    def _pooled(self) -> int:
        """Replicas that a waiting request waits for at once."""
        pooled = self.station.dispatch in POOLED
        return self.station.replicas if pooled else 1

    @cached_property
    def _full_pool(self) -> Batches:
        if self.station.dispatch == "central_queue" and self.station.replicas > 1:
            return self._batches(self._spread.pool.var_batch)
        return self.batches

    @cached_property
    def _slot_factors(self) -> tuple[float, float]:
        servers = self._pooled * self.station.slots
        return slot_factors(self.station.work, servers, self._full_pool.load)

    @cached_property
    def wait_probability(self) -> float:
        """P(an arrival finds no slot free)."""
        full = 0.0 if self._idle else self._full_pool.full
        return min(full * self._slot_factors[0], 1.0) if full > 0.0 else 0.0

    @cached_property
    def mean_slot_wait(self) -> float:
        """Mean wait for a slot over all requests, seconds."""
        if self.wait_probability <= 0.0:
            return 0.0
        load, servers = self._full_pool.load, self._pooled * self.station.slots
        plain = self.steps * float(self.station.seconds(np.array([self.station.slots]))[0])
        alone = self._full_pool.full * plain / (servers * (1.0 - load))
        s, scv = self.station.work.scv, self._arrival_scv
        return alone * self._slot_factors[1] * (scv + s) / (1.0 + s)

    @property
    def _arrival_scv(self) -> float:
        """Of the stream that the waiting room gets, at low frequency."""
        r, scv = self.station.replicas, self.station.arrival_scv
        if self.station.dispatch == "random":
            return 1.0 + (scv - 1.0) / r
        return scv / r if self.station.dispatch == "round_robin" else scv

    @property
    def mean_waiting(self) -> float:
        """Mean number of requests waiting for a slot in the pool (Little 1961)."""
        return self.station.rate * self.mean_slot_wait

    @cached_property
    def slot_wait(self) -> Exponentials:
        """Law of the wait for a slot, seconds: 0, or exponential."""
        p = self.wait_probability
        means = np.array([0.0, self.mean_slot_wait / p if p > 0.0 else 0.0])
        return Exponentials(means, np.array([1.0 - p, p]), np.zeros(2))

    @cached_property
    def mean_boundary_wait(self) -> float:
        """Mean wait for a step under way to end, seconds: the first of R under central_queue."""
        law = self.batches
        share = np.where(law.batch > 0, law.share, 0.0)
        if law.full > 0.0:
            share[-1] *= 1.0 - min(self.wait_probability / law.full, 1.0)
        return float(share @ law.seconds) * float(self._boundary_nodes.mean())

    @cached_property
    def _boundary_nodes(self) -> Array:
        """Shares of a step that an arrival waits, equally likely."""
        first = self.station.replicas if self.station.dispatch == "central_queue" else 1
        nodes: Array = 1.0 - (1.0 - UNIFORM_NODES) ** (1.0 / first)
        return nodes * (1.0 / (first + 1.0)) / nodes.mean()

    @cached_property
    def entry(self) -> Law:
        """Law of the time from reaching the pool to the start of the first step, seconds."""
        return self._arrival_law(with_first_step=False)

    @cached_property
    def first_token(self) -> Law:
        """Law of the time from reaching the pool to the end of the first step, seconds."""
        return self._arrival_law(with_first_step=True)

    @property
    def mean_entry(self) -> float:
        """Mean time from reaching the pool to the start of the first step, seconds."""
        return self.mean_boundary_wait + self.mean_slot_wait

    @cached_property
    def mean_first_token(self) -> float:
        """Mean time from reaching the pool to the end of the first step, seconds."""
        return self.mean_entry + self._mean_gap

    def _arrival_law(self, with_first_step: bool) -> Law:
        """An arrival finds the batch as it is over time: it joins at a boundary, or queues."""
        law, p = self.batches, self.wait_probability
        share = law.share.copy()
        if law.full > 0.0:
            share[-1] = max(share[-1] - p, 0.0)
        after = np.append(law.seconds[1:], law.seconds[-1]) * float(with_first_step)
        under_way = np.where(law.batch > 0, law.seconds, 0.0)
        values = after[:, None] + under_way[:, None] * self._boundary_nodes
        weights = np.repeat(share / share.sum() / UNIFORM_NODES.size, UNIFORM_NODES.size)
        joining = Atoms(values.ravel(), weights)
        if p <= 0.0:
            return joining
        mean = np.array([self.mean_slot_wait / p])
        step = law.seconds[-1:] * float(with_first_step)
        return Mixture((joining, Exponentials(mean, np.ones(1), step)), (1.0 - p, p))

    # -- requests ------------------------------------------------------------------------

    def step_variance(self, steps: Array) -> Array:
        """Var of a request's own mean step time, s^2, for requests of ``steps`` steps (n,)."""
        if self._idle:
            return np.zeros_like(np.asarray(steps, float))
        spread_ = max(self.gap.second_moment - self.gap.mean**2, 0.0)
        return spread_ * self._spread.fluctuation.averaging(np.asarray(steps, float))

    def request_means(self, steps: Array, context: Array) -> Array:
        """Mean step time of requests of ``steps`` that hold ``context`` tokens on average; (n,).

        A request's own context prolongs its steps, and these bring more requests in.
        """
        c = self.slopes[1] if not self._idle else 0.0
        own = c * (np.asarray(context, float) - self.station.work.mean_context)
        return self.mean_step + own * self._spread.fluctuation.amplification(np.asarray(steps, float))

    def tpot(self, extra: Array | None = None) -> StopLossLaw:
        """Law of a request's TPOT in seconds, of the requests that have gaps.

        ``extra`` seconds (n,), one per point of ``station.work``, that its first gap holds
        besides a step: transfer and entry under the ``prefill`` and ``transfer`` rules.
        """
        work = self.station.work
        some = (work.gaps > 0) & (work.weight > 0)
        if not some.any():
            return constant(0.0)
        steps, gaps = work.gap_steps[some], work.gaps[some]
        weight = work.weight[some] / work.weight[some].sum()
        context = (work.context + work.growth * (work.steps - 1.0) / 2.0)[some]
        shift = np.zeros_like(gaps) if extra is None else extra[some] / gaps
        second = shift if extra is not None else context
        mass, (n, held, ratio, moved) = group_requests(
            (steps, second), weight, (steps, context, steps / gaps, shift)
        )
        mean = self.request_means(n, held)
        known = self.mean_tpot + float(weight @ shift)
        means = mean * ratio + moved
        means = means * known / float(mass @ means)
        most = np.maximum(self.greatest_step * ratio + moved, means)
        return GammaMixture(means, self.step_variance(n) * ratio**2, mass, most)
