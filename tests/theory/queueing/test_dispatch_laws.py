"""Dispatch rules: exact where each server is a queue of its own, ordered as theory orders them."""

from __future__ import annotations

import math

import pytest
from experiments.delay_laws.services import service
from scipy.optimize import brentq

from pdalloc.fleet import Dispatch
from pdalloc.queueing.delay_laws import delay_law, law_named
from pdalloc.queueing.station import Station


def wait(dispatch: Dispatch, servers: int, dist: str = "M", rho: float = 0.8) -> float:
    return delay_law(Station(rho * servers, service(dist), servers, 1.0, dispatch)).mean_wait


@pytest.mark.parametrize("servers", [4, 16])
def test_mean_waits_of_the_rules(servers: int) -> None:
    """M service, rho .8: C/(c(1-rho)); E_c/M/1; c M/M/1 (rho/(1-rho) = 4)."""
    s = brentq(lambda v: (servers * 0.8 / (servers * 0.8 + 1 - v)) ** servers - v, 0.0, 0.99)
    assert wait("random", servers) == pytest.approx(4.0, rel=1e-6)
    assert wait("round_robin", servers) == pytest.approx(s / (1 - s), rel=1e-3)
    assert wait("central_queue", servers) == pytest.approx(
        {4: 0.746, 16: 0.0954}[servers], rel=2e-3
    )
    # simulated with exponential work known on arrival: .836 +- .012 and .127 +- .003
    assert wait("least_loaded", servers) == pytest.approx({4: 0.836, 16: 0.127}[servers], rel=4e-2)


@pytest.mark.parametrize("dist", ["D", "M", "EMP", "LN_2"])
@pytest.mark.parametrize("rho", [0.5, 0.8, 0.95])
def test_order_of_the_rules(dist: str, rho: float) -> None:
    """One queue is best, random worst (Daley 1987); constant service: turns are one queue."""
    waits = [
        wait(rule, 8, dist, rho)
        for rule in ("central_queue", "least_loaded", "round_robin", "random")
    ]
    assert waits[0] <= waits[1] * (1 + 1e-6)
    assert waits[2] < waits[3]
    assert waits[0] <= waits[2] * (1 + 1e-6)
    if dist == "D":
        assert waits[2] == pytest.approx(waits[0], rel=1e-6)


@pytest.mark.parametrize("dispatch", ["random", "round_robin", "least_loaded", "central_queue"])
def test_one_server_knows_no_rule(dispatch: Dispatch) -> None:
    exact = 0.8 * (1 + service("EMP").scv) / (2 * 0.2)
    assert wait(dispatch, 1, "EMP") == pytest.approx(exact, rel=1e-9)


def test_random_dispatch_is_the_single_servers_law() -> None:
    """c M/G/1 of rate lambda/c: every percentile, whatever c."""
    one = delay_law(Station(0.8, service("EMP"), 1))
    many = delay_law(Station(0.8 * 12, service("EMP"), 12, 1.0, "random"))
    for p in (0.5, 0.9, 0.99):
        assert many.wait.quantile(p) == pytest.approx(one.wait.quantile(p), rel=1e-6)


def test_random_dispatch_smooths_bursts() -> None:
    """SCV at a server 1 + (c_a^2 - 1)/c: with many servers a Poisson stream again."""
    bursty = [
        delay_law(Station(0.8 * c, service("M"), c, 4.0, "random")).mean_wait for c in (1, 4, 100)
    ]
    assert bursty[0] > bursty[1] > bursty[2]
    assert bursty[2] == pytest.approx(4.0, rel=2e-2)


def test_round_robin_becomes_clockwork() -> None:
    """E_c gaps tend to constant ones: D/M/1 with s = exp(-(1-s)/rho) (Kleinrock 1975, 6.2)."""
    s = brentq(lambda v: math.exp(-(1 - v) / 0.8) - v, 0.0, 0.99)
    many = delay_law(Station(0.8 * 200, service("M"), 200, 1.0, "round_robin"))
    assert many.mean_wait == pytest.approx(s / (1 - s), rel=1e-2)


@pytest.mark.parametrize("dist", ["D", "M", "EMP"])
def test_least_assigned_work_limits(dist: str) -> None:
    """Heavy traffic: one queue. Light traffic: the wait grows over it by what is left, r."""
    heavy = wait("least_loaded", 4, dist, 0.998) / wait("central_queue", 4, dist, 0.998)
    assert heavy == pytest.approx(1.0, abs=1e-2)
    law = law_named("least_assigned")(Station(2.0, service(dist), 4, 1.0, "least_loaded"))
    left = service(dist).least_assigned(4).mean / service(dist).least_residual_mean(4)
    assert law.excess < left - 1.0  # type: ignore[attr-defined]


def test_least_assigned_work_leaves_servers_idle() -> None:
    """Fewer find all busy than under one queue, since some queue while others idle."""
    for c in (2, 8, 64):
        at = Station(0.9 * c, service("M"), c, 1.0, "least_loaded")
        one = delay_law(Station(0.9 * c, service("M"), c))
        assert delay_law(at).p_wait < one.p_wait


@pytest.mark.parametrize("servers", [4, 64])
def test_bursts_wait_longer_and_regular_arrivals_shorter(servers: int) -> None:
    for dispatch in ("central_queue", "least_loaded", "round_robin", "random"):
        waits = [
            delay_law(Station(0.9 * servers, service("EMP"), servers, scv, dispatch)).mean_wait
            for scv in (0.25, 1.0, 4.0)
        ]
        assert waits == sorted(waits)


def test_bursts_at_one_queue_with_exponential_service() -> None:
    """W | W > 0 of GI/M/c is Exp(c mu (1 - s)), s = E e^{-c mu (1-s) A} (Gross, Harris 5.3.2)."""
    c, rho, scv = 8, 0.9, 4.0
    s = brentq(lambda v: (1 + (1 - v) * scv / rho) ** (-1 / scv) - v, 1e-6, 1 - 1e-6)
    found = law_named("fast_server")(Station(rho * c, service("M"), c, scv))
    assert found.mean_wait / found.p_wait == pytest.approx(1 / (c * (1 - s)), rel=1e-2)


def test_pools_of_several_types_share_a_stream() -> None:
    """Two pools of a role: each a station of its own with its thinned share."""
    role = Station(10.0, service("M"), 16, 3.0, "central_queue")
    big, small = role.share(0.75, servers=12), role.share(0.25, servers=4)
    assert big.rate + small.rate == role.rate
    assert 1.0 < small.arrival_scv < big.arrival_scv < 3.0
    mean = 0.75 * delay_law(big).mean_wait + 0.25 * delay_law(small).mean_wait
    assert mean > delay_law(role).mean_wait
