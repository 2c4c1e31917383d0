"""M/G/c laws against theory: exact cases, limits, textbooks, published values."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from experiments.delay_laws.services import service

from pdalloc.laws import Exponentials
from pdalloc.queueing.delay_law import DelayLaw
from pdalloc.queueing.delay_laws import all_laws, delay_law, law_named
from pdalloc.queueing.deterministic import mdc
from pdalloc.queueing.dispersion import few_servers_weight
from pdalloc.queueing.station import Station, station

DATA = Path(__file__).resolve().parents[2] / "data" / "queueing"
CENTRAL = sorted(n for n, k in all_laws().items() if k.claim.dispatch[0] == "central_queue")
POISSON = [n for n in CENTRAL if n not in ("mdc", "mmc", "mphc")]
"""Rivals for any service law under one queue."""


def law(name: str, rho: float, dist: str, servers: int) -> DelayLaw:
    return law_named(name)(Station(rho * servers, service(dist), servers))


@pytest.mark.parametrize("name", POISSON)
@pytest.mark.parametrize("rho", [0.2, 0.8, 0.97])
@pytest.mark.parametrize("dist", ["D", "E4", "H2_4", "EMP"])
def test_one_server_is_pollaczek_khinchine(name: str, rho: float, dist: str) -> None:
    """E[W] = rho (1+s) / (2 (1-rho)) E[S] (Kleinrock 1975, eq. 5.62); Whitt has a limit of his.

    Whitt's (1993) formula is not exact at c = 1: its eq. 2.24 bends for c_a^2 != s.
    """
    found = law(name, rho, dist, 1)
    exact = rho * (1 + service(dist).scv) / (2 * (1 - rho))
    slack = 0.35 if name == "whitt_1993" else 5e-3
    assert found.mean_wait == pytest.approx(exact, rel=slack)
    assert found.p_wait == pytest.approx(rho, rel=5e-3)


@pytest.mark.parametrize("name", [n for n in CENTRAL if n not in ("mdc", "mphc")])
@pytest.mark.parametrize("servers", [2, 16, 200])
def test_exponential_service_is_erlangs(name: str, servers: int) -> None:
    """M/M/c: C, C/(c (1-rho)), and the percentile -log((1-p)/C)/(c (1-rho))."""
    rho = 0.9
    found = law(name, rho, "M", servers)
    exact = law("mmc", rho, "M", servers)
    assert found.p_wait == pytest.approx(exact.p_wait, rel=4e-3)
    assert found.mean_wait == pytest.approx(exact.mean_wait, rel=4e-3)
    percentile = math.log(exact.p_wait / 0.01) / (servers * (1 - rho))
    assert found.wait.quantile(0.99) == pytest.approx(percentile, rel=6e-3)
    assert exact.wait.quantile(0.99) == pytest.approx(percentile, rel=1e-12)


@pytest.mark.parametrize(
    "name", ["bjorklund_elldin", "boxma_cohen_huffels", "dispersion", "kimura", "takahashi", "mdc"]
)
def test_constant_service_is_exact_where_it_is_built_in(name: str) -> None:
    for servers, rho in ((2, 0.5), (10, 0.9), (200, 0.98)):
        exact = mdc(servers, rho)
        found = law(name, rho, "D", servers)
        assert (found.mean_wait, found.p_wait) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("dist", ["D", "E4", "H2_2", "EMP"])
@pytest.mark.parametrize("servers", [2, 5])
def test_light_traffic(dist: str, servers: int) -> None:
    """W/C -> gamma_1, the mean least of c residual lives (Burman and Smith 1983, eq. 1.2)."""
    least = service(dist).least_residual_mean(servers)
    for name in ("tijms_van_hoorn_federgruen", "boxma_cohen_huffels"):
        found = law(name, 0.01, dist, servers)
        assert found.mean_wait / found.erlang_probability == pytest.approx(least, rel=6e-2)


def test_textbook_queues() -> None:
    """Gross and Harris: M/M/3, lambda 6, mu 3; Bronson 24.6: lambda 300, mu 182.5."""

    def exponential(mu: float) -> Exponentials:
        return Exponentials(np.array([1 / mu]), np.ones(1), np.zeros(1))

    clinic = delay_law(station(6.0, exponential(3.0), servers=3))
    assert clinic.mean_sojourn == pytest.approx(0.4814815, rel=1e-6)
    # p0 = 1/9: P(all busy) = p0 (a^c/c!)/(1-rho) = 4/9
    assert clinic.p_wait == pytest.approx(4 / 9, rel=1e-9)
    bronson = delay_law(station(300.0, exponential(182.5), servers=3))
    assert bronson.queue_length == pytest.approx(0.352, abs=6e-4)
    assert bronson.mean_wait == pytest.approx(0.001175, abs=1e-6)


VALUES = [
    ("D", 2, 0.5, 0.1767410571, 0.3232589429, 1.5639177574),
    ("D", 10, 0.9, 0.3445820504, 0.6468612839, 2.0699518),
    ("D", 200, 0.98, 0.0889303412, 0.6650069360, 0.5323018),
    ("E2", 4, 0.9, 1.4872733409, 0.7843520357, 8.1315069),
    ("H2_2", 4, 0.9, 2.9019402318, 0.7922961265, 16.7143245),
    ("H2_4", 16, 0.95, 2.3205859063, 0.7937534581, 13.7335520),
]


@pytest.mark.parametrize(("dist", "servers", "rho", "mean", "waits", "p99"), VALUES)
def test_known_values(
    dist: str, servers: int, rho: float, mean: float, waits: float, p99: float
) -> None:
    """Exact E[W], P(W > 0), P99: the default within 3 %, M/H2/c to 1e-6 where service is H2."""
    found = delay_law(Station(rho * servers, service(dist), servers))
    assert found.mean_wait == pytest.approx(mean, rel=3e-2)
    assert found.p_wait == pytest.approx(waits, rel=1e-2)
    assert found.wait.quantile(0.99) == pytest.approx(p99, rel=3e-2)
    if dist.startswith("H2"):
        exact = law("mphc", rho, dist, servers)
        assert exact.mean_wait == pytest.approx(mean, rel=2e-5)
        assert exact.p_wait == pytest.approx(waits, rel=2e-5)
        assert exact.wait.quantile(0.99) == pytest.approx(p99, rel=2e-4)


def exact_h2() -> list[dict[str, str]]:
    with (DATA / "exact_values.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["dist"].startswith("H2")]
    return [r for r in rows if 1 < int(r["c"]) <= 64 and float(r["PW"]) > 1e-6][::4]


@pytest.mark.parametrize("row", exact_h2(), ids=lambda r: f"{r['dist']}-{r['c']}-{r['rho'][:4]}")
def test_mh2c_is_exact(row: dict[str, str]) -> None:
    """Matrix-analytic M/H2/c against independent exact values."""
    dist = f"H2_{float(row['scv']):g}"
    found = law("mphc", float(row["rho"]), dist, int(row["c"]))
    assert found.mean_wait == pytest.approx(float(row["EW"]), rel=1e-4)
    assert found.p_wait == pytest.approx(float(row["PW"]), rel=1e-4)


def test_formulas_at_a_point_worked_by_hand() -> None:
    """c = 2, rho = 1/2, constant service: C = 1/3, W_M = 1/3, W_D = .176741."""
    at = Station(1.0, service("D"), 2)
    wait = {name: law_named(name)(at).mean_wait for name in POISSON}
    assert wait["lee_longton"] == pytest.approx(1 / 6)
    # Cosmetatos: 1/6 (1 + .5 (sqrt 14 - 2)/16)
    assert wait["cosmetatos"] == pytest.approx((1 + 0.5 * (math.sqrt(14) - 2) / 16) / 6)
    # C (gamma_1 + rho/(2c(1-rho))) = 1/3 (1/3 + 1/4)
    assert wait["tijms_van_hoorn_federgruen"] == pytest.approx(7 / 36)
    assert wait["whitt_1993"] == pytest.approx(wait["cosmetatos"])


def test_kimura_is_harmonic() -> None:
    """(1+s)/W = (1-s)/W_D + 2s/W_M at s = 4."""
    found = law("kimura", 0.8, "H2_4", 8)
    s = found.scv
    right = (1 - s) / found.constant_wait + 2 * s / found.erlang_wait
    assert (1 + s) / found.mean_wait == pytest.approx(right, rel=1e-9)


def test_p_wait_lies_between_constant_and_more() -> None:
    """Harmonic interpolation: P_D at s = 0, C at s = 1, growing with s."""
    probabilities = [
        law("kimura", 0.9, d, 16).p_wait for d in ("D", "E4", "E2", "M", "H2_2", "H2_4")
    ]
    assert probabilities == sorted(probabilities)
    assert probabilities[3] == pytest.approx(law("mmc", 0.9, "M", 16).p_wait, rel=1e-6)


def test_time_scale_of_the_dispersion_law() -> None:
    """theta (1 + I) is the same for all service laws, and theta falls with the load."""

    def product(dist: str, rho: float) -> float:
        found = law("dispersion", rho, dist, 16)
        theta: float = found.theta  # type: ignore[attr-defined]
        return theta * (1 + service(dist).dispersion(theta))

    for rho in (0.7, 0.95):
        assert product("EMP", rho) == pytest.approx(product("E4", rho), rel=1e-4)
    assert product("EMP", 0.95) < product("EMP", 0.7)


def test_few_servers_weight_falls_from_one() -> None:
    weights = [few_servers_weight(c) for c in (1, 2, 4, 64, 10_000)]
    assert weights[:2] == [1.0, 1.0]
    assert weights == sorted(weights, reverse=True)
