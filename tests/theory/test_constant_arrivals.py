"""Arrivals without any variation, and other corners where a spectrum is 0: numbers, never NaN."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from pdalloc.attainment import attainment
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.laws import Array, Law, constant
from pdalloc.prediction import Prediction, Predictor, predict
from pdalloc.prediction.predictor import REACH
from pdalloc.queueing.decode.operating import OperatingPoint
from pdalloc.queueing.departures import Leaving, renewal_spectrum, served
from pdalloc.queueing.station import station
from pdalloc.simulation import fast
from pdalloc.simulation.attainment import Bound
from pdalloc.simulation.options import PLAIN, MultiToken, SimulationOptions
from pdalloc.simulation.statistics import steady
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import fixed
from pdalloc.workload.traffic import TrafficClass, Workload


def predicted(
    scv: float,
    rule: Dispatch,
    replicas: int,
    load: float = 0.8,
    decode_load: float = 0.5,
    options: SimulationOptions = PLAIN,
    output: float = 100.0,
) -> Prediction:
    """``replicas`` of either role, prompts of .1 s, at these utilisations."""
    rate = load * replicas / 0.1
    slope = decode_load * replicas / (rate * output)
    latency = Latency(AffinePrefill(0.0, 1e-4), AffineDecode(0.02, slope))
    system = System(
        Llm("t", "T", 1e9, 1e5, 1e5, 1e9),
        Workload((TrafficClass("all", rate, fixed(1000.0, output), arrival_scv=scv),)),
        {"a": ReplicaType("a", Gpu("a", "A"), 1, ROLES, latency, 1.0)},
        Link(0.0, math.inf),
        dict.fromkeys(ROLES, rule),
        "prefill",
    )
    fleet = Fleet.of({(role, "a"): replicas for role in ROLES})
    return predict(Predictor(system, options), fleet, {(role, "a"): rate for role in ROLES})


@pytest.mark.parametrize("rule", get_args(Dispatch))
@pytest.mark.parametrize("replicas", [1, 4])
def test_constant_arrivals_have_numbers(rule: Dispatch, replicas: int) -> None:
    """c_a = 0 and constant service: E2E at least prefill and one step per gap, TPOT at least a."""
    prediction = predicted(0.0, rule, replicas)
    [(p, d)] = prediction.paths()
    for metric, least in (("ttft", 0.1), ("tpot", 0.02), ("e2e", 0.1 + 99 * 0.02)):
        law = prediction.predictor.law(metric, 0, p, d)
        for found in (law.mean, law.quantile(0.5), law.quantile(0.99)):
            assert found >= least * (1.0 - 1e-9), metric
    bounds = [Bound("ttft", 1.0), Bound("tpot", 1.0), Bound("e2e", 1e3)]
    assert attainment(prediction, bounds) > 0.5


@pytest.mark.parametrize("scv", [0.0, 1e-6])
def test_spectrum_of_constant_gaps_is_not_negative(scv: float) -> None:
    """F >= 0, and whatever share is kept of such a stream has a lean."""
    frequency = np.geomspace(1e-6, 1e3, 500)
    assert np.all(renewal_spectrum(2.0, scv)(frequency) >= 0.0)
    pool = Leaving(station(4.0, constant(1.0), 8, scv), 1.0)
    stream = served([pool], renewal_spectrum(4.0, scv))
    for share in (1.0, 0.3):
        assert np.all(np.isfinite(stream.thinned(share).lean(np.array([0.1, 10.0]))))
    assert np.all(np.isfinite(pool.echo(frequency)))


def test_a_law_without_numbers_is_no_answer() -> None:
    """NaN is never read as 0 seconds."""

    class Nothing(Law):
        mean = math.nan

        def _horizon_guess(self) -> float:
            return 1.0

        def lattice(self, step: float, points: int) -> Array:
            return np.full(points, math.nan)

    with pytest.raises(UnsupportedError, match="no numbers"):
        Nothing().quantile(0.5)


def test_all_tokens_in_one_step() -> None:
    """Four tokens a step and answers of four: TPOT is 0, and joint bounds keep their meaning."""
    options = SimulationOptions(multi_token=MultiToken(4.0))
    prediction = predicted(1.0, "random", 2, 0.5, 0.3, options, output=4.0)
    bounds = [Bound("ttft", 0.5), Bound("tpot", 0.5), Bound("e2e", 2.0)]
    alone = min(attainment(prediction, [b]) for b in bounds)
    assert 0.5 < attainment(prediction, bounds) <= alone + 1e-6


def test_prefill_gives_out_no_more_than_it_can() -> None:
    """Echo: REACH deviations beyond the mean wait, a step is at most the fluid one at full prefill.

    Simulated P99 of E2E at rho .97: within 15 %; without the bound it was 14 to 37 % above.
    """
    prediction = predicted(1.0, "random", 1, 0.97, 0.85)
    [(p, d)] = prediction.paths()
    station_ = d.law.station
    fullest = OperatingPoint(station_.at(station_.rate / p.utilisation)).step
    echo = prediction.predictor.echo(p, d, np.array([99.0]))[0]
    assert echo * REACH * math.sqrt(p.wait.variance) <= fullest - d.law.mean_step + 1e-12
    system, fleet = prediction.predictor.system, prediction.fleet
    tails = []
    for seed in range(4):
        log = fast.simulate(system, fleet, {(r, "a"): 1.0 for r in ROLES}, 60_000, seed)
        tails.append(float(np.quantile(np.asarray(log.e2e)[steady(log)], 0.99)))
    law = prediction.predictor.law("e2e", 0, p, d)
    assert law.quantile(0.99) == pytest.approx(np.mean(tails), rel=0.15)
