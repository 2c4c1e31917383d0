"""The solvers' experiment on a few small cases."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from experiments.solvers import published, speed
from experiments.solvers.instances import SEEDS, instance, most_demand
from experiments.solvers.rivals import RIVALS

from pdalloc.allocation.linear import COVERED
from pdalloc.fleet import DECODE, PREFILL, ROLES

pytestmark = pytest.mark.pipeline


def test_instances_are_those_of_their_seed() -> None:
    one, again, other = instance(3), instance(3), instance(4)
    assert one.options == again.options != other.options
    assert all(np.array_equal(a, b) for a, b in zip(one.admits, again.admits, strict=True))
    assert len(one.options) == 8 * 3 * len(ROLES) and len(SEEDS) == len(set(SEEDS)) == 20
    assert set(one.stock.values()) == {512}


@pytest.mark.parametrize("seed", range(4))
def test_pooled_tables_are_superlinear_and_linear_ones_linear(seed: int) -> None:
    for pooled in (False, True):
        for row in instance(seed, pooled).admits:
            each = row[1:] / np.arange(1, len(row))
            assert row[0] == 0.0 and np.all(np.diff(each) > -1e-15)
            assert pooled == bool(each[-1] > each[0] * (1 + 1e-9)) or len(each) == 1


def test_the_greatest_demand_fills_the_stock() -> None:
    """One GPU type, halves of it per role at equal speeds: half the stock serves each role."""
    one = instance(0, gpu_types=1)
    equal = [replace(o, gpus=1) for o in one.options if o.gpus == 1]
    assert most_demand(equal, [2.0, 2.0], 100) == pytest.approx(100.0)
    assert {o.role for o in equal} == {PREFILL, DECODE}


@pytest.mark.parametrize("pooled", [False, True])
def test_every_rival_agrees_on_a_small_instance(pooled: bool) -> None:
    one = instance(1, pooled, stock=24, gpu_types=2)
    proof, _ = speed.exact(one)
    assert proof.settled and proof.counts is not None
    for solve in RIVALS.values():
        cost, bound, seconds = solve(one.linear(), 60.0)
        assert cost == pytest.approx(proof.usd, abs=1e-6) and seconds > 0.0
        assert math.isnan(bound) or bound == pytest.approx(proof.usd, abs=1e-6)


def test_melanges_toy_is_solved_by_split_loads() -> None:
    """4.68 USD/h: one of each. A100 alone is 6/20 + 3/20 + 15/40 + 6/20 = 1.125 busy."""
    counts, usd = published.split_optimum()
    assert usd == pytest.approx(4.68) and list(counts) == [1, 1]
    assert published.least_overload(np.array([0.0, 1.0])) == pytest.approx(1.125)
    # A10G takes 5 req/s of the third bucket (1.0 busy), the A100 the other 10: 1.0 busy
    assert published.least_overload(np.array([1.0, 1.0])) == pytest.approx(1.0)
    assert published.least_overload(np.array([4.0, 0.0])) > 1.0  # 4.04 USD/h
    whole, sliced = published.sliced_optimum(1)
    assert sliced == pytest.approx(6.70) and list(whole) == [3, 1]


def test_the_greedy_trap() -> None:
    assert published.greedy_trap() == (6.0, 10.0)


def test_summary_counts_what_was_proven() -> None:
    one = instance(0)
    runs = ((5.0, 2.0, 1.0), (4.0, 6.0, 1.5))
    rows = [speed._row(one, "exact", 5.0, bound, s, cpu, 1.0, 1) for bound, s, cpu in runs]
    (summary,) = speed.summary_rows(rows)
    assert (summary["instances"], summary["proven"]) == (2, 1)
    assert (summary["median_s"], summary["worst_s"]) == (4.0, 6.0)
    assert (summary["median_cpu_s"], summary["worst_cpu_s"]) == (1.25, 1.5)


def test_cpu_seconds_are_those_of_the_call() -> None:
    """Sleep is no work; a busy loop of some CPU time takes that much."""

    def busy(seconds: float) -> str:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        return "done"

    result, cpu = speed._with_cpu(busy, 0.05)
    assert result == "done" and 0.05 <= cpu < 0.5
    assert speed._with_cpu(time.sleep, 0.1)[1] < 0.05


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("stock", [16, 40])
def test_the_exact_search_agrees_with_highs(pooled: bool, stock: int) -> None:
    """Two GPU types x 3 parallelism options x 2 roles: the one-hot program's optimum, gap 0."""
    for seed in range(3, 7):
        one = instance(seed, pooled, stock=stock, gpu_types=2)
        proof, _ = speed.exact(one)
        cost, _, _ = RIVALS["cvxpy_highs"](one.linear(), 60.0)
        assert proof.settled and proof.usd == pytest.approx(cost, abs=1e-6)


def test_a_large_stock_is_proven() -> None:
    """8 GPU types with 5,000 GPUs each: a proven fleet within stock that covers the demand."""
    for pooled in (False, True):
        one = instance(1, pooled, speed.LARGE_STOCK)
        proof, _ = speed.exact(one)
        assert proof.settled and proof.counts is not None
        t = one.tables()
        assert np.all(t.covered(proof.counts) >= COVERED)
        assert np.all(np.add.reduceat(t.gpus * proof.counts, t.start[:-1]) <= t.stock)
