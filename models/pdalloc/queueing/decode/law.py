r"""The law of a decode pool: step times, waits for a slot, and what requests see of them.

From the second moments of one replica (:mod:`.spread`) and the law of its batch
(:mod:`.batches`): with k requests a step takes

.. math:: t \mid B{=}k \;=\; t(k) + (s' - s)(k - E B) + \text{gamma}, \quad
          s' = Cov(B,t)/Var B,

with s the slope of t(k) at mean context (:mod:`.contexts`); exactly t(k) without a context
term. A gap of a request is a step seen in proportion to the requests that it gives a token. Mean
TPOT is exact for affine steps, Poisson arrivals and no limit (the covariances are); for long
answers and c = 0 it is (a + b)/(1 - rho), and ITL is t(1 + N), N negative binomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.laws import Array, Atoms, Exponentials, Law, StopLossLaw, constant
from pdalloc.queueing.decode.batches import Batches, batches
from pdalloc.queueing.decode.contexts import contexts
from pdalloc.queueing.decode.fluctuations import Complex
from pdalloc.queueing.decode.groups import group_requests
from pdalloc.queueing.decode.operating import OperatingPoint
from pdalloc.queueing.decode.skewed import SkewedLaw, blurred, cumulants
from pdalloc.queueing.decode.spread import POOLED, Spread, spread
from pdalloc.queueing.decode.station import DecodeStation
from pdalloc.queueing.decode.waiting import Waiting

IDLE = 1e-12
"""Requests in a replica's batch below which it is idle."""
WHOLE = 0.01
"""Quanta this near one request are one: there the product form is exact."""
ECHO_NODES = 12
"""Numbers of steps at which an echo is worked out."""
SKEW_LEFT = 1.0
"""Third over second cumulant of a mean over a stay falls as this power of what is left of the
variance: 1 for long stays (sums of independent parts)."""


@dataclass(frozen=True, eq=False)
class DecodeLaw:
    """Delays of ``station``; what is worked out is kept."""

    station: DecodeStation

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
    def point(self) -> OperatingPoint:
        """The fluid operating point."""
        return OperatingPoint(self.station)

    @cached_property
    def _spread(self) -> Spread:
        return spread(self.station, self.point.step, self.point.slopes)

    @property
    def _idle(self) -> bool:
        return self.rate * self.steps * self._one < IDLE

    @property
    def _one(self) -> float:
        """A step with one request, seconds."""
        return self.point.seconds(1.0)

    # -- the batch and its steps

    @cached_property
    def batches(self) -> Batches:
        """Law of one replica's batch over time."""
        return self._batches(self._spread.own.var_batch)

    def _batches(self, variance: float) -> Batches:
        quantum = (1.0 - self.point.feedback) * variance / max(self.point.batch, 1e-300)
        if abs(quantum - 1.0) < WHOLE:
            quantum = 1.0
        return batches(self.station, quantum, self.point.batch, math.sqrt(variance))

    @property
    def mean_batch(self) -> float:
        """Mean batch of one replica over time, requests."""
        return float(self.batches.share @ self.batches.batch)

    def batch_quantile(self, p: float) -> float:
        """Least batch that a share ``p`` of the time is not exceeded, requests."""
        law = self.batches
        i = int(np.searchsorted(np.cumsum(law.share), p))
        return float(law.batch[min(i, len(law.batch) - 1)])

    @cached_property
    def _seen(self) -> Array:
        """Share of gaps at each batch; (n,)."""
        law, m = self.batches, self._spread.own
        tilt = 1.0 + m.gap_batch / m.var_batch * (law.batch - m.batch)
        seen = np.where(law.batch > 0, law.share / law.seconds * np.maximum(tilt, 0.0), 0.0)
        if not seen.any():
            seen[int(np.searchsorted(law.batch, 1.0))] = 1.0
        shares: Array = seen / seen.sum()
        return shares

    @cached_property
    def gap(self) -> StopLossLaw:
        """Law of a step that ends a gap, seconds."""
        if self._idle:
            return constant(self._one)
        law, m = self.batches, self._spread.own
        if self.point.slopes[1] == 0.0:
            return Atoms(law.seconds, self._seen)
        rest = contexts(self.station.work, self.point.slopes, m, self.point.feedback)
        centre = law.seconds + (rest.slope - rest.mean_slope) * (law.batch - m.batch)
        variance = rest.variance * law.batch
        return self._settled(centre, variance, np.full_like(centre, rest.scale))

    def _settled(self, means: Array, variances: Array, scales: Array) -> StopLossLaw:
        """The law with its mean set right where that is known."""
        if self._known and self.station.affine is not None:
            base, mean = self.station.affine[0], float(self._seen @ means)
            factor = (self._spread.own.step + self._spread.own.itl_lift - base) / (mean - base)
            means = base + factor * (means - base)
            variances, scales = factor**2 * variances, factor * scales
        return blurred(means, variances, scales, self._seen)

    @property
    def _known(self) -> bool:
        """Whether the mean gap follows from the second moments alone: affine, never full."""
        return self.station.affine is not None and self.batches.full == 0.0

    @cached_property
    def _mean_gap(self) -> float:
        if self._idle:
            return self._one
        m = self._spread.own
        return m.step + m.itl_lift if self._known else self.gap.mean

    @property
    def mean_itl(self) -> float:
        """Mean of the gaps between tokens, seconds; those within a step are 0."""
        return (1.0 - self.station.work.zero_gaps) * self._mean_gap

    @cached_property
    def mean_step(self) -> float:
        """Mean over requests of the mean step time between their tokens, seconds."""
        if self._idle:
            return self._one
        m = self._spread.own
        return self._mean_gap + m.tpot_lift - m.itl_lift

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
        atoms = self.gap.points if isinstance(self.gap, SkewedLaw) else self.gap
        assert isinstance(atoms, Atoms)
        weights = np.append(zero, (1.0 - zero) * atoms.weights)
        return Atoms(np.append(0.0, atoms.values), weights)

    @property
    def greatest_step(self) -> float:
        """Seconds of a full batch's step; inf where the slots never fill or contexts differ."""
        fills = not self._idle and self.batches.full > 0.0 and self.point.slopes[1] == 0.0
        return float(self.batches.seconds[-1]) if fills else math.inf

    # -- waiting

    @cached_property
    def waiting(self) -> Waiting:
        """Waits for a boundary and for a slot."""
        pool = self.batches
        if self.station.dispatch in POOLED and self.station.replicas > 1:
            pool = self._batches(self._spread.pool.var_batch)
        return Waiting(self.station, self.batches, pool)

    @property
    def wait_probability(self) -> float:
        """P(an arrival finds no slot free)."""
        return 0.0 if self._idle else self.waiting.probability

    @property
    def mean_slot_wait(self) -> float:
        """Mean wait for a slot over all requests, seconds."""
        return 0.0 if self._idle else self.waiting.mean_slot_wait

    @property
    def mean_waiting(self) -> float:
        """Mean number of requests of the pool that wait for a slot (Little 1961)."""
        return self.station.rate * self.mean_slot_wait

    @property
    def slot_wait(self) -> Exponentials:
        """Law of the wait for a slot, seconds: 0, or exponential."""
        if self._idle:
            return Exponentials(np.zeros(1), np.ones(1), np.zeros(1))
        return self.waiting.slot_wait

    @property
    def before_transfer(self) -> Law | None:
        """Law of the wait for a slot where it comes before the KV transfer; None after it."""
        return None

    @property
    def mean_boundary_wait(self) -> float:
        """Mean wait for a step under way to end, seconds."""
        return 0.0 if self._idle else self.waiting.mean_boundary

    @property
    def mean_entry(self) -> float:
        """Mean time from reaching the pool to the start of the first step, seconds."""
        return self.mean_boundary_wait + self.mean_slot_wait

    @property
    def mean_first_token(self) -> float:
        """Mean time from reaching the pool to the end of the first step, seconds."""
        return self.mean_entry + self._mean_gap

    @cached_property
    def entry(self) -> Law:
        """Law of the time from reaching the pool to the start of the first step, seconds."""
        return constant(0.0) if self._idle else self.waiting.law(with_first_step=False)

    @cached_property
    def first_token(self) -> Law:
        """Law of the time from reaching the pool to the end of the first step, seconds."""
        return constant(self._one) if self._idle else self.waiting.law(with_first_step=True)

    # -- requests

    @cached_property
    def _gap_cumulants(self) -> tuple[float, float, float]:
        return cumulants(self.gap)

    def step_variance(self, steps: Array) -> Array:
        """Var of a request's own mean step time, s^2, for requests of ``steps`` steps (n,)."""
        steps = np.asarray(steps, float)
        if self._idle:
            return np.zeros_like(steps)
        left: Array = self._gap_cumulants[1] * self._spread.averaging(steps)
        return left

    def echo(self, steps: Array, pattern: Callable[[Array], Complex]) -> Array:
        """Seconds more per step of requests of ``steps`` (n,), with more requests around them.

        ``pattern``: transform, at frequencies per second, of the density per second at which one
        replica gets them around the request's own arrival.
        """
        if self._idle:
            return np.zeros(len(steps))
        fluctuation = self._spread.fluctuation
        at = fluctuation.transforms.frequencies / fluctuation.step
        steps = np.maximum(np.asarray(steps, float), 1.0)
        nodes = np.geomspace(steps.min(), steps.max(), ECHO_NODES)
        heard: Array = np.interp(steps, nodes, fluctuation.response(nodes, pattern(at)))
        return heard

    def request_means(self, steps: Array, context: Array) -> Array:
        """Mean step time of requests of ``steps`` that hold ``context`` tokens on average; (n,).

        A request's own context prolongs its steps, and these bring more requests in.
        """
        steps = np.asarray(steps, float)
        if self._idle or self.point.slopes[1] == 0.0:
            return np.full_like(steps, self.mean_step)
        own = self.point.slopes[1] * (np.asarray(context, float) - self.station.work.mean_context)
        means: Array = self.mean_step + own * self._spread.fluctuation.amplification(steps)
        return means

    def _sort_key(self, context: Array, ratio: Array, shift: Array) -> Array:
        """About the mean TPOT of requests of like length, seconds; (n,)."""
        own = self.point.slopes[1] * (context - self.station.work.mean_context)
        key: Array = (self.mean_step + own) * ratio + shift
        return key

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
        shift = np.zeros_like(gaps) if extra is None else np.asarray(extra, float)[some] / gaps
        mass, (n, held, ratio, moved) = group_requests(
            (steps, self._sort_key(context, steps / gaps, shift)),
            weight,
            (steps, context, steps / gaps, shift),
        )
        means = self.request_means(n, held) * ratio + moved
        means = means * (self.mean_tpot + float(weight @ shift)) / float(mass @ means)
        _, variance, third = self._gap_cumulants if not self._idle else (0.0, 0.0, 0.0)
        own, variance = self.step_variance(n), max(variance, 1e-300)
        scale = 0.5 * third / variance * (own / variance) ** SKEW_LEFT
        most = None
        if math.isfinite(self.greatest_step):
            most = np.maximum(self.greatest_step * ratio + moved, means)
        return SkewedLaw(means, own * ratio**2, scale * ratio, mass, most)
