r"""GI/G/c: who waits, waits as at one server of c times the speed under the same arrivals.

.. math:: E[W] = P(W>0)\; E[W_1 \mid W_1 > 0]\;
          \frac{E[W \mid W > 0]_{Poisson}}{(1+s) E[S] / (2c(1-\rho))} ,

W_1 the exact wait of GI/G/1 with service S/c, whose conditional mean is exact for GI/M/c; the
fraction is what more than one server changes under Poisson arrivals (the dispersion
law and the harmonic P(W > 0)). P(W > 0) is Hayward's times what it is wrong by at one server and
the same utilisation.

* seconds; any arrival SCV, independent gaps of the station's law
* the conditional law of GI/M/c: Gross, Harris (1998), "Fundamentals of Queueing Theory",
  section 5.3.2

>>> import numpy as np
>>> from pdalloc.laws import Exponentials
>>> from pdalloc.queueing.station import station
>>> service = Exponentials(np.ones(1), np.ones(1), np.zeros(1))
>>> law = FastServer(station(3.2, service, servers=4))
>>> round(law.mean_wait, 2)  # M/M/4: .746
0.75
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

from pdalloc.queueing.delay_law import Claim
from pdalloc.queueing.delay_laws.dispersion import Dispersion
from pdalloc.queueing.delay_laws.hayward import Hayward
from pdalloc.queueing.random_walk import LatticeLaw, gap_law, p_positive, walk_wait
from pdalloc.queueing.scaled import Scaled


class FastServer(Hayward):
    """Hayward's P(W > 0) and the conditional wait of one fast server."""

    name = "fast_server"
    claim = Claim(arrival_scv=(0.0, math.inf))

    @cached_property
    def _walk(self) -> LatticeLaw:
        at = self.station
        gap = gap_law(1.0 / at.rate, at.arrival_scv, at.gaps)
        return walk_wait(Scaled(at.service.law, 1.0 / at.servers), gap)

    def _p_wait(self) -> float:
        one = Hayward(
            replace(self.station, servers=1, rate=self.station.rate / self.station.servers)
        )
        return min(super()._p_wait() * p_positive(self._walk) / one.p_wait, 1.0)

    def _mean_wait(self) -> float:
        alone, poisson = p_positive(self._walk), Dispersion(self.station.poisson)
        if alone <= 0.0 or poisson.p_wait <= 0.0:  # one fast server never keeps anybody
            return super()._mean_wait()
        spare = 2.0 * self.station.servers * (1.0 - self.rho)
        single = (1.0 + self.scv) * self.station.service.mean / spare
        several = poisson.mean_wait / poisson.p_wait / single
        return self.p_wait * self._walk.mean / alone * several


LAW = FastServer
