r"""Björklund and Elldin: between exact M/D/c and M/M/c, linear in the service SCV.

.. math:: E[W] = s\, W_M + (1 - s)\, W_D .

Good for s <= 1; for larger s the line is far too steep with many servers.

* seconds; Poisson arrivals
* Björklund, Elldin (1964), "A practical method of calculation for certain types of complex
  common control systems", Ericsson Technics 20, 3-75; Tijms (2003), "A First Course in
  Stochastic Models", eq. 9.6.23

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(BjorklundElldin(station(1.0, constant(1.0), servers=2)).mean_wait, 6)
0.176741
"""

from __future__ import annotations

from pdalloc.queueing.delay_law import DelayLaw


class BjorklundElldin(DelayLaw):
    """E[W] = s W_M + (1 - s) W_D."""

    name = "bjorklund_elldin"

    def _mean_wait(self) -> float:
        return self.scv * self.erlang_wait + (1.0 - self.scv) * self.constant_wait


LAW = BjorklundElldin
