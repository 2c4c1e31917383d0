r"""Takahashi: by the moment of the service law of the order that makes M/D/c right.

.. math:: E[W] = W_M \Big(\frac{E[S^\alpha]}{E[S]^\alpha\,\Gamma(\alpha+1)}
          \Big)^{1/(\alpha-1)} ,

alpha > 1 such that constant service gives W_D; 2 at c = 1 and in heavy traffic, falling towards 1
in light traffic.

* seconds; Poisson arrivals
* Takahashi (1977), "An approximation formula for the mean waiting time of an M/G/c queue",
  Journal of the Operations Research Society of Japan 20, 150-163, eq. 3.3

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(Takahashi(station(1.0, constant(1.0), servers=2)).mean_wait, 6)
0.176741
"""

from __future__ import annotations

import math

from pdalloc.queueing.delay_law import DelayLaw

NEAREST = 1e-6
"""alpha is looked for from 1 + NEAREST, where the formula has its limit."""
GREATEST = 3.0


class Takahashi(DelayLaw):
    """W_M times a power mean of S over that of an exponential law."""

    name = "takahashi"

    def _mean_wait(self) -> float:
        alpha = order(self.constant_wait / self.erlang_wait)
        service = self.station.service
        moment = service.moment(alpha) / service.mean**alpha
        ratio = moment / math.gamma(alpha + 1.0)
        return self.erlang_wait * math.exp(math.log(ratio) / (alpha - 1.0))


def order(ratio: float) -> float:
    """alpha with Gamma(alpha + 1)^(-1/(alpha - 1)) = W_D / W_M = ``ratio``.

    >>> round(order(0.5), 6)
    2.0
    """
    from scipy.optimize import brentq
    from scipy.special import gammaln

    def gap(alpha: float) -> float:
        return float(gammaln(alpha + 1.0)) / (alpha - 1.0) + math.log(ratio)

    low = 1.0 + NEAREST
    if gap(low) >= 0.0:
        return low
    return float(brentq(gap, low, GREATEST))


LAW = Takahashi
