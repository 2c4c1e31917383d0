"""TPOT of the requests of one class in a shared decode pool."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdalloc.laws import Atoms
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, decode_work
from pdalloc.queueing.decode.groups import GROUPS, SHIFTS
from pdalloc.queueing.decode.requests import ClassRequests
from pdalloc.queueing.decode.skewed import SkewedLaw

Array = NDArray[np.float64]
A, B = 40.0, 1.0


def pool(
    rho: float,
    c: float = 0.0,
    slots: float = math.inf,
    outputs: tuple[float, ...] = (200.0,),
    by_decode: bool = True,
) -> ClassRequests:
    """t = A + B k + c held, outputs equally likely, prompts of 100 tokens."""
    out = np.array(outputs)
    n = len(out)
    work = decode_work(np.full(n, 100.0), out, np.full(n, 1.0 / n), by_decode)
    still = DecodeStation(0.0, lambda k, held: A + B * k + c * held, work, 1, slots)
    return ClassRequests(DecodeLaw(still.at(rho * still.capacity)))


def tpot(
    of: ClassRequests, gaps: list[float], moved: float = 0.0, enters: bool = False
) -> SkewedLaw:
    n = len(gaps)
    entry = of.entry if enters else None
    law = of.tpot(np.array(gaps), np.full(n, 100.0), np.full(n, moved), np.full(n, 1.0 / n), entry)
    assert isinstance(law, SkewedLaw)
    return law


@pytest.mark.parametrize("gaps", [1.0, 20.0, 199.0, 2000.0])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_mean_is_the_same_for_every_length(rho: float, gaps: float) -> None:
    """(a + b)/(1 - rho) whatever L (reference notes 2), for a pool of long answers."""
    assert tpot(pool(rho), [gaps]).mean == pytest.approx(41.0 / (1 - rho), rel=5e-3)


@pytest.mark.parametrize("gaps", [1.0, 20.0, 199.0])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_variance_given_the_length(rho: float, gaps: float) -> None:
    """Var(TPOT | L) = Var(ITL) g((1-rho) L/E[L]), g(x) = 2 (x - 1 + e^-x)/x^2; Var(ITL) =
    b^2 (1 + a/b) rho/(1-rho)^2 (reference notes 2): g is an approximation, Var(ITL) is not."""
    law = tpot(pool(rho), [gaps])
    spread = 41.0 * rho / (1 - rho) ** 2
    x = (1 - rho) * gaps / 200.0
    shrink = 2 * (x - 1 + math.exp(-x)) / x**2
    assert law.deviation**2 == pytest.approx(spread * shrink, rel=0.02 if gaps == 1.0 else 0.2)


@pytest.mark.parametrize("c", [0.0, 1e-3])
def test_one_class_is_the_pool(c: float) -> None:
    """Of all its requests the law is the decode law's own."""
    of = pool(0.6, c, outputs=(20.0, 100.0, 600.0))
    found, whole = tpot(of, [19.0, 99.0, 599.0]), of.law.tpot()
    assert found.mean == pytest.approx(whole.mean, rel=1e-9)
    for p in (0.5, 0.9, 0.99):
        assert found.quantile(p) == pytest.approx(whole.quantile(p), rel=1e-6)


def test_a_long_class_is_slower_by_its_contexts() -> None:
    """By more than c times the context it holds above the short one's: its steps bring arrivals."""
    of = pool(0.6, 1e-3, outputs=(20.0, 2000.0))
    assert tpot(of, [1999.0]).mean - tpot(of, [19.0]).mean > 1e-3 * (1999.0 - 19.0) / 2


def test_what_the_first_gap_holds_is_shared_over_the_gaps() -> None:
    """TPOT = (gaps x step + moved + entry)/gaps."""
    of = pool(0.5, by_decode=False)
    for gaps in (1.0, 50.0):
        plain, moved = tpot(of, [gaps]).mean, tpot(of, [gaps], 30.0).mean
        assert moved == pytest.approx(plain + 30.0 / gaps, rel=1e-9)
        entered = tpot(of, [gaps], 30.0, True).mean
        assert entered == pytest.approx(moved + of.law.mean_entry / gaps, rel=1e-9)


@pytest.mark.parametrize(("rho", "slots"), [(0.3, math.inf), (0.7, 16.0), (0.95, 16.0)])
def test_points_of_the_entry(rho: float, slots: float) -> None:
    """They keep its mean and, beyond P(W > 0), an exponential's percentiles within a cell."""
    of = pool(rho, slots=slots, by_decode=False)
    values, weights = of.entry
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert np.all(values >= 0)
    assert float(values @ weights) == pytest.approx(of.law.mean_entry, rel=1e-9)
    p = of.law.wait_probability
    if p > 0.1:
        mean = of.law.mean_slot_wait / p
        points = Atoms(values[-8:], weights[-8:] / p)
        assert points.mean == pytest.approx(mean, rel=1e-9)
        assert points.quantile(0.9) == pytest.approx(mean * math.log(10.0), rel=0.25)


def test_waits_for_a_slot_reach_the_percentiles() -> None:
    """Where one request in three waits, P99 of a short answer's TPOT is that of the slot wait."""
    of = pool(0.95, slots=16.0, by_decode=False)
    p, mean = of.law.wait_probability, of.law.mean_slot_wait
    assert p > 0.3
    wait = mean / p * math.log(p / 0.01)
    exact = (wait + 10.0 * of.law.mean_step) / 10.0
    assert tpot(of, [10.0], 0.0, True).quantile(0.99) == pytest.approx(exact, rel=0.15)


def test_no_request_is_slower_than_the_slowest_step() -> None:
    """With K slots and no context no gap exceeds t(K), so no mean of gaps does."""
    assert tpot(pool(0.95, slots=32.0), [199.0]).quantile(0.99) <= (A + B * 32) * (1 + 1e-6)


def test_an_idle_pool_has_no_spread() -> None:
    of = pool(0.0)
    law = of.tpot(np.array([199.0]), np.array([100.0]), np.zeros(1), np.ones(1), None)
    assert law.quantile(0.99) == pytest.approx(A + B, rel=1e-12)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_a_table_that_is_flat_at_first(rho: float) -> None:
    """Steps of 40 s up to a batch of 10, then longer: percentiles are numbers, between a step of
    one and one of all."""
    work = decode_work(np.array([100.0]), np.array([200.0]), np.ones(1), True)
    still = DecodeStation(0.0, lambda k, held: np.maximum(A, 3.0 * k + 10.0), work, 1, 32)
    law = tpot(ClassRequests(DecodeLaw(still.at(rho * still.capacity))), [199.0])
    values = [law.mean, law.quantile(0.9), law.quantile(0.99)]
    assert values[1] <= values[2] * (1 + 1e-6)
    assert values[0] >= A * (1 - 1e-6) and values[-1] <= 106.0 * (1 + 1e-6)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(1.0, 3000.0), st.floats(0.01, 1.0), st.floats(0.0, 50.0)),
        min_size=1,
        max_size=60,
    ),
    st.floats(0.05, 0.9),
)
def test_grouping_keeps_the_mean(points: list[tuple[float, float, float]], rho: float) -> None:
    """E[TPOT] = mean step + E[moved / gaps], whatever the grouping of lengths."""
    gaps, weight, moved = (np.array(column) for column in zip(*points, strict=True))
    weight = weight / weight.sum()
    of = pool(rho)
    law = of.tpot(gaps, np.full(len(gaps), 100.0), moved, weight, None)
    exact = of.law.mean_step + float(weight @ (moved / gaps))
    assert law.mean == pytest.approx(exact, rel=1e-9)


def test_many_lengths_stay_few_groups() -> None:
    gaps = np.geomspace(1.0, 1e4, 10_000)
    law = tpot(pool(0.5, 1e-3), list(gaps))
    assert GROUPS <= len(law.weights) <= GROUPS * SHIFTS
    assert law.weights.sum() == pytest.approx(1.0, rel=1e-12)
