"""What predictions read of a simulation's options: tokens per step, KV memory."""

from __future__ import annotations

import numpy as np
import pytest

from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.prediction import Predictor, predict
from pdalloc.simulation import fast
from pdalloc.simulation.options import KvMemory, MultiToken, SimulationOptions
from pdalloc.simulation.statistics import interval, steady
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed
from pdalloc.workload.traffic import TrafficClass, Workload

A, B = 20e-3, 1e-3
"""Decode step, s and s/request."""
PREFILL_SECONDS = 1e-4
"""Per prompt token."""


def system(
    lengths: LengthLaw, rate: float, rule: FirstToken = "transfer", kv_tokens: float = 1e9
) -> System:
    """One type, random dispatch, a transfer of 5 ms."""
    latency = Latency(AffinePrefill(0.0, PREFILL_SECONDS), AffineDecode(A, B))
    kind = ReplicaType("r", Gpu("g", "G"), 1, ROLES, latency, 1.0, kv_tokens=kv_tokens)
    return System(
        Llm("m", "M", 1e9, 1.0, 1e6, 1e9),
        Workload((TrafficClass("all", rate, lengths),)),
        {"r": kind},
        Link(5e-3),
        dict.fromkeys(ROLES, "random"),
        rule,
    )


@pytest.mark.parametrize("rule", ["prefill", "transfer", "decode"])
def test_steps_of_several_tokens(rule: FirstToken) -> None:
    """n = 1 + Binomial(D - 1, 1/m) for D tokens decoded; E[TPOT] = E[steps after the first
    token] x t / (L - 1) at no load."""
    options = SimulationOptions(multi_token=MultiToken(2.5, "geometric"))
    predictor = Predictor(system(fixed(1000, 101), 1.0, rule), options)
    decoded = 101 if rule == "decode" else 100
    assert predictor.mean_steps == pytest.approx(1.0 + (decoded - 1) / 2.5, rel=1e-12)
    r = predictor.system.replica_types["r"]
    p, d = predictor.prefill(r, 0.0), predictor.decode(r, 0.0)
    ends = predictor.mean_steps - (1.0 if rule == "decode" else 0.0)
    moved = 5e-3 if rule == "prefill" else 0.0
    mean = (ends * (A + B) + moved) / 100.0
    assert predictor.law("tpot", 0, p, d).mean == pytest.approx(mean, rel=1e-6)
    whole = PREFILL_SECONDS * 1000 + 5e-3 + predictor.mean_steps * (A + B)
    assert predictor.law("e2e", 0, p, d).mean == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("rule", ["prefill", "decode"])
def test_one_token_a_step_is_the_plain_law(rule: FirstToken) -> None:
    of = system(fixed(1000, 101), 1.0, rule)
    r = of.replica_types["r"]
    predictors = Predictor(of, SimulationOptions(multi_token=MultiToken(1.0))), Predictor(of)
    one, plain = (q.law("e2e", 0, q.prefill(r, 2.0), q.decode(r, 2.0)) for q in predictors)
    assert one.quantile(0.9) == pytest.approx(plain.quantile(0.9), rel=1e-9)


def simulated(of: System, options: SimulationOptions) -> dict[str, tuple[float, float]]:
    """(mean, half-width) of what one replica of each role does."""
    fleet = Fleet.of({(PREFILL, "r"): 1, (DECODE, "r"): 1})
    rates = dict.fromkeys(fleet.counts, of.workload.rate)
    found: dict[str, list[float]] = {"tpot": [], "e2e": []}
    for seed in range(4):
        log = fast.simulate(of, fleet, rates, 20_000, seed, options=options)
        log = log.select(steady(log))
        found["tpot"].append(float(np.nanmean(log.tpot)))
        found["e2e"].append(float(log.e2e.mean()))
    return {key: interval(values) for key, values in found.items()}


@pytest.mark.parametrize("law", ["fixed", "geometric"])
@pytest.mark.parametrize("rule", ["prefill", "decode"])
def test_several_tokens_against_simulation(law: str, rule: FirstToken) -> None:
    options = SimulationOptions(multi_token=MultiToken(1.7, law))  # type: ignore[arg-type]
    lengths = LengthLaw(np.full(3, 500.0), np.array([20.0, 60.0, 200.0]), np.full(3, 1 / 3))
    of = system(lengths, 9.0, rule)
    found = simulated(of, options)
    predictor = Predictor(of, options)
    fleet = Fleet.of({(PREFILL, "r"): 1, (DECODE, "r"): 1})
    ((p, d),) = predict(predictor, fleet, dict.fromkeys(fleet.counts, 9.0)).paths()
    for metric, (mean, half_width) in found.items():
        assert predictor.law(metric, 0, p, d).mean == pytest.approx(
            mean, abs=half_width + 0.01 * mean
        )


def test_slots_of_a_memory() -> None:
    """Full reservation of 1100 tokens each: 12 hold at most in 13,800."""
    of = system(fixed(1000, 100), 1.0, kv_tokens=13_800.0)
    r = of.replica_types["r"]
    assert Predictor(of, SimulationOptions(kv=KvMemory("full"))).slots(r) == 12
    assert Predictor(of).slots(r) == r.batch_limit(Predictor(of).context) == 13
