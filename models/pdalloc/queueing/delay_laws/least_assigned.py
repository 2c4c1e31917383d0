r"""Least assigned work: near one queue, with what it costs to choose among busy servers unseen.

Each request joins the server with least assigned unfinished work, running requests counted
whole. Over one central queue (W_c, P_c: the law that is best there),

.. math:: \frac{E[W]}{W_c} = 1 + k (1-\rho) (r - 1), \qquad
          r = \frac{E[\text{left at the server given least}]}{E[\text{least left}]} ,

r the ratio in light traffic, where one request waits for one service; in heavy traffic all
servers are busy together and the rules agree. P(W > 0) is below the central queue's (servers
idle while others have a queue):

.. math:: -\log \frac{P(W>0)}{P_c} = q\,(1-\rho)\, P_c^{.2} (c-1)^{1.2} (1+s)^{-.33} .

k, q and the exponents are fitted to simulated values; r is theory. Who waits, waits for what is
left at the server given least, then as in one server of c times the speed.

* seconds; c <= 64 was fitted, any arrival SCV (ratios as for Poisson arrivals)
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

MEAN_FIT = 0.83
"""k: fitted on tests/data/queueing/dispatch_grid.csv, Poisson rows."""
WAIT_FIT = 0.077
"""q: likewise."""


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
    def excess(self) -> float:
        """E[W]/W_c - 1."""
        service, c = self.station.service, self.station.servers
        left = service.least_assigned(c).mean / service.least_residual_mean(c)
        return MEAN_FIT * (1.0 - self.rho) * max(left - 1.0, 0.0)

    def _mean_wait(self) -> float:
        central, poisson = self.central, Dispersion(replace(self.central.station.poisson))
        more = self.excess * poisson.mean_wait / poisson.p_wait
        return central.mean_wait + central.p_wait * more

    def _p_wait(self) -> float:
        central, others = self.central.p_wait, self.station.servers - 1
        size = (1.0 - self.rho) * central**0.2 * others**1.2 * (1.0 + self.scv) ** -0.33
        return central * math.exp(-WAIT_FIT * size / max(self.station.arrival_scv, 1.0))

    def _shape(self) -> Law:
        return LeastAssignedWait(self.station.service, self.station.servers, self.rho)


LAW = LeastAssigned
