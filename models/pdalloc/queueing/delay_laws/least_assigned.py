r"""Least assigned work: near one queue, with what it costs to choose among busy servers unseen.

Each request joins the server with least assigned unfinished work, running requests counted
whole. Over one central queue (W_c, P_c: the law that is best there),

.. math:: \frac{E[W]}{W_c} = 1 + .79\, (1-\rho)\, (r - 1)^{.88}\, P_c^{.12}\, (c-1)^{.07}, \qquad
          r = \frac{E[\text{left at the server given least}]}{E[\text{least left}]} ,

r the ratio in light traffic, where one request waits for one service; in heavy traffic all
servers are busy together and the rules agree. P(W > 0) is below the central queue's (servers
idle while others have a queue): with L = log(c-1),

.. math:: -\log \frac{P(W>0)}{P_c} = .090\, (1-\rho)\, P_c^{.26}\, (r-1)^{.29}
          (1+s)^{-.14}\, e^{1.24 L - .062 L^2} .

Who waits, waits for what is left at the server given least, then as in one server of c times
the speed. r and the two limits are theory; the numbers are fitted to the Poisson rows of
tests/data/queueing/dispatch_grid.csv (c <= 200). With bursty arrivals what is added per waiting
request is taken to be the same, and log P / P_c is divided by the arrival SCV.

* seconds; any arrival SCV; beyond 200 servers the fit for 200 stands
* this project's; the rule: Harchol-Balter (2013), "Performance Modeling and Design of Computer
  Systems", section 24.2 (least work left, here without seeing how far running requests are)

>>> import numpy as np
>>> from pdalloc.laws import Exponentials
>>> from pdalloc.queueing.station import station
>>> service = Exponentials(np.ones(1), np.ones(1), np.zeros(1))
>>> law = LeastAssigned(station(3.2, service, servers=4, dispatch="least_loaded"))
>>> round(law.mean_wait, 2)  # simulated .836; one queue .746
0.82
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import Claim, DelayLaw
from pdalloc.queueing.delay_laws.dispersion import Dispersion
from pdalloc.queueing.delay_laws.fast_server import FastServer
from pdalloc.queueing.delayed import LeastAssignedWait

MOST_SERVERS = 200
"""Servers up to which the fit was made."""


class LeastAssigned(DelayLaw):
    """One queue's mean times 1 + k (1 - rho)(r - 1)."""

    name = "least_assigned"
    claim = Claim(dispatch=("least_loaded",), arrival_scv=(0.0, math.inf))

    @cached_property
    def central(self) -> DelayLaw:
        """The law of the same servers behind one queue."""
        station = replace(self.station, dispatch="central_queue")
        return (Dispersion if station.arrival_scv == 1.0 else FastServer)(station)

    @cached_property
    def light_excess(self) -> float:
        """r - 1."""
        service, c = self.station.service, self.station.servers
        left = service.least_assigned(c).mean / service.least_residual_mean(c)
        return max(left - 1.0, 0.0)

    @property
    def excess(self) -> float:
        """E[W]/W_c - 1 under Poisson arrivals."""
        others = min(self.station.servers, MOST_SERVERS) - 1
        if others == 0:
            return 0.0
        size = 0.79 * self._poisson.p_wait**0.12 * others**0.07
        return float((1.0 - self.rho) * size * self.light_excess**0.88)

    @cached_property
    def _poisson(self) -> DelayLaw:
        return Dispersion(self.central.station.poisson)

    def _mean_wait(self) -> float:
        central, poisson = self.central, self._poisson
        if poisson.p_wait <= 0.0:
            return central.mean_wait
        more = self.excess * poisson.mean_wait / poisson.p_wait
        return central.mean_wait + central.p_wait * more

    def _p_wait(self) -> float:
        central, others = self.central.p_wait, min(self.station.servers, MOST_SERVERS) - 1
        if others == 0:
            return central
        size = math.log(others)
        growth = math.exp(1.24 * size - 0.062 * size**2) * (1.0 + self.scv) ** -0.14
        lost = 0.09 * (1.0 - self.rho) * central**0.26 * self.light_excess**0.29 * growth
        return central * math.exp(-lost / max(self.station.arrival_scv, 1.0))

    def _shape(self) -> Law:
        return LeastAssignedWait(self.station.service, self.station.servers, self.rho)


LAW = LeastAssigned
