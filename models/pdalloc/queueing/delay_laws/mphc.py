r"""M/H2/c on three moments: exact numerics for a hyperexponential law that looks like S.

The service law is replaced by the mixture of two exponentials with the same three moments and
the chain is solved exactly (:mod:`pdalloc.queueing.phase_type`). Exact where service is such a
mixture; good where it is smooth; poor where short services are rare (token lengths with a base
time, many servers) or the third moment is huge (lognormal, SCV 4).

* seconds; Poisson arrivals, service SCV above 1, up to 200 servers; up to half a second a call
* Neuts (1981), "Matrix-Geometric Solutions in Stochastic Models", chapter 3; Tijms (2003),
  "A First Course in Stochastic Models", appendix B (three-moment fits)

>>> import numpy as np
>>> from pdalloc.laws import Exponentials
>>> from pdalloc.queueing.station import station
>>> p = 0.5 * (1 + (1 / 3) ** 0.5)  # SCV 2, balanced means
>>> service = Exponentials(np.array([0.5 / p, 0.5 / (1 - p)]), np.array([p, 1 - p]), np.zeros(2))
>>> round(MPHc(station(3.6, service, servers=4)).mean_wait, 4)  # exact: 2.9019402
2.9019
"""

from __future__ import annotations

import math
from functools import cached_property

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import Claim, DelayLaw
from pdalloc.queueing.phase_type import MH2cWait, hyperexponential_fit, mh2c_wait


class MPHc(DelayLaw):
    """The exact M/H2/c wait of a three-moment fit."""

    name = "mphc"
    claim = Claim(servers=(2, 200), service_scv=(1.001, math.inf))
    quick = False

    @cached_property
    def _fitted(self) -> MH2cWait:
        service = self.station.service
        second = (1.0 + service.scv) * service.mean**2
        phases = hyperexponential_fit(service.mean, second, service.third_moment)
        return mh2c_wait(self.station.servers, self.station.rate, phases)

    def _mean_wait(self) -> float:
        return self._fitted.mean

    def _p_wait(self) -> float:
        return self._fitted.p_wait

    def _shape(self) -> Law:
        return self._fitted.given_wait


LAW = MPHc
