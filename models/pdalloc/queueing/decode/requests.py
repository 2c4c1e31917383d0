"""What requests of one traffic class see of a decode pool that others share.

:meth:`pdalloc.queueing.decode.law.DecodeLaw.tpot` is the law over all requests of the pool; a
class has lengths of its own, and a first gap that varies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.laws import Array, Atoms, Mixture, StopLossLaw
from pdalloc.queueing.decode.groups import group_requests
from pdalloc.queueing.decode.law import SKEW_LEFT, DecodeLaw
from pdalloc.queueing.decode.skewed import SkewedLaw, cumulants

Points = tuple[Array, Array]
"""(seconds, weights), both (m,)."""
BOUNDARY_POINTS = 4
"""Equally likely points of the wait for a step boundary."""
SLOT_CELLS = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.96, 0.985, 0.995, 1.0])
"""Cells of probability that carry the wait for a slot, by their means."""


@dataclass(frozen=True, eq=False)
class ClassRequests:
    """Requests of some class in the pool of ``law``; what is worked out is kept.

    ``lean``: skewness of the arrivals' counts by seconds (n,), beside that of random ones.
    """

    law: DecodeLaw
    lean: Callable[[Array], Array] | None = None

    @cached_property
    def _pace(self) -> float:
        """Mean step over all requests, over what it is by their own contexts."""
        work = self.law.station.work
        some = work.gaps > 0
        if not some.any():
            return 1.0
        steps, weight = work.steps[some], work.weight[some] / work.weight[some].sum()
        held = work.context[some] + work.growth[some] * (steps - 1.0) / 2.0
        own = self.law.request_means(steps, held)
        return self.law.mean_step / float(weight @ own)

    def mean_steps(self, steps: Array, context: Array, growth: Array | float = 1.0) -> Array:
        """Mean step time in seconds of requests of ``steps`` steps; (n,).

        ``context`` tokens held at the first step, ``growth`` more at each later one.
        """
        return self._pace * self.law.request_means(steps, context + growth * (steps - 1.0) / 2.0)

    @cached_property
    def _cumulants(self) -> tuple[float, float, float]:
        return cumulants(self.law.gap)

    @cached_property
    def entry(self) -> Points:
        """Points of the wait for a boundary or a slot: (seconds, weights), both (m,).

        Few at a boundary; the wait for a slot, exponential, into its tail.
        """
        law, p = self.law, self.law.wait_probability
        joining = law.entry.laws[0] if isinstance(law.entry, Mixture) else law.entry
        levels = (np.arange(BOUNDARY_POINTS) + 0.5) / BOUNDARY_POINTS
        boundary = np.array([joining.quantile(level) for level in levels])
        boundary += law.mean_boundary_wait / max(1.0 - p, 1e-12) - boundary.mean()
        values, weights = np.maximum(boundary, 0.0), np.full(len(levels), (1.0 - p) / len(levels))
        if p <= 0.0:
            return values, weights
        left = 1.0 - SLOT_CELLS  # of a unit exponential: means of the cells between -log(left)
        beyond = np.append(left[:-1] * (1.0 - np.log(left[:-1])), 0.0)
        slot = np.diff(-beyond) / np.diff(SLOT_CELLS) * law.mean_slot_wait / p
        return np.append(values, slot), np.append(weights, p * np.diff(SLOT_CELLS))

    @property
    def entry_after_transfer(self) -> Points:
        """That without the wait for space where that comes before the transfer."""
        if self.law.before_transfer is None:
            return self.entry
        values = (1.0 - self.law.wait_probability) * self.entry[0][:BOUNDARY_POINTS]
        return values, np.full(BOUNDARY_POINTS, 1.0 / BOUNDARY_POINTS)

    def spread(self, gaps: Array) -> tuple[Array, Array]:
        """(variances in s^2, scales in s) of the TPOT of requests of these gaps; both (n,).

        As :class:`SkewedLaw` takes them; the first gap's other parts left out.
        """
        _, variance, third = self._cumulants
        if not variance > 0.0:
            return np.zeros_like(gaps), np.zeros_like(gaps)
        if any(self.law.point.slopes):
            left = self.law.step_variance(gaps)
        else:  # steps as long for any batch about the mean: no time scale to average over
            left = np.full_like(gaps, variance)
        scale = 0.5 * third / variance * (left / variance) ** SKEW_LEFT
        if self.lean is not None:
            # a batch remembers a mean stay, however short the answer
            time = np.maximum(gaps, self.law.steps) * self.law.mean_step
            scale = scale + 0.5 * self.lean(time) * np.sqrt(left)
        return left, scale

    def tpot(
        self,
        gaps: Array,
        context: Array,
        moved: Array,
        weight: Array,
        entry: Points | None,
        steps: Array | None = None,
        growth: Array | float = 1.0,
    ) -> StopLossLaw:
        """Law of the TPOT in seconds of requests with ``gaps`` >= 1 gaps each; arrays (n,).

        ``context``, ``growth`` as in :meth:`mean_steps`; ``weight`` sums to 1. The first gap
        holds, besides a step, ``moved`` seconds and the wait to join, points ``entry``. ``steps``
        are those that a request takes; a token each where None.
        """
        first = self.law.station.work.first_gap
        if steps is None:
            steps = gaps if first else gaps + 1.0
        ends = steps if first else np.maximum(steps - 1.0, 0.0)  # steps that end a gap
        ratio = ends / gaps
        own, shift = self.mean_steps(steps, context, growth) * ratio, moved / gaps
        mass, (n, own, shift, ends, ratio) = group_requests(
            (gaps, own + shift), weight, (gaps, own, shift, ends, ratio)
        )
        values, share = entry if entry is not None else (np.zeros(1), np.ones(1))
        shift = (shift[:, None] + values / n[:, None]).ravel()
        mass = (mass[:, None] * share).ravel()
        left, scale = self.spread(ends)
        own, left, scale, ratio = (
            np.repeat(x, len(share)) for x in (own, left * ratio**2, scale * ratio, ratio)
        )
        if not left.any():
            return Atoms(own + shift, mass)
        most = None
        if math.isfinite(self.law.greatest_step):
            most = np.maximum(self.law.greatest_step * ratio, own) + shift
        return SkewedLaw(own + shift, left, scale, mass, most)
