r"""Lee and Longton; with bursty arrivals, Allen and Cunneen.

.. math:: E[W] = \frac{c_a^2 + s}{2}\, W_M .

The M/M/c wait scaled by what it is scaled by at c = 1 (Kingman 1962: in heavy traffic too).
Exact for exponential service and, with Poisson arrivals, at c = 1. It knows nothing of how
constant service helps many servers: up to 83 % high.

* seconds; any c, s and arrival SCV are claimed
* Lee, Longton (1959), "Queueing processes associated with airline passenger check-in",
  Operational Research Quarterly 10, 56-71; Allen (1990), "Probability, Statistics, and
  Queueing Theory", eq. 5.2.105

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(LeeLongton(station(1.0, constant(1.0), servers=2)).mean_wait, 6)  # exact: .176741
0.166667
"""

from __future__ import annotations

import math

from pdalloc.queueing.delay_law import Claim, DelayLaw


class LeeLongton(DelayLaw):
    """E[W] = (c_a^2 + s)/2 W_M."""

    name = "lee_longton"
    claim = Claim(arrival_scv=(0.0, math.inf))

    def _mean_wait(self) -> float:
        return 0.5 * (self.station.arrival_scv + self.scv) * self.erlang_wait


LAW = LeeLongton
