r"""Hayward's peakedness: bursty arrivals at many servers.

.. math:: z = 1 + (c_a^2 - 1) \int_0^\infty P(S>t)^2 dt / E[S], \qquad
          P(W>0) \approx C(c/z,\, a/z),

(variance over mean of the number busy in an infinite pool; real numbers of servers), and

.. math:: E[W] = P(W>0)\, \frac{(c_a^2 + s) E[S]}{2 c (1-\rho)}\; r\;
          \exp\Big(-\frac{(1-\rho)(c_a^2-1)^+}{c_a^2 + 4 s}\Big),

r what the dispersion law says under Poisson arrivals over Lee and Longton's.

* seconds; any arrival SCV; c_a^2 = 1 gives the Poisson formula back
* Fredericks (1980), "Congestion in blocking systems - a simple approximation technique",
  Bell System Technical Journal 59, 805-827; Whitt (1992), "Understanding the efficiency of
  multi-server service systems", Management Science 38, 708-723; the exponent from Kraemer,
  Langenbach-Belz (1976)

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(Hayward(station(1.0, constant(1.0), servers=2)).mean_wait, 4)
0.1767
"""

from __future__ import annotations

import math
from functools import cached_property

from pdalloc.queueing.delay_law import NEVER, Claim, DelayLaw
from pdalloc.queueing.delay_laws.dispersion import Dispersion
from pdalloc.queueing.erlang import erlang_c


class Hayward(DelayLaw):
    """Erlang's C at c/z servers, then the two-moment scaling."""

    name = "hayward"
    claim = Claim(arrival_scv=(0.0, math.inf))

    def _mean_wait(self) -> float:
        a, s, rho = self.station.arrival_scv, self.scv, self.rho
        poisson = Dispersion(self.station.poisson)
        ratio = 1.0
        if not poisson.nobody_waits:
            ratio = poisson.mean_wait / (0.5 * (1.0 + s) * poisson.erlang_wait)
        damped = math.exp(-(1.0 - rho) * max(a - 1.0, 0.0) / (a + 4.0 * s)) if a > 1.0 else 1.0
        spare = 2.0 * self.station.servers * (1.0 - rho)
        scale = (a + s) * self.station.service.mean / spare
        return self.peaked_probability * scale * ratio * damped

    def _p_wait(self) -> float:
        ratio = 1.0
        if self.erlang_probability >= NEVER:
            ratio = super()._p_wait() / self.erlang_probability
        return min(self.peaked_probability * ratio, 1.0)

    @cached_property
    def peaked_probability(self) -> float:
        """C(c/z, a/z)."""
        z = 1.0 + (self.station.arrival_scv - 1.0) * self.station.service.overlap
        z = max(z, LEAST_PEAKEDNESS)
        return erlang_c(self.station.servers / z, self.station.load / z)

    @property
    def nobody_waits(self) -> bool:
        """As for Poisson arrivals, at c/z servers."""
        return self.station.rate == 0.0 or self.peaked_probability < 1e-200


LEAST_PEAKEDNESS = 1e-3
"""Regular arrivals of constant work have peakedness 0: the number busy never varies."""
LAW = Hayward
