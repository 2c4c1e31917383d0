"""Quantiles of gamma laws from a table against exact ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammainc, gammaincinv

from pdalloc.queueing.gamma_quantiles import LEAST, MOST, WORTH_IT, gamma_quantiles

LEVELS = np.array([1e-4, 0.01, 0.1, 0.3, 0.5, 0.8, 0.95, 0.999, 0.9999])


def test_many_laws_are_within_a_thousandth_of_a_deviation() -> None:
    shape = np.geomspace(LEAST, MOST, 3457)
    off = gamma_quantiles(shape, LEVELS) - gammaincinv(shape[:, None], LEVELS)
    assert np.abs(off / np.sqrt(shape)[:, None]).max() < 1e-3
    usual = shape > 0.5
    assert np.abs(off / np.sqrt(shape)[:, None])[usual].max() < 1e-4


def test_their_levels_are_met() -> None:
    """F(quantile) is the level: gammainc is the gamma law's distribution."""
    shape = np.linspace(1.0, 500.0, 200)
    found = gammainc(shape[:, None], gamma_quantiles(shape, LEVELS))
    assert found == pytest.approx(np.broadcast_to(LEVELS, found.shape), abs=2e-5)


@pytest.mark.parametrize("shape", [np.full(WORTH_IT - 1, 3.0), np.full(2 * WORTH_IT, LEAST / 10)])
def test_few_laws_or_odd_shapes_are_exact(shape: np.ndarray) -> None:
    assert np.array_equal(gamma_quantiles(shape, LEVELS), gammaincinv(shape[:, None], LEVELS))


def test_quantiles_rise_with_the_level() -> None:
    rng = np.random.default_rng(1)
    found = gamma_quantiles(rng.uniform(LEAST, 50.0, 300), np.linspace(0.01, 0.99, 50))
    assert np.all(np.diff(found, axis=1) >= 0.0)
