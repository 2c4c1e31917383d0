r"""How much the step time of a decode replica fluctuates: exact second moments.

Count time in steps. A request that arrives during step s takes part in steps s+1..s+n and adds
:math:`h(k) = b + c (P + g (k-1))` seconds to the k-th of them. The step that lasts t takes in
:math:`\lambda t` arrivals on average, so the step times are a *linear self-exciting process*
(Hawkes 1971, "Spectra of some self-exciting and mutually exciting point processes", eq. 10, with
marks and in discrete time). With :math:`\hat h(\omega) = \sum_k h(k) e^{-i\omega k}`, m its mean,
:math:`\rho = \lambda m(0)` and :math:`\bar t = a/(1-\rho)`, the spectrum of t is

.. math:: S_t = \lambda\bar t\,
          \frac{E|\hat h|^2 + (F-1)|m|^2}{|1 - \lambda m|^2} ,

F the spectrum of the arrivals over its Poisson value (1 for Poisson, the gaps' SCV at low
frequency). Likewise for the batch B and for every count of requests, h replaced by an indicator;
variances and covariances are the integrals over frequency. What no arrival feeds back is added
in the time domain, so the integrals converge fast.

For c = 0 and long answers this is the negative binomial: Var B / E B = 1/(1-rho) for every law
of n. It also holds the step boundary: n = 1 has 1/(1-rho^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdalloc.laws import Array
from pdalloc.queueing.decode.work import DecodeWork
from pdalloc.queueing.departures import Spectrum

Complex = NDArray[np.complex128]
FREQUENCIES = 640
FINEST = 3e-4
"""Lowest frequencies are about this over the mean number of steps."""

GROUPS = 256
"""Requests are merged into at most this many groups of like steps, of equal numbers of steps."""
MOST_WINDOWS = 64
WHOLE_BATCH = 1.0 / 12.0
"""Variance that a batch has for being whole, however regular its arrivals; requests^2."""


@dataclass(frozen=True)
class Moments:
    """Of a replica over its steps, in s and requests.

    ``step`` E[t], ``batch`` E[B], variances ``var_step``, ``var_batch``, covariance
    ``batch_step``. G counts the requests whose step ends a gap: ``itl_lift`` = Cov(G, t)/E[G],
    so that a random gap is longer than a random step by that; ``gap_batch`` = Cov(G, B)/E[G].
    ``tpot_lift``: the same with every request counted once in all.
    """

    step: float
    batch: float
    var_step: float
    var_batch: float
    batch_step: float
    itl_lift: float
    gap_batch: float
    tpot_lift: float


@dataclass(frozen=True, eq=False)
class Transforms:
    """Transforms of one :class:`DecodeWork`; they depend on no rate and no step time.

    They are polynomials in a request's context, so requests are merged by steps, keeping the
    first two moments of their contexts.
    """

    work: DecodeWork
    windows: dict[bytes, Array] = field(default_factory=dict, repr=False)

    @cached_property
    def frequencies(self) -> Array:
        """Angular frequencies per step, (F,), dense near 0."""
        scale = FINEST / self.work.mean_steps
        at: Array = scale * np.sinh(np.linspace(1e-9, math.asinh(math.pi / scale), FREQUENCIES))
        return at

    @cached_property
    def weights(self) -> Array:
        """Trapezoidal weights of (1/pi) int_0^pi; (F,)."""
        scale = FINEST / self.work.mean_steps
        spacing = math.asinh(math.pi / scale) / (FREQUENCIES - 1)
        weights: Array = np.hypot(scale, self.frequencies) * spacing / math.pi
        weights[[0, -1]] *= 0.5
        return weights

    @cached_property
    def _groups(self) -> dict[str, Array]:
        """Weights and means, over requests of like steps, of what :meth:`noise` asks for."""
        w = self.work
        cells, group = np.unique(w.steps, return_inverse=True)
        if len(cells) > GROUPS:
            mass = np.bincount(group, w.weight * w.steps)
            middle = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
            group = np.minimum(middle * GROUPS, GROUPS - 1).astype(np.intp)[group]
        weight = np.bincount(group, w.weight)
        used = weight > 0
        once = np.divide(1.0, w.gaps, out=np.zeros_like(w.gaps), where=w.gaps > 0)
        columns = {
            "n": w.steps, "p": w.context, "pp": w.context**2, "g": w.growth, "gg": w.growth**2,
            "pg": w.context * w.growth, "r": once, "rp": once * w.context, "rg": once * w.growth,
        }  # fmt: skip
        means = {
            key: np.bincount(group, w.weight * x)[used] / weight[used] for key, x in columns.items()
        }
        return {**means, "w": np.asarray(weight[used], float)}

    @cached_property
    def _sums(self) -> tuple[Any, Any, Any]:
        """sum z^k, sum (k-1) z^k over k = 1..n and sum z^k over gap steps; (groups, F)."""
        omega = self.frequencies
        n = self._groups["n"][:, None]
        z, last = np.exp(-1j * omega), np.exp(-1j * omega * n)
        gone = 1.0 - z
        count = z * (1.0 - last) / gone
        slope = z * (z - n * last + (n - 1.0) * last * z) / gone**2
        flat, squares = omega * n < 1e-3, n * (n + 1.0) * (2.0 * n + 1.0) / 6.0
        ramp = n * (n + 1.0) / 2.0
        count = np.where(flat, n - 1j * omega * ramp - 0.5 * omega**2 * squares, count)
        slope = np.where(flat, ramp - n - 1j * omega * (squares - ramp), slope)
        first = 0.0 if self.work.first_gap else np.minimum(n, 1.0) * z
        return count, slope, count - first

    @cached_property
    def means(self) -> dict[str, Complex]:
        """Means of the transforms of count u, context s, gap steps v and r (v, once); (F,)."""
        g, (count, slope, gap) = self._groups, self._sums
        w = g["w"]
        return {
            "u": w @ count,
            "s": (w * g["p"]) @ count + (w * g["g"]) @ slope,
            "v": w @ gap,
            "r": (w * g["r"]) @ gap,
        }

    @cached_property
    def noise(self) -> dict[str, tuple[Complex, float]]:
        """E[x y*] for transforms x, y as in :attr:`means`: (spectrum, its mean over steps)."""
        g, (count, slope, gap) = self._groups, self._sums
        w, n = g["w"], g["n"]
        ramp, squares = n * (n - 1.0) / 2.0, (n - 1.0) * n * (2.0 * n - 1.0) / 6.0
        ends = n if self.work.first_gap else np.maximum(n - 1.0, 0.0)
        uu, us, ss = np.abs(count) ** 2, count * slope.conj(), np.abs(slope) ** 2
        vu, vs = gap * count.conj(), gap * slope.conj()
        found = {
            "uu": (w @ uu, w @ n),
            "us": (_dot(w, (g["p"], g["g"]), (uu, us)), _dot(w, (g["p"], g["g"]), (n, ramp))),
            "ss": (
                _dot(w, (g["pp"], 2.0 * g["pg"], g["gg"]), (uu, us.real, ss)),
                _dot(w, (g["pp"], 2.0 * g["pg"], g["gg"]), (n, ramp, squares)),
            ),
            "vu": (w @ vu, w @ ends),
            "vs": (_dot(w, (g["p"], g["g"]), (vu, vs)), _dot(w, (g["p"], g["g"]), (ends, ramp))),
            "ru": (_dot(w, (g["r"],), (vu,)), _dot(w, (g["r"],), (ends,))),
            "rs": (
                _dot(w, (g["rp"], g["rg"]), (vu, vs)),
                _dot(w, (g["rp"], g["rg"]), (ends, ramp)),
            ),
        }
        return {
            key: (np.asarray(x, complex), float(level.real)) for key, (x, level) in found.items()
        }

    def load(self, slopes: tuple[float, float]) -> float:
        """m(0): seconds that an arrival adds to steps over its stay, at slopes (b, c)."""
        return self.work.mean_steps * (slopes[0] + slopes[1] * self.work.mean_context)

    def at(
        self, step: float, rate: float, slopes: tuple[float, float], spectrum: Spectrum | None
    ) -> Fluctuation:
        """At mean step ``step`` s and ``rate`` requests/s, with rate x load below 1.

        ``slopes`` = (b, c) of the step time in s/request and s/token at the mean; ``spectrum``
        of the arrivals, None for Poisson.
        """
        bursts = np.zeros(FREQUENCIES)
        if spectrum is not None:
            bursts = spectrum(self.frequencies / step) - 1.0
        return Fluctuation(self, step, rate, slopes, bursts)


@dataclass(frozen=True, eq=False)
class Fluctuation:
    """One operating point of :class:`Transforms`; ``bursts`` = F - 1 per frequency."""

    transforms: Transforms
    step: float
    rate: float
    slopes: tuple[float, float]
    bursts: Array

    @cached_property
    def _feedback(self) -> tuple[Complex, Complex]:
        """(m, 1/(1 - rate m)) per frequency."""
        b, c = self.slopes
        means = self.transforms.means
        m = b * means["u"] + c * means["s"]
        return m, 1.0 / (1.0 - self.rate * m)

    def _own(self, x: str) -> tuple[Complex, Complex, float]:
        """Noise of count ``x`` with the step time: with bursts, Poisson alone, its time mean."""
        b, c = self.slopes
        (n1, l1), (n2, l2) = (self.transforms.noise[x + y] for y in "us")
        plain = b * n1 + c * n2
        m, _ = self._feedback
        return plain + self.bursts * self.transforms.means[x] * m.conj(), plain, b * l1 + c * l2

    @cached_property
    def _step_noise(self) -> tuple[Array, Array, float]:
        """The same of the step time with itself; real."""
        b, c = self.slopes
        (uu, l1), (us, l2), (ss, l3) = (self.transforms.noise[x] for x in ("uu", "us", "ss"))
        plain = b * b * uu.real + 2.0 * b * c * us.real + c * c * ss.real
        m, _ = self._feedback
        level = b * b * l1 + 2.0 * b * c * l2 + c * c * l3
        return plain + self.bursts * np.abs(m) ** 2, plain, level

    @cached_property
    def swing(self) -> Array:
        """Spectrum of the step time over the arrivals per step, s^2; (F,)."""
        own: Array = self._step_noise[0] * np.abs(self._feedback[1]) ** 2
        return own

    def _total(self, spectrum: Complex | Array, plain: Complex | Array, level: float) -> float:
        return level + float(self.transforms.weights @ (spectrum - plain).real)

    def _with_step(self, x: str) -> float:
        """Cov(count ``x``, t) per arrival per step."""
        (noise, plain, level), (own, _, _) = self._own(x), self._step_noise
        _, back = self._feedback
        spread = noise + self.rate * self.transforms.means[x] * own * back
        return self._total(spread * back.conj(), plain, level)

    def _counts(self, x: str, noises: dict[str, Complex]) -> float:
        """Cov(count ``x``, B) per arrival per step."""
        plain, level = self.transforms.noise[x + "u"]
        means, (_, back) = self.transforms.means, self._feedback
        mx, mu = means[x], means["u"].conj()
        spread = plain + self.bursts * mx * mu
        spread = spread + self.rate * mx * noises["u"].conj() * back
        spread = spread + self.rate * mu * noises[x] * back.conj()
        return self._total(spread + self.rate**2 * mx * mu * self.swing, plain, level)

    @cached_property
    def moments(self) -> Moments:
        """Means, variances and covariances."""
        t, arrivals = self.transforms, self.rate * self.step
        noises = {x: self._own(x)[0] for x in "uv"}
        least = WHOLE_BATCH * min(arrivals * t.work.mean_steps, 1.0)
        gaps, once = t.noise["vu"][1], t.noise["ru"][1]
        _, plain, level = self._step_noise
        return Moments(
            step=self.step,
            batch=arrivals * t.work.mean_steps,
            var_step=arrivals * self._total(self.swing, plain, level),
            var_batch=max(arrivals * self._counts("u", noises), least),
            batch_step=arrivals * self._with_step("u"),
            itl_lift=self._with_step("v") / gaps if gaps > 0 else 0.0,
            gap_batch=self._counts("v", noises) / gaps if gaps > 0 else 0.0,
            tpot_lift=self._with_step("r") / once if once > 0 else 0.0,
        )

    def averaging(self, steps: Array) -> Array:
        """Var of the mean step time over ``steps`` (n,) in a row, over Var of one step."""
        known, back = np.unique(steps, return_inverse=True)
        shape, (_, plain, level) = self._window(known), self._step_noise
        whole = self._total(self.swing, plain, level)
        if whole <= 0.0:  # no load, no swing: nothing to average
            return np.ones(len(steps))
        values: Array = (shape @ (self.transforms.weights * self.swing) / whole)[back]
        return values

    def amplification(self, steps: Array) -> Array:
        """Seconds by which 1 s more in each of ``steps`` (n,) in a row prolongs them on average."""
        known, back = np.unique(steps, return_inverse=True)
        shape, weights = self._window(known), self.transforms.weights
        values: Array = shape @ (weights * self._feedback[1].real) / (shape @ weights)
        return values[back]

    def response(self, steps: Array, pattern: Complex) -> Array:
        """Seconds more per step, over the first ``steps`` (n,), of more arrivals around step 0.

        ``pattern``: transform of their density per second, at the frequencies per second; (F,).
        """
        m, back = self._feedback
        heard = self.transforms.weights * m * back * pattern
        z = np.exp(1j * self.transforms.frequencies)
        known, back_to = np.unique(np.asarray(steps, float), return_inverse=True)
        n = np.maximum(known, 1.0)[:, None]
        flat = self.transforms.frequencies * n < 1e-6
        sums = np.where(flat, n, z * (1.0 - z**n) / np.where(flat, 1.0, 1.0 - z))
        values: Array = ((sums / n) @ heard).real[back_to]
        return values

    def _window(self, steps: Array) -> Array:
        """|sum of z^k over n steps|^2 / n^2; (n, F)."""
        key, kept = steps.tobytes(), self.transforms.windows
        if key not in kept:
            half = 0.5 * self.transforms.frequencies
            n = np.maximum(steps, 1.0)[:, None]
            if len(kept) >= MOST_WINDOWS:
                kept.clear()
            kept[key] = (np.sin(half * n) / (n * np.sin(half))) ** 2
        return kept[key]


@lru_cache(maxsize=32)
def transforms(work: DecodeWork) -> Transforms:
    """Those of ``work``, kept."""
    return Transforms(work)


def _dot(weight: Array, factors: tuple[Array, ...], values: tuple[Array | Complex, ...]) -> Any:
    """Sum over groups of weight x factor x value, added up."""
    return sum((weight * f) @ v for f, v in zip(factors, values, strict=True))
