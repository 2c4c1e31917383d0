r"""Whitt: a two-moment formula for GI/G/c.

.. math:: E[W] = \varphi(\rho, c_a^2, s, c)\, \frac{c_a^2 + s}{2}\, W_M ,

with gamma = min(.24, (1-rho)(c-1)(sqrt(4+5c)-2)/(16 c rho)) (Cosmetatos), phi_1 = 1 + gamma,
phi_3 = (1 - 4 gamma) exp(-2(1-rho)/(3 rho)), phi_4 = min(1, (phi_1+phi_3)/2), psi(v) = 1 for
v >= 1, else phi_4^(2(1-v)), v = (c_a^2 + s)/2 and

    phi = 4(c_a^2-s)/(4 c_a^2-3 s) phi_1 + s/(4 c_a^2-3 s) psi(v)              c_a^2 >= s
    phi = (s-c_a^2)/(2(c_a^2+s)) phi_3 + (s+3 c_a^2)/(2(c_a^2+s)) psi(v)       otherwise.

Built on Erlang's C, it collapses for bursty arrivals and many servers.

* seconds; any arrival SCV
* Whitt (1993), "Approximations for the GI/G/m queue", Production and Operations Management 2,
  114-161, eqs. 2.14-2.25

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(Whitt1993(station(1.0, constant(1.0), servers=2)).mean_wait, 6)  # exact: .176741
0.175738
"""

from __future__ import annotations

import math

from pdalloc.queueing.delay_law import Claim, DelayLaw


class Whitt1993(DelayLaw):
    """W_M times (c_a^2 + s)/2 times phi."""

    name = "whitt_1993"
    claim = Claim(arrival_scv=(0.0, math.inf))

    def _mean_wait(self) -> float:
        both = self.station.arrival_scv + self.scv
        return self._phi() * 0.5 * both * self.erlang_wait

    def _phi(self) -> float:
        a, s, c, rho = self.station.arrival_scv, self.scv, self.station.servers, self.rho
        gamma = (1.0 - rho) * (c - 1) * (math.sqrt(4.0 + 5.0 * c) - 2.0) / (16.0 * c * rho)
        gamma = min(0.24, gamma)
        phi_1 = 1.0 + gamma
        phi_3 = (1.0 - 4.0 * gamma) * math.exp(-2.0 * (1.0 - rho) / (3.0 * rho))
        phi_4 = min(1.0, 0.5 * (phi_1 + phi_3))
        v = 0.5 * (a + s)
        psi = 1.0 if v >= 1.0 else phi_4 ** (2.0 * (1.0 - v))
        if a >= s:
            weight = 4.0 * (a - s) / (4.0 * a - 3.0 * s) if a > 0.0 else 1.0
            return weight * phi_1 + (1.0 - weight) * psi
        weight = (s - a) / (2.0 * (a + s))
        return weight * phi_3 + (1.0 - weight) * psi


LAW = Whitt1993
