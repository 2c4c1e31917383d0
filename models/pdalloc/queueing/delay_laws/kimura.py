r"""Kimura: between M/D/c and M/M/c, linear in 1/E[W].

.. math:: \frac{1 + s}{E[W]} = \frac{1 - s}{W_D} + \frac{2 s}{W_M} .

* seconds; Poisson arrivals; positive for every s since W_D >= W_M / 2
* Kimura (1986), "A two-moment approximation for the mean waiting time in the GI/G/s queue",
  Management Science 32, 751-763, eq. 25

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(Kimura(station(1.0, constant(1.0), servers=2)).mean_wait, 6)
0.176741
"""

from __future__ import annotations

from pdalloc.queueing.delay_law import DelayLaw


class Kimura(DelayLaw):
    """Harmonic between W_D and W_M."""

    name = "kimura"

    def _mean_wait(self) -> float:
        s, m, d = self.scv, self.erlang_wait, self.constant_wait
        return (1.0 + s) * m * d / ((1.0 - s) * m + 2.0 * s * d)


LAW = Kimura
