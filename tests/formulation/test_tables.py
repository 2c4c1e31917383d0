"""The table search against enumeration, and its bound against the costs of all fleets."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.problem import Option
from pdalloc.allocation.tables import Tables, cheapest, tables
from pdalloc.allocation.tables import tree as tree_module
from pdalloc.allocation.tables.dominance import worth_having
from pdalloc.allocation.tables.dual import (
    Box,
    best_prices,
    boxed,
    highest,
    knapsacks,
    narrowed,
)
from pdalloc.allocation.tables.incumbents import cheapest_repaired
from pdalloc.allocation.tables.points import best_pair, undominated
from pdalloc.fleet import DECODE, PREFILL, ROLES

NEED = np.full(2, COVERED)


def random_tables(seed: int, kind: str) -> Tables:
    """2 to 3 options per role on 2 GPU types; stock, limits and owned replicas at times."""
    rng = random.Random(f"{kind}{seed}")
    options, admits = [], []
    for role in ROLES:
        for i in range(rng.randint(2, 3)):
            price = rng.choice([float(rng.randint(1, 9)), rng.uniform(1.0, 9.0)])
            rate, m = rng.uniform(0.12, 0.6), np.arange(9)
            row = {
                "linear": rate * m,
                # square-root staffing: m = a + b sqrt(a), solved for the load a
                "pooled": rate * (np.sqrt(m + 0.16) - 0.4) ** 2,
                "any": np.cumsum([0.0, *(rng.choice([0.0, rng.uniform(0, 0.5)]) for _ in m[1:])]),
            }[kind]
            row[0] = 0.0
            gpu, owned = f"g{rng.randrange(2)}", rng.choice([0, 0, 1, 2])
            most = rng.choice([math.inf, 3.0])
            options.append(Option(role, f"t{i}", gpu, rng.choice([1, 2, 4]), price, owned, most))
            admits.append(row)
    stock = {f"g{i}": rng.randint(3, 14) for i in range(2) if rng.random() < 0.7}
    return tables(options, admits, stock)


def least_cost(t: Tables) -> float:
    """Least USD/hour over every vector of counts within stock that covers the demand."""
    grids = np.meshgrid(*(np.arange(m + 1) for m in t.most), indexing="ij")
    counts = np.stack([grid.ravel() for grid in grids], axis=1)
    options = np.arange(len(t.role))
    admits, usd = t.admits[options, counts], t.usd[options, counts].sum(axis=1)
    good = np.ones(len(counts), bool)
    for s in range(2):
        good &= admits[:, t.role == s].sum(axis=1) >= COVERED
    for g, held in enumerate(t.stock):
        members = slice(t.start[g], t.start[g + 1])
        good &= counts[:, members] @ t.gpus[members] <= held
    return float(usd[good].min(initial=math.inf))


@pytest.mark.parametrize("kind", ["linear", "pooled", "any"])
def test_enumeration_agrees(kind: str) -> None:
    """100 random instances of each kind: least cost, bound, stock and cover."""
    feasible = 0
    for seed in range(100):
        t = random_tables(seed, kind)
        best, proof = least_cost(t), cheapest(t, NEED)
        assert proof.settled
        assert proof.usd == pytest.approx(best, abs=1e-9)
        if proof.counts is None:
            assert math.isinf(best)
            continue
        feasible += 1
        assert t.cost(proof.counts) == proof.usd
        assert np.all(t.covered(proof.counts) >= NEED)
    assert 20 <= feasible <= 95


@pytest.mark.parametrize("kind", ["linear", "pooled", "any"])
def test_short_lists_only_mean_more_nodes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no node can be listed the tree alone still proves the optimum."""
    monkeypatch.setattr(tree_module, "MOST_SEEN", 8)
    monkeypatch.setattr(tree_module, "PATIENCE", 1.0)
    nodes = 0
    for seed in range(40):
        t = random_tables(seed, kind)
        proof = cheapest(t, NEED)
        assert proof.settled and proof.usd == pytest.approx(least_cost(t), abs=1e-9)
        nodes += proof.nodes
    assert nodes > 80


@pytest.mark.parametrize("kind", ["linear", "pooled", "any"])
def test_a_coarse_grid_changes_no_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stocks counted in several GPUs round weights down: a weaker bound, the same optimum."""
    monkeypatch.setattr(tree_module, "FINEST", 3)
    monkeypatch.setattr(tree_module, "COARSEST", 3)
    for seed in range(60):
        t = random_tables(seed, kind)
        proof = cheapest(t, NEED)
        assert proof.settled and proof.usd == pytest.approx(least_cost(t), abs=1e-9)
        if proof.counts is not None:
            used = np.add.reduceat(t.gpus * proof.counts, t.start[:-1])
            assert np.all(used <= t.stock) and np.all(t.covered(proof.counts) >= NEED)


def test_a_tree_that_is_cut_off_still_bounds() -> None:
    """A bound after one node lies below the least cost, and says that it proves nothing."""
    unsettled = 0
    for seed in range(60):
        t = random_tables(seed, "pooled")
        proof = cheapest(t, NEED, most_nodes=0)
        assert proof.bound <= least_cost(t)
        unsettled += not proof.settled
    assert unsettled == 60


def solved(t: Tables, box: Box, prices: np.ndarray) -> np.ndarray:
    """Least reduced cost per block at ``prices``."""
    suffix, least = np.zeros((len(t.role), int(box.top.max()) + 1)), np.empty(t.blocks)
    knapsacks(t.arrays, box, prices, suffix, least)
    return least


def all_counts(t: Tables) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every vector of counts within stock, what it admits per role, and its USD/hour."""
    grids = np.meshgrid(*(np.arange(m + 1) for m in t.most), indexing="ij")
    counts = np.stack([grid.ravel() for grid in grids], axis=1)
    used = np.add.reduceat(counts * t.gpus, t.start[:-1], axis=1)
    counts = counts[np.all(used <= t.stock, axis=1)]
    options = np.arange(len(t.role))
    each = t.admits[options, counts]
    admits = np.stack([each[:, t.role == s].sum(axis=1) for s in range(2)], axis=1)
    return counts, admits, t.usd[options, counts].sum(axis=1)


@pytest.mark.parametrize("weights", [1, 3, 1000])
def test_the_dual_never_exceeds_a_cost(weights: int) -> None:
    """Weak duality, for any prices and any grid of the stock (weights are rounded down)."""
    rng = np.random.default_rng(1)
    for seed in range(40):
        t = random_tables(seed, "any")
        box = boxed(t.arrays, np.zeros_like(t.most), t.most, weights, weights)
        assert np.all(box.top <= weights)
        prices = rng.uniform(0.0, 30.0, 2)
        assert solved(t, box, prices).sum() + prices @ NEED <= least_cost(t) + 1e-9


def test_knapsacks_of_a_box_are_the_least_over_all_its_counts() -> None:
    """Single GPUs: the least reduced cost within the box and the stock, by enumeration."""
    rng = np.random.default_rng(6)
    for seed in range(60):
        t = random_tables(seed, ("linear", "any")[seed % 2])
        counts, admits, usd = all_counts(t)
        low = rng.integers(0, np.minimum(t.most, 2) + 1)
        high = rng.integers(low, t.most + 1)
        prices = rng.uniform(0.0, 30.0, 2)
        inside = np.all((counts >= low) & (counts <= high), axis=1)
        reduced = (usd - admits @ prices)[inside]
        least = solved(t, boxed(t.arrays, low, high, 1000, 1000), prices).sum()
        assert least == pytest.approx(reduced.min(initial=math.inf), abs=1e-9)


@pytest.mark.parametrize("weights", [3, 1000])
def test_narrowed_ranges_hold_every_fleet_under_the_ceiling(weights: int) -> None:
    """Reduced-cost fixing leaves out no fleet that costs at most the ceiling."""
    rng = np.random.default_rng(7)
    left_out = 0
    for seed in range(90):
        t = random_tables(seed, ("linear", "pooled", "any")[seed % 3])
        counts, admits, usd = all_counts(t)
        box = boxed(t.arrays, np.zeros_like(t.most), t.most, weights, weights)
        bound, prices, _ = best_prices(t.arrays, box, NEED, np.full(2, 5.0), math.inf, 1e3)
        covers = np.all(admits >= NEED, axis=1)
        if not covers.any():
            continue
        ceiling = usd[covers].min() * rng.uniform(1.0, 1.2) + 1e-9
        low, high = narrowed(t.arrays, box, NEED, prices * rng.uniform(0.9, 1.1, 2), ceiling)
        kept = counts[covers & (usd <= ceiling)]
        assert bound <= ceiling
        assert np.all(kept >= low) and np.all(kept <= high)
        left_out += int((t.most - np.maximum(high - low, 0)).sum())
    assert left_out > 100


def test_best_prices_are_the_highest_bound() -> None:
    """No other prices of a fine mesh around them give more."""
    for seed in range(30):
        t = random_tables(seed, ("linear", "pooled", "any")[seed % 3])
        if math.isinf(least_cost(t)):
            continue
        box = boxed(t.arrays, np.zeros_like(t.most), t.most, 1000, 1000)
        bound, prices, cuts = best_prices(t.arrays, box, NEED, np.ones(2), least_cost(t), 1e3)
        gap = max(0.0, least_cost(t) - bound)
        for a in np.linspace(0.5, 2.0, 7):
            for b in np.linspace(0.5, 2.0, 7):
                at = prices * (a, b)
                value = solved(t, box, at).sum() + at @ NEED
                assert value <= bound + 0.01 * gap + 1e-6 * (1 + abs(bound))
                assert value <= np.min(cuts.value + cuts.slope @ at) + 1e-9


def test_repaired_fleets_are_fleets() -> None:
    """They cover, fit the stock, cost what is said; nothing can be taken off them."""
    rng, found = np.random.default_rng(8), 0
    for seed in range(60):
        t = random_tables(seed, ("linear", "pooled", "any")[seed % 3])
        rows = rng.integers(0, t.most + 1, (4, len(t.most)))
        usd, counts = cheapest_repaired(t.arrays, rows, NEED)
        if math.isinf(usd):
            continue
        found += 1
        assert usd == pytest.approx(t.cost(counts)) and usd >= least_cost(t) - 1e-9
        assert np.all(t.covered(counts) >= NEED) and np.all(counts <= t.most)
        assert np.all(np.add.reduceat(t.gpus * counts, t.start[:-1]) <= t.stock)
        for i in np.flatnonzero(counts):
            fewer = counts.copy()
            fewer[i] -= 1
            assert np.any(t.covered(fewer) < NEED)
    assert found > 20


def test_affine_tables_take_a_shorter_way_to_the_same_knapsacks() -> None:
    """The window minimum equals the plain one, for every range of counts and every stock."""
    rng = np.random.default_rng(5)
    for seed in range(60):
        t = random_tables(seed, "linear")
        low = rng.integers(0, t.most + 1)
        prices = rng.uniform(0.0, 30.0, 2)
        box = boxed(t.arrays, low, t.most, 1000, 1000)
        plain = replace(t)
        plain.affine[:] = False
        assert solved(t, box, prices) == pytest.approx(solved(plain, box, prices), abs=1e-9)


def test_only_tables_of_equal_steps_are_affine() -> None:
    steps = {"linear": 0, "pooled": 0}
    for kind in steps:
        for seed in range(20):
            t = random_tables(seed, kind)
            for i in np.flatnonzero(t.affine):
                shares = np.diff(t.admits[i, : t.most[i] + 1])
                assert t.most[i] <= 1 or shares == pytest.approx(shares[0])
                assert t.most[i] <= 1 or t.options[i].owned in (0,) or t.usd[i, t.most[i]] == 0.0
                steps[kind] += int(t.most[i] > 1)
    assert steps["linear"] > 20 and steps["pooled"] == 0


def test_the_highest_point_of_planes_is_the_linear_programs() -> None:
    """max over a box of min over planes, as scipy's LP finds it."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(2)
    for _ in range(100):
        n = int(rng.integers(1, 9))
        value, slope = rng.uniform(-5, 5, n), rng.normal(size=(n, 2))
        slope[rng.random((n, 2)) < 0.2] = 0.5  # parallel planes
        low, high, at = np.zeros(2), rng.uniform(1, 10, 2), np.empty(2)
        found = highest(value, slope, n, low, high, at)
        box = [*zip(low, high, strict=True), (None, None)]
        lp = linprog([0, 0, -1], np.c_[-slope, np.ones(n)], value, bounds=box)
        assert found == pytest.approx(-float(lp.fun or 0.0), abs=1e-8)
        assert np.min(value + slope @ at) == pytest.approx(found, abs=1e-8)


def test_dominance_and_the_last_pair_against_all_pairs() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, b = (np.round(rng.uniform(0, 1, (int(rng.integers(1, 25)), 3)), 1) for _ in range(2))
        kept = set(undominated(a).tolist())
        for i, row in enumerate(a):
            beaten = [j for j, o in enumerate(a) if o[0] >= row[0] and o[1] >= row[1]]
            cheapest_there = min(a[j][2] for j in beaten)
            assert (i in kept) <= (row[2] <= cheapest_there)
            assert any(a[j][2] <= row[2] for j in beaten if j in kept)
        need = np.array([1.0, 0.8]) - 1e-9  # below the tenths, so that sums are no ties
        pairs = [(x[2] + y[2]) for x in a for y in b if np.all(x[:2] + y[:2] >= need)]
        usd, i, j = best_pair(a, b, need)
        assert usd == min(pairs, default=math.inf)
        assert (i < 0) == (not pairs) and (not pairs or np.all((a[i] + b[j])[:2] >= need))


def test_blocks_share_what_can_bind() -> None:
    """Options of a GPU whose stock suffices for all of them are blocks by themselves."""
    row = 0.5 * np.arange(5.0)
    options = [Option(role, "t", gpu, 2, 1.0) for role in ROLES for gpu in ("a", "b")]
    t = tables(options, [row] * 4, {"a": 7, "b": 8})
    assert t.blocks == 3 and sorted(t.stock) == [4, 4, 7]
    assert set(t.most) == {2}  # two cover the demand alone


def test_large_instances_are_proven(small: Any) -> None:
    """Merit order on 8 GPU types: the relaxation is below, one price per role above."""
    rng = np.random.default_rng(4)
    options, admits, unit = [], [], {role: math.inf for role in ROLES}
    for role in ROLES:
        for g in range(8):
            rate, price = rng.uniform(0.01, 0.05), rng.uniform(1, 9)
            options.append(Option(role, f"t{g}", f"g{g}", 1, float(price)))
            admits.append(float(rate) * np.arange(512.0))
            unit[role] = min(unit[role], price / rate)
    proof = cheapest(tables(options, admits, {}), NEED)
    assert proof.settled
    assert sum(unit.values()) * COVERED <= proof.usd <= sum(unit.values()) + 2 * 9


@pytest.mark.parametrize("kind", ["linear", "pooled", "any"])
def test_counts_worth_having_hold_a_cheapest_fleet(kind: str) -> None:
    """Leaving out what trades replace does not raise the least cost, by enumeration."""
    left_out = 0
    for seed in range(100):
        t = random_tables(seed, kind)
        most = worth_having(t.arrays, NEED)
        assert np.all(most <= t.most) and np.all(most >= 0)
        counts, admits, usd = all_counts(t)
        good = np.all(admits >= NEED, axis=1)
        held = good & np.all(counts <= most, axis=1)
        assert usd[held].min(initial=math.inf) == pytest.approx(usd[good].min(initial=math.inf))
        left_out += int((t.most - most).sum())
    assert left_out > 10 or kind != "linear"  # other tables are affine up to a replica or two


def test_trades_by_hand() -> None:
    """Two GPUs at 5 admit less than twice one GPU at 3; one at 2 less than another at 2."""

    def most(*options: tuple[int, float, float], stock: int, limit: float = math.inf) -> list[int]:
        made = [
            Option(PREFILL, f"t{i}", "g", gpus, usd, most=limit if i == 0 else math.inf)
            for i, (gpus, usd, _) in enumerate(options)
        ]
        rows = [rate * np.arange(40.0) for *_, rate in options]
        t = tables([*made, Option(DECODE, "d", "h", 1, 1.0)], [*rows, np.arange(2.0)], {"g": stock})
        found = worth_having(t.arrays, NEED)
        return [int(found[t.options.index(o)]) for o in made]

    # stock binds: two of the first fill as many GPUs as one of the second, cost less, admit more
    assert most((1, 2.0, 0.05), (2, 4.5, 0.09), stock=12) == [12, 0]
    # two of the first cost more: both stay
    assert most((1, 2.5, 0.05), (2, 4.5, 0.09), stock=12) == [12, 6]
    # three GPUs admit 0.19 together and 0.18 apart: three of the small ones go for one
    assert most((3, 6.0, 0.19), (1, 2.0, 0.06), stock=12) == [4, 2]
    # a limit, not the stock, ends the first: no trade for more of it
    assert most((1, 2.0, 0.05), (2, 4.5, 0.09), stock=12, limit=3.0) == [3, 6]


def test_free_replicas_are_not_traded_in_a_circle() -> None:
    """Owned options in ample stock replace each other; one of them must stay."""
    row = 0.3 * np.arange(5.0)
    made = [Option(PREFILL, name, "g", 1, 1.0, owned=9) for name in ("a", "b")]
    t = tables([*made, Option(DECODE, "d", "h", 1, 1.0)], [row, 1.1 * row, np.arange(2.0)], {})
    proof = cheapest(t, NEED)
    assert proof.settled and proof.usd == 1.0
