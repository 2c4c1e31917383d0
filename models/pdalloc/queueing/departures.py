r"""How regular the requests are that leave a prefill pool, frequency by frequency.

F is the spectrum of a stream over that of a Poisson stream of its rate: at frequency w it says how
irregular counts over about 1/w seconds are. Two things smooth a burst. Services of different
lengths scatter it, |S(w)|^2 for a pool that never waits (random displacement; exact). And busy
servers give out work at their own pace, which in heavy traffic is the law of Whitt and You:

.. math:: F_d = W\,[1 + |\hat S|^2 (F_a - 1)] + (1 - W)\,F_s, \qquad
          W(\omega) = \Re \frac{2}{1 + \sqrt{1 + 2 i \omega \theta}}, \quad
          \theta = \frac{\rho^2 (c_a^2 + c_s^2)}{(1-\rho)^2 \lambda},

F_s the spectrum of a server that is always busy. W is the transform of their weight w*(t), short
in this form: w* holds the correlation function c*(t) of reflected Brownian motion, and -dc*/dt has
the transform h^2 with h(s) = 2/(1 + (1 + 2s)^(1/2)).
Simulated (gamma gaps and services, c 1 to 50, rho .45 to .92, c_a^2 1 to 3.2): within about 20 %
where decode hears it, below a tenth of the arrival rate.

**Echo.** Whoever waited W leaves amid others: with Q = lambda W left behind, the queue's balance
gives Cov(W, departures in the next t) = lambda Var W (1 - c*(t/theta)), and in the last t this
times kappa = (c_a^2 - c_s^2)/(c_a^2 + c_s^2): 0 for M/M/1, as it must (Burke 1956), 1 for constant
service. So a long TTFT and a long TPOT come together.

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
from numpy.typing import NDArray

from pdalloc.laws import Array
from pdalloc.queueing.station import Station

Complex = NDArray[np.complex128]
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
        return values

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
        values: Array = self._memory(frequency).real
        return values

    def _memory(self, frequency: Array) -> Complex:
        """h at s = i w theta."""
        station, (together, arrival_scv) = self.station, self._apart()
        rate, rho = station.rate * together / station.servers, station.utilisation
        theta = rho**2 * (arrival_scv + station.service.scv) / ((1.0 - rho) ** 2 * rate)
        values: Complex = 2.0 / (1.0 + np.sqrt(1.0 + 2j * frequency * theta))
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
            reach += (1.0 - reach) * max(arrival_scv - 1.0, 0.0) / both
        square = self._memory(frequency) ** 2
        kappa = (arrival_scv - station.service.scv) / both
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
    """F of all that leaves ``pools``, between which ``arrivals`` are split at random.

    What the pools get has a Poisson part each and the bursts of the whole stream in common.
    """

    def spectrum(frequency: Array) -> Array:
        own, common = np.zeros_like(frequency), np.zeros_like(frequency)
        for pool in pools:
            kept = pool.kept(frequency)
            own += pool.share * (kept + (1.0 - kept) * pool.busy(frequency))
            common += pool.share * np.sqrt(kept * pool.scattered(frequency))
        return np.maximum(own + common**2 * (arrivals(frequency) - 1.0), 0.0)

    return spectrum


def relaxation(load: float, servers: float, mean: float) -> float:
    """Frequency, per second, at which a queue of that ``load`` < 1 forgets; ``mean`` service."""
    return servers * (1.0 - math.sqrt(load)) ** 2 / mean
