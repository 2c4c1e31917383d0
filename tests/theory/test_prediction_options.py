"""What predictions read of a simulation's options: tokens per step, KV memory, links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.prediction import Predictor, predict
from pdalloc.simulation import fast
from pdalloc.simulation.options import KvMemory, MultiToken, Network, SimulationOptions
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
    """Full reservation of 1100 tokens each: 13,800 hold 12 at most."""
    of = system(fixed(1000, 100), 1.0, kv_tokens=13_800.0)
    r = of.replica_types["r"]
    assert Predictor(of, SimulationOptions(kv=KvMemory("full"))).slots(r) == 12
    assert Predictor(of).slots(r) == r.batch_limit(Predictor(of).context) == 13


PROMPTS = LengthLaw(np.array([500.0, 1000.0, 3000.0]), np.full(3, 20.0), np.array([0.4, 0.4, 0.2]))


def linked(sharing: str, scope: str, ratio: float) -> tuple[System, SimulationOptions]:
    """A transfer takes ``ratio`` of a prefill; 70 % of a prefill replica's time is used."""
    of = system(PROMPTS, 0.7 / (PREFILL_SECONDS * 1200.0))
    of = replace(of, link=Link(1e-3, 1.0 / (ratio * PREFILL_SECONDS)))
    return of, SimulationOptions(network=Network(sharing, scope))  # type: ignore[arg-type]


@pytest.mark.parametrize(("sharing", "within"), [("fcfs", 0.35), ("processor_sharing", 0.35)])
@pytest.mark.parametrize("ratio", [0.4, 0.8])
def test_links_of_replicas_against_simulation(sharing: str, within: float, ratio: float) -> None:
    """Stated: what sharing adds within a third where it is a tenth of a transfer or more."""
    of, options = linked(sharing, "replica", ratio)
    fleet = Fleet.of({(PREFILL, "r"): 1, (DECODE, "r"): 1})
    rates = dict.fromkeys(fleet.counts, of.workload.rate)
    added = []
    for seed in range(4):
        log = fast.simulate(of, fleet, rates, 30_000, seed, options=options)
        log = log.select(steady(log))
        alone = 1e-3 + ratio * PREFILL_SECONDS * log.prompt_tokens
        added.append(float((log.transfer_end - log.prefill_end - alone).mean()))
    mean, half_width = interval(added)
    (link,) = predict(Predictor(of, options), fleet, rates).links()
    work = ratio * PREFILL_SECONDS * 1200.0
    assert link.utilisation == pytest.approx(of.workload.rate * work, rel=1e-9)
    assert link.mean_delay == pytest.approx(mean, abs=within * mean + half_width + 0.05 * work)


def test_a_link_reaches_every_metric() -> None:
    """What it adds on average is added to TTFT and E2E; TPOT under ``prefill`` has it / gaps."""
    of, options = linked("fcfs", "fabric", 0.6)
    plain, shared = Predictor(of), Predictor(of, options)
    r = of.replica_types["r"]
    rate = of.workload.rate
    delay = fabric_wait(of)
    for metric, share in (("ttft", 1.0), ("e2e", 1.0)):
        laws = [q.law(metric, 0, q.prefill(r, rate), q.decode(r, rate)) for q in (plain, shared)]
        assert laws[1].mean - laws[0].mean == pytest.approx(share * delay, rel=1e-6)
    early = replace(of, first_token="prefill")
    gaps = 19.0
    laws = [
        q.law("tpot", 0, q.prefill(r, rate), q.decode(r, rate))
        for q in (Predictor(early), Predictor(early, options))
    ]
    assert laws[1].mean - laws[0].mean == pytest.approx(delay / gaps, rel=1e-6)


def fabric_wait(of: System) -> float:
    """Pollaczek-Khinchine of the fabric at 0.6 of a prefill each."""
    w = 0.6 * PREFILL_SECONDS * PROMPTS.prompt
    rate = of.workload.rate
    rho = rate * float(PROMPTS.weight @ w)
    return rate * float(PROMPTS.weight @ w**2) / (2.0 * (1.0 - rho))


def test_links_between_sites() -> None:
    """Each pair of sites has its own link; the latency of the slow one is felt."""
    of = system(fixed(1000, 10), 1.0)
    far = Link(0.5)
    sites = {(PREFILL, "r"): "east", (DECODE, "r"): "west"}
    options = SimulationOptions(network=Network(sites=sites, links={("east", "west"): far}))
    r = of.replica_types["r"]
    plain, remote = (
        q.law("ttft", 0, q.prefill(r, 1.0), q.decode(r, 1.0)).mean
        for q in (Predictor(of), Predictor(of, options))
    )
    assert remote - plain == pytest.approx(0.5 - 5e-3, rel=1e-9)


def test_a_full_link_is_unstable() -> None:
    of, options = linked("fcfs", "fabric", 1.6)
    r = of.replica_types["r"]
    predictor = Predictor(of, options)
    p, d = predictor.prefill(r, 1.0), predictor.decode(r, 1.0)
    with pytest.raises(UnstableError, match="link of the fabric"):
        predictor.law("ttft", 0, p, d)


def test_the_wait_for_space_counts_in_ttft() -> None:
    """A transfer begins once its space is reserved, so the wait for it is in TTFT by the end of the
    transfer, and not in TPOT."""
    of = system(fixed(1000, 101), 1.0, "transfer", kv_tokens=8_800.0)
    predictor = Predictor(of, SimulationOptions(kv=KvMemory("full")))
    r = of.replica_types["r"]
    rate = 0.9 * predictor.decode(r, 0.0).law.station.limit
    p, d = predictor.prefill(r, 0.0), predictor.decode(r, rate)
    wait = d.law.mean_slot_wait
    assert wait > 0.05
    ttft = predictor.law("ttft", 0, p, d).mean
    assert ttft == pytest.approx(1000 * PREFILL_SECONDS + 5e-3 + wait, rel=1e-6)
    joins = d.law.mean_boundary_wait / 100.0
    tpot = predictor.law("tpot", 0, p, d).mean
    assert tpot == pytest.approx(d.law.mean_tpot + joins, rel=0.01)


@pytest.mark.parametrize("sharing", ["fcfs", "processor_sharing"])
@pytest.mark.parametrize("scope", ["replica", "fabric"])
@pytest.mark.filterwarnings("error")
def test_infinite_bandwidth_has_nothing_to_share(sharing: str, scope: str) -> None:
    of, options = linked(sharing, scope, 0.6)
    of = replace(of, link=Link(1e-3))
    fleet = Fleet.of({(PREFILL, "r"): 1, (DECODE, "r"): 1})
    rates = dict.fromkeys(fleet.counts, of.workload.rate)
    laws = []
    for predictor in (Predictor(of, options), Predictor(of)):
        prediction = predict(predictor, fleet, rates)
        assert prediction.links() == []
        ((p, d),) = prediction.paths()
        laws.append(predictor.law("ttft", 0, p, d))
    assert laws[0].mean == laws[1].mean
    assert laws[0].quantile(0.9) == laws[1].quantile(0.9)


def test_a_length_that_never_comes_changes_nothing() -> None:
    """One-token answers of weight 0 beside answers of 20."""
    with_zero = LengthLaw(np.array([500.0, 1000.0]), np.array([1.0, 20.0]), np.array([0.0, 1.0]))
    means = []
    for lengths in (with_zero, fixed(1000, 20)):
        predictor = Predictor(system(lengths, 2.0))
        r = predictor.system.replica_types["r"]
        p, d = predictor.prefill(r, 2.0), predictor.decode(r, 2.0)
        means.append([predictor.law(m, 0, p, d).mean for m in ("ttft", "tpot", "itl", "e2e")])
    assert means[0] == pytest.approx(means[1], rel=1e-12)
