"""The wait at one server that gets a share of a stream."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pdalloc.errors import UnstableError
from pdalloc.laws import Atoms, Exponentials, StopLossLaw
from pdalloc.queueing.delay_laws import law_named
from pdalloc.queueing.single_server import SingleServerWait
from pdalloc.queueing.station import station
from pdalloc.queueing.thinned import thinned_wait

LAWS: dict[str, StopLossLaw] = {
    "exponential": Exponentials(np.ones(1), np.ones(1), np.zeros(1)),
    "three": Atoms(np.array([0.2, 1.0, 4.0]), np.array([0.5, 0.35, 0.15])),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("whole", [0.6, 6.0])
def test_a_share_of_poisson_is_poisson(name: str, whole: float) -> None:
    """M/G/1 (Kleinrock 1975, eq. 5.62), however large the stream."""
    rate, law = 0.6 / LAWS[name].mean, LAWS[name]
    found = thinned_wait(law, rate, whole / law.mean, 1.0)
    assert found.mean == pytest.approx(SingleServerWait(rate, law).mean, rel=1e-12)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scv", [0.0, 0.5, 4.0])
def test_random_dispatch_over_equal_servers(name: str, scv: float) -> None:
    """One of 5 servers at rho = .8: the station's law of a random split (Cox 1962, 8.5)."""
    law = LAWS[name]
    rate = 0.8 / law.mean
    pool = law_named("single_servers")(station(5 * rate, law, 5, scv, "random"))
    found = thinned_wait(law, rate, 5 * rate, scv)
    assert found.mean == pytest.approx(pool.mean_wait, rel=1e-9)
    assert found.quantile(0.99) == pytest.approx(pool.wait.quantile(0.99), rel=1e-3)


@pytest.mark.parametrize("scv", [0.2, 4.0, 9.0])
def test_small_shares_come_near_poisson(scv: float) -> None:
    """SCV 1 + p (c_a^2 - 1) -> 1, from the side of the whole stream's."""
    law = LAWS["three"]
    rate = 0.7 / law.mean
    waits = [thinned_wait(law, rate, n * rate, scv).mean for n in (1, 2, 5, 20, 1000)]
    poisson = SingleServerWait(rate, law).mean
    ordered = waits if scv > 1 else waits[::-1]
    assert all(more < less for less, more in pairwise(ordered))
    assert waits[-1] == pytest.approx(poisson, rel=0.02)


def test_heavy_traffic() -> None:
    """Kingman 1962: W (1 - rho) -> (c_a^2 + c_s^2)/2 E[S], c_a^2 = 1 + p (4 - 1)."""
    law = LAWS["three"]
    for share in (1.0, 0.25):
        rate = 0.995 / law.mean
        wait = thinned_wait(law, rate, rate / share, 4.0).mean
        exact = 0.5 * (1 + 3 * share + law.scv) * law.mean / 0.005
        assert wait == pytest.approx(exact, rel=0.02)


def test_edges() -> None:
    law = LAWS["exponential"]
    assert thinned_wait(law, 0.0, 1.0, 4.0).mean == 0.0
    faster = thinned_wait(law, 0.8, 0.4, 4.0)  # above the whole: a faster stream, not split
    assert faster.mean == pytest.approx(thinned_wait(law, 0.8, 0.8, 4.0).mean, rel=1e-12)
    with pytest.raises(UnstableError):
        thinned_wait(law, 1.0, 2.0, 4.0)
