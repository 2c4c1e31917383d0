r"""Cosmetatos: between a formula for M/D/c and M/M/c, linear in the service SCV.

.. math:: E[W] = s W_M + (1 - s) \frac{W_M}{2}
          \Big[1 + (1-\rho)(c-1) \frac{\sqrt{4+5c} - 2}{16\, c\, \rho}\Big].

* seconds; Poisson arrivals; s <= 1 was meant, larger s extrapolates the line
* Cosmetatos (1976), "Some approximate equilibrium results for the multi-server queue
  (M/G/r)", Operational Research Quarterly 27, 615-620

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(Cosmetatos(station(1.0, constant(1.0), servers=2)).mean_wait, 6)  # exact: .176741
0.175738
"""

from __future__ import annotations

import math

from pdalloc.queueing.delay_law import DelayLaw


class Cosmetatos(DelayLaw):
    """Linear in s, with a formula for W_D."""

    name = "cosmetatos"

    def _mean_wait(self) -> float:
        s, c, rho = self.scv, self.station.servers, self.rho
        more = (1.0 - rho) * (c - 1) * (math.sqrt(4.0 + 5.0 * c) - 2.0) / (16.0 * c * rho)
        # the bracket is W_D / W_M times 2, which light traffic takes to 2 at most
        constant = 0.5 * self.erlang_wait * min(1.0 + more, 2.0)
        return s * self.erlang_wait + (1.0 - s) * constant


LAW = Cosmetatos
