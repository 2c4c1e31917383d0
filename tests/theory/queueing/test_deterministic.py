"""M/D/c: the closed form against its own series, textbooks, and the exact grid."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammainc

from pdalloc.queueing.deterministic import constant_dispersion, mdc, time_scale
from pdalloc.queueing.erlang import erlang_c, log_poisson

GRID = Path(__file__).resolve().parents[2] / "data" / "queueing" / "mgc_grid.csv"


def exact_rows() -> list[dict[str, str]]:
    with GRID.open(newline="") as file:
        return [r for r in csv.DictReader(file) if r["dist"] == "D"]


@pytest.mark.parametrize("row", exact_rows(), ids=lambda r: f"c{r['c']}-{r['rho'][:4]}")
def test_exact_grid(row: dict[str, str]) -> None:
    wait, waits = mdc(int(row["c"]), float(row["rho"]))
    assert wait == pytest.approx(float(row["EW"]), rel=2e-8)
    assert waits == pytest.approx(float(row["PW"]), rel=2e-8)


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.9), (16, 0.98), (200, 0.95), (3, 0.99)])
def test_quadrature_is_the_series(servers: int, rho: float) -> None:
    """All terms added: E[W] = sum (p(m; x) - (1-rho) P(m, x))/rho (Spitzer 1956)."""
    n = np.arange(1.0, 400_000.0)
    m, x = n * servers, n * servers * rho
    late = gammainc(m, x)
    wait = float(((np.exp(log_poisson(m, x)) - (1 - rho) * late) / rho).sum())
    waits = -math.expm1(-float((late / n).sum()))
    assert mdc(servers, rho) == pytest.approx((wait, waits), rel=1e-8)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9, 0.999])
def test_one_server_is_pollaczek_khinchine(rho: float) -> None:
    """E[W] = rho / (2 (1 - rho)), P(W > 0) = rho at c = 1."""
    assert mdc(1, rho) == pytest.approx((rho / (2 * (1 - rho)), rho), rel=1e-6)


def test_known_values() -> None:
    """Franx's (2001) exact law gives these: c 2 rho .5, c 10 rho .9, c 200 rho .98."""
    assert mdc(2, 0.5) == pytest.approx((0.1767410571, 0.3232589429), rel=1e-9)
    assert mdc(10, 0.9) == pytest.approx((0.3445820504, 0.6468612839), rel=1e-8)
    assert mdc(200, 0.98) == pytest.approx((0.0889303412, 0.6650069360), rel=1e-8)


@pytest.mark.parametrize("servers", [2, 50, 1000, 10_000])
def test_between_half_and_all_of_the_exponential_wait(servers: int) -> None:
    """W_M/2 <= W_D <= W_M, towards the half in heavy traffic (Kingman 1962)."""
    for rho in (0.9, 0.99, 0.999):
        erlang = erlang_c(servers, rho * servers) / (servers * (1 - rho))
        if erlang > 1e-100:
            assert 0.5 - 1e-6 <= mdc(servers, rho)[0] / erlang <= 1.0
    assert time_scale(2, 0.999)[1] == pytest.approx(0.5, abs=1e-3)


def test_light_traffic() -> None:
    """W_D/W_M -> c/(c+1) as rho -> 0: the least of c uniform times is 1/(c+1)."""
    for servers in (2, 5, 9):
        assert time_scale(servers, 0.01)[1] == pytest.approx(servers / (servers + 1), rel=2e-2)


def test_time_scale_makes_constant_service_exact() -> None:
    """(1 + I_D(theta))/2 = W_D/W_M."""
    for servers, rho in ((2, 0.5), (16, 0.9), (200, 0.98)):
        theta, ratio = time_scale(servers, rho)
        assert 0.5 * (1 + constant_dispersion(theta)) == pytest.approx(ratio, rel=1e-9)


def test_time_scale_at_its_ends() -> None:
    """One server: infinitely long times; no wait to speak of: infinitely short ones."""
    assert time_scale(1, 0.7)[0] == 0.0
    assert time_scale(200, 0.05)[0] > 100.0
    assert mdc(200, 0.0) == (0.0, 0.0)


def test_dispersion_of_clockwork() -> None:
    """coth(theta/2) - 2/theta from theta/6 to 1 without a jump where the series takes over."""
    assert constant_dispersion(0.9999e-3) == pytest.approx(constant_dispersion(1.0001e-3), rel=1e-3)
    assert constant_dispersion(1e6) == pytest.approx(1.0, abs=1e-5)
