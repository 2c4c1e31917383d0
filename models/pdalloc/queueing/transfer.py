r"""KV transfers that share a link: the wait first come first served, or shares of the speed.

A transfer is s = bytes/bandwidth seconds of work on its link, of utilisation :math:`\rho`.

* ``fcfs`` of many prefill replicas' transfers: M/G/1, :math:`E[W] = \lambda E[s^2] / 2(1-\rho)`
  (Pollaczek-Khinchine, eq. 5.62 of Kleinrock 1975), or with thinned gamma gaps.
* ``fcfs`` behind one prefill replica: transfer i begins to wait where prefill i ends. With Z the
  link's work then, prefill times s and transfer work w of the next request, and I the time that
  the replica idles first,

.. math:: Z' = (Z - I - s)^+ + w , \qquad P(I > 0 \mid s_i) = \frac{(1-\rho_p) e^{-\lambda s_i}}
          {E e^{-\lambda s}}, \quad I \sim Exp(\lambda) \text{ then}

  (Lindley 1952 for both stations; M/G/1 prefill, whose wait is taken as independent of Z). Equal
  requests that move faster than they are prefilled never wait.
* ``processor_sharing``: :math:`E[T \mid s] = s/(1-\rho)` for any law of s (Kleinrock 1976, eq.
  4.17), and with u = 2 (1 - rho) s E[s]/E[s^2]

.. math:: Var(T \mid s) = \frac{\rho s^2}{(1-\rho)^2} \frac{2 (u - 1 + e^{-u})}{u^2},

  exact for exponential work (Ott 1984, "The sojourn-time distribution in the M/G/1 queue with
  processor sharing") and for short and long transfers of any law; T - s is taken as gamma.
  Behind one prefill replica T - s is what it would be, times the ratio of the fcfs waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import UnstableError
from pdalloc.laws import Array, Atoms, Law, grid
from pdalloc.queueing.random_walk import LatticeLaw
from pdalloc.queueing.single_server import SingleServerWait
from pdalloc.queueing.thinned import thinned_wait

Sharing = Literal["fcfs", "processor_sharing"]

CELLS = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.996, 1.0])
"""Cells of probability that carry what sharing adds to a transfer."""
KINDS = 48
"""Of requests that are told apart behind one prefill replica."""
POINTS = 320
"""Of the lattice of a wait behind one prefill replica,"""
REACH = 24.0
"""over this many mean waits of M/G/1, and the longest transfer twice."""
SMALL = 1e-3
"""u below this: a transfer so short that it sees the link as it is."""


@dataclass(frozen=True, eq=False)
class Feed:
    """The prefill replica that feeds a link: ``seconds`` of prefill of each kind of request (n,).

    ``idles`` is P(a prefill ends and nobody waits).
    """

    seconds: Array
    idles: float


@dataclass(frozen=True)
class SharedLink:
    """A link that ``rate`` transfers/s share, of ``work`` seconds each, alone.

    ``feed`` is the prefill replica where one feeds it; else transfers come as the whole stream
    does, with gaps of SCV ``arrival_scv``. Raises UnstableError at utilisation >= 1.
    """

    name: str
    rate: float
    work: Atoms
    feed: Feed | None = None
    sharing: Sharing = "fcfs"
    arrival_scv: float = 1.0

    def __post_init__(self) -> None:
        if self.utilisation >= 1.0:
            raise UnstableError(
                f"{self.name}: {self.rate:.4g} KV transfers/s of {self.work.mean:.4g} s each, "
                f"utilisation rho = {self.utilisation:.3f}; give it more than "
                f"{self.utilisation:.3g} times the bandwidth, or more links"
            )

    @property
    def utilisation(self) -> float:
        """rho: share of time that the link moves something."""
        return self.rate * self.work.mean

    @cached_property
    def wait(self) -> Law:
        """Law of the wait first come first served, seconds."""
        if self.feed is None or self.rate == 0.0:
            return thinned_wait(self.work, self.rate, self.rate, self.arrival_scv)
        return fed_wait(self.work, self.feed, self.rate)

    @cached_property
    def _crowding(self) -> float:
        """What the spacing of transfers leaves of their meeting."""
        if self.feed is None or self.rate == 0.0:
            return 1.0
        return min(self.wait.mean / SingleServerWait(self.rate, self.work).mean, 1.0)

    @property
    def mean_delay(self) -> float:
        """Mean seconds that sharing adds to a transfer."""
        if self.sharing == "fcfs":
            return self.wait.mean
        return self._crowding * self.work.mean * self.utilisation / (1.0 - self.utilisation)

    def delays(self, work: Array) -> tuple[Array, Array]:
        """What sharing adds to transfers of ``work`` seconds (n,): points (n, m), weights (m,).

        In seconds; their mean is exact.
        """
        weights, middle = np.diff(CELLS), 0.5 * (CELLS[1:] + CELLS[:-1])
        if self.sharing == "fcfs":
            values = np.array([[self.wait.quantile(level) for level in middle]])
            mean = np.array([self.wait.mean])
            values = np.repeat(values, len(work), axis=0)
            mean = np.repeat(mean, len(work))
        else:
            mean, variance = self._excess(work)
            values = _gamma_quantiles(mean, variance, middle)
        short = mean - values @ weights
        values[:, -1] += np.maximum(short, 0.0) / weights[-1]  # the tail beyond the last point
        total = np.maximum(values @ weights, 1e-300)
        return values * (mean / total)[:, None], weights

    def _excess(self, work: Array) -> tuple[Array, Array]:
        """(mean s, variance s^2) of T - s under processor sharing; (n,) each."""
        rho = self.utilisation
        u = np.maximum(2.0 * (1.0 - rho) * work * self.work.mean / self.work.second_moment, SMALL)
        near = 2.0 * (u - 1.0 + np.exp(-u)) / u**2
        mean = self._crowding * work * rho / (1.0 - rho)
        return mean, self._crowding * rho * work**2 / (1.0 - rho) ** 2 * near


def _gamma_quantiles(mean: Array, variance: Array, levels: Array) -> Array:
    """Of gamma laws (n,) at ``levels`` (m,); (n, m)."""
    from scipy.special import gammaincinv

    shape = (mean**2 / np.maximum(variance, 1e-300))[:, None]
    found: Array = gammaincinv(shape, levels) * (mean[:, None] / np.maximum(shape, 1e-300))
    return np.where(mean[:, None] > 0.0, found, 0.0)


def fed_wait(work: Atoms, feed: Feed, rate: float) -> LatticeLaw:
    """Law of the wait in seconds for the link behind one prefill replica: the equation solved."""
    w, s, share = merged(work.values, feed.seconds, work.weights)
    if w.max() <= s.min():  # through before the next is prefilled, whoever that is
        return LatticeLaw(np.array([0.0, float(s.min())]), np.array([1.0, 0.0]))
    idle = max(1.0 / rate - float(share @ s), 0.0) / max(feed.idles, 1e-9)
    ends = np.exp(-s / max(idle, 1e-300))
    ends = np.minimum(ends * feed.idles / max(float(share @ ends), 1e-300), 1.0)  # P(I > 0 | s)
    reach = REACH * SingleServerWait(rate, work).mean + 2.0 * float(w.max())
    at = grid(reach / POINTS, POINTS)
    through = w[:, None] <= at + 0.5 * at[1]
    stays, stays_end = _read(at, s - w, share * (1.0 - ends), through)
    goes, goes_end = _read(at, s - w, share * ends, through)
    smear, smear_end = _smear(math.exp(-at[1] / max(idle, 1e-300)))
    constant = stays_end + smear @ goes_end + smear_end * float(share @ ends)
    below = np.linalg.solve(np.eye(POINTS) - stays - smear @ goes, constant)  # P(Z - I <= x)
    read, end = _read(at, s, share, np.ones_like(through))
    waits = np.clip(np.maximum.accumulate(read @ below + end), 0.0, 1.0)
    return LatticeLaw(at, np.diff(waits, prepend=0.0) / waits[-1])


def merged(
    work: Array, seconds: Array, weights: Array, kinds: int = KINDS
) -> tuple[Array, Array, Array]:
    """At most ``kinds`` kinds of like work, with their means: (work, seconds, weights)."""
    if len(work) <= kinds:
        return work, seconds, weights
    order = np.lexsort((seconds, work))
    middle = np.empty_like(weights)
    middle[order] = np.cumsum(weights[order]) - 0.5 * weights[order]
    kind = np.minimum(middle * kinds, kinds - 1).astype(np.intp)
    mass = np.bincount(kind, weights)
    used = mass > 0
    means = [np.bincount(kind, weights * x)[used] / mass[used] for x in (work, seconds)]
    return means[0], means[1], np.asarray(mass[used], float)


def _read(at: Array, shift: Array, share: Array, used: NDArray[np.bool_]) -> tuple[Array, Array]:
    """F -> sum of share F(x + shift) where ``used``: a matrix, and what lies beyond (F = 1)."""
    n = len(at)
    where = np.maximum((at + shift[:, None]) / at[1], 0.0)
    low = np.floor(where).astype(np.intp)
    part, mass = where - low, np.broadcast_to(share[:, None], used.shape) * used
    rows = np.broadcast_to(np.arange(n), used.shape)
    wide = np.zeros(n * (n + 1))
    for column, weight in ((low, mass * (1.0 - part)), (low + 1, mass * part)):
        cell = rows * (n + 1) + np.minimum(column, n)
        wide += np.bincount(cell.ravel(), weight.ravel(), n * (n + 1))
    matrix = wide.reshape(n, n + 1)
    return matrix[:, :n], matrix[:, n]


def _smear(stay: float) -> tuple[Array, Array]:
    """g -> E g(x + I), I exponential, P(I > step) = ``stay``: a matrix, and weights of g(inf)."""
    ahead = np.arange(POINTS) - np.arange(POINTS)[:, None]
    whole = np.where(ahead >= 0, (1.0 - stay) * stay ** np.maximum(ahead, 0), 0.0)
    later = np.where(ahead >= 1, (1.0 - stay) * stay ** np.maximum(ahead - 1, 0), 0.0)
    matrix = 0.5 * (whole + later)
    return matrix, 1.0 - matrix.sum(axis=1)
