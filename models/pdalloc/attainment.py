r"""The share of requests predicted to keep every bound at once: joint attainment.

Given a request of n gaps, TTFT and TPOT are taken as independent. Its end-to-end time is
TTFT + n TPOT by definition, so with F the law of TTFT and G that of TPOT, both given the request,

.. math:: P(TTFT \le x, TPOT \le y, E2E \le z) = E \int_{t \le y} F(\min(x, z - n t)) \, dG(t),

the expectation over requests and over paths weighted by their traffic. What is left out: a long
batch makes both late. One bound alone needs no independence: it is read off its metric's law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from pdalloc.errors import UnsupportedError
from pdalloc.laws import LATTICE_POINTS, Array, total
from pdalloc.prediction import (
    DecodeState,
    Decoding,
    Prediction,
    Predictor,
    PrefillState,
    spread_cells,
)
from pdalloc.simulation.attainment import PER_REQUEST, Bound
from pdalloc.system import System
from pdalloc.workload.traffic import RequestMix

NOISE_POINTS = 256
"""Points of a noisy prefill of one kind of request; fewer where there are many kinds."""
LEAST_NOISE_POINTS = 16
LEAST_SKEW = 0.02
"""Skews of less count as this much: a normal law, in effect."""


def attainment(
    prediction: Prediction, bounds: Sequence[Bound], traffic_class: int | None = None
) -> float:
    """Share of requests (of class ``traffic_class``, by index; None: of all) that keep ``bounds``.

    A request must keep those on its class; one of one token keeps any bound on TPOT. Raises
    UnsupportedError for a bound on token gaps: how many requests keep it is not modelled.
    """
    classes = prediction.predictor.system.workload.classes
    chosen = range(len(classes)) if traffic_class is None else [traffic_class]
    rate = sum(classes[q].rate for q in chosen)
    kept = (classes[q].rate * _of_class(prediction, q, _limits(bounds, q)) for q in chosen)
    return sum(kept) / rate


def _limits(bounds: Sequence[Bound], q: int) -> dict[str, float]:
    """The tightest bound per metric on class ``q``, seconds."""
    limits: dict[str, float] = {}
    for bound in bounds:
        if bound.metric not in PER_REQUEST:
            raise UnsupportedError(
                f"no prediction of how many requests keep a bound on {bound.metric}; "
                f"put bounds on {', '.join(PER_REQUEST)}"
            )
        if bound.traffic_class in (None, q):
            limits[bound.metric] = min(bound.seconds, limits.get(bound.metric, math.inf))
    return limits


def _of_class(prediction: Prediction, q: int, limits: Mapping[str, float]) -> float:
    """Share of class ``q`` within ``limits``, over the paths."""
    found = weight = 0.0
    for p, d in prediction.paths():
        share = p.rate * p.replicas * d.rate * d.replicas
        weight += share
        found += share * _on_path(prediction, q, p, d, limits)
    return found / weight


def _on_path(
    prediction: Prediction, q: int, p: PrefillState, d: DecodeState, limits: Mapping[str, float]
) -> float:
    predictor = prediction.predictor
    mix = predictor.mix.of_class(q)
    if not limits:
        return 1.0
    if len(limits) > 1:
        return _joint(predictor, mix, p, d, limits)
    [(metric, seconds)] = limits.items()
    kept = predictor.law(metric, q, p, d).probability(seconds)
    concerned = float(mix.weight @ (mix.output > 1)) if metric == "tpot" else 1.0
    return 1.0 - concerned * (1.0 - kept)


def _joint(
    of: Predictor, mix: RequestMix, p: PrefillState, d: DecodeState, limits: Mapping[str, float]
) -> float:
    """The integral above, summed over requests."""
    x, y, z = (limits.get(metric, math.inf) for metric in PER_REQUEST)
    horizon = min(x, z)
    total_kept = 0.0
    for some, has_gaps in ((mix.output <= 1, False), (mix.output > 1, True)):
        if not some.any():
            continue
        mine, share = mix.where(some), float(mix.weight[some].sum())
        at = of.decoding(mine)
        mine = at.mix
        first = _FirstToken(of.system, mine, p, d, horizon)
        if not has_gaps:  # the first token is the last
            kept = first.within(np.full(len(mine.output), horizon))
        elif z == math.inf:
            kept = _Tpot(of.system, at, d).within(y) * first.within(np.full(len(mine.output), x))
        else:
            kept = _integral(first, _Tpot(of.system, at, d), x, y, z)
        total_kept += share * float(mine.weight @ kept)
    return total_kept


def _integral(first: _FirstToken, tpot: _Tpot, x: float, y: float, z: float) -> Array:
    """int_{t <= y} F(min(x, z - n t)) dG(t) of each request; (n,)."""
    kept = np.zeros(len(tpot.gaps))
    edges = spread_cells(len(tpot.gaps))
    times, width = tpot.quantiles(0.5 * (edges[1:] + edges[:-1])), np.diff(edges)
    for wait, weight in zip(*tpot.entry, strict=True):
        below = tpot.below(y - wait / tpot.gaps)
        inside = np.clip(below[:, None] - edges[:-1], 0.0, width)
        ready = np.minimum(x, z - wait - tpot.gaps[:, None] * times)
        kept += weight * np.sum(inside * first.within(ready), axis=1)
    return kept


class _FirstToken:
    """Law of TTFT given the request, for bounds up to ``horizon`` seconds."""

    def __init__(
        self, system: System, mix: RequestMix, p: PrefillState, d: DecodeState, horizon: float
    ) -> None:
        latency = p.replica_type.latency
        self.stay = latency.prefill_seconds(mix.prompt, mix.cached)
        self.moved = np.zeros_like(self.stay)
        if system.first_token != "prefill":
            self.moved = system.transfer_seconds(mix)
        self.noise = np.ones(1)
        if latency.prefill_noise == "exponential":
            points = max(NOISE_POINTS // len(self.stay), LEAST_NOISE_POINTS)
            self.noise = -np.log1p(-(np.arange(points) + 0.5) / points)
        delay = total([p.wait, d.law.first_token]) if system.first_token == "decode" else p.wait
        step = horizon / (LATTICE_POINTS - 0.5)
        # a lattice mass stands for the mass around its point: half a step on either side
        self._at = (np.arange(LATTICE_POINTS) + 0.5) * step
        self._probability = np.cumsum(delay.lattice(step, LATTICE_POINTS))

    def _delay_within(self, seconds: Array) -> Array:
        """P(wait, entry and first step <= ``seconds``), any shape."""
        found = np.interp(seconds, self._at, self._probability)
        return np.where(seconds < -1e-12 * self._at[-1], 0.0, found)

    def within(self, seconds: Array) -> Array:
        """P(TTFT <= ``seconds`` | request); shape (n, ...) as ``seconds``."""
        each = (slice(None),) + (None,) * (seconds.ndim - 1)
        left, stay = seconds - self.moved[each], self.stay[each]
        found = np.zeros_like(left)
        for e in self.noise:
            found += self._delay_within(left - e * stay)
        return found / len(self.noise)


class _Tpot:
    """Law of TPOT given the request, for requests with gaps."""

    def __init__(self, system: System, at: Decoding, d: DecodeState) -> None:
        rule, mix = system.first_token, at.mix
        self.gaps = mix.output - 1.0
        ends = at.steps - (0.0 if d.law.station.work.first_gap else 1.0)  # that end a gap
        ratio = ends / self.gaps
        moved = system.transfer_seconds(mix) if rule == "prefill" else np.zeros_like(self.gaps)
        self.entry = (np.zeros(1), np.ones(1)) if rule == "decode" else d.requests.entry
        means = d.requests.mean_steps(at.steps, at.held, at.growth) * ratio
        self.moved = moved / self.gaps
        variances, scales = d.requests.spread(ends)
        least = 1e-12 * d.law.mean_step
        deviation = np.maximum(ratio * np.sqrt(variances), least)
        size = np.maximum(np.abs(scales) * ratio, 0.5 * LEAST_SKEW * deviation)
        self.shape, self.size = (deviation / size) ** 2, size
        self.rising: NDArray[np.bool_] = scales >= 0.0
        self.end = means - np.where(self.rising, 1.0, -1.0) * self.shape * size
        self.most = np.maximum(d.law.greatest_step * ratio, means)

    def below(self, seconds: Array) -> Array:
        """P(TPOT without entry <= ``seconds`` | request); (n,)."""
        t = seconds - self.moved
        x = np.maximum(np.where(self.rising, t - self.end, self.end - t) / self.size, 0.0)
        found = np.where(self.rising, gammainc(self.shape, x), gammaincc(self.shape, x))
        kept: Array = np.where(t < self.most, found, 1.0)
        return kept

    def within(self, seconds: float) -> Array:
        """P(TPOT <= ``seconds`` | request); (n,)."""
        kept = np.zeros_like(self.gaps)
        for wait, weight in zip(*self.entry, strict=True):
            kept += weight * self.below(seconds - wait / self.gaps)
        return kept

    def quantiles(self, levels: Array) -> Array:
        """TPOT without entry, seconds; (n, levels)."""
        shape = self.shape[:, None]
        up, down = gammaincinv(shape, levels), -gammainccinv(shape, levels)
        free = self.end[:, None] + self.size[:, None] * np.where(self.rising[:, None], up, down)
        found: Array = np.minimum(free, self.most[:, None]) + self.moved[:, None]
        return found
