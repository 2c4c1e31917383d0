"""What leaves a prefill pool: closed forms, limits, and simulated queues."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import gamma, norm

from pdalloc.fleet import Dispatch
from pdalloc.laws import Array, Atoms, Exponentials, StopLossLaw, constant
from pdalloc.queueing.departures import (
    Leaving,
    departures,
    relaxation,
    renewal_spectrum,
    served,
    thinned,
)
from pdalloc.queueing.station import station

W = np.geomspace(1e-6, 10.0, 40)


def exponential(mean: float = 1.0) -> Exponentials:
    return Exponentials(np.array([mean]), np.ones(1), np.zeros(1))


def gamma_atoms(scv: float) -> Atoms:
    """2,000 equally likely points of a gamma law of mean 1."""
    values = gamma.ppf((np.arange(2000) + 0.5) / 2000, 1.0 / scv, scale=scv)
    return Atoms(values / values.mean(), np.full(2000, 1 / 2000))


def pool(
    rho: float,
    service: StopLossLaw,
    servers: int = 1,
    scv: float = 1.0,
    dispatch: Dispatch = "central_queue",
    share: float = 1.0,
) -> Leaving:
    rate = rho * servers / service.mean
    return Leaving(station(rate, service, servers, scv, dispatch), share)


def spectrum_of(leaving: Leaving, scv: float) -> Callable[[Array], Array]:
    return departures([leaving], renewal_spectrum(leaving.station.rate, scv))


@pytest.mark.parametrize("servers", [1, 4, 30])
@pytest.mark.parametrize("dispatch", ["random", "central_queue", "least_loaded"])
def test_poisson_in_poisson_out(servers: int, dispatch: Dispatch) -> None:
    """M/M/c: departures are Poisson (Burke 1956)."""
    found = spectrum_of(pool(0.8, exponential(), servers, dispatch=dispatch), 1.0)(W)
    assert found == pytest.approx(np.ones(len(W)), rel=1e-6)


@pytest.mark.parametrize("service", [constant(1.0), gamma_atoms(0.5), exponential()])
@pytest.mark.parametrize("scv", [0.3, 1.0, 4.0])
def test_what_comes_in_goes_out(service: StopLossLaw, scv: float) -> None:
    """Counts over very long times: F_d(0) = F_a(0)."""
    found = spectrum_of(pool(0.7, service, 3, scv), scv)(np.array([1e-9]))
    assert found[0] == pytest.approx(scv, abs=2e-3)


def test_busy_server_sets_the_pace() -> None:
    """rho -> 1: F_d is the server's own at any fixed frequency."""
    service = gamma_atoms(0.5)
    found = spectrum_of(pool(0.9999, service, 1, 4.0), 4.0)(np.array([0.05, 0.2]))
    assert found == pytest.approx(
        renewal_spectrum(1.0, service.scv)(np.array([0.05, 0.2])), rel=0.03
    )


def test_many_idle_servers_displace_at_random() -> None:
    """GI/M/inf: F_d - 1 = |S|^2 (F_a - 1), |S|^2 = 1/(1 + w^2) (Cox and Isham 1980)."""
    leaving = pool(1e-4, exponential(), 100, 3.0)
    frequency = np.array([1e-4, 1e-3, 1e-2])  # where the queue's own memory is far shorter
    came = renewal_spectrum(leaving.station.rate, 3.0)(frequency)
    exact = 1.0 + (came - 1.0) / (1.0 + frequency**2)
    found = spectrum_of(leaving, 3.0)(frequency)
    assert found == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("time", [0.05, 0.5, 2.0, 10.0])
def test_transform_of_the_weight_of_whitt_and_you(time: float) -> None:
    """V(t) = t w*(t) = (2/pi) int W (1 - cos wt)/w^2 dw, w* their eq. for reflected Brownian
    motion of drift -1 and variance 1; theta = 1."""
    root = math.sqrt(time)
    w_star = (
        (time**2 + 2.0 * time - 1.0) * (2.0 * norm.cdf(root) - 1.0)
        + 2.0 * norm.pdf(root) * root * (1.0 + time)
        - time**2
    ) / (2.0 * time)
    leaving = pool(0.5, constant(1.0))
    theta = 0.5**2 * 1.0 / (0.5**2 * leaving.station.rate)
    frequency = np.geomspace(1e-6, 1e6, 400_000)
    kept = leaving.kept(frequency / theta)
    integrand = kept * (1.0 - np.cos(frequency * time)) / frequency**2
    found = 2.0 / math.pi * float(np.trapezoid(integrand, frequency))
    assert found == pytest.approx(time * w_star, rel=1e-3)


def fcfs(rng: np.random.Generator, scv: float, service: Array, servers: int) -> tuple[Array, Array]:
    """(departure times in order, waits in that order) of a GI/G/c queue with mean service 1."""
    import heapq

    count = len(service)
    gaps = rng.gamma(1.0 / scv, scv, count) / (0.85 * servers)
    arrivals, free = np.cumsum(gaps), [0.0] * servers
    waits = np.empty(count)
    for i, at in enumerate(arrivals):
        start = max(at, free[0])
        heapq.heapreplace(free, start + service[i])
        waits[i] = start - at
    left = arrivals + waits + service
    order = np.argsort(left)
    return left[order], waits[order]


@pytest.mark.parametrize(("scv", "service_scv", "servers"), [(1.0, 0.0, 4), (3.0, 0.5, 8)])
def test_simulated_spectrum(scv: float, service_scv: float, servers: int) -> None:
    """Periodograms within 20 % and three standard errors, below a tenth of the rate."""
    rng = np.random.default_rng(5)
    count = 300_000
    service = np.ones(count)
    if service_scv > 0.0:
        service = rng.gamma(1.0 / service_scv, service_scv, count)
    left, _ = fcfs(rng, scv, service, servers)
    law = gamma_atoms(service_scv) if service_scv > 0.0 else constant(1.0)
    leaving = pool(0.85, law, servers, scv)
    rate = leaving.station.rate
    for frequency in (0.01 * rate, 0.03 * rate, 0.1 * rate):
        span = 2.0 * math.pi / frequency * 20
        pieces = np.split(left, np.searchsorted(left, np.arange(span, left[-1], span)))[:-1]
        powers = [abs(np.exp(-1j * frequency * x).sum()) ** 2 / (rate * span) for x in pieces]
        error = np.std(powers) / math.sqrt(len(powers))
        exact = spectrum_of(leaving, scv)(np.array([frequency]))[0]
        assert abs(np.mean(powers) - exact) <= 0.2 * exact + 3.0 * error


def test_echo_of_constant_service() -> None:
    """M/D/1: Cov(W, departures in the next t) = lambda Var W (1 - c*), and so in the last t.

    Both from the transform: density over [0, t] of its causal and its other half; simulated
    within 15 %."""
    rng = np.random.default_rng(7)
    left, waits = fcfs(rng, 1.0, np.ones(400_000), 1)
    some = np.arange(5_000, len(left) - 5_000)
    leaving = pool(0.85, constant(1.0))
    time = 20.0
    frequency = np.linspace(1e-5, 60.0, 2_000_000)
    window = (1.0 - np.exp(1j * frequency * time)) / (-1j * frequency)
    echo = leaving.echo(frequency)
    spread = np.trapezoid
    both = float(spread((echo * 2.0 * window.real).real, frequency)) / math.pi
    counts = np.searchsorted(left, left[some] + time) - np.searchsorted(left, left[some] - time)
    simulated = np.cov(waits[some], counts)[0, 1] / waits[some].var()
    assert both == pytest.approx(simulated, rel=0.15)


def test_echo_forgets_the_past_where_departures_are_poisson() -> None:
    """M/M/1: kappa = 0; what left before tells nothing of the wait (Burke 1956): causal only."""
    leaving = pool(0.7, exponential())
    frequency = np.linspace(1e-4, 200.0, 400_000)
    echo = leaving.echo(frequency)
    before = np.trapezoid((echo * np.exp(-1j * frequency * 3.0)).real, frequency) / math.pi
    after = np.trapezoid((echo * np.exp(1j * frequency * 3.0)).real, frequency) / math.pi
    assert abs(before) < 0.02 * after


def test_pools_share_the_bursts_and_not_the_noise() -> None:
    """Two halves under random dispatch leave as two queues of one role do."""
    whole = pool(0.6, constant(1.0), 2, 4.0, "random")
    halves = [pool(0.6, constant(1.0), 1, 2.5, "random", 0.5) for _ in range(2)]
    came = renewal_spectrum(whole.station.rate, 4.0)
    assert departures(halves, came)(W) == pytest.approx(departures([whole], came)(W))


def test_thinning_leads_to_poisson() -> None:
    """Each kept with probability p: F - 1 is p times as much (Cox 1962, section 8.5)."""
    came = renewal_spectrum(2.0, 3.0)
    assert thinned(came, 0.25)(W) - 1.0 == pytest.approx(0.25 * (came(W) - 1.0))


def test_a_queue_forgets_the_faster_the_more_room() -> None:
    """M/M/1: mu (1 - sqrt rho)^2 (Cohen 1982, section II.2)."""
    assert relaxation(0.25, 1.0, 2.0) == pytest.approx(0.5 * 0.25)
    assert relaxation(0.9, 4.0, 1.0) < relaxation(0.8, 4.0, 1.0)


@pytest.mark.parametrize("time", [1.0, 30.0, 1e3])
def test_poisson_departures_do_not_lean(time: float) -> None:
    """M/M/c: a = 1/2."""
    assert pool(0.8, exponential(), 3).lean(np.array([time]))[0] == pytest.approx(0.0, abs=1e-6)


def test_lean_of_constant_service() -> None:
    """M/D/1 at .85: the skewness of counts over 30 services, less that of the arrivals' own.

    Poisson counts over t have 1/sqrt(rate t); what passes the queue keeps about w* of its third
    cumulant. Simulated within .25.
    """
    rng = np.random.default_rng(3)
    left, _ = fcfs(rng, 1.0, np.ones(600_000), 1)
    leaving = pool(0.85, constant(1.0))
    time = 30.0
    counts = np.histogram(left, np.arange(left[0], left[-1], time))[0].astype(float)
    off = counts - counts.mean()
    simulated = (off**3).mean() / off.std() ** 3
    assert simulated < 0.0
    assert leaving.lean(np.array([time]))[0] == pytest.approx(simulated, abs=0.25)


def test_a_thinned_stream_leans_less() -> None:
    """Whatever is kept at random is Poisson in the limit."""
    stream = served([pool(0.9, constant(1.0))], renewal_spectrum(0.9, 1.0))
    time = np.array([20.0])
    leans = [stream.thinned(share).lean(time)[0] for share in (1.0, 0.5, 0.01)]
    assert leans[0] == stream.lean(time)[0]
    assert leans[0] < leans[1] < leans[2] < 0.0
    assert leans[2] > 0.01 * leans[0]


def test_never_more_irregular_than_what_came() -> None:
    """Service more variable than the arrivals: their own spectrum is kept."""
    stream = served([pool(0.9, gamma_atoms(3.0))], renewal_spectrum(0.9, 1.0))
    assert np.all(stream.spectrum(W) <= 1.0 + 1e-9)


@pytest.mark.parametrize("dispatch", ["random", "round_robin"])
def test_simulated_spectrum_of_queues_apart(dispatch: Dispatch) -> None:
    """Six M/D/1-like queues under bursts: what they share comes through by |h|^2 alone.

    Periodograms within 20 % and three standard errors."""
    rng = np.random.default_rng(9)
    count, servers, scv = 400_000, 6, 3.0
    arrivals = np.cumsum(rng.gamma(1.0 / scv, scv, count)) / (0.85 * servers)
    to = rng.integers(servers, size=count) if dispatch == "random" else np.arange(count) % servers
    left = []
    for k in range(servers):
        mine = arrivals[to == k]
        n = np.arange(len(mine))
        left.append(np.maximum.accumulate(mine - n) + n + 1.0)  # Lindley, service 1
    times = np.sort(np.concatenate(left))
    leaving = pool(0.85, constant(1.0), servers, scv, dispatch)
    rate = leaving.station.rate
    for frequency in (0.003 * rate, 0.01 * rate, 0.03 * rate):
        span = 2.0 * math.pi / frequency * 10
        pieces = np.split(times, np.searchsorted(times, np.arange(span, times[-1], span)))[:-1]
        powers = [abs(np.exp(-1j * frequency * x).sum()) ** 2 / (rate * span) for x in pieces]
        error = np.std(powers) / math.sqrt(len(powers))
        exact = spectrum_of(leaving, scv)(np.array([frequency]))[0]
        assert abs(np.mean(powers) - exact) <= 0.2 * exact + 3.0 * error


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_pools_of_different_speed(share: float) -> None:
    """A busy pool of constant service beside an idle one: between the two, by their shares.

    Poisson arrivals have nothing in common, so F is the mean of the pools' own (Cox 1962)."""
    came = renewal_spectrum(1.0, 1.0)
    busy = Leaving(station(share, constant(0.95 / share)), share)
    idle = Leaving(station(1.0 - share, constant(1e-3)), 1.0 - share)
    found = departures([busy, idle], came)(W)
    alone = [departures([Leaving(p.station, 1.0)], came)(W) for p in (busy, idle)]
    assert found == pytest.approx(share * alone[0] + (1.0 - share) * alone[1], rel=1e-9)
    assert np.all(found <= 1.0 + 1e-9)


@pytest.mark.parametrize("dispatch", ["random", "round_robin", "central_queue"])
def test_more_load_smooths_more(dispatch: Dispatch) -> None:
    """Constant service: the busier the pool, the less of bursts comes through, at any pace."""
    frequency = np.array([0.003, 0.03, 0.3])
    found = [
        spectrum_of(pool(rho, constant(1.0), 4, 3.0, dispatch), 3.0)(frequency * rho * 4)
        for rho in (0.3, 0.6, 0.8, 0.95)
    ]
    for less, more in pairwise(found):
        assert np.all(more <= less * (1.0 + 1e-6))
