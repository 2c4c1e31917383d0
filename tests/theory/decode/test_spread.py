"""What dispatch makes of the arrivals and of the batch of one replica."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.queueing.decode.spread import _whole_clump, replica_spectrum, spread
from pdalloc.queueing.departures import renewal_spectrum

RATE = 3.0


@pytest.mark.parametrize("scv", [0.0, 0.25, 1.0, 4.0])
@pytest.mark.parametrize("every", [1, 4])
def test_spectrum_runs_from_the_scv_to_one(scv: float, every: int) -> None:
    """F(0) is the SCV of the gaps (of ``every`` of them summed), F(inf) = 1 where gaps are
    smooth."""
    found = renewal_spectrum(RATE, scv, every)(np.array([1e-9, 1e-4, 1e5]))
    assert found[:2] == pytest.approx(np.full(2, scv / every), abs=1e-3)
    if scv > 0.0 and every / scv >= 1.0:
        assert found[2] == pytest.approx(1.0, abs=1e-3)


def test_poisson_is_flat() -> None:
    frequency = np.geomspace(1e-6, 1e4, 50)
    assert renewal_spectrum(RATE, 1.0)(frequency) == pytest.approx(np.ones(50), rel=1e-9)


def test_erlang_two_spectrum() -> None:
    """Erlang-2 gaps of rate 1: F = Re (1+phi)/(1-phi), phi = (1 + i w/2)^-2; by hand
    F = 1 - 8/(16 + w^2)."""
    w = np.array([0.1, 1.0, 5.0, 30.0])
    assert renewal_spectrum(1.0, 0.5)(w) == pytest.approx(1.0 - 8.0 / (16.0 + w**2), rel=1e-9)


def test_round_robin_of_poisson_is_erlang() -> None:
    """Every second arrival of Poisson 2 is Erlang-2 of rate 1."""
    w = np.array([0.1, 1.0, 5.0, 30.0])
    assert renewal_spectrum(2.0, 1.0, 2)(w) == pytest.approx(renewal_spectrum(1.0, 0.5)(w))


def test_streams_of_one_replica(pools: Any) -> None:
    """Random thinning keeps 1/R of the excess over Poisson (Cox 1962); Poisson stays Poisson."""
    w = np.geomspace(1e-6, 1e2, 20)
    station = pools.station(0.5, replicas=4, arrival_scv=4.0)
    thinned, whole = replica_spectrum(station), renewal_spectrum(station.rate, 4.0)
    assert thinned is not None
    assert thinned(w) - 1.0 == pytest.approx((whole(w) - 1.0) / 4.0)
    assert replica_spectrum(pools.station(0.5, replicas=4)) is None
    turns = replica_spectrum(pools.station(0.5, replicas=4, dispatch="round_robin"))
    assert turns is not None
    assert turns(np.array([1e-9]))[0] == pytest.approx(0.25, abs=1e-6)


@pytest.mark.parametrize("dispatch", ["round_robin", "least_loaded", "central_queue"])
def test_one_replica_knows_no_dispatch(dispatch: str, pools: Any) -> None:
    """R = 1: the same moments under every rule."""
    plain = pools.station(0.6)
    other = pools.station(0.6, dispatch=dispatch)
    a, b = (spread(s, 25.0, (1.0, 0.0)).own for s in (plain, other))
    assert a == b


@pytest.mark.parametrize("rho", [0.3, 0.8])
@pytest.mark.parametrize("replicas", [2, 8, 64])
def test_pool_of_equal_batches(rho: float, replicas: int, pools: Any) -> None:
    """Kept equal, R replicas are one of (a, b/R): Var of the mean batch is 1/R of one's, and
    mean TPOT is (a + b/R)/(1 - rho) and what unevenness costs (reference notes 2)."""
    step = 10.0 / (1.0 - rho)
    station = pools.station(rho, replicas=replicas, dispatch="least_loaded")
    found = spread(station, step, (1.0, 0.0))
    alone = spread(pools.station(rho), step, (1.0, 0.0)).own
    assert found.pool.var_batch == pytest.approx(alone.var_batch / replicas, rel=1e-9)
    least = (10.0 + 1.0 / replicas) / (1.0 - rho)
    assert least * 0.995 <= found.own.step + found.own.itl_lift <= least * 1.01


@pytest.mark.parametrize("replicas", [2, 8])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_least_loaded_spreads_least_and_random_most(replicas: int, rho: float, pools: Any) -> None:
    """For random lengths; with fixed ones round robin is as even as a pool can be."""
    step = 10.0 / (1.0 - rho)
    variance = {
        rule: spread(
            pools.station(rho, work=pools.work("geometric"), replicas=replicas, dispatch=rule),
            step,
            (1.0, 0.0),
        ).own
        for rule in ("random", "round_robin", "least_loaded", "central_queue")
    }
    least = variance["least_loaded"].var_batch
    assert least < variance["round_robin"].var_batch < variance["random"].var_batch
    assert least < variance["central_queue"].var_batch < variance["random"].var_batch


@pytest.mark.parametrize("scv", [0.25, 4.0, 9.0])
@pytest.mark.parametrize("rho", [0.05, 0.3, 0.7])
def test_bursts_make_peaked_batches(scv: float, rho: float, pools: Any) -> None:
    """Reference notes 2: mean TPOT ~ (a + b z)/(1 - rho), z = 1 + (SCV - 1) int (1-G)^2/E[L],
    within 5 % (12 % for fixed lengths): the same quantum without the approximation of slow
    bursts."""
    station = pools.station(rho, a=40.0, work=pools.work("geometric"), arrival_scv=scv)
    m = spread(station, 40.0 / (1.0 - rho), (1.0, 0.0)).own
    z = 1.0 + (scv - 1.0) * station.work.overlap
    assert m.step + m.itl_lift == pytest.approx((40.0 + z) / (1.0 - rho), rel=0.05)


def test_contexts_stay_uneven_under_least_loaded(pools: Any) -> None:
    """Counts are balanced, contexts are not: with a context term R = 64 keeps most of the
    contexts' variance, c^2 m Var(context)."""
    work = pools.work("fixed", prompts=(10.0, 4000.0))
    c = 0.9 / work.mean_context
    station = pools.station(0.3, b=0.1, c=c, work=work, replicas=64, dispatch="least_loaded")
    m = spread(station, 10.0 / 0.7, (0.1, c)).own
    own = c**2 * work.context_variance * m.batch
    assert own < m.var_step < own + 0.25 + 20.0 / 64.0


@pytest.mark.parametrize("mean", [0.3, 0.9, 1.6, 3.2])
def test_whole_clumps_vary_least_next_to_their_mean(mean: float) -> None:
    """E[N^2]/E[N] of N in {floor, floor + 1}, by hand; no whole number of that mean has less."""
    low = math.floor(mean)
    up = mean - low
    least = ((1.0 - up) * low**2 + up * (low + 1.0) ** 2) / mean
    assert _whole_clump(mean) == pytest.approx(least)
    assert _whole_clump(mean) <= 1.0 + mean  # Poisson


def test_turns_of_an_irregular_stream_share_its_bursts(pools: Any) -> None:
    """Each r-th of a Poisson stream with spectrum F: that of Poisson gaps of r summed, F/r at 0."""
    w = np.array([1e-9, 0.1, 1.0])
    plain = pools.station(0.5, replicas=4, dispatch="round_robin")
    same = replace(plain, arrivals=lambda frequency: np.ones_like(frequency))
    smooth = replace(plain, arrivals=lambda frequency: np.full_like(frequency, 0.4))
    turns, unchanged, fewer = (replica_spectrum(s) for s in (plain, same, smooth))
    assert turns is not None
    assert unchanged is not None
    assert fewer is not None
    assert unchanged(w) == pytest.approx(turns(w))
    assert fewer(w)[0] == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("dispatch", ["random", "least_loaded", "central_queue", "round_robin"])
def test_smooth_arrivals_make_steady_steps(dispatch: str, pools: Any) -> None:
    """F < 1 at every frequency: less variance, the same fluid step."""
    plain = pools.station(0.6, replicas=3, dispatch=dispatch)
    smooth = replace(plain, arrivals=lambda frequency: np.full_like(frequency, 0.3))
    found = [spread(s, 25.0, (1.0, 0.0)).own for s in (plain, smooth)]
    assert found[1].var_step < found[0].var_step
    assert found[1].step == found[0].step


@pytest.mark.parametrize("dispatch", ["least_loaded", "central_queue"])
def test_what_sets_replicas_apart_is_sooner_forgotten(dispatch: str, pools: Any) -> None:
    """Feedback prolongs the memory of the pool's mean by 1/(1 - rho); a replica's own noise has
    none. One step keeps all of the variance."""
    station = pools.station(0.7, replicas=4, dispatch=dispatch)
    found = spread(station, 35.0, (1.0, 0.0))
    steps = np.array([1.0, 50.0, 200.0, 1000.0])
    assert found.apart is not None
    kept, shared, own = found.averaging(steps), found.fluctuation.averaging(steps), found.apart
    assert kept[0] == pytest.approx(1.0, abs=1e-3)
    assert np.all(kept[1:] < shared[1:])
    assert np.all(kept[1:] > own.averaging(steps)[1:])


def test_a_lone_replica_remembers_as_its_pool_does(pools: Any) -> None:
    """R = 1, and random dispatch: one fluctuation."""
    steps = np.array([10.0, 100.0])
    for station in (pools.station(0.7), pools.station(0.7, replicas=4)):
        found = spread(station, 35.0, (1.0, 0.0))
        assert found.apart is None
        assert found.averaging(steps) == pytest.approx(found.fluctuation.averaging(steps))
