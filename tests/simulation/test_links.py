"""Shared links: hand computation, processor sharing and FCFS theory, sites, jitter."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.hardware.link import Link
from pdalloc.latency.affine import AffineDecode
from pdalloc.latency.service import Latency
from pdalloc.simulation.options import Network, Noise, SimulationOptions
from pdalloc.simulation.reference import replay
from pdalloc.simulation.setup import paths
from pdalloc.workload.lengths import LengthLaw, joint_table

LINK = Link(0.25, 8.0)
TWO = joint_table(np.array([50.0, 400.0]), np.ones(2), np.array([5.0, 1.0]))
THREE = joint_table(np.array([10.0, 100.0, 700.0]), np.ones(3), np.array([50.0, 40.0, 4.0]))


def moved(lab, network: Network, arrival: list[float]):
    """When caches of 8 bytes (1 s of work) arrive; each has its own prefill replica, 2.5 s."""
    n = len(arrival)
    s = lab.system(dispatch="round_robin", link=LINK)
    run = lab.run(s, lab.draws(arrival, [8] * n, [1] * n), (n, 1), network=network)
    assert np.array_equal(run.log.transfer_start, np.array(arrival) + 2.5)
    return run.log.transfer_end.tolist()


def test_without_sharing_each_has_the_link_to_itself(lab) -> None:
    assert moved(lab, Network(), [0.0, 0.5]) == [3.75, 4.25]


def test_fcfs_serves_one_after_another_then_adds_the_latency(lab) -> None:
    """Work 2.5-3.5, then 3.5-4.5; the latency does not keep the link."""
    assert moved(lab, Network("fcfs", "fabric"), [0.0, 0.5]) == [3.75, 4.75]


def test_processor_sharing_gives_each_its_part(lab) -> None:
    """Alone 2.5-3, then two halves: the first is through at 4, the second half a second later."""
    assert moved(lab, Network("processor_sharing", "fabric"), [0.0, 0.5]) == [4.25, 4.75]
    assert moved(lab, Network("processor_sharing", "fabric"), [0.0, 0.0]) == [4.75, 4.75]


def test_links_of_one_replica_are_its_own(lab) -> None:
    assert moved(lab, Network("processor_sharing", "replica"), [0.0, 0.5]) == [3.75, 4.25]


def link_system(lab, law: LengthLaw, rho: float):
    """Prompts of ``law`` come to the link one by one, as a Poisson stream; load ``rho``."""
    latency = Latency(lab.INSTANT, AffineDecode(1e-9, 0.0))
    return lab.system(latency, law, rho / law.mean_prompt, link=Link(0.0, 1.0))


@pytest.mark.parametrize("law", [TWO, THREE])
def test_a_shared_link_is_m_g_1_processor_sharing(lab, law: LengthLaw) -> None:
    """E[T] = E[S] / (1 - rho), whatever the law of S (Kleinrock 1976, vol. 2, chapter 4)."""
    rho = 0.6
    times = lab.replicate(
        lambda run, log: (log.transfer_end - log.transfer_start).mean(),
        link_system(lab, law, rho),
        6000,
        network=Network("processor_sharing", "fabric"),
    )
    lab.confirm(times, law.mean_prompt / (1 - rho), width=0.15)


def test_shared_link_slows_every_size_alike(lab) -> None:
    """E[T | S] = S / (1 - rho): the same slowdown for short and long ones (ibid.)."""
    rho, slowdowns = 0.5, []

    def slowdown(run, log) -> float:
        times = (log.transfer_end - log.transfer_start) / log.prompt_tokens
        slowdowns.append([times[log.prompt_tokens == size].mean() for size in (50, 400)])
        return 0.0

    network = Network("processor_sharing", "fabric")
    lab.replicate(slowdown, link_system(lab, TWO, rho), 4000, network=network)
    for of_one_size in np.transpose(slowdowns):
        lab.confirm(of_one_size, 1 / (1 - rho), width=0.1)


def test_an_fcfs_link_is_m_g_1(lab) -> None:
    """Pollaczek-Khinchine: E[W] = lambda E[S^2] / (2 (1 - rho))."""
    rho = 0.6
    s = link_system(lab, TWO, rho)
    times = lab.replicate(
        lambda run, log: (log.transfer_end - log.transfer_start - log.prompt_tokens).mean(),
        s,
        6000,
        network=Network("fcfs", "fabric"),
    )
    square = TWO.mean(TWO.prompt**2)
    lab.confirm(times, s.workload.rate * square / (2 * (1 - rho)), width=0.15)


def test_both_rules_do_the_same_work(lab) -> None:
    """A work-conserving link is empty at the same times under either rule (Kleinrock 1976)."""
    s = link_system(lab, THREE, 0.8)
    fcfs, shared = (
        lab.simulate(s, 2000, 5, network=Network(rule, "fabric")).log
        for rule in ("fcfs", "processor_sharing")
    )
    ends = [np.sort(log.transfer_end) for log in (fcfs, shared)]
    begins = np.append(fcfs.transfer_start[1:], np.inf)
    empty = ends[0] < begins
    assert empty.sum() > 100
    assert ends[1][empty] == pytest.approx(ends[0][empty], rel=1e-9)


def two_sites(lab):
    """Types a and b; sites e and w; the link from e to w is long and thin."""
    s = lab.system(link=LINK)
    kind = s.replica_types["r"]
    s = replace(s, replica_types={n: replace(kind, name=n) for n in "ab"})
    fleet = lab.fleet().of({(role, n): 1 for role in (PREFILL, DECODE) for n in "ab"})
    sites = {(PREFILL, "a"): "e", (DECODE, "a"): "e", (PREFILL, "b"): "w", (DECODE, "b"): "w"}
    return s, fleet, Network("fcfs", "sites", None, sites, {("e", "w"): Link(3.0, 2.0)})


def test_sites_have_their_own_links(lab) -> None:
    s, fleet, network = two_sites(lab)
    options = SimulationOptions(network=network)
    found = paths(s, fleet, options)
    assert found.latency.tolist() == [[0.25, 3.0], [0.25, 0.25]]
    assert found.bandwidth.tolist() == [[8.0, 2.0], [8.0, 8.0]]
    assert len(set(found.site_pair.ravel().tolist())) == 4
    draws = lab.draws([0.0, 0.0], [8, 8], [1, 1])
    pools = {PREFILL: np.array([0, 1]), DECODE: np.array([1, 1])}
    log = replay(s, fleet, replace(draws, pool=pools), options=options).log
    assert log.transfer_end.tolist() == [2.5 + 4.0 + 3.0, 2.5 + 1.0 + 0.25]


def test_transfers_between_the_same_sites_share_their_link(lab) -> None:
    s, fleet, network = two_sites(lab)
    fleet = fleet.of({**fleet.counts, (PREFILL, "b"): 2})
    s = replace(s, dispatch={**s.dispatch, PREFILL: "round_robin"})
    draws = lab.draws([0.0, 0.0], [8, 8], [1, 1])
    pools = {PREFILL: np.array([1, 1]), DECODE: np.array([1, 1])}
    log = replay(
        s, fleet, replace(draws, pool=pools), options=SimulationOptions(network=network)
    ).log
    assert log.transfer_end.tolist() == [3.75, 4.75]


def test_jitter_multiplies_the_latency_by_a_factor_of_mean_1(lab) -> None:
    noise = Noise("gamma", 0.5)
    s = lab.system(Latency(lab.INSTANT, AffineDecode(1e-9, 0.0)), TWO, 1.0, link=Link(2.0, 100.0))
    log = lab.simulate(s, 4000, 3, network=Network(jitter=noise)).log
    factor = (log.transfer_end - log.transfer_start - log.prompt_tokens / 100.0) / 2.0
    assert np.all(factor > 0)
    assert factor.mean() == pytest.approx(1.0, abs=5 * math.sqrt(0.5 / 4000))
    assert factor.var() == pytest.approx(0.5, rel=0.2)


def test_a_site_that_no_pool_stands_at_is_refused() -> None:
    with pytest.raises(InputError, match="no pool stands at site moon"):
        Network(links={("", "moon"): LINK})
