r"""The share of requests predicted to keep every bound at once: joint attainment.

Given a request of n gaps, its end-to-end time is TTFT + n TPOT by definition, and its TPOT is
t + e (W - E W): W its wait for prefill, e the echo of it (:mod:`pdalloc.queueing.departures`),
t the rest, independent. With F the law of W and G that of t,

.. math:: P(TTFT \le x, TPOT \le y, E2E \le z) = E \int F(\min(x - s,\ E W + (y - t)/e,\
          (z - s - n (t - e\, E W)) / (1 + n e))) \, dG(t),

s what TTFT holds besides W; the expectation is over requests and over paths weighted by their
traffic. Left out: that a long slot wait makes both late. One bound alone is read off its law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from pdalloc.errors import UnsupportedError
from pdalloc.laws import LATTICE_POINTS, Array, total
from pdalloc.prediction import DecodeState, Decoding, Prediction, Predictor, PrefillState
from pdalloc.prediction.spread import left_over, spread_cells
from pdalloc.prediction.states import first_gap_entry
from pdalloc.queueing.gamma_quantiles import gamma_quantiles
from pdalloc.simulation.attainment import PER_REQUEST, Bound
from pdalloc.system import System
from pdalloc.workload.traffic import RequestMix

NOISE_POINTS = 256
"""Points of a noisy prefill of one kind of request; fewer where there are many kinds."""
LEAST_NOISE_POINTS = 16
NOISE_END = 14.0
"""Mean prefills at which the last of them begins: one request in a million."""
WAIT_CELLS = np.array([0.0, 0.25, 0.5, 0.7, 0.8, 0.88, 0.94, 0.97, 0.99])
"""Edges of cells of probability of the wait, for its echo in TPOT."""
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
        _check(bound.metric)
        if bound.traffic_class in (None, q):
            limits[bound.metric] = min(bound.seconds, limits.get(bound.metric, math.inf))
    return limits


def _check(metric: str) -> None:
    if metric not in PER_REQUEST:
        raise UnsupportedError(
            f"no prediction of how many requests keep a bound on {metric}; "
            f"put bounds on {', '.join(PER_REQUEST)}"
        )


def _of_class(prediction: Prediction, q: int, limits: Mapping[str, float]) -> float:
    """Share of class ``q`` within ``limits``, over the paths."""
    found = weight = 0.0
    for p, d in prediction.paths():
        share = p.rate * p.replicas * d.rate * d.replicas
        weight += share
        found += share * on_path(prediction.predictor, q, p, d, limits)
    return found / weight


def on_path(
    predictor: Predictor, q: int, p: PrefillState, d: DecodeState, limits: Mapping[str, float]
) -> float:
    """Share of class ``q`` within ``limits`` (seconds by metric) on one path.

    Raises UnsupportedError for a limit on token gaps.
    """
    for metric in limits:
        _check(metric)
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
    predictor: Predictor,
    mix: RequestMix,
    p: PrefillState,
    d: DecodeState,
    limits: Mapping[str, float],
) -> float:
    """The integral above, summed over requests."""
    x, y, z = (limits.get(metric, math.inf) for metric in PER_REQUEST)
    horizon = min(x, z)
    total_kept = 0.0
    for some, has_gaps in ((mix.output <= 1, False), (mix.output > 1, True)):
        if not some.any():
            continue
        mine, share = mix.where(some), float(mix.weight[some].sum())
        at = predictor.decoding(mine, p, d)
        first = _FirstToken(predictor.system, at, p, d, horizon)
        if has_gaps:
            echo = at.ratio * predictor.echo(p, d, at.ends)
            tpot = _Tpot(predictor.system, at, d, echo**2 * p.wait.variance)
            kept = _both(first, tpot, echo, x, y, z)
        else:  # the first token is the last
            kept = first.within(horizon)
        mine = at.mix
        total_kept += share * float(mine.weight @ kept)
    return total_kept


def _both(first: _FirstToken, tpot: _Tpot, echo: Array, x: float, y: float, z: float) -> Array:
    """The integral above of each request, the wait in cells; (n,)."""
    kept = np.zeros(len(tpot.gaps))
    longer = echo[:, None] * (first.waits - first.mean_wait)  # steps, by the wait's cell
    if z == math.inf:
        shares = first.shares(x, None)[:, 0]
        for k in range(len(first.waits)):
            kept += shares[:, k] * tpot.within(y - longer[:, k])
        return kept
    edges = spread_cells(len(tpot.gaps))
    times, width = tpot.quantiles(0.5 * (edges[1:] + edges[:-1])), np.diff(edges)
    gaps = tpot.gaps[:, None]
    for entry, weight in zip(*tpot.entry, strict=True):
        left = z - entry - gaps * (times - echo[:, None] * first.mean_wait)
        shares = first.shares(x, left, 1.0 + gaps * echo[:, None])
        for k in range(len(first.waits)):
            below = tpot.below(y - longer[:, k] - entry / tpot.gaps)
            inside = np.clip(below[:, None] - edges[:-1], 0.0, width) / width
            kept += weight * np.sum(inside * width * shares[:, :, k], axis=1)
    return kept


class _FirstToken:
    """Law of TTFT given the request, for bounds up to ``horizon`` seconds."""

    def __init__(
        self, system: System, at: Decoding, p: PrefillState, d: DecodeState, horizon: float
    ) -> None:
        latency, mix = p.replica_type.latency, at.mix
        self.stay = latency.prefill_seconds(mix.prompt, mix.cached)
        self.moved = np.zeros_like(self.stay)
        if system.first_token != "prefill":
            self.moved = at.moved
        self.noise, self.noise_weights = np.ones(1), np.ones(1)
        if latency.prefill_noise == "exponential":
            points = max(NOISE_POINTS // len(self.stay), LEAST_NOISE_POINTS)
            self.noise, self.noise_weights = exponential_points(points)
        parts = [p.wait]
        if system.first_token == "decode":
            parts.append(d.law.first_token)
        elif system.first_token == "transfer" and d.law.before_transfer is not None:
            parts.append(d.law.before_transfer)
        delay = total(parts)
        step = horizon / (LATTICE_POINTS - 0.5)
        masses = delay.lattice(step, LATTICE_POINTS)
        # a lattice mass stands for the mass around its point: half a step on either side
        self._at = (np.arange(LATTICE_POINTS) + 0.5) * step
        self._probability = np.cumsum(masses)
        self.mean_wait = delay.mean
        self._cells(masses * (self._at - 0.5 * step))

    def _cells(self, moments: Array) -> None:
        """The wait's cells of probability, and ``waits``, their means; the last is all beyond."""
        most = self._probability[-1]
        self._edges = np.append(WAIT_CELLS[most > WAIT_CELLS], [most, 1.0])
        sums = np.interp(self._edges[:-1], self._probability, np.cumsum(moments))
        sums = np.append(np.where(self._edges[:-1] > 0.0, sums, 0.0), self.mean_wait)
        self.waits = np.diff(sums) / np.maximum(np.diff(self._edges), 1e-12)

    def _delay_within(self, seconds: Array) -> Array:
        """P(wait, entry and first step <= ``seconds``), any shape."""
        found = np.interp(seconds, self._at, self._probability)
        return np.where(seconds < -1e-12 * self._at[-1], 0.0, found)

    def shares(self, x: float, left: Array | None, gain: Array | None = None) -> Array:
        """P(TTFT <= x, wait x ``gain`` + rest of TTFT <= ``left``, wait in cell k | request).

        Seconds; ``left`` and ``gain`` (n, m) or None; shape (n, m, cells).
        """
        start, width = self._edges[:-1], np.diff(self._edges)
        found = 0.0
        for e, weight in zip(self.noise, self.noise_weights, strict=True):
            rest = (self.moved + e * self.stay)[:, None]
            most = x - rest
            if left is not None and gain is not None:
                most = np.minimum(most, (left - rest) / gain)
            inside = np.clip(self._delay_within(most)[:, :, None] - start, 0.0, width)
            found = found + weight * inside
        shares: Array = np.asarray(found)
        return shares

    def within(self, seconds: float) -> Array:
        """P(TTFT <= ``seconds`` | request); (n,)."""
        kept: Array = self.shares(seconds, None)[:, 0].sum(axis=-1)
        return kept


def exponential_points(count: int) -> tuple[Array, Array]:
    """Means and weights of ``count`` cells of Exp(1), ever wider; both (count,), mean 1."""
    ends = NOISE_END * (np.arange(count) / count) ** 1.5
    above = np.append(np.exp(-ends), 0.0)
    moments = np.append((ends + 1.0) * np.exp(-ends), 0.0)
    weights = -np.diff(above)
    return -np.diff(moments) / weights, weights


class _Tpot:
    """Law of TPOT given the request and its wait, for requests with gaps.

    ``explained``: variance that the wait explains, s^2 (n,).
    """

    def __init__(self, system: System, at: Decoding, d: DecodeState, explained: Array) -> None:
        rule, mix, ratio = system.first_token, at.mix, at.ratio
        self.gaps = mix.output - 1.0
        moved = at.moved if rule == "prefill" else np.zeros_like(self.gaps)
        self.entry = first_gap_entry(rule, d) or (np.zeros(1), np.ones(1))
        means = d.requests.mean_steps(at.steps, at.held, at.growth) * ratio
        self.moved = moved / self.gaps
        variances, scales = d.requests.spread(at.ends)
        variances = left_over(ratio**2 * variances, explained)
        least = 1e-12 * d.law.mean_step
        deviation = np.sqrt(np.maximum(variances, least**2))
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

    def within(self, seconds: Array) -> Array:
        """P(TPOT <= ``seconds`` | request); (n,)."""
        kept = np.zeros_like(self.gaps)
        for wait, weight in zip(*self.entry, strict=True):
            kept += weight * self.below(seconds - wait / self.gaps)
        return kept

    def quantiles(self, levels: Array) -> Array:
        """TPOT without entry, seconds; (n, levels)."""
        up, down = gamma_quantiles(self.shape, levels), -gamma_quantiles(self.shape, 1.0 - levels)
        free = self.end[:, None] + self.size[:, None] * np.where(self.rising[:, None], up, down)
        found: Array = np.minimum(free, self.most[:, None]) + self.moved[:, None]
        return found
