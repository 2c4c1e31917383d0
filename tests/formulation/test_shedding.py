"""Branch and bound over what is served, against integer programs and by hand.

Fleets here are k replicas at ``usd`` each, whose time requests of class q take ``work[q]`` of:
a fleet serves s where s . work <= k.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from pdalloc.allocation.problem import Allocation
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.planning.shortfall import shedding
from pdalloc.planning.shortfall.lateness import Weighed
from pdalloc.planning.shortfall.served import Offer, Point
from pdalloc.planning.shortfall.shedding import FAIR, TOLERANCE, Least, LeastTotal, Priced
from pdalloc.slo.shed import Shed

ROUNDING = 1e-12


@dataclass
class Line:
    """``rate`` requests/s of each class at ``price`` USD, ``most`` of which may be shed."""

    work: list[float]
    rate: list[float]
    price: list[float]
    most: list[float]
    usd: float = 16.0
    stock: int = 10**6
    late: Callable[[int, Point], float] = field(default=lambda k, point: 0.0)

    def offer(self) -> Offer:
        names = [f"c{q}" for q in range(len(self.work))]
        shed = tuple(Shed(n, p, m) for n, p, m in zip(names, self.price, self.most, strict=True))
        classes = tuple(
            SimpleNamespace(name=n, rate=r) for n, r in zip(names, self.rate, strict=True)
        )
        workload = SimpleNamespace(classes=classes)
        scenario = SimpleNamespace(shed=shed, system=SimpleNamespace(workload=workload))
        return Offer(cast(Any, scenario))

    def load(self, point: Point) -> float:
        return float(np.dot(self.work, point))

    def price_at(self, point: Point) -> Priced:
        """The fleet of least cost and lateness at ``point``; more replicas may be late less."""
        least = math.ceil(self.load(point) * (1.0 - ROUNDING) - ROUNDING)
        if least > self.stock:
            nothing = Allocation("infeasible", "exact", Fleet(()), None, None, "too few")
            return Priced(Weighed(nothing, math.inf, math.inf), lambda other: None)
        most = least if self.late(least, point) == 0.0 else min(least + 30, self.stock)
        usd, k = min((self.usd * k + self.late(k, point), k) for k in range(least, most + 1))
        fleet = Fleet.of({(PREFILL, "r"): k, (DECODE, "r"): k})

        def holds(other: Point) -> float | None:
            fits = self.load(other) <= k * (1.0 + ROUNDING)
            return self.usd * k + self.late(k, other) if fits else None

        return Priced(Weighed(Allocation("optimal", "exact", fleet, usd, usd), usd, usd), holds)

    def solve(self) -> Least:
        flat = self.late(1, tuple(self.rate)) == 0.0
        return LeastTotal(self.offer(), self.price_at, flat).run()

    def program(self) -> float:
        """min usd k + 3600 p . z, k integer, z shed: work . (rate - z) <= k <= stock."""
        n = len(self.work)
        rows = LinearConstraint(
            np.array([[1.0, *self.work]]), [self.load(tuple(self.rate))], [np.inf]
        )
        top = np.array([self.stock, *np.multiply(self.most, self.rate)])
        found = milp(
            np.array([self.usd, *(3600.0 * p for p in self.price)]),
            constraints=rows,
            integrality=np.array([1, *([0] * n)]),
            bounds=Bounds(np.zeros(n + 1), top),
            options={"mip_rel_gap": 0.0},
        )
        return float(found.fun) if found.success else math.inf


def drawn(seed: int, classes: int) -> Line:
    """Prices around what serving costs, so that either may pay."""
    rng = random.Random(seed)
    work = [rng.uniform(0.02, 0.3) for _ in range(classes)]
    return Line(
        work,
        [rng.uniform(2.0, 40.0) for _ in range(classes)],
        [16.0 * w / 3600.0 * rng.uniform(0.3, 3.0) for w in work],
        [rng.choice([1.0, 0.5, 0.2, rng.random()]) for _ in range(classes)],
        stock=rng.choice([10**6, 10**6, rng.randint(1, 12)]),
    )


@pytest.mark.parametrize("seed", range(40))
def test_one_class_is_as_cheap_as_the_integer_program(seed: int) -> None:
    line = drawn(seed, 1)
    expected, found = line.program(), line.solve()
    if math.isinf(expected):
        assert math.isinf(found.usd) and math.isinf(found.bound)
        return
    assert found.usd == pytest.approx(expected, rel=1e-7, abs=1e-6)
    assert found.bound <= found.usd
    assert found.usd - found.bound <= TOLERANCE * found.usd + 1e-9


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("classes", [2, 3])
def test_several_classes_are_as_cheap_as_the_integer_program(seed: int, classes: int) -> None:
    line = drawn(100 + seed, classes)
    expected, found = line.program(), line.solve()
    if math.isinf(expected):
        assert math.isinf(found.usd)
        return
    slack = 1e-7 * expected  # of HiGHS
    assert found.bound <= expected + slack
    assert found.usd >= expected - slack
    if found.solved < shedding.MOST_SOLVED:
        assert found.usd <= expected * (1.0 + FAIR) + slack
        assert found.usd - found.bound <= FAIR * found.usd + 1e-9


@pytest.mark.parametrize("seed", range(25))
def test_the_point_is_what_the_total_is_about(seed: int) -> None:
    """What is served can be, no more is shed than may be, and the sums are right."""
    line = drawn(200 + seed, 1 + seed % 3)
    found, offer = line.solve(), line.offer()
    if math.isinf(found.usd):
        return
    for kept, least, most in zip(found.point, offer.least, offer.most, strict=True):
        assert least * (1.0 - ROUNDING) <= kept <= most
    replicas = found.best.allocation.fleet.count(PREFILL, "r")
    assert line.load(found.point) <= replicas * (1.0 + 1e-9)
    assert replicas <= line.stock
    shed = sum(
        3600.0 * p * (rate - kept)
        for p, rate, kept in zip(line.price, line.rate, found.point, strict=True)
    )
    assert found.usd == pytest.approx(16.0 * replicas + shed)


def test_equal_price_per_work_is_the_hard_case() -> None:
    """Any split of what is shed costs the same, so that a box closes only when it is small."""
    line = Line([0.1, 0.3], [20.0, 15.0], [1e-3, 3e-3], [1.0, 1.0])
    found = line.solve()
    # 6.5 replicas' work; the half costs 5 x 3600 x 1e-3 = 18 USD/h to shed, a replica 16
    assert found.usd == pytest.approx(7 * 16.0)
    assert found.bound == pytest.approx(7 * 16.0, rel=FAIR)


@pytest.mark.parametrize("most", [1.0, 0.5, 0.25])
def test_for_nothing_as_much_is_shed_as_saves_a_replica(most: float) -> None:
    """Price 0: the fleet for the least that must be served, which then serves what it can."""
    line = Line([0.1], [47.0], [0.0], [most])
    found = line.solve()
    least = math.ceil(4.7 * (1.0 - most))
    assert found.usd == 16.0 * least
    assert found.point[0] == pytest.approx(min(10.0 * least, 47.0), rel=1e-6)


@pytest.mark.parametrize("most", [1.0, 0.3, 0.0])
def test_dear_requests_are_all_served(most: float) -> None:
    found = Line([0.1], [47.0], [1.0], [most]).solve()
    assert found.point == (47.0,) and found.usd == 16.0 * 5


def test_a_replica_is_bought_exactly_when_it_saves_more_than_it_costs() -> None:
    """The fifth replica serves the last 7 of 47 req/s; each earlier one 10."""
    last, other = 16.0 / (3600.0 * 7.0), 16.0 / (3600.0 * 10.0)
    for price, served in (
        (0.999 * other, 0.0), (1.001 * other, 40.0), (0.999 * last, 40.0), (1.001 * last, 47.0)
    ):  # fmt: skip
        found = Line([0.1], [47.0], [price], [1.0]).solve()
        assert found.point[0] == pytest.approx(served, abs=1e-6)


def test_a_small_stock_serves_what_it_can() -> None:
    line = Line([0.1], [47.0], [1.0], [1.0], stock=2)
    found = line.solve()
    assert found.point[0] == pytest.approx(20.0)
    assert found.usd == pytest.approx(32.0 + 27.0 * 3600.0)
    assert math.isinf(Line([0.1], [47.0], [1.0], [0.5], stock=2).solve().usd)
    enough = Line([0.1], [47.0], [1.0], [0.6], stock=2).solve()
    assert enough.point[0] == pytest.approx(20.0)


def test_dearer_requests_are_shed_less() -> None:
    """Least cost over p is concave in p with the shed rate as its slope (envelope theorem)."""
    prices = np.linspace(0.0, 1e-3, 13)
    found = [Line([0.1], [47.0], [float(p)], [0.8]).solve() for p in prices]
    shed = [47.0 - f.point[0] for f in found]
    assert all(a >= b - 1e-6 for a, b in itertools.pairwise(shed))
    totals = np.array([f.usd for f in found])
    assert np.all(np.diff(totals) >= -1e-6) and np.all(np.diff(totals, 2) <= 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_lateness_beside_it_is_bounded_and_near_the_best_of_a_grid(seed: int) -> None:
    """A price that grows with the load of the fleet, as lateness does."""
    rng = random.Random(seed)
    late = rng.uniform(5.0, 60.0)

    def cost(k: int, point: Point) -> float:
        return late * point[0] * math.exp(-3.0 * max(k - 0.1 * point[0], 0.0)) / 10.0

    price = rng.uniform(3e-4, 1e-3)
    line = Line([0.1], [37.0], [price], [0.9], late=cost)
    found = line.solve()
    grid = np.linspace(3.7, 37.0, 400)
    totals = [line.price_at((float(s),)).best.usd + 3600.0 * price * (37.0 - s) for s in grid]
    best = min(totals)
    assert found.bound <= best + 1e-9
    assert found.usd <= best * (1.0 + 2e-3)
    assert found.usd - found.bound <= shedding.ROUGH * found.usd + 1e-9


def test_a_search_that_is_cut_off_states_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    line = drawn(103, 3)
    expected = line.program()
    monkeypatch.setattr(shedding, "MOST_SOLVED", 3)
    found = line.solve()
    assert found.solved == 3
    assert found.bound <= expected <= found.usd
    assert found.bound < found.usd


def test_a_solver_without_a_proof_widens_the_bound() -> None:
    """Its bound, 4 USD/hour below each cost, is the total's bound, too."""
    line = Line([0.1], [47.0], [1.0], [1.0])

    def loosely(point: Point) -> Priced:
        found = line.price_at(point)
        return Priced(
            Weighed(found.best.allocation, found.best.usd, found.best.usd - 4.0), found.holds
        )

    found = LeastTotal(line.offer(), loosely, flat=True).run()
    assert found.usd == 80.0 and found.bound <= 76.0


def test_where_no_fleet_can_be_told_boxes_narrow_to_a_point() -> None:
    """Replicas that count as full just below 10 req/s: a fleet that exists and is not taken."""
    line = Line([0.1], [47.0], [1.0], [1.0], stock=4)

    def nearly(point: Point) -> Priced:
        found = line.price_at(point)
        full = line.load(point) > found.best.allocation.fleet.count(PREFILL, "r") - 1e-4
        usd = math.inf if full and point[0] > 0.0 else found.best.usd

        def holds(other: Point) -> float | None:
            k = found.best.allocation.fleet.count(PREFILL, "r")
            return found.holds(other) if line.load(other) <= k - 1e-4 else None

        return Priced(Weighed(found.best.allocation, usd, found.best.bound), holds)

    found = LeastTotal(line.offer(), nearly, flat=True).run()
    assert found.point[0] == pytest.approx(40.0 - 1e-3, abs=1e-5)
    assert found.usd >= 64.0 + 7.0 * 3600.0 - 1e-6
    assert found.usd - found.bound <= 2.0 * shedding.ROUGH * found.usd
    assert found.solved < 100


def test_the_offer_is_in_requests_and_dollars() -> None:
    offer = Line([0.1, 0.2], [40.0, 5.0], [1e-3, 2e-3], [0.25, 1.0]).offer()
    assert offer.most == (40.0, 5.0) and offer.least == (30.0, 0.0)
    assert offer.smallest == pytest.approx((4e-6, 5e-7))
    assert offer.usd_per_hour(offer.most) == 0.0
    # 10 req/s of the first and all 5 of the second
    assert offer.usd_per_hour(offer.least) == pytest.approx(3600.0 * (10 * 1e-3 + 5 * 2e-3))
