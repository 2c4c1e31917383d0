"""The questions that a scenario becomes when some of its requests are not served."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdalloc.scenario import Scenario
from pdalloc.workload.traffic import LEAST_RATE, Workload

Point = tuple[float, ...]
"""Requests/s served of each class that may be shed, in the order of ``Scenario.shed``."""
LEAST_SHARE = 1e-7
"""Less of a class than this share is taken for none of it."""


def served(scenario: Scenario, rates: Point) -> Scenario | None:
    """``scenario`` with only ``rates`` requests/s of what may be shed; None: nothing is left.

    A class keeps its kind of arrivals, SCV included, at its new rate. One of which nothing is
    served goes, with its SLOs.
    """
    rate_of = {s.traffic_class: rate for s, rate in zip(scenario.shed, rates, strict=True)}
    classes = tuple(
        c if rate_of.get(c.name, c.rate) == c.rate else c.scaled(rate_of[c.name] / c.rate)
        for c in scenario.system.workload.classes
        if rate_of.get(c.name, c.rate) > 0.0
    )
    if not classes:
        return None
    names = {c.name for c in classes}
    return replace(
        scenario,
        system=scenario.system.with_workload(Workload(classes)),
        slos=tuple(s for s in scenario.slos if s.traffic_class in names),
        best_effort=tuple(b for b in scenario.best_effort if b.traffic_class in names),
        shed=(),
    )


@dataclass(frozen=True)
class Offer:
    """What a scenario may shed, and what that costs."""

    scenario: Scenario

    @property
    def most(self) -> Point:
        """Everything that is offered, requests/s by class."""
        rates = {c.name: c.rate for c in self.scenario.system.workload.classes}
        return tuple(rates[s.traffic_class] for s in self.scenario.shed)

    @property
    def least(self) -> Point:
        """The least that must be served."""
        pairs = zip(self.most, self.scenario.shed, strict=True)
        return tuple(rate * (1.0 - s.most) if s.most < 1.0 else 0.0 for rate, s in pairs)

    @property
    def smallest(self) -> Point:
        """The least of each class that is more than nothing of it."""
        return tuple(max(LEAST_SHARE * rate, 2.0 * LEAST_RATE) for rate in self.most)

    def usd_per_hour(self, point: Point) -> float:
        """Price of what is not served at ``point``."""
        triples = zip(self.scenario.shed, self.most, point, strict=True)
        return sum(s.usd_per_hour(max(rate - kept, 0.0)) for s, rate, kept in triples)
