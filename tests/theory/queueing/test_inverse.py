"""The greatest rate under a bound: round trips, closed forms, and what is refused."""

from __future__ import annotations

import math

import pytest
from experiments.delay_laws.services import service
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import InfeasibleError, InputError
from pdalloc.laws import constant
from pdalloc.queueing.delay_laws import all_laws, delay_law, law_named
from pdalloc.queueing.inverse import greatest_rate
from pdalloc.queueing.station import Station, station


@pytest.mark.parametrize("bound", [0.1, 1.0, 30.0])
def test_mm1_mean_sojourn(bound: float) -> None:
    """1/(mu - lambda) = t: lambda = mu - 1/t."""
    at = Station(0.0, service("M"), 1)
    rate = greatest_rate(delay_law, at, 1.0 + bound, of="sojourn")
    assert rate == pytest.approx(1.0 - 1.0 / (1.0 + bound), rel=1e-6)


@pytest.mark.parametrize("bound", [2.0, 8.0])
def test_mm1_wait_percentile(bound: float) -> None:
    """rho e^{-(1-rho) t} = 1 - p, solved by Wright's omega."""
    from scipy.special import wrightomega

    rate = greatest_rate(delay_law, Station(0.0, service("M"), 1), bound, level=0.99)
    exact = float(wrightomega(math.log(0.01 * bound) + bound).real) / bound
    assert rate == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("scv", ["D", "EMP"])
def test_mg1_mean_wait(scv: str) -> None:
    """rho (1+s) / (2 (1-rho)) = t: rho = 2t/(1 + s + 2t)."""
    s, t = service(scv).scv, 1.7
    rate = greatest_rate(delay_law, Station(0.0, service(scv), 1), t)
    assert rate == pytest.approx(2 * t / (1 + s + 2 * t), rel=1e-6)


@pytest.mark.parametrize("name", ["kimura", "dispersion", "boxma_cohen_huffels", "takahashi"])
@pytest.mark.parametrize("level", [None, 0.95])
def test_round_trip(name: str, level: float | None) -> None:
    law = law_named(name)
    at = Station(0.0, service("EMP"), 12)
    rate = greatest_rate(law, at, 0.4, level)
    found = law(at.at(rate))
    delay = found.mean_wait if level is None else found.wait.quantile(level)
    assert delay == pytest.approx(0.4, rel=1e-3)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 60), st.floats(0.3, 0.95), st.sampled_from(["D", "M", "E4", "EMP"]))
def test_round_trip_from_the_rate(servers: int, rho: float, dist: str) -> None:
    """The rate whose delay is the bound is at least the rate that gave it."""
    at = Station(rho * servers, service(dist), servers)
    bound = delay_law(at).mean_wait
    if bound > 1e-9:
        assert greatest_rate(delay_law, at, bound) == pytest.approx(at.rate, rel=1e-4)


def test_a_percentile_inside_the_atom_allows_all_rates_that_keep_it_there() -> None:
    """P90 = 0 as long as P(W > 0) <= .1: the greatest such rate has C = .1."""
    rate = greatest_rate(delay_law, Station(0.0, service("M"), 8), 0.0, level=0.9)
    assert delay_law(Station(rate, service("M"), 8)).p_wait == pytest.approx(0.1, rel=1e-5)


def test_looser_bounds_allow_more() -> None:
    at = Station(0.0, service("EMP"), 8)
    rates = [greatest_rate(delay_law, at, t, 0.99) for t in (0.1, 1.0, 10.0)]
    assert rates == sorted(rates)
    assert rates[-1] < 8.0


def test_a_bound_below_the_service_is_infeasible_with_the_reason() -> None:
    """No count and no rate helps when one service is too long already."""
    with pytest.raises(InfeasibleError, match="idle station already takes") as caught:
        greatest_rate(delay_law, station(0.0, constant(0.218), 2), 0.2, of="sojourn")
    assert "0.218" in str(caught.value)


@pytest.mark.parametrize("bound", [-1.0, math.nan])
def test_what_is_no_bound_is_refused(bound: float) -> None:
    with pytest.raises(InputError, match="bound"):
        greatest_rate(delay_law, Station(0.0, service("M"), 2), bound)


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_what_is_no_level_is_refused(level: float) -> None:
    with pytest.raises(InputError, match="percentile"):
        greatest_rate(delay_law, Station(0.0, service("M"), 2), 1.0, level)


def test_no_bound_to_speak_of_allows_almost_full_load() -> None:
    rate = greatest_rate(all_laws()["kimura"], Station(0.0, service("M"), 4), 1e9)
    assert rate == pytest.approx(4.0, rel=1e-5)
