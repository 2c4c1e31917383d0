"""A station refuses what is none, and splits as renewal theory says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from experiments.delay_laws.services import service

from pdalloc.errors import InputError, UnstableError
from pdalloc.laws import constant
from pdalloc.queueing.decode import DecodeStation, decode_work
from pdalloc.queueing.station import Station, station


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": math.nan},
        {"rate": -1.0},
        {"rate": math.inf},
        {"servers": 0},
        {"servers": 2.0},
        {"servers": True},
        {"arrival_scv": math.nan},
        {"arrival_scv": -0.1},
        {"dispatch": "shortest"},
        {"gaps": "pareto"},
        {"gaps": "hyperexponential", "arrival_scv": 1.0},
    ],
    ids=str,
)
def test_what_is_no_station_is_refused_in_one_line(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"rate": 1.0, "service": service("M"), "servers": 4}
    with pytest.raises(InputError) as caught:
        Station(**(good | wrong))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("rate", "least"), [(4.0, 5), (4.1, 5), (17.0, 18), (4.9999, 5)])
def test_overload_names_utilisation_and_least_count(rate: float, least: int) -> None:
    """Stable needs c > a: the least c is floor(a) + 1."""
    with pytest.raises(UnstableError) as caught:
        station(rate, constant(1.0), servers=4)
    assert f"utilisation {rate / 4:.3f}" in str(caught.value)
    assert f"at least {least} servers" in str(caught.value)
    assert station(rate, constant(1.0), servers=least).utilisation < 1.0


def test_load_and_utilisation() -> None:
    at = station(6.0, constant(0.5), servers=4)
    assert (at.load, at.utilisation) == (3.0, 0.75)
    assert at.at(2.0).utilisation == 0.25


def test_thinning() -> None:
    """Keeping each arrival with probability p: rate p lambda, SCV 1 + p (SCV - 1) (Cox 1962)."""
    pool = station(6.0, constant(0.5), servers=4, arrival_scv=5.0)
    half = pool.share(0.5, servers=2)
    assert (half.rate, half.servers, half.arrival_scv) == (3.0, 2, 3.0)
    assert half.share(0.5).arrival_scv == pool.share(0.25).arrival_scv


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(InputError, match="share"):
        station(1.0, constant(0.1)).share(share)


def test_bursty_gaps_become_gamma_when_they_are_no_longer_bursty() -> None:
    bursty = Station(1.0, service("M"), 4, 4.0, gaps="hyperexponential")
    assert bursty.poisson.gaps == "gamma"
    assert bursty.share(0.5).gaps == "hyperexponential"


@pytest.mark.parametrize(("servers", "words"), [(1, "1 server is"), (2, "2 servers are")])
def test_one_is_not_many(servers: int, words: str) -> None:
    with pytest.raises(UnstableError, match=f"^{words} offered 9 req/s"):
        station(9.0, constant(1.0), servers)
    work = decode_work(np.array([100.0]), np.array([50.0]), np.ones(1))
    with pytest.raises(UnstableError, match=f"^{words.replace('server', 'decode replica')} off"):
        DecodeStation(9.0, lambda batch, held: 1.0 + batch, work, servers)
