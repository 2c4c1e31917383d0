"""The law of a replica's batch: product form, quanta, slots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln

from pdalloc.errors import UnstableError
from pdalloc.queueing.batch import BatchLaw
from pdalloc.queueing.decode import DecodeStation
from pdalloc.queueing.decode.batches import Batches, batches

Array = NDArray[np.float64]


def found(station: DecodeStation, quantum: float = 1.0) -> Batches:
    return batches(station, quantum, 10.0, 5.0)


def negative_binomial(k: Array, r: float, rho: float) -> Array:
    log_pi = gammaln(k + r) - gammaln(r) - gammaln(k + 1.0)
    values: Array = np.exp(log_pi + r * math.log1p(-rho) + k * math.log(rho))
    return values


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("a", [2.0, 10.0, 200.0])
def test_negative_binomial(a: float, rho: float, pools: Any) -> None:
    """Reference notes 2: pi(k) = C(k + a/b, k) (1-rho)^(1+a/b) rho^k."""
    law = found(pools.station(rho, a=a))
    exact = negative_binomial(law.batch, 1.0 + a, rho)
    assert law.share == pytest.approx(exact, abs=1e-11)
    assert (law.full, law.load) == (0.0, 0.0)


@pytest.mark.parametrize("slots", [1, 2, 5, 32, 64])
@pytest.mark.parametrize("rho", [0.2, 0.7, 0.97])
def test_slots_equal_the_batch_law(slots: int, rho: float, pools: Any) -> None:
    """Birth and death with mu(k) constant above K: as :class:`BatchLaw`."""
    station = pools.station(rho, a=20.0, slots=slots)
    law = found(station)
    plain = BatchLaw(station.rate, 200.0, lambda k: 20.0 + np.asarray(k, float), slots)
    assert law.full == pytest.approx(plain.wait_probability, rel=1e-9, abs=1e-300)
    assert law.load == pytest.approx(rho, rel=1e-9)
    assert float(law.share @ law.batch) == pytest.approx(plain.mean_batch, rel=1e-9)


@pytest.mark.parametrize("quantum", [0.1, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_quanta_scale_the_variance(quantum: float, rho: float, pools: Any) -> None:
    """k/z negative binomial: mean a rho/(1-rho) + O(z), Var/mean of it z/(1-rho)."""
    law = batches(pools.station(rho, a=40.0), quantum, 40.0 * rho / (1 - rho), 30.0)
    mean = float(law.share @ law.batch)
    variance = float(law.share @ (law.batch - mean) ** 2)
    # over time, not over steps: NB(1 + a/z) quanta
    assert mean == pytest.approx((40.0 + quantum) * rho / (1.0 - rho), rel=0.02)
    assert variance == pytest.approx(quantum * mean / (1.0 - rho), rel=0.03)


@pytest.mark.parametrize("replicas", [2, 5])
@pytest.mark.parametrize("rho", [0.6, 0.95])
def test_quantum_of_a_pool(replicas: int, rho: float, pools: Any) -> None:
    """z = 1/R is birth and death of R replicas whose batches are kept equal: the chance that
    all R K slots are taken agrees with the pool's own product form."""
    slots, a = 16, 20.0
    station = pools.station(rho, a=a, slots=slots)
    law = found(station, 1.0 / replicas)
    work, total = station.rate * 200.0, replicas * slots
    n = np.arange(1, total + 1, dtype=float)
    log_pi = np.cumsum(np.log(replicas * work * (a + n / replicas) / n))
    log_pi = np.append(0.0, log_pi)
    pi = np.exp(log_pi - log_pi.max())
    pi[-1] /= 1.0 - rho
    assert law.full == pytest.approx(pi[-1] / pi.sum(), rel=0.03)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_measured_tables_sum_numerically(rho: float, pools: Any) -> None:
    """A convex step time: pi(k) prop (lambda E[n])^k prod t(j)/j, by hand."""
    still = DecodeStation(0.0, lambda batch, held: 10.0 + 0.01 * batch**2, pools.work(), slots=40)
    station = still.at(rho * still.capacity)
    law = found(station)
    pi = [1.0]
    for k in range(1, 41):
        pi.append(pi[-1] * station.rate * 200.0 * (10.0 + 0.01 * k * k) / k)
    pi[-1] /= 1.0 - rho
    assert law.share == pytest.approx(np.array(pi) / sum(pi), abs=1e-12)


def test_too_near_full_load(pools: Any) -> None:
    with pytest.raises(UnstableError, match=r"rho = 0\.99999"):
        batches(pools.station(0.999999, a=200.0), 1.0, 2e8, 1e7)


def test_no_load_is_an_empty_replica(pools: Any) -> None:
    law = batches(pools.station(1e-9), 1.0, 1e-8, 1e-4)
    assert law.share[0] == pytest.approx(1.0, abs=1e-6)
