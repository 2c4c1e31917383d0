"""TPOT of one request: mean of the batch law, spread Var(ITL) g((1 - rho) L / E[L])."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdalloc.queueing.batch import BatchLaw
from pdalloc.queueing.request_tpot import GROUPS, GammaMixture, averaging, request_tpot

Array = NDArray[np.float64]
DATA = Path(__file__).resolve().parents[1] / "data" / "queueing" / "decode_grid.csv"


def affine_law(a: float, b: float, rho: float, steps: float) -> BatchLaw:
    return BatchLaw(rho / (steps * b), steps, lambda k: a + b * np.asarray(k, float))


def one(gaps: float, batch: BatchLaw, extra: float = 0.0) -> GammaMixture:
    law = request_tpot(batch, np.array([gaps]), np.array([extra]), np.ones(1))
    assert isinstance(law, GammaMixture)
    return law


@pytest.mark.parametrize("x", [1e-9, 1e-5, 9.9e-5, 1.1e-4, 0.1, 1.0, 30.0, 1e6])
def test_averaging_is_the_mean_of_an_exponential_autocorrelation(x: float) -> None:
    """g(x) = 2 int_0^1 (1 - u) e^{-x u} du, the variance left after averaging over a stay."""
    u = (np.arange(200_000) + 0.5) / 200_000
    exact = 2 * float(np.mean((1 - u) * np.exp(-x * u))) if x < 100 else 2 / x - 2 / x**2
    assert float(averaging(np.array(x))) == pytest.approx(exact, rel=1e-6)


def test_averaging_limits() -> None:
    """g(0) = 1, g falls, g(x) -> 2/x."""
    x = np.linspace(0.0, 50.0, 500)
    assert averaging(x)[0] == 1.0
    assert np.all(np.diff(averaging(x)) < 0)
    assert 1e5 * float(averaging(np.array(1e5))) == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize("gaps", [1.0, 20.0, 199.0, 2000.0])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_mean_is_the_same_for_every_length(rho: float, gaps: float) -> None:
    """(a + b)/(1 - rho) whatever L (reference notes 2)."""
    law = one(gaps, affine_law(40.0, 1.0, rho, 200.0))
    assert law.mean == pytest.approx(41.0 / (1 - rho), rel=1e-9)


@pytest.mark.parametrize("gaps", [1.0, 20.0, 199.0, 2000.0])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_variance_given_the_length(rho: float, gaps: float) -> None:
    """Var(TPOT | L) = Var(ITL) g((1-rho) L/E[L]); Var(ITL) = b^2 (1 + a/b) rho/(1-rho)^2."""
    law = one(gaps, affine_law(40.0, 1.0, rho, 200.0))
    spread = 41.0 * rho / (1 - rho) ** 2
    x = (1 - rho) * gaps / 200.0
    shrink = 2 * (x - 1 + math.exp(-x)) / x**2
    assert law.second_moment - law.mean**2 == pytest.approx(spread * shrink, rel=1e-3)


def test_percentiles_lie_between_mean_and_token_percentile() -> None:
    """Averaging narrows: mean < P99 of a request < P99 of a gap, narrower for longer stays."""
    batch = affine_law(40.0, 1.0, 0.8, 200.0)
    p99 = [one(gaps, batch).quantile(0.99) for gaps in (20.0, 200.0, 2000.0)]
    assert batch.itl.quantile(0.99) * 1.01 > p99[0] > p99[1] > p99[2] > batch.mean_step


def test_first_gap_extra_is_shared_over_the_gaps() -> None:
    """TPOT = (gaps x step + extra)/gaps, so extra/gaps is added to the mean."""
    batch = affine_law(40.0, 1.0, 0.5, 200.0)
    for gaps, extra in ((1.0, 30.0), (50.0, 30.0)):
        assert one(gaps, batch, extra).mean == pytest.approx(82.0 + extra / gaps, rel=1e-9)


@pytest.mark.parametrize("gaps", [2.0, 5.0, 20.0])
def test_boundary_wait_of_short_outputs(gaps: float) -> None:
    """Reference notes 2: the first gap also holds (1/2) sum_{k>=1} pi(k) t(k), here
    (a (1 - pi(0)) + b E[N])/2: about half a step, +22 / +9 / +2 % of TPOT at 2, 5, 20 gaps."""
    a, b, rho = 10.0, 1.0, 0.8
    batch = affine_law(a, b, rho, 200.0)
    half = 0.5 * (a * (1 - (1 - rho) ** (1 + a / b)) + (a + b) * rho / (1 - rho))
    law = one(gaps, batch, batch.mean_entry)
    assert law.mean == pytest.approx((a + b) / (1 - rho) + half / gaps, rel=1e-9)
    assert law.mean / batch.mean_step - 1 == pytest.approx(0.45 / gaps, rel=0.15)


def test_idle_replica_has_no_spread() -> None:
    law = one(199.0, affine_law(40.0, 1.0, 1e-9, 200.0))
    assert law.quantile(0.99) == pytest.approx(41.0, rel=1e-3)


def grid() -> list[dict[str, str]]:
    """Fixed lengths without a batch limit: one L, so no mixing over lengths."""
    with DATA.open(newline="") as file:
        return [r for r in csv.DictReader(file) if r["Ldist"] == "D" and r["K"] == "inf"]


@pytest.mark.parametrize("row", grid(), ids=lambda r: f"{r['a_over_b']}-{r['rho_realised'][:4]}")
def test_request_percentiles_against_simulation(row: dict[str, str]) -> None:
    """200 tokens each, t = a + k: P50 within 1.5 %, P90 and P99 within 3.5 %."""
    batch = affine_law(float(row["a_over_b"]), 1.0, float(row["rho_realised"]), 200.0)
    law = one(199.0, batch)
    for level, allowed in ((50, 0.015), (90, 0.025), (99, 0.035)):
        simulated = float(row[f"req_p{level}_sim"])
        assert law.quantile(level / 100) == pytest.approx(simulated, rel=allowed)


lengths = st.lists(
    st.tuples(st.floats(1.0, 3000.0), st.floats(0.01, 1.0), st.floats(0.0, 50.0)),
    min_size=1,
    max_size=60,
)


@settings(max_examples=30, deadline=None)
@given(lengths, st.floats(0.05, 0.9))
def test_grouping_keeps_the_mean(points: list[tuple[float, float, float]], rho: float) -> None:
    """E[TPOT] = mean step + E[extra / gaps], whatever the grouping of lengths."""
    gaps, weight, extra = (np.array(column) for column in zip(*points, strict=True))
    weight = weight / weight.sum()
    batch = affine_law(40.0, 1.0, rho, 200.0)
    law = request_tpot(batch, gaps, extra, weight)
    exact = 41.0 / (1 - rho) + float(weight @ (extra / gaps))
    assert law.mean == pytest.approx(exact, rel=1e-9)


def test_many_lengths_stay_few_groups() -> None:
    """Groups are of equal mass, so none of 10 000 lengths is lost."""
    gaps = np.geomspace(1.0, 1e4, 10_000)
    law = request_tpot(
        affine_law(40.0, 1.0, 0.5, 200.0), gaps, np.zeros(10_000), np.full(10_000, 1e-4)
    )
    assert isinstance(law, GammaMixture)
    assert len(law.weights) == GROUPS
    assert law.weights == pytest.approx(np.full(GROUPS, 1 / GROUPS), rel=1e-2)
    assert law.weights.sum() == pytest.approx(1.0, rel=1e-12)


def test_no_request_is_slower_than_the_slowest_step() -> None:
    """With K slots no gap exceeds t(K), so no mean of gaps does (first gap apart)."""
    slots = 32
    top = 20.0 + slots
    batch = BatchLaw(
        0.95 * slots / (200.0 * top), 200.0, lambda k: 20.0 + np.asarray(k, float), slots
    )
    assert one(199.0, batch).quantile(0.99) <= top * (1 + 1e-3)
