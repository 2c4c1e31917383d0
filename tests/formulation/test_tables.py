"""The table search against enumeration, and its bound against the costs of all fleets."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from pdalloc.allocation.linear import COVERED
from pdalloc.allocation.problem import Option
from pdalloc.allocation.tables import Tables, cheapest, tables
from pdalloc.allocation.tables import tree as tree_module
from pdalloc.allocation.tables.dual import highest, knapsacks
from pdalloc.allocation.tables.points import best_pair, undominated
from pdalloc.fleet import ROLES

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
    monkeypatch.setattr(tree_module, "GRID", 3)
    monkeypatch.setattr(tree_module, "COARSE", 3)
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


@pytest.mark.parametrize("grid", [1, 2, 3])
def test_the_dual_never_exceeds_a_cost(grid: int) -> None:
    """Weak duality, for any prices and any grid of the stock (weights are rounded down)."""
    rng = np.random.default_rng(1)
    for seed in range(40):
        t = random_tables(seed, "any")
        coarse = np.full(t.blocks, grid)
        top = t.stock // coarse
        suffix, least = np.empty((len(t.role), int(top.max()) + 1)), np.empty(t.blocks)
        prices = rng.uniform(0.0, 30.0, 2)
        knapsacks(
            prices, t.role, t.gpus, t.admits, t.usd, t.affine, t.start,
            np.zeros_like(t.most), t.most, coarse, top, suffix, least,
        )  # fmt: skip
        assert least.sum() + prices @ NEED <= least_cost(t) + 1e-9


def test_affine_tables_take_a_shorter_way_to_the_same_knapsacks() -> None:
    """The window minimum equals the plain one, for every range of counts and every stock."""
    rng = np.random.default_rng(5)
    for seed in range(60):
        t = random_tables(seed, "linear")
        low = rng.integers(0, t.most + 1)
        prices, grid, top = rng.uniform(0.0, 30.0, 2), np.ones(t.blocks, np.int64), t.stock
        found = []
        for affine in (t.affine, np.zeros_like(t.affine)):
            suffix, least = np.zeros((len(t.role), int(top.max()) + 1)), np.empty(t.blocks)
            knapsacks(
                prices, t.role, t.gpus, t.admits, t.usd, affine, t.start,
                low, t.most, grid, top, suffix, least,
            )  # fmt: skip
            found.append(least)
        assert found[0] == pytest.approx(found[1], abs=1e-9)


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
