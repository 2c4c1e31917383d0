r"""GI/G/1 by two moments: M/G/1 stretched in time.

.. math:: E[W] = \frac{c_a^2 + s}{1 + s}\, W_{M/G/1} ,

c_a^2 at the server: :math:`1 + (c_a^2 - 1)/c` under random dispatch, :math:`c_a^2/c` under round
robin. Right in heavy traffic; otherwise high, most for regular gaps.

* seconds; one server, random dispatch, round robin
* Kingman (1962), "On queues in heavy traffic", Journal of the Royal Statistical Society B 24,
  383-392; Whitt (1983), "The queueing network analyzer", eq. 24 (splitting)

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> Kingman(station(0.5, constant(1.0), arrival_scv=4.0)).mean_wait
2.0
"""

from __future__ import annotations

import math

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import Claim, DelayLaw
from pdalloc.queueing.delayed import LeastResidualWait


class Kingman(DelayLaw):
    """rho (c_a^2 + s)/(2 (1 - rho)) E[S] for each server by itself."""

    name = "kingman"
    claim = Claim(dispatch=("random", "round_robin"), arrival_scv=(0.0, math.inf))

    def _mean_wait(self) -> float:
        c, scv = self.station.servers, self.station.arrival_scv
        at_server = 1.0 + (scv - 1.0) / c if self.station.dispatch == "random" else scv / c
        spare = 2.0 * (1.0 - self.rho)
        return self.rho * (at_server + self.scv) / spare * self.station.service.mean

    def _p_wait(self) -> float:
        return self.rho

    def _shape(self) -> Law:
        return LeastResidualWait(self.station.service, 1, self.rho)

    @property
    def nobody_waits(self) -> bool:
        """No load."""
        return self.station.rate == 0.0


LAW = Kingman
