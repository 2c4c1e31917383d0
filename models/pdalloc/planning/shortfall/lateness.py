"""The fleet whose cost and expected price of late requests are least together.

Fleets come in order of cost: the cheapest covers of each role under bounds on their rates,
paired. A fleet that costs as much as the best total so far, less what even idle replicas
would be late, cannot win, nor can any after it: that is the proof. Between, fleets are passed
over whose prefill pools beside idle decode are too late already: late requests only grow with
the load of either stage. Each fleet is judged by the certificate that every plan has.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pdalloc.allocation.certify import certify, resource_violations
from pdalloc.allocation.covers import Counts, covers
from pdalloc.allocation.problem import COST_DIGITS, Allocation, AllocationProblem, Option
from pdalloc.allocation.serving import serves
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, Fleet, Role
from pdalloc.planning.promises import predicted_lateness
from pdalloc.planning.shortfall.idle import IdleDecode
from pdalloc.prediction import Prediction
from pdalloc.scenario import Scenario
from pdalloc.simulation.attainment import PER_REQUEST
from pdalloc.slo.joint import BestEffort

MOST_FLEETS = 3_000
"""Fleets predicted before the search stops and states its bound."""
MOST_PAIRS = 100_000
"""The same for fleets that a bound passes over."""
STEP = 1e-9
"""Totals closer than this (USD/hour) are ties."""


@dataclass(frozen=True)
class Weighed:
    """A fleet, what it costs with its lateness (USD/hour) and the proven least of that."""

    allocation: Allocation
    usd: float
    bound: float


def driving(scenario: Scenario) -> tuple[BestEffort, ...]:
    """The prices of lateness that laws can tell; nobody predicts who keeps token gaps."""
    return tuple(b for b in scenario.best_effort if b.limits.keys() <= set(PER_REQUEST))


def lateness_usd(scenario: Scenario, prediction: Prediction | None) -> float:
    """Expected price of late requests, USD/hour; infinite without a steady state."""
    if prediction is None:
        return math.inf if driving(scenario) else 0.0
    rows = predicted_lateness(scenario, prediction)
    return sum(row.predicted_usd_per_hour or 0.0 for row in rows)


def weigh_fleet(scenario: Scenario, problem: AllocationProblem, fleet: Fleet) -> float | None:
    """Cost and lateness of ``fleet``, USD/hour; None where it does not keep the SLOs.

    None, too, where decode is so nearly full that its batches are beyond telling.
    """
    if not serves(problem, fleet):
        return None  # known without the certificate's words for it
    check = certify(problem, fleet)
    if not check.certified:
        return None
    try:
        for state in check.prediction.decode.values() if check.prediction else ():
            _ = state.law.mean_batch
    except UnstableError:
        return None
    return round(problem.cost(fleet) + lateness_usd(scenario, check.prediction), COST_DIGITS)


def weigh_lateness(scenario: Scenario, problem: AllocationProblem, first: Allocation) -> Weighed:
    """The least total from ``first``, the cheapest fleet, on; ``first`` as it is if infeasible.

    ``feasible`` with its bound where the search was cut off, or the routing is only a rule.
    """
    if first.cost is None or first.status == "infeasible":
        return Weighed(first, math.inf, math.inf)
    if not driving(scenario):
        usd = weigh_fleet(scenario, problem, first.fleet)
        bound = 0.0 if first.bound is None else first.bound
        return Weighed(first, math.inf if usd is None else usd, bound)
    search = _Search(scenario, problem)
    search.offer(first.fleet)
    bound = search.run()
    fleet, usd = search.fleet, search.usd
    if fleet is None:
        return Weighed(first, math.inf, math.inf)
    if problem.capacity.only_by_rule and first.bound is not None:
        bound = min(bound, first.bound + search.floor)
    settled = bound >= usd - STEP
    found = replace(
        first,
        status="optimal" if settled else "feasible",
        fleet=fleet,
        cost=problem.cost(fleet),
        bound=None,
        details={**first.details, "fleets_weighed": float(search.weighed)},
    )
    return Weighed(found, usd, usd if settled else bound)


@dataclass
class _Search:
    """The best fleet so far, and how many were predicted."""

    scenario: Scenario
    problem: AllocationProblem
    fleet: Fleet | None = None
    usd: float = math.inf
    weighed: int = 0
    _beside: dict[Counts, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.idle = IdleDecode(self.problem, driving(self.scenario))
        self.floor = self.idle.floor

    def offer(self, fleet: Fleet) -> None:
        """Keep ``fleet`` if it costs less than the best; the fewer GPUs where both are equal."""
        self.weighed += 1
        usd = weigh_fleet(self.scenario, self.problem, fleet)
        if usd is not None and usd < self.usd - STEP:
            self.fleet, self.usd = fleet, usd

    def run(self) -> float:
        """Look at all fleets that may win; the bound that is proven, USD/hour."""
        prefills, decodes = (_Covers(self, role) for role in (PREFILL, DECODE))
        plain = replace(self.problem, headroom=0.0, redundancy=0)
        for pairs, (cost, i, j) in enumerate(_in_order(prefills, decodes)):
            if cost + self.floor >= self.usd - STEP:
                break
            if self.weighed >= MOST_FLEETS or pairs >= MOST_PAIRS:
                return min(cost + self.floor, self.usd)
            prefill, decode = prefills.at(i), decodes.at(j)
            if cost + self._least_beside(prefill) >= self.usd - STEP:
                continue
            fleet = Fleet.of({**prefills.counts(prefill), **decodes.counts(decode)})
            if not resource_violations(plain, fleet):
                self.offer(fleet)
        return self.usd

    def _least_beside(self, prefill: Counts) -> float:
        """Least price of lateness of a fleet with these prefill pools, USD/hour."""
        if prefill not in self._beside:
            self._beside[prefill] = self.idle.beside(prefill)
        return self._beside[prefill]


class _Covers:
    """The covers of one role under bounds on its rates, cheapest first, made as they are asked."""

    def __init__(self, search: _Search, role: Role) -> None:
        problem = search.problem.with_headroom()
        self.options: tuple[Option, ...] = problem.in_role(role)
        rates = [problem.rate(o) for o in self.options]
        self.found: list[tuple[float, Counts]] = []
        self.stream = covers(
            self.options,
            rates,
            problem.demand,
            problem.stock,
            lambda: search.usd - search.floor,
        )

    def has(self, i: int) -> bool:
        """Whether there is an ``i``-th cover below the best total."""
        while len(self.found) <= i:
            following = next(self.stream, None)
            if following is None:
                return False
            self.found.append(following)
        return True

    def at(self, i: int) -> Counts:
        """Replicas per option of the ``i``-th."""
        return self.found[i][1]

    def counts(self, vector: Counts) -> dict[tuple[Role, str], int]:
        """``vector`` by role and type."""
        return {(o.role, o.replica_type): n for o, n in zip(self.options, vector, strict=True)}


def _in_order(one: _Covers, other: _Covers) -> Iterator[tuple[float, int, int]]:
    """(USD/hour, i, j) of all pairs of covers in order of cost, each once."""
    if not (one.has(0) and other.has(0)):
        return
    queue = [(one.found[0][0] + other.found[0][0], 0, 0)]
    while queue:
        cost, i, j = heapq.heappop(queue)
        yield cost, i, j
        if other.has(j + 1):
            heapq.heappush(queue, (one.found[i][0] + other.found[j + 1][0], i, j + 1))
        if j == 0 and one.has(i + 1):
            heapq.heappush(queue, (one.found[i + 1][0] + other.found[0][0], i + 1, 0))
