r"""How much of each class to serve: fleet, lateness and shed requests at least cost together.

.. math:: \min_{l \le s \le \lambda} F(s) + \sum_q p_q (\lambda_q - s_q),

with F the least cost of a fleet (and of its late requests) for the served rates s. F does not
fall with any rate: a fleet that serves more serves less, too. On a box [a, b] of rates the total
is therefore at least F(a) + p (lambda - b): branch and bound, best box first. Without prices of
lateness the fleet for a is pushed to the most that it serves, s: nothing between a and s is
better than s, so only what lies beyond is left. The bound is as good as the solver's own.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pdalloc.planning.shortfall.lateness import Weighed
from pdalloc.planning.shortfall.served import Offer, Point

TOLERANCE, FAIR, ROUGH = 1e-6, 1e-4, 1e-3
"""Relative gap at which a total is called proven. FAIR is enough after PATIENCE points, ROUGH
where lateness changes with the rate."""
PATIENCE = 60
NEAR = 1e-9
"""Relative accuracy of the rate that a fleet serves at most."""
ABOUT = 2e-6
"""The same of a guess of it, relative to the rate that is offered."""
MOST_SOLVED = 400
"""Served rates at which a fleet is sought before the bound is stated as it is."""


@dataclass(frozen=True)
class Priced:
    """The cheapest fleet at one point; ``holds`` prices it at others.

    ``holds(point)``: USD/hour of fleet and lateness there, None where an SLO breaks. ``guess``:
    about the most that it serves of the only class, requests/s, to be looked at first.
    """

    best: Weighed
    holds: Callable[[Point], float | None]
    guess: Callable[[], float] | None = None


@dataclass(frozen=True)
class Least:
    """``point`` of least total, the fleet for it, total and proven bound in USD/hour.

    ``solved``: points at which a fleet was sought.
    """

    point: Point
    best: Weighed
    usd: float
    bound: float
    solved: int


@dataclass(order=True)
class _Box:
    bound: float
    tie: int
    low: Point = field(compare=False)
    high: Point = field(compare=False)


class LeastTotal:
    """The search over ``offer``; ``price(point)`` is F there.

    ``flat``: what a fleet costs does not depend on how much it serves, lateness has no price.
    """

    def __init__(self, offer: Offer, price: Callable[[Point], Priced], flat: bool) -> None:
        self.offer, self.price, self.flat = offer, price, flat
        self.point, self.usd = offer.least, math.inf
        self.here: Priced | None = None
        self.least = math.inf  # of the bounds of all boxes that are closed
        self.known: dict[Point, Priced] = {}
        self.ties = itertools.count()
        self.unit = [s.usd_per_hour(1.0) for s in offer.scenario.shed]

    def run(self) -> Least:
        """The least total; infinite where even the least that must be served cannot be."""
        queue = [_Box(0.0, next(self.ties), self.offer.least, self.offer.most)]
        while queue and len(self.known) < MOST_SOLVED:
            box = heapq.heappop(queue)
            if self._closed(box.bound):
                continue
            here = self._solved(box.low)
            box.bound = max(box.bound, self._bound(here, box.high))
            if self._closed(box.bound):
                continue
            for low, high in self._left(box, here):
                bound = max(box.bound, self._bound(here, high))
                heapq.heappush(queue, _Box(bound, next(self.ties), low, high))
        here = self.here or self._solved(self.point)
        if self.flat and self.here is not None:  # what the fleet serves for nothing
            self._pushed(self.point, self.offer.most, here, lambda beyond: False)
        bound = min([self.usd, self.least, *(box.bound for box in queue)])
        return Least(self.point, here.best, self.usd, bound, len(self.known))

    def _bound(self, here: Priced, high: Point) -> float:
        """Least total up to ``high`` from where ``here`` was solved."""
        return here.best.bound + self.offer.usd_per_hour(high)

    def _hopeless(self, bound: float) -> bool:
        """Whether no total from ``bound`` on is worth looking for."""
        if math.isinf(self.usd):
            return math.isinf(bound)
        fair = FAIR if len(self.known) > PATIENCE else TOLERANCE
        return bound >= self.usd - (fair if self.flat else ROUGH) * self.usd

    def _closed(self, bound: float) -> bool:
        """Whether a box with ``bound`` is done with; its bound is kept."""
        hopeless = self._hopeless(bound)
        if hopeless:
            self.least = min(self.least, bound)
        return hopeless

    def _solved(self, point: Point) -> Priced:
        if point not in self.known:
            self.known[point] = self.price(point)
            self._try(point, self.known[point].best.usd, self.known[point])
        return self.known[point]

    def _try(self, point: Point, usd: float, here: Priced) -> None:
        """Keep ``point`` if its total is the least; of equal ones the one that serves more."""
        total = usd + self.offer.usd_per_hour(point)
        if total < self.usd or (total == self.usd and sum(point) > sum(self.point)):
            self.point, self.usd, self.here = point, total, here

    def _left(self, box: _Box, here: Priced) -> Iterator[tuple[Point, Point]]:
        """Boxes of what may hold something better than what was seen at the corner ``here``."""
        if not self.flat or math.isinf(here.best.usd):
            if self._narrow(box):
                self.least = min(self.least, box.bound)
            else:
                yield from self._halves(box.low, box.high)
            return
        beyond = self._pushed(
            box.low, box.high, here, lambda beyond: self._hopeless(self._bound(here, beyond))
        )
        self.least = min(self.least, self._bound(here, beyond))
        for q, (start, end) in enumerate(zip(beyond, box.high, strict=True)):
            if start < end:
                low = (*box.low[:q], start, *box.low[q + 1 :])
                yield from self._halves(low, (*beyond[:q], *box.high[q:]))

    def _narrow(self, box: _Box) -> bool:
        """Whether all that ``box`` may shed or not is not worth another look."""
        scale = self.usd if self.usd < math.inf else self.offer.usd_per_hour(self.offer.least)
        width = self.offer.usd_per_hour(box.low) - self.offer.usd_per_hour(box.high)
        return width <= ROUGH * scale

    def _pushed(
        self, low: Point, high: Point, here: Priced, done: Callable[[Point], bool]
    ) -> Point:
        """Served rates from ``low`` up to which nothing beats what the fleet of ``here`` serves.

        Class by class, the dearest first, to the most that the fleet serves of it up to
        ``high``, or until ``done`` with what is below the rates so far.
        """
        served, beyond, full = list(low), list(high), False
        for q in sorted(range(len(served)), key=lambda k: -self.unit[k]):
            inside, outside = served[q], high[q]
            least = max(NEAR * self.offer.most[q], self.offer.smallest[q] if inside == 0.0 else 0.0)
            if full and inside < high[q]:  # a class more rarely fits where another does not
                served[q] = min(inside + least, high[q])
                full = here.holds(tuple(served)) is None
            ahead = self._first_looks(here, inside, high[q])
            served[q] = probe = ahead.pop()
            while inside < high[q] and not done(tuple(beyond)):
                usd = None if full else here.holds(tuple(served))
                if usd is None:
                    outside, ahead = probe, []
                else:
                    inside = probe
                    self._try(tuple(served), usd, here)
                beyond[q] = max(outside, least)
                if outside - inside <= least:
                    break
                served[q] = probe = ahead.pop() if ahead else 0.5 * (inside + outside)
            full = full or inside < high[q]
            served[q] = inside
        return tuple(beyond)

    def _first_looks(self, here: Priced, inside: float, high: float) -> list[float]:
        """Rates to try before any halving, the last one first."""
        if here.guess is None or not self.offer.smallest[0] <= inside < high:
            return [high]
        guess = here.guess()
        near = (guess + ABOUT * high, guess * (1.0 + NEAR), guess * (1.0 - NEAR))
        return [high, *(x for x in near if inside < x < high)]

    def _halves(self, low: Point, high: Point) -> Iterator[tuple[Point, Point]]:
        """The box cut across its side of the greatest price."""
        width = [u * (b - a) for u, a, b in zip(self.unit, low, high, strict=True)]
        q = max(range(len(width)), key=width.__getitem__)
        middle = 0.5 * (low[q] + high[q])
        if not max(low[q], self.offer.smallest[q]) < middle < high[q]:
            yield low, high
            return
        yield low, (*high[:q], middle, *high[q + 1 :])
        yield (*low[:q], middle, *low[q + 1 :]), high
