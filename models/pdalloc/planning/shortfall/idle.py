r"""Prices of lateness beside idle decode: what no fleet with the same prefill pools is below.

A request that comes to a prefill replica of type i at rate y costs at least L_i(y) USD in lateness
(decode idle, its best type). However n_i replicas of each type share the demand,

.. math:: \min \sum_i n_i y_i L_i(y_i) \;\text{s.t.}\; \sum_i n_i y_i = \lambda \quad\ge\quad
          \nu \lambda + \sum_i n_i \min_y (y L_i(y) - \nu y) \quad\text{for every } \nu

(weak duality). L is tabulated; between two points it is taken as at the lower one, since nobody is
less late at a higher rate.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.covers import Counts
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.attainment import on_path
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.prediction import PrefillState
from pdalloc.slo.joint import BestEffort
from pdalloc.system import ReplicaType

Array = NDArray[np.float64]
ROUNDING = 1e-6
"""Relative error of a predicted late share, allowed on the safe side of bounds."""
POINTS, FULL = 49, 0.98
"""Rates of a table, up to FULL of the load at which a replica is always busy."""
PRICES = 64
"""Values of nu that are tried."""


class IdleDecode:
    """The least price of lateness of prefill pools, USD/hour, under ``efforts``."""

    def __init__(self, problem: AllocationProblem, efforts: tuple[BestEffort, ...]) -> None:
        self.problem, self.capacity = problem, problem.capacity
        self.predictor = problem.capacity.predictor
        system = problem.capacity.system
        self.types = [system.replica_types[o.replica_type] for o in problem.in_role(PREFILL)]
        self.decodes = [self.predictor.decode(r, 0.0) for r in system.types_for(DECODE)]
        classes = system.workload.classes
        names = [c.name for c in classes]
        self.priced = [
            (q, effort.limits, effort.usd_per_hour(classes[q].rate, 1.0))
            for effort in efforts
            for q in [names.index(effort.traffic_class)]
        ]

    @cached_property
    def floor(self) -> float:
        """USD/hour of any fleet: every replica idle."""
        return min(self._usd(self.predictor.prefill(r, 0.0)) for r in self.types)

    def beside(self, counts: Counts) -> float:
        """USD/hour of any fleet with ``counts`` prefill replicas of each option."""
        demand = self.problem.demand
        used = [(i, n) for i, n in enumerate(counts) if n]
        if len(used) == 1:
            ((i, n),) = used
            return self._at(self.types[i], demand / n, n)
        # gaps more regular than Poisson's are spoilt by splitting: less load may mean more wait
        if self.capacity.pooled(PREFILL) or self.capacity.system.workload.arrival_scv < 1.0:
            return self.floor
        bounds = self._nu * demand + sum(n * self._conjugates[i] for i, n in used)
        return max(float(bounds.max()) / demand, self.floor)

    def _at(self, r: ReplicaType, rate: float, replicas: int = 1) -> float:
        """The price if every replica of type ``r`` got ``rate`` requests/s; infinite when full."""
        try:
            return self._usd(self.predictor.prefill(r, rate, replicas))
        except UnstableError:
            return math.inf

    def _usd(self, p: PrefillState) -> float:
        """The price if all went through ``p`` and the best idle decode type."""
        late = (
            usd * min(1.0 - on_path(self.predictor, q, p, d, limits) for d in self.decodes)
            for q, limits, usd in self.priced
        )
        return (1.0 - ROUNDING) * sum(late)

    @cached_property
    def _nu(self) -> Array:
        """Prices of a request/s more, USD/hour for the whole demand; (PRICES,)."""
        most = sum(usd for *_, usd in self.priced)
        return np.concatenate([[0.0], np.geomspace(1e-3, 30.0, PRICES - 1)]) * most

    @cached_property
    def _conjugates(self) -> list[Array]:
        """min over y of y L(y) - nu y, for each prefill option; (PRICES,) each."""
        found = []
        for r in self.types:
            limit = self.capacity.stability_limit(PREFILL, r)
            rates = np.linspace(0.0, FULL, POINTS) * limit
            usd = np.array([self._at(r, float(rate)) for rate in rates])
            ends = np.append(rates[1:], limit)
            slope = usd[:, None] - self._nu[None, :]
            least = np.minimum(rates[:, None] * slope, ends[:, None] * slope)
            found.append(least.min(axis=0))
        return found
