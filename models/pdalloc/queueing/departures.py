r"""How regular the requests are that leave a prefill pool, frequency by frequency.

F is the spectrum of a stream over that of a Poisson stream of its rate: at frequency w it says how
irregular counts over about 1/w seconds are. Two things smooth a burst. Services of different
lengths scatter it, |S(w)|^2 for a pool that never waits (random displacement; exact). And busy
servers give out work at their own pace, which in heavy traffic is the law of Whitt and You:

.. math:: F_d = W\,[1 + |\hat S|^2 (F_a - 1)] + (1 - W)\,F_s, \qquad
          W(\omega) = \Re \frac{2}{1 + \sqrt{1 + 2 i \omega \theta}}, \quad
          \theta = \frac{\rho^2 (c_a^2 + c_s^2)}{(1-\rho)^2 \lambda},

F_s the spectrum of a server that is always busy; W is the transform of their weight w*(t)
(:mod:`.reflected`, which also has c*(t) and h(s)). What several queues have in common - bursts
under random dispatch, everything in turns - comes through by their linear response h alone, and
|h|^2 < W: the rest is scattered by each queue by itself.

Simulated (gamma gaps and services, c 1 to 50, rho .45 to .92, c_a^2 1 to 3.2): within about 20 %
where decode hears it, below a tenth of the arrival rate.

**Echo.** Whoever waited W leaves amid others: with Q = lambda W left behind, the queue's balance
gives Cov(W, departures in the next t) = lambda Var W (1 - c*(t/theta)), and in the last t this
times kappa = (c_a^2 - c_s^2)/(c_a^2 + c_s^2): 0 for M/M/1, as it must (Burke 1956), 1 for constant
service. So a long TTFT and a long TPOT come together.

**Lean.** A queue clips peaks and lets gaps pass. Over a time t = theta u, with a = c_a^2/(c_a^2 +
c_s^2) and D = -(1 - a) X - L + noise, X the free path and L the idle time, the skewness of D is

.. math:: -\frac{a (2a - 1)\,g(u)}{[a w^* + (1-a)(1-w^*)]^{3/2}}, \qquad
          g = E(L - EL)^3 / u^{3/2}

(0 for M/M/1, as it must). The skewness of Poisson counts is not in it.

* W. Whitt, W. You (2018), "Heavy-traffic limit of the GI/GI/1 stationary departure process and its
  variance function", Stochastic Systems 8, 143-165
* P. J. Burke (1956), "The output of a queuing system", Operations Research 4, 699-704
* D. R. Cox, V. Isham (1980), "Point processes" (random displacement of points)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pdalloc.laws import Array
from pdalloc.queueing.reflected import Complex, kept_variance, memory, third
from pdalloc.queueing.station import Station

Spectrum = Callable[[Array], Array]
"""F at angular frequencies per second."""

LOW = 1e-3
"""Frequencies below this over the rate are 0: F has no linear term."""


def renewal_spectrum(rate: float, scv: float, every: int = 1) -> Spectrum:
    """F of the stream of each ``every``-th arrival of gamma gaps of that SCV.

    F = Re (1 + phi)/(1 - phi), phi the characteristic function of a gap (Cox and Lewis 1966,
    eq. 4.5.13); ``rate`` in requests/s before thinning.
    """

    def spectrum(frequency: Array) -> Array:
        if scv > 0.0:
            phi = (1.0 + 1j * frequency * scv / rate) ** (-every / scv)
        else:
            phi = np.exp(-1j * frequency * every / rate)
        low = frequency * max(every, scv) < LOW * rate
        phi = np.where(low, 0.0, phi)
        values: Array = np.where(low, scv / every, ((1.0 + phi) / (1.0 - phi)).real)
        return np.maximum(values, 0.0)

    return spectrum


def thinned(spectrum: Spectrum, share: float) -> Spectrum:
    """F of a stream of which each request is kept with probability ``share``."""
    return lambda frequency: 1.0 + share * (spectrum(frequency) - 1.0)


@dataclass(frozen=True)
class Leaving:
    """One prefill pool's part in what leaves the role: ``share`` of all requests."""

    station: Station
    share: float

    def _apart(self) -> tuple[int, float]:
        """Servers that work a queue of their own as one, and their c_a^2."""
        station = self.station
        if station.dispatch == "random":
            return 1, 1.0 + (station.arrival_scv - 1.0) / station.servers
        if station.dispatch == "round_robin":
            return 1, station.arrival_scv / station.servers
        return station.servers, station.arrival_scv

    def kept(self, frequency: Array) -> Array:
        """W: the part of the arrivals' pattern that the queue lets through."""
        values: Array = self.memory(frequency).real
        return values

    def own(self, frequency: Array, came: Array) -> Array:
        """F of what leaves the pool alone; ``came``: F of what it gets."""
        kept, random = self.kept(frequency), self.scattered(frequency)
        linear = np.abs(self.memory(frequency)) ** 2
        queues = self.station.servers / self._apart()[0]
        rest = (1.0 - kept) * self.busy(frequency)
        if self.station.dispatch == "round_robin":
            seen = kept * (1.0 - random) + random * (
                linear * came + (kept - linear) * came / queues
            )
        else:
            bursts = kept / queues + linear * (1.0 - 1.0 / queues)
            seen = kept + random * bursts * (came - 1.0)
        values: Array = seen + rest
        return values

    def memory(self, frequency: Array) -> Complex:
        """h: how the mean rate of departures follows that of arrivals."""
        return memory(frequency * self._relaxation)

    @property
    def _relaxation(self) -> float:
        """theta, seconds."""
        station, (together, arrival_scv) = self.station, self._apart()
        rate, rho = station.rate * together / station.servers, station.utilisation
        both = arrival_scv + station.service.scv
        return max(rho**2 * both / ((1.0 - rho) ** 2 * rate), 1e-300)

    def lean(self, time: Array) -> Array:
        """Skewness of what leaves in ``time`` seconds, over that of the arrivals; (n,)."""
        station, (together, arrival_scv) = self.station, self._apart()
        a = arrival_scv / max(arrival_scv + station.service.scv, 1e-300)
        u = time / self._relaxation
        kept = kept_variance(u)
        least = np.maximum(a * kept + (1.0 - a) * (1.0 - kept), 1e-12) ** 1.5
        queues = station.servers / together
        values: Array = -a * (2.0 * a - 1.0) * third(u) / (least * math.sqrt(queues))
        return values

    def echo(self, frequency: Array) -> Complex:
        """Transform of the density of more departures of the pool, per second of wait.

        Queues of round robin rise and fall together; under random dispatch as far as bursts
        are common to them.
        """
        station, (together, arrival_scv) = self.station, self._apart()
        both = arrival_scv + station.service.scv
        reach = together / station.servers
        if station.dispatch == "round_robin":
            reach = 1.0
        elif station.dispatch == "random":
            reach += (1.0 - reach) * max(arrival_scv - 1.0, 0.0) / max(both, 1e-300)
        square = self.memory(frequency) ** 2
        kappa = (arrival_scv - station.service.scv) / max(both, 1e-300)
        values: Complex = reach * station.rate * (square + kappa * square.conj())
        return values

    def scattered(self, frequency: Array) -> Array:
        """|S|^2 of a gamma law of the service's mean and SCV."""
        mean, scv = self.station.service.mean, self.station.service.scv
        if scv == 0.0:
            return np.ones_like(frequency)
        values: Array = (1.0 + (frequency * mean * scv) ** 2) ** (-1.0 / scv)
        return values

    def busy(self, frequency: Array) -> Array:
        """F_s."""
        service = self.station.service
        return renewal_spectrum(1.0 / service.mean, service.scv)(frequency)


def departures(pools: Sequence[Leaving], arrivals: Spectrum) -> Spectrum:
    """F of all that leaves ``pools``, between which ``arrivals`` are split at random."""

    def spectrum(frequency: Array) -> Array:
        came, found = arrivals(frequency), np.zeros_like(frequency)
        together = np.zeros_like(frequency, dtype=complex)
        for pool in pools:
            passed = pool.memory(frequency) * np.sqrt(pool.scattered(frequency))
            found += pool.share * pool.own(frequency, 1.0 + pool.share * (came - 1.0))
            found -= pool.share**2 * np.abs(passed) ** 2 * (came - 1.0)
            together += pool.share * passed
        whole: Array = found + np.abs(together) ** 2 * (came - 1.0)
        return np.maximum(whole, 0.0)

    return spectrum


@dataclass(frozen=True)
class Stream:
    """Requests on their way to decode.

    ``rate`` in requests/s; ``lean(seconds)``: skewness of their counts, beside that of random
    ones; (n,).
    """

    rate: float
    spectrum: Spectrum
    lean: Callable[[Array], Array]

    def thinned(self, share: float) -> Stream:
        """Each request kept with probability ``share``: what is random then has no lean."""

        def lean(time: Array) -> Array:
            whole = share * self.spectrum(1.0 / time)
            both = 1.0 - share + whole
            mine = np.divide(whole, both, out=np.ones_like(whole), where=both > 0.0)
            values: Array = self.lean(time) * mine**1.5
            return values

        return Stream(share * self.rate, thinned(self.spectrum, share), lean)


def served(pools: Sequence[Leaving], arrivals: Spectrum) -> Stream:
    """All that leaves ``pools``, never more irregular than the ``arrivals`` were."""
    left = departures(pools, arrivals)

    def lean(time: Array) -> Array:
        found = np.zeros_like(time)
        for pool in pools:
            found += pool.share**1.5 * pool.lean(time)
        return found

    rate = sum(pool.station.rate for pool in pools)
    return Stream(rate, lambda frequency: np.minimum(left(frequency), arrivals(frequency)), lean)


def relaxation(load: float, servers: float, mean: float) -> float:
    """Frequency, per second, at which a queue of that ``load`` < 1 forgets; ``mean`` service."""
    return servers * (1.0 - math.sqrt(load)) ** 2 / mean
