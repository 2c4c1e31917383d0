"""Laws of W | W > 0, the atom at zero, quick quantiles, and the exponential tail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.delay_laws.services import service
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.laws import Law, Sum
from pdalloc.queueing.delayed import (
    DelayedWait,
    Exponential,
    LeastAssignedWait,
    LeastResidualWait,
    quick_quantile,
)
from pdalloc.queueing.dispersion import dispersion_shape
from pdalloc.queueing.single_server import SingleServerWait, geometric_sum


@pytest.mark.parametrize("servers", [1, 4, 64])
@pytest.mark.parametrize("rho", [0.3, 0.95])
def test_exponential_service_waits_exponentially(servers: int, rho: float) -> None:
    """min of c Exp(1) + M/M/1 wait at speed c = Exp(c (1 - rho)) exactly."""
    found = LeastResidualWait(service("M"), servers, rho)
    mean = 1 / (servers * (1 - rho))
    assert found.mean == pytest.approx(mean, rel=1e-4)
    for p in (0.1, 0.5, 0.9, 0.999):
        assert found.quantile(p) == pytest.approx(-mean * math.log1p(-p), rel=2e-3)


@pytest.mark.parametrize("name", ["D", "EMP", "LN_2"])
def test_one_server_is_mg1_given_a_wait(name: str) -> None:
    """W | W > 0 = R + W (Kleinrock 1975, eq. 5.111): P(W > t) = rho P(R + W > t)."""
    rho = 0.7
    whole = SingleServerWait(rho, service(name).law)
    found = DelayedWait(rho, whole.mean, LeastResidualWait(service(name), 1, rho))
    assert found.stretch == pytest.approx(1.0, rel=1e-4)
    for p in (0.5, 0.9, 0.99):
        assert found.quantile(p) == pytest.approx(whole.quantile(p), rel=3e-3)


@pytest.mark.parametrize("name", ["D", "M", "EMP"])
@pytest.mark.parametrize("servers", [1, 8])
def test_lattices_have_the_means(name: str, servers: int) -> None:
    for shape in (LeastResidualWait, LeastAssignedWait):
        found = shape(service(name), servers, 0.8)
        step = 40.0 * found.mean / 8192
        masses = found.lattice(step, 8192)
        assert masses.sum() == pytest.approx(1.0, abs=1e-4)
        assert masses @ np.arange(8192) * step == pytest.approx(found.mean, rel=3e-3)


def test_what_is_left_at_the_server_given_least() -> None:
    """Constant service: the running request's end is uniform on (0, D), not the first of c."""
    assigned = LeastAssignedWait(service("D"), 8, 0.5)
    queue = 0.5 / (2 * 8 * 0.5)  # rho (1+s)/(2 c (1-rho))
    assert assigned.mean == pytest.approx(0.5 + queue)
    assert LeastResidualWait(service("D"), 8, 0.5).mean == pytest.approx(1 / 9 + queue)
    assert assigned.quantile(0.5) == pytest.approx(0.5 + queue, rel=5e-2)


@pytest.mark.parametrize("name", ["E4", "EMP", "H2_4"])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.95, 0.999])
def test_few_points_are_enough_for_a_quantile(name: str, p: float) -> None:
    found = LeastResidualWait(service(name), 12, 0.9)
    assert quick_quantile(found, p) == pytest.approx(quick_quantile(found, p, 16384), rel=3e-3)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 1.0), st.floats(0.01, 50.0), st.floats(0.01, 0.999))
def test_atom_and_stretch(p_wait: float, mean: float, p: float) -> None:
    """P(W > t) = P(W>0) exp(-t P(W>0)/E[W]) when the shape is exponential, at any scale."""
    found = DelayedWait(p_wait, mean, Exponential(7.0))
    assert found.mean == mean
    assert found.tail(0.0) == pytest.approx(p_wait)
    exact = max(-mean / p_wait * math.log((1 - p) / p_wait), 0.0)
    assert found.quantile(p) == pytest.approx(exact, rel=1e-9, abs=1e-12)
    assert found.tail(exact + 1e-12) == pytest.approx(min(1 - p, p_wait), rel=1e-6)


def test_nobody_waits() -> None:
    never = DelayedWait(0.0, 0.0, Exponential(1.0))
    assert never.quantile(0.999) == 0.0
    assert never.tail(0.0) == 0.0
    assert never.tail(-1.0) == 1.0
    assert never.lattice(0.1, 4).tolist() == [1.0, 0.0, 0.0, 0.0]
    total = Sum((never, service("D").law))
    assert total.quantile(0.9) == pytest.approx(1.0, rel=1e-2)


def test_exponential_law() -> None:
    found = Exponential(2.0)
    assert (found.mean, found.tail(2.0)) == pytest.approx((2.0, math.exp(-1)))
    assert found.quantile(0.5) == pytest.approx(2 * math.log(2))
    assert Law.quantile(found, 0.5) == pytest.approx(2 * math.log(2), rel=1e-3)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.2, math.nan])
def test_levels_are_between_0_and_1(p: float) -> None:
    for found in (
        Exponential(1.0),
        DelayedWait(0.5, 1.0, Exponential(1.0)),
        LeastResidualWait(service("M"), 2, 0.5),
    ):
        with pytest.raises(InputError):
            found.quantile(p)


def test_geometric_sum_of_single_steps() -> None:
    """Terms that are always one step: P(j steps) = (1-rho) rho^j, behind the first part."""
    one, two = np.eye(1, 64, 1)[0], np.eye(1, 64, 2)[0]
    geometric = 0.4 * 0.6 ** np.arange(64)
    assert geometric_sum(one, 0.6)[:20] == pytest.approx(geometric[:20], abs=1e-9)
    assert geometric_sum(one, 0.6, two)[2:20] == pytest.approx(geometric[:18], abs=1e-9)


@pytest.mark.parametrize("scale", [0.0, 0.5, math.inf])
def test_dispersion_shape_of_exponential_service(scale: float) -> None:
    """I = 1 at all times: an exponential law, whatever the time scale and the weights."""
    shape = dispersion_shape(service("M"), 9, 0.8, scale)
    for p in (0.2, 0.9, 0.99, 0.9999):
        assert shape.quantile(p) / shape.mean == pytest.approx(-math.log1p(-p), rel=5e-3)


def test_dispersion_shape_is_a_law() -> None:
    for name in ("D", "E4", "H2_4", "LN_4", "EMP"):
        for servers in (2, 16, 1000):
            shape = dispersion_shape(service(name), servers, 0.9, 0.3)
            assert shape.survival[0] == 1.0 and shape.survival[-1] == 0.0
            assert np.all(np.diff(shape.nodes) > 0)
            assert np.all(np.diff(shape.survival) <= 0)


def test_variable_service_has_the_heavier_tail() -> None:
    """P99 over mean of W | W > 0 grows with the service's variability."""
    ratios = []
    for name in ("D", "E4", "M", "H2_4"):
        shape = dispersion_shape(service(name), 16, 0.9, 0.3)
        ratios.append(shape.quantile(0.99) / shape.mean)
    assert ratios == sorted(ratios)
