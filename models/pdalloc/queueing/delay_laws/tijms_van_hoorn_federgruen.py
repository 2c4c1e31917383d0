r"""Tijms, van Hoorn and Federgruen: as one fast server once all c are busy.

.. math:: E[W] = C \Big[\gamma_1 + \frac{\rho\,(1+s)}{2 c (1-\rho)} E[S]\Big], \qquad
          \gamma_1 = \int_0^\infty (1 - F_e(t))^c\, dt ,

F_e the law of the residual service time: who finds all servers busy waits for the first of c
residual services, then for the queue, served as by one server of c times the speed.

* seconds; Poisson arrivals; exact at c = 1 and for exponential service
* Tijms, van Hoorn, Federgruen (1981), "Approximations for the steady-state probabilities in
  the M/G/c queue", Advances in Applied Probability 13, 186-206, eq. 4.3

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(TijmsVanHoornFedergruen(station(1.0, constant(1.0), servers=2)).mean_wait, 6)
0.194444
"""

from __future__ import annotations

from pdalloc.queueing.delay_law import DelayLaw


class TijmsVanHoornFedergruen(DelayLaw):
    """C times the mean of (least residual + M/G/1 wait at c times the speed)."""

    name = "tijms_van_hoorn_federgruen"

    def _mean_wait(self) -> float:
        return self.erlang_probability * self._shape().mean


LAW = TijmsVanHoornFedergruen
