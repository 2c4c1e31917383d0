r"""Boxma, Cohen and Huffels: between M/D/c and M/M/c, steered by the whole service law.

.. math:: E[W] = \frac{(1+s)\, W_D W_M}{2 \alpha W_D + (1-\alpha) W_M}, \qquad
          \alpha = \frac{1}{c-1}\Big[\frac{(1+s) E[S]}{\gamma_1} - (c + 1)\Big],

gamma_1 the mean of the least of c residual lives, which makes it right in light traffic (and
heavy traffic is right by 1 + s). alpha is 0 for constant and 1 for exponential service.

* seconds; Poisson arrivals; c = 1, where alpha is 0/0, is Pollaczek-Khinchine's
* Boxma, Cohen, Huffels (1979), "Approximations of the mean waiting time in an M/G/s queueing
  system", Operations Research 27, 1115-1127, eqs. 17, 19

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(BoxmaCohenHuffels(station(1.0, constant(1.0), servers=2)).mean_wait, 6)
0.176741
"""

from __future__ import annotations

from pdalloc.queueing.delay_law import DelayLaw


class BoxmaCohenHuffels(DelayLaw):
    """Harmonic between W_D and W_M at the weight that light traffic asks for."""

    name = "boxma_cohen_huffels"

    def _mean_wait(self) -> float:
        c, m, d = self.station.servers, self.erlang_wait, self.constant_wait
        if c == 1:
            return 0.5 * (1.0 + self.scv) * m
        service = self.station.service
        least = service.least_residual_mean(c) / service.mean
        alpha = ((1.0 + self.scv) / least - (c + 1.0)) / (c - 1.0)
        return (1.0 + self.scv) * d * m / (2.0 * alpha * d + (1.0 - alpha) * m)


LAW = BoxmaCohenHuffels
