r"""M/D/c, exactly: mean and P(W > 0) in closed form, the law on a lattice.

Constant service keeps the order of arrivals, so the wait is that of one server that gets every
c-th request: gaps are Erlang-c (:mod:`pdalloc.queueing.deterministic`, ``random_walk``).

* seconds; Poisson arrivals, constant service, one queue or round robin (the same thing)
* Erlang (1917); Franx (2001), "A simple solution for the M/D/c waiting time distribution",
  Operations Research Letters 29, 221-229

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> law = MDc(station(1.0, constant(1.0), servers=2))
>>> round(law.mean_wait, 6), round(law.p_wait, 6), round(law.wait.quantile(0.99), 3)
(0.176741, 0.323259, 1.564)
"""

from __future__ import annotations

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import Claim, DelayLaw
from pdalloc.queueing.random_walk import gap_law, given_wait, walk_wait


class MDc(DelayLaw):
    """The maximum of a random walk with steps D - Erlang_c."""

    name = "mdc"
    claim = Claim(dispatch=("central_queue", "round_robin"), service="constant")
    exact = True

    def _mean_wait(self) -> float:
        return self.constant_wait

    def _p_wait(self) -> float:
        return self.constant_probability

    def _shape(self) -> Law:
        c, rate = self.station.servers, self.station.rate
        return given_wait(walk_wait(self.station.service.law, gap_law(c / rate, 1.0 / c)))


LAW = MDc
