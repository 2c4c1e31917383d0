r"""M/G/1, exactly; under random dispatch c of them.

Splitting a Poisson stream at random gives c independent Poisson streams. Mean by
Pollaczek-Khinchine, :math:`E[W] = \lambda E[S^2] / (2 c (1-\rho))`, law as a geometric sum of
residual services (:mod:`pdalloc.queueing.single_server`), for any service law, point masses
included.

* seconds; Poisson arrivals, one server or random dispatch
* Kleinrock (1975), "Queueing Systems", vol. 1, eqs. 5.62, 5.111

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> MG1(station(0.5, constant(1.0))).mean_wait
0.5
"""

from __future__ import annotations

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import Claim, DelayLaw
from pdalloc.queueing.delayed import LeastResidualWait


class MG1(DelayLaw):
    """Pollaczek-Khinchine for each server by itself."""

    name = "mg1"
    claim = Claim(dispatch=("random",))
    exact = True

    def _mean_wait(self) -> float:
        return self._shape().mean * self.rho

    def _p_wait(self) -> float:
        return self.rho

    def _shape(self) -> Law:
        # the wait of one who waits: a residual service, then an M/G/1 wait
        return LeastResidualWait(self.station.service, 1, self.rho)

    @property
    def nobody_waits(self) -> bool:
        """No load."""
        return self.station.rate == 0.0


LAW = MG1
