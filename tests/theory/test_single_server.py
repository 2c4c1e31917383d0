"""Waiting time of one FCFS server: M/G/1 exactly, GI/G/1 by its two-moment formula.

tests/data/queueing/mg1.csv holds exact M/G/1 values (mean service 1; D, Erlang, H2, lognormal
and an empirical token-length law); gig1.csv simulated GI/G/1 means with confidence half-widths.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from pdalloc.errors import PdallocError, UnstableError
from pdalloc.laws import Atoms, Exponentials, StopLossLaw, Sum, constant
from pdalloc.queueing.delay_laws.kingman import Kingman
from pdalloc.queueing.gamma_mixture import GammaMixture
from pdalloc.queueing.single_server import SingleServerWait
from pdalloc.queueing.station import station

DATA = Path(__file__).resolve().parents[1] / "data" / "queueing"
LOADS = [0.1, 0.5, 0.8, 0.9, 0.98]


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def exponential(mean: float = 1.0) -> Exponentials:
    return Exponentials(np.array([mean]), np.ones(1), np.zeros(1))


def gamma(scv: float) -> GammaMixture:
    return GammaMixture(np.ones(1), np.array([scv]), np.ones(1))


def hyperexponential(scv: float) -> Exponentials:
    """H2 with balanced means: p = (1 + sqrt((s-1)/(s+1)))/2, means 1/(2p), 1/(2(1-p))."""
    p = 0.5 * (1 + math.sqrt((scv - 1) / (scv + 1)))
    shares = np.array([p, 1 - p])
    return Exponentials(0.5 / shares, shares, np.zeros(2))


def lognormal(scv: float) -> Atoms:
    """20 000 cells of the normal scale, each at its conditional mean; mean 1."""
    sigma = math.sqrt(math.log1p(scv))
    edges = np.linspace(-8.0, 10.0, 20_001)
    edges[0], edges[-1] = -math.inf, math.inf
    weight, moment = np.diff(ndtr(edges)), np.diff(ndtr(edges - sigma))
    keep = weight > 0
    return Atoms(moment[keep] / weight[keep], weight[keep])


def token_lengths() -> Atoms:
    """4096 equal atoms 0.15 + 0.85 L/mean; L is 75 % lognormal(400, .8) + 25 % (2500, .9)."""
    low, high = np.full(4096, math.log(1e-2)), np.full(4096, math.log(1e6))
    level = (np.arange(4096) + 0.5) / 4096
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = 0.75 * ndtr((middle - math.log(400)) / 0.8)
        below += 0.25 * ndtr((middle - math.log(2500)) / 0.9)
        low, high = np.where(below < level, middle, low), np.where(below < level, high, middle)
    lengths = np.minimum(np.exp(low), 16_000.0)
    return Atoms(0.15 + 0.85 * lengths / lengths.mean(), np.full(4096, 1 / 4096))


@cache
def service(name: str) -> StopLossLaw:
    """The service laws of the grids by their names there; mean 1."""
    made: dict[str, Callable[[], StopLossLaw]] = {
        "D": lambda: constant(1.0),
        "M": exponential,
        "E2": lambda: gamma(0.5),
        "E4": lambda: gamma(0.25),
        "H2_2": lambda: hyperexponential(2.0),
        "H2_4": lambda: hyperexponential(4.0),
        "LN_0.5": lambda: lognormal(0.5),
        "LN_2": lambda: lognormal(2.0),
        "LN_4": lambda: lognormal(4.0),
        "EMP": token_lengths,
    }
    return made[name]()


@pytest.mark.parametrize("row", rows("mg1.csv"), ids=lambda r: f"{r['dist']}-{r['rho'][:4]}")
def test_wait_law_against_exact_values(row: dict[str, str]) -> None:
    """Mean and percentiles of the exact M/G/1 grid, to a part in ten thousand."""
    law = service(row["dist"])
    assert law.scv == pytest.approx(float(row["scv"]), rel=1e-6, abs=1e-12)
    wait = SingleServerWait(float(row["rho"]), law)
    assert wait.mean == pytest.approx(float(row["EW"]), rel=1e-6)
    for level in (90, 95, 99):
        assert wait.quantile(level / 100) == pytest.approx(float(row[f"P{level}"]), rel=2e-4)


@pytest.mark.parametrize("rho", LOADS)
def test_mm1_wait(rho: float) -> None:
    """P(W > t) = rho e^{-(mu - lambda) t}; E[W] = rho/(mu - lambda) (Kleinrock 1975, 5.123)."""
    mu = 4.0
    wait = SingleServerWait(rho * mu, exponential(1 / mu))
    gap = mu * (1 - rho)
    assert wait.utilisation == pytest.approx(rho, rel=1e-14)
    assert wait.mean == pytest.approx(rho / gap, rel=1e-13)
    for t in (0.1 / gap, 1 / gap, 5 / gap):
        assert wait.tail(t) == pytest.approx(rho * math.exp(-gap * t), rel=1e-4)
    for p in (0.5, 0.9, 0.99, 0.999):
        exact = max(math.log(rho / (1 - p)) / gap, 0.0)
        assert wait.quantile(p) == pytest.approx(exact, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("rho", LOADS)
def test_mm1_sojourn_is_exponential(rho: float) -> None:
    """W + S of an M/M/1 is Exp(mu - lambda): the paper's TTFT without overhead."""
    sojourn = Sum((SingleServerWait(rho, exponential()), exponential()))
    assert sojourn.mean == pytest.approx(1 / (1 - rho), rel=1e-13)
    for p in (0.5, 0.9, 0.99):
        assert sojourn.quantile(p) == pytest.approx(-math.log1p(-p) / (1 - rho), rel=1e-4)


@pytest.mark.parametrize("rho", LOADS)
def test_md1_wait_before_one_service(rho: float) -> None:
    """M/D/1: P(W <= t) = (1 - rho) e^{lambda t} for t < D (Erlang 1909)."""
    wait = SingleServerWait(rho, constant(1.0))
    for t in (0.25, 0.5, 0.9):
        assert 1 - wait.tail(t) == pytest.approx((1 - rho) * math.exp(rho * t), rel=1e-2)


@pytest.mark.parametrize("name", ["D", "E4", "M", "H2_4", "LN_2"])
@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_pollaczek_khinchine(name: str, rho: float) -> None:
    """E[W] = lambda E[S^2] / (2 (1 - rho)), and doubling every time doubles it."""
    law = service(name)
    wait = SingleServerWait(rho / law.mean, law)
    exact = rho * law.mean * (1 + law.scv) / (2 * (1 - rho))
    assert wait.mean == pytest.approx(exact, rel=1e-12)
    step = exact / 100
    cumulative = np.cumsum(wait.lattice(step, 8192))
    assert step * np.sum(1 - cumulative) == pytest.approx(exact, rel=1e-2)


def test_no_load_no_wait() -> None:
    wait = SingleServerWait(0.0, exponential())
    assert (wait.mean, wait.quantile(0.99), wait.tail(1e-6)) == (0.0, 0.0, 0.0)


def test_zero_inside_the_atom() -> None:
    """P(W = 0) = 1 - rho: every percentile up to 1 - rho is 0."""
    wait = SingleServerWait(0.3, exponential())
    assert wait.quantile(0.69) == 0.0
    assert wait.quantile(0.71) > 0.0


@pytest.mark.parametrize("rho", [1.0, 1.0000001, 3.7])
def test_overload_names_utilisation_and_least_count(rho: float) -> None:
    with pytest.raises(UnstableError) as caught:
        SingleServerWait(2.0 * rho, constant(0.5))
    assert f"utilisation {rho:.3f}" in str(caught.value)
    assert f"more than {math.floor(rho)} servers" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rate", [math.nan, math.inf, -0.5])
def test_numbers_that_are_no_rate_are_refused(rate: float) -> None:
    with pytest.raises(PdallocError):
        SingleServerWait(rate, exponential())


@pytest.mark.parametrize("row", rows("gig1.csv"), ids=lambda r: f"{r['arr']}-{r['svc']}-{r['rho']}")
def test_gig1_mean(row: dict[str, str]) -> None:
    """E[W] = M/M/1 wait x (c_a^2 + c_s^2)/2 (Kingman 1962, Allen-Cunneen).

    It is not below the simulated mean by more than 2 % (what reference values and their
    intervals leave), and for arrivals more bursty than Poisson within 17 % above it.
    """
    ca2, cs2, rho = (float(row[key]) for key in ("ca2", "cs2", "rho"))
    mean = Kingman(station(rho, service(row["svc"]), arrival_scv=ca2)).mean_wait
    assert mean == pytest.approx(rho * (ca2 + cs2) / (2 * (1 - rho)), rel=1e-9)
    ratio = mean / float(row["EW"])
    slack = float(row["EW_ci"]) / float(row["EW"])
    assert ratio > 0.98 - slack
    if ca2 > 1:
        assert ratio < 1.17 + slack


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(0.05, 1.0)), min_size=1, max_size=5),
    st.floats(0.05, 0.95),
    st.floats(1.01, 1.2),
)
def test_more_load_waits_longer(
    parts: list[tuple[float, float]], rho: float, growth: float
) -> None:
    """W is a geometric sum of residual services: stochastically increasing in rho."""
    values, weights = (np.array(column) for column in zip(*parts, strict=True))
    law = Atoms(values, weights / weights.sum())
    light = SingleServerWait(rho / law.mean, law)
    heavy = SingleServerWait(min(rho * growth, 0.99) / law.mean, law)
    assert heavy.mean >= light.mean
    for p in (0.9, 0.99):
        assert heavy.quantile(p) >= light.quantile(p) * (1.0 - 1e-3) - 1e-3 * law.mean
