"""covers() yields every integer cover of a demand, cheapest first, within stock and limits."""

from __future__ import annotations

import math
from itertools import islice, pairwise, product, takewhile
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.allocation.covers import MOST_REPLICAS, covers
from pdalloc.allocation.problem import Option

Case = tuple[list[Option], list[float], float, dict[str, int]]


def case(seed: int, limited: bool) -> Case:
    """2 to 4 types with prices, rates, owned replicas; limits on all when ``limited``."""
    rng = Random(seed)
    options, rates = [], []
    for i in range(rng.randint(2, 4)):
        most = float(rng.randint(0, 4)) if limited else math.inf
        owned = rng.choice([0, 0, 1, 2])
        price = rng.choice([float(rng.randint(1, 9)), rng.uniform(0.5, 9.0)])
        gpus = rng.choice([1, 2])
        options.append(Option("prefill", f"t{i}", f"g{rng.randrange(2)}", gpus, price, owned, most))
        rates.append(rng.choice([float(rng.randint(1, 3)), rng.uniform(0.3, 3.0)]))
    stock = {"g0": rng.randint(1, 8)} if rng.random() < 0.5 else {}
    return options, rates, rng.uniform(1.0, 6.0), stock


def cost_of(options: list[Option], counts: tuple[int, ...]) -> float:
    return sum(o.usd_per_hour * max(n - o.owned, 0) for o, n in zip(options, counts, strict=True))


def fits(options: list[Option], counts: tuple[int, ...], stock: dict[str, int]) -> bool:
    pairs = list(zip(options, counts, strict=True))
    return all(n <= o.most for o, n in pairs) and all(
        sum(o.gpus * n for o, n in pairs if o.gpu == gpu) <= held for gpu, held in stock.items()
    )


def every_cover(given: Case, top: int) -> dict[tuple[int, ...], float]:
    """All covers with counts up to ``top``, by enumeration, with their costs."""
    options, rates, demand, stock = given
    return {
        counts: cost_of(options, counts)
        for counts in product(range(top + 1), repeat=len(options))
        if sum(r * n for r, n in zip(rates, counts, strict=True)) >= demand * (1 - 1e-12)
        and fits(options, counts, stock)
    }


@pytest.mark.parametrize("seed", range(40))
def test_a_limited_search_yields_all_covers_and_ends(seed: int) -> None:
    given = case(seed, limited=True)
    found = list(covers(*given))
    assert {counts: pytest.approx(cost) for cost, counts in found} == every_cover(given, 4)
    assert len(found) == len({counts for _, counts in found})


@pytest.mark.parametrize("seed", range(40))
def test_costs_never_fall(seed: int) -> None:
    costs = [cost for cost, _ in islice(covers(*case(seed, limited=False)), 60)]
    assert all(after >= before - 1e-9 for before, after in pairwise(costs))


@pytest.mark.parametrize("seed", range(25))
def test_an_endless_search_misses_nothing_below_the_cost_it_has_reached(seed: int) -> None:
    given = case(1000 + seed, limited=False)
    first = next(covers(*given), None)
    everything = every_cover(given, 8)
    if first is None:
        assert not everything
        return
    budget = first[0] + min(o.usd_per_hour for o in given[0])
    cheap = takewhile(lambda item: item[0] <= budget, islice(covers(*given), 5000))
    found = {counts for _, counts in cheap if max(counts) <= 8}
    assert found == {counts for counts, cost in everything.items() if cost <= budget + 1e-12}


@given(st.integers(0, 10**6))
def test_the_first_cover_is_the_cheapest(seed: int) -> None:
    given = case(seed, limited=True)
    everything = every_cover(given, 4)
    first = next(covers(*given), None)
    if first is None:
        assert not everything
    else:
        assert first[0] == pytest.approx(min(everything.values()), abs=1e-9)
        assert first[1] in everything


def test_owned_replicas_are_used_before_cheaper_ones_are_bought() -> None:
    options = [
        Option("decode", "old", "g0", 1, 9.0, owned=2),
        Option("decode", "new", "g1", 1, 1.0),
    ]
    assert next(covers(options, [1.0, 1.0], 3.0, {})) == (1.0, (2, 1))


def test_ties_go_to_fewer_gpus() -> None:
    options = [Option("decode", "wide", "g0", 4, 2.0), Option("decode", "slim", "g1", 1, 2.0)]
    assert next(covers(options, [1.0, 1.0], 1.0, {})) == (2.0, (0, 1))


def test_demand_exactly_equal_to_capacity_is_covered() -> None:
    """0.1 three times is 0.30000000000000004 > 0.3, and 0.3 / 0.1 is just below 3."""
    options = [Option("decode", "t", "g", 1, 2.0)]
    for rate, demand in ((0.1, 0.3), (0.1, 0.7), (1 / 3, 1.0), (1.0, 2.0)):
        cost, (count,) = next(covers(options, [rate], demand, {}))
        assert (cost, count) == (2.0 * round(demand / rate), round(demand / rate))


def test_one_more_replica_when_capacity_is_short() -> None:
    options = [Option("decode", "t", "g", 1, 2.0)]
    assert next(covers(options, [1.0], 2.0 * (1 + 1e-9), {})) == (6.0, (3,))


def test_useless_types_stay_at_zero() -> None:
    """A type that admits nothing, or next to nothing, is left alone, even where it is owned."""
    options = [
        Option("decode", "none", "g0", 1, 1.0, owned=5),
        Option("decode", "crumb", "g1", 1, 1.0),
        Option("decode", "good", "g2", 1, 3.0),
    ]
    crumb = 0.5 / MOST_REPLICAS
    found = list(islice(covers(options, [0.0, crumb, 1.0], 2.0, {}), 3))
    assert [counts for _, counts in found] == [(0, 0, 2), (0, 0, 3), (0, 0, 4)]


def test_nothing_to_yield_without_a_type_that_admits_traffic() -> None:
    assert list(covers([], [], 1.0, {})) == []
    assert list(covers([Option("decode", "t", "g", 1, 1.0)], [0.0], 1.0, {})) == []


def test_no_demand_needs_no_replica() -> None:
    assert next(covers([Option("decode", "t", "g", 1, 1.0)], [1.0], 0.0, {})) == (0.0, (0,))


def test_the_cutoff_ends_the_search() -> None:
    options = [Option("decode", "t", "g", 1, 2.0)]
    found = list(covers(options, [1.0], 1.5, {}, lambda: 9.0))
    assert found == [(4.0, (2,)), (6.0, (3,)), (8.0, (4,))]


def test_many_replicas_of_one_type_are_found_at_once() -> None:
    assert next(covers([Option("decode", "t", "g", 1, 1.0)], [1e-3], 50.0, {})) == (50e3, (50_000,))
