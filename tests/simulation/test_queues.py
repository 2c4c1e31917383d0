"""The plain fleet as textbook queues of several servers, at prefill and at decode."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.workload.arrivals import MarkovModulated
from pdalloc.workload.lengths import fixed
from pdalloc.workload.traffic import TrafficClass


def md_c_wait(servers: int, rho: float) -> float:
    """Mean wait of M/D/c in units of D (Tijms 2003, "A First Course in Stochastic Models", 9.6).

    Who is in service is gone D later, nobody who came since: N' = max(N - c, 0) + Poisson(rho c).
    """
    size = 40 * servers + 200
    step = np.zeros((size, size))
    for n in range(size):
        left = max(n - servers, 0)
        step[n, left:] = poisson.pmf(np.arange(size - left), rho * servers)
    law = np.linalg.matrix_power(step / step.sum(axis=1, keepdims=True), 4096)[0]
    return float(law @ np.maximum(np.arange(size) - servers, 0.0)) / (rho * servers)


def test_m_d_c_has_its_known_values() -> None:
    """M/D/1: rho / (2 (1 - rho)); c = 2 and 4 as an independent exact calculation has them."""
    assert md_c_wait(1, 0.8) == pytest.approx(2.0, rel=1e-6)
    assert md_c_wait(2, 0.8) == pytest.approx(0.9032838794, rel=1e-6)
    assert md_c_wait(4, 0.8) == pytest.approx(0.3860949308, rel=1e-6)


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.8), (4, 0.8)])
def test_constant_prefills_under_a_central_queue_are_m_d_c(lab, servers: int, rho: float) -> None:
    s = lab.system(
        Latency(AffinePrefill(1.0, 0.0), AffineDecode(1e-9, 0.0)),
        fixed(1, 1),
        rho * servers,
        "central_queue",
        "prefill",
    )
    waits = lab.replicate(
        lambda run, log: (log.prefill_start - log.arrival).mean(), s, 7000, (servers, 1)
    )
    lab.confirm(waits, md_c_wait(servers, rho), width=0.16)


def test_one_slot_each_makes_decode_m_d_c(lab) -> None:
    """Central queue, K = 1, steps of a: the wait for a slot is that of M/D/c, D = L a."""
    servers, rho, d = 2, 0.8, 1.0
    s = lab.system(
        Latency(lab.INSTANT, AffineDecode(d / 4, 0.0)),
        fixed(1, 4),
        rho * servers / d,
        "central_queue",
        max_batch=1,
    )
    waits = lab.replicate(
        lambda run, log: (log.decode_start - log.transfer_end).mean(), s, 4000, (1, servers)
    )
    lab.confirm(waits, md_c_wait(servers, rho) * d, width=0.16)


def test_slow_bursts_wait_as_two_queues(lab) -> None:
    """States that last long against a service: the wait is that of each state's own M/D/1,
    weighted by the arrivals in it (quasi-stationary limit); both are stable.
    """
    rates, weights = np.array([0.2, 0.7]), np.array([0.5, 0.5])
    waits = rates / (2 * (1 - rates))
    expected = float((weights * rates) @ waits / (weights @ rates))
    bursts = MarkovModulated(tuple(rates.tolist()), (2000.0, 2000.0))
    traffic = TrafficClass("all", bursts.rate, fixed(1, 1), arrivals=bursts)
    latency = Latency(AffinePrefill(1.0, 0.0), AffineDecode(1e-9, 0.0))
    s = lab.system(latency, first_token="prefill", traffic=traffic)
    found = lab.replicate(lambda run, log: (log.prefill_start - log.arrival).mean(), s, 15_000)
    lab.confirm(found, expected, width=0.25)
