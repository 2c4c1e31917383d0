r"""M/M/c, exactly.

.. math:: P(W > t) = C\, e^{-c\mu(1-\rho)t}, \qquad E[W] = \frac{C}{c\mu(1-\rho)} .

* seconds; Poisson arrivals, exponential service, one queue
* Erlang (1917); Gross, Harris (1998), "Fundamentals of Queueing Theory", eqs. 2.33-2.36

>>> import numpy as np
>>> from pdalloc.laws import Exponentials
>>> from pdalloc.queueing.station import station
>>> service = Exponentials(np.array([1 / 3]), np.ones(1), np.zeros(1))
>>> law = MMc(station(6.0, service, servers=3))
>>> round(law.mean_sojourn, 7)  # Gross and Harris, example 2.3
0.4814815
"""

from __future__ import annotations

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import Claim, DelayLaw
from pdalloc.queueing.delayed import Exponential


class MMc(DelayLaw):
    """Erlang's C and an exponential wait."""

    name = "mmc"
    claim = Claim(service="exponential")
    exact = True

    def _mean_wait(self) -> float:
        return self.erlang_wait

    def _p_wait(self) -> float:
        return self.erlang_probability

    def _shape(self) -> Law:
        return Exponential(self.erlang_wait / self.erlang_probability)


LAW = MMc
