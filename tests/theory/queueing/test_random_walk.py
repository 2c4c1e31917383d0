"""GI/G/1 on a lattice against exact laws: M/D/c, GI/M/1, M/G/1, E_c/M/1."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from experiments.delay_laws.services import law
from scipy.optimize import brentq

from pdalloc.laws import constant
from pdalloc.queueing.deterministic import mdc
from pdalloc.queueing.random_walk import gap_law, given_wait, p_positive, walk_wait
from pdalloc.queueing.scaled import Scaled
from pdalloc.queueing.station import Gaps

GRID = Path(__file__).resolve().parents[2] / "data" / "queueing" / "mgc_grid.csv"


def constant_rows() -> list[dict[str, str]]:
    with GRID.open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["dist"] == "D" and float(r["PW"]) > 0.02]
    return [r for r in rows if int(r["c"]) in (1, 4, 16, 64, 200)]


@pytest.mark.parametrize("row", constant_rows(), ids=lambda r: f"c{r['c']}-{r['rho'][:4]}")
def test_mdc_wait_law(row: dict[str, str]) -> None:
    """Steps D - Erlang_c: every percentile of the exact grid (Crommelin 1932)."""
    c, rho = int(row["c"]), float(row["rho"])
    wait = walk_wait(constant(1.0), gap_law(1 / rho, 1 / c), points=1 << 15)
    assert wait.mean == pytest.approx(mdc(c, rho)[0], rel=1e-3)
    for level in (90, 95, 99):
        exact = float(row[f"P{level}"])
        assert wait.quantile(level / 100) == pytest.approx(exact, rel=5e-3, abs=2e-3 / c)


def gap_transform(u: float, rho: float, scv: float, gaps: Gaps) -> float:
    """E exp(-u A) of gaps of mean 1/rho."""
    if gaps == "gamma":
        return float((1 + u * scv / rho) ** (-1 / scv))
    p = 0.5 * (1 + math.sqrt((scv - 1) / (scv + 1)))
    return sum(w / (1 + u * 0.5 / (rho * w)) for w in (p, 1 - p))


@pytest.mark.parametrize(
    ("scv", "gaps"), [(0.25, "gamma"), (4.0, "gamma"), (4.0, "hyperexponential")]
)
@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_gi_m_1(rho: float, scv: float, gaps: Gaps) -> None:
    """P(W > t) = s e^{-(1-s) t}, s = E e^{-(1-s) A} (Kleinrock 1975, eqs. 6.27, 6.30)."""
    gap = gap_law(1 / rho, scv, gaps)
    s = brentq(lambda v: gap_transform(1 - v, rho, scv, gaps) - v, 1e-9, 1 - 1e-6)
    wait = walk_wait(law("M"), gap)
    assert p_positive(wait) == pytest.approx(s, rel=3e-3)
    assert wait.mean == pytest.approx(s / (1 - s), rel=2e-3)
    for t in (0.5, 3.0):
        level = 1 - s * math.exp(-(1 - s) * t)
        assert wait.quantile(level) == pytest.approx(t, rel=5e-3, abs=1e-2)


@pytest.mark.parametrize("name", ["D", "M", "H2_4", "EMP", "LN_2"])
def test_poisson_gaps_are_mg1(name: str) -> None:
    """Pollaczek-Khinchine and P(W > 0) = rho."""
    service, rho = law(name), 0.8
    wait = walk_wait(service, gap_law(1 / rho, 1.0))
    assert wait.mean == pytest.approx(rho * (1 + service.scv) / (2 * (1 - rho)), rel=2e-3)
    assert p_positive(wait) == pytest.approx(rho, rel=3e-3)


@pytest.mark.parametrize(("servers", "exact"), [(4, 2.267), (16, 1.836)])
def test_round_robin_of_exponential_service(servers: int, exact: float) -> None:
    """E_c/M/1 at rho .8: s = (c rho /(c rho + 1 - s))^c, E[W] = s/(1-s)."""
    s = brentq(lambda v: (servers * 0.8 / (servers * 0.8 + 1 - v)) ** servers - v, 0.0, 0.99)
    assert s / (1 - s) == pytest.approx(exact, rel=1e-3)
    wait = walk_wait(law("M"), gap_law(1 / 0.8, 1 / servers))
    assert wait.mean == pytest.approx(s / (1 - s), rel=1e-3)


def test_turns_and_thinning_add_gaps_up() -> None:
    """Every 4th of gamma gaps: gamma of a quarter of the SCV; thinned Poisson is Poisson."""
    one = walk_wait(law("EMP"), gap_law(0.3125, 2.0), every=4)
    other = walk_wait(law("EMP"), gap_law(1.25, 0.5))
    assert one.mean == pytest.approx(other.mean, rel=2e-3)
    thinned = walk_wait(law("EMP"), gap_law(0.3125, 1.0), keep=0.25)
    assert thinned.mean == pytest.approx(walk_wait(law("EMP"), gap_law(1.25, 1.0)).mean, rel=2e-3)


def test_gap_laws_have_their_moments() -> None:
    for scv, kind in ((0.0, "gamma"), (0.3, "gamma"), (3.0, "gamma"), (3.0, "hyperexponential")):
        gap = gap_law(2.0, scv, kind)  # type: ignore[arg-type]
        assert (gap.mean, gap.scv) == pytest.approx((2.0, scv), abs=1e-9)


def test_clockwork_never_waits() -> None:
    wait = walk_wait(constant(1.0), constant(1.3))
    assert (wait.mean, p_positive(wait), wait.quantile(0.99)) == (0.0, 0.0, 0.0)


def test_law_given_a_wait() -> None:
    """P(W > 0) E[W | W > 0] = E[W]."""
    wait = walk_wait(law("M"), gap_law(1.25, 1.0))
    assert p_positive(wait) * given_wait(wait).mean == pytest.approx(wait.mean, rel=2e-3)
    assert given_wait(wait).quantile(0.5) == pytest.approx(math.log(2) / 0.2, rel=1e-2)


def test_scaling_the_service_scales_the_wait() -> None:
    base = walk_wait(law("EMP"), gap_law(1.25, 1.0))
    fast = walk_wait(Scaled(law("EMP"), 0.1), gap_law(0.125, 1.0))
    assert fast.mean == pytest.approx(0.1 * base.mean, rel=1e-6)
    assert fast.quantile(0.9) == pytest.approx(0.1 * base.quantile(0.9), rel=1e-6)


def test_scaled_law() -> None:
    scaled = Scaled(law("M"), 3.0)
    x = np.array([0.0, 1.0, 6.0])
    assert scaled.stop_loss(x) == pytest.approx(3.0 * np.exp(-x / 3.0))
    assert scaled.excess_square(x) == pytest.approx(18.0 * np.exp(-x / 3.0))
    assert scaled.quantile(0.5) == pytest.approx(3.0 * math.log(2), rel=1e-3)
