"""Merit order against a linear program and enumeration; what rounding costs."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from pdalloc.closed_forms import Merit, merit_order, rounding_bound
from pdalloc.errors import InfeasibleError, InputError


def random_types(rng: Random, several: int) -> list[Merit]:
    limits = [float(rng.randint(1, 6)), math.inf]
    return [
        Merit(rng.uniform(1.0, 9.0), rng.uniform(0.5, 4.0), rng.choice(limits))
        for _ in range(several)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_merit_order_is_the_linear_programs_optimum_and_dual(seed: int) -> None:
    rng = Random(seed)
    types = [*random_types(rng, rng.randint(1, 6)), Merit(9.5, 0.5)]
    rate = rng.uniform(1.0, 20.0)
    found = merit_order(rate, types)
    lp = linprog(
        [t.price for t in types],
        A_ub=[[-t.capacity for t in types]],
        b_ub=[-rate],
        bounds=[(0, None if math.isinf(t.limit) else t.limit) for t in types],
    )
    assert found.cost == pytest.approx(lp.fun, rel=1e-9)
    assert found.price == pytest.approx(-lp.ineqlin.marginals[0], rel=1e-9)
    fractions = [n for n in found.counts if abs(n - round(n)) > 1e-9]
    assert len(fractions) <= 1


@pytest.mark.parametrize("seed", range(25))
def test_the_best_whole_fleet_lies_within_the_rounding_bound(seed: int) -> None:
    rng = Random(f"whole {seed}")
    types = [Merit(t.price, t.capacity, 5.0) for t in random_types(rng, 3)]
    rate = rng.uniform(0.1, 0.9) * sum(5 * t.capacity for t in types)
    relaxed = merit_order(rate, types)
    best = min(
        sum(n * t.price for n, t in zip(counts, types, strict=True))
        for counts in itertools.product(range(6), repeat=3)
        if sum(n * t.capacity for n, t in zip(counts, types, strict=True)) >= rate
    )
    bound = rounding_bound(relaxed.counts, [t.price for t in types])
    assert relaxed.cost <= best * (1 + 1e-12)
    assert best <= (relaxed.cost + bound) * (1 + 1e-12)
    assert bound < max(t.price for t in types)


def test_the_bound_is_tight_in_the_limit() -> None:
    """A demand just above a whole number of the only type costs almost one replica more."""
    lost = [
        rounding_bound(merit_order(3.0 + e, [Merit(7.0, 1.0)]).counts, [7.0]) for e in (0.1, 1e-6)
    ]
    assert lost == pytest.approx([6.3, 7.0 * (1 - 1e-6)], rel=1e-9)


def test_in_proportion_the_loss_falls_as_one_over_demand() -> None:
    losses = []
    for rate in np.geomspace(10.3, 10300.7, 4):
        found = merit_order(rate, [Merit(7.0, 1.0)])
        losses.append(rounding_bound(found.counts, [7.0]) / found.cost * rate)
    assert max(losses) <= 1.0  # c/(lambda k) with k = c


def test_no_demand_needs_nothing_and_too_much_is_said() -> None:
    assert merit_order(0.0, [Merit(1.0, 1.0)]).counts == (0.0,)
    with pytest.raises(InfeasibleError, match=r"admit 2 of 5 requests/s: raise a limit"):
        merit_order(5.0, [Merit(1.0, 1.0, 2.0)])


def test_greedy_by_price_per_request_not_by_price() -> None:
    """Need 100; A costs 10 and carries 200, B costs 6 and carries 100: whole fleets take B."""
    types = [Merit(10.0, 200.0), Merit(6.0, 100.0)]
    found = merit_order(100.0, types)
    assert found.counts == (0.5, 0.0) and found.cost == 5.0
    assert found.cost + rounding_bound(found.counts, [10.0, 6.0]) >= 6.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Merit(0.0, 1.0), "price"),
        (lambda: Merit(1.0, math.nan), "capacity"),
        (lambda: Merit(1.0, 1.0, -1.0), "limit"),
        (lambda: Merit(1.0, 1.0, math.nan), "limit"),
        (lambda: merit_order(-1.0, []), "rate"),
        (lambda: rounding_bound([-0.5], [1.0]), "count"),
        (lambda: rounding_bound([0.5], [0.0]), "price"),
    ],
)
def test_bad_numbers_are_refused(make, words) -> None:
    with pytest.raises(InputError, match=words):
        make()
