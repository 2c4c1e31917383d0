r"""GI/G/1 exactly on a lattice: round robin, and random dispatch of bursty arrivals.

Each server is a queue of its own. Under round robin it gets every c-th request: gaps are sums
of c arrival gaps, of SCV :math:`c_a^2 / c` (Erlang-c for Poisson arrivals). Under random
dispatch it gets each with probability 1/c: gaps are geometric sums. Exact for
independent gaps of the station's law.

* seconds; any service law and arrival SCV
* Spitzer (1956), "A combinatorial lemma and its application to probability theory",
  Transactions of the AMS 82, 323-339; Cox (1962), "Renewal Theory", section 8.5 (thinning)

>>> import numpy as np
>>> from pdalloc.laws import Exponentials
>>> from pdalloc.queueing.station import station
>>> service = Exponentials(np.ones(1), np.ones(1), np.zeros(1))
>>> law = SingleServers(station(3.2, service, servers=4, dispatch="round_robin"))
>>> round(law.mean_wait, 3)  # E_4/M/1, exactly 2.267
2.267
"""

from __future__ import annotations

import math
from functools import cached_property

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import Claim, DelayLaw
from pdalloc.queueing.random_walk import LatticeLaw, gap_law, given_wait, p_positive, walk_wait


class SingleServers(DelayLaw):
    """The maximum of a random walk with steps S - gap at one server."""

    name = "single_servers"
    claim = Claim(dispatch=("round_robin", "random"), arrival_scv=(0.0, math.inf))
    exact = True
    on_lattice = True

    @cached_property
    def _walk(self) -> LatticeLaw:
        at, law = self.station, self.station.service.law
        if at.dispatch == "random":
            return walk_wait(
                law, gap_law(1.0 / at.rate, at.arrival_scv, at.gaps), keep=1.0 / at.servers
            )
        if at.gaps == "gamma":  # gamma gaps add up to gamma gaps
            return walk_wait(law, gap_law(at.servers / at.rate, at.arrival_scv / at.servers))
        return walk_wait(law, gap_law(1.0 / at.rate, at.arrival_scv, at.gaps), every=at.servers)

    def _mean_wait(self) -> float:
        return self._walk.mean

    def _p_wait(self) -> float:
        return p_positive(self._walk)

    def _shape(self) -> Law:
        return given_wait(self._walk)

    @property
    def nobody_waits(self) -> bool:
        """No load."""
        return self.station.rate == 0.0


LAW = SingleServers
