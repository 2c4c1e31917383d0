"""Points that carry the spread of decode times, and laws in another unit or of a known mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm

from pdalloc.fleet import ROLES
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.laws import Exponentials, constant, total
from pdalloc.prediction import DecodeState, Predictor
from pdalloc.prediction.spread import (
    LEAST_LEFT,
    KnownMean,
    left_over,
    spread,
    spread_cells,
    spread_nodes,
)
from pdalloc.queueing.scaled import Stretched
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

LENGTHS = joint_table(
    np.array([200.0, 1000.0, 3000.0]), np.array([20.0, 100.0, 250.0]), np.array([2.0, 5.0, 3.0])
)


def exponential(mean: float) -> Exponentials:
    return Exponentials(np.array([mean]), np.ones(1), np.zeros(1))


def decoding(rate: float = 2.0, lengths: LengthLaw = LENGTHS) -> tuple[Predictor, DecodeState]:
    """One decode replica, t = 20 ms + .4 ms a request + .1 us a token."""
    latency = Latency(AffinePrefill(0.0, 1e-4), AffineDecode(0.02, 4e-4, 1e-7))
    kind = ReplicaType("a", Gpu("a", "A"), 1, ROLES, latency, 1.0)
    system = System(
        Llm("t", "T", 1e9, 1e5, 1e5, 1e9),
        Workload((TrafficClass("all", rate, lengths),)),
        {"a": kind},
        Link(0.0, math.inf),
        dict.fromkeys(ROLES, "random"),
        "prefill",
    )
    predictor = Predictor(system)
    return predictor, predictor.decode(kind, rate)


@pytest.mark.parametrize("kinds", [1, 7, 400])
def test_cells_share_out_all_probability(kinds: int) -> None:
    """Edges rise from 0 to 1; fewer cells where there are many kinds of requests."""
    edges = spread_cells(kinds)
    assert (edges[0], edges[-1]) == (0.0, 1.0)
    assert np.all(np.diff(edges) > 0.0)
    assert len(spread_cells(400)) < len(spread_cells(1))


@pytest.mark.parametrize("kinds", [1, 7, 400])
def test_nodes_of_a_normal_law(kinds: int) -> None:
    """Mean 0, variance 1, and each node inside its cell: P(Z <= edge) = edge."""
    nodes, weights = spread_nodes(kinds)
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ nodes == pytest.approx(0.0, abs=1e-12)
    assert weights @ nodes**2 == pytest.approx(1.0)
    inner = ndtri(spread_cells(kinds)[1:-1])
    assert np.all(nodes[:-1] < inner + 0.05)
    assert np.all(nodes[1:] > inner - 0.05)
    tail = weights[nodes > 2.0].sum()
    assert tail == pytest.approx(norm.sf(2.0), abs=0.5 * weights.max())


def test_what_the_wait_explains_is_left_out() -> None:
    """Variance minus what is explained; never less than LEAST_LEFT of it; more where less than
    nothing is explained."""
    variance = np.array([4.0, 4.0, 4.0])
    found = left_over(variance, np.array([1.0, 3.9, -2.0]))
    assert found == pytest.approx([3.0, 4.0 * LEAST_LEFT, 6.0])


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_points_keep_mean_and_variance(share: float) -> None:
    """Of each kind of request: mean seconds as given, variance n^2 (v - explained)."""
    predictor, d = decoding()
    mix = predictor.mix
    steps = mix.output - 1.0
    mean = steps * d.requests.mean_steps(steps, mix.prompt)
    variance = d.requests.spread(steps)[0]
    many, seconds = spread(mix, mean, steps, d, 24, share * variance)
    cells = len(seconds) // len(steps)
    seconds = seconds.reshape(len(steps), cells)
    weight = many.weight.reshape(len(steps), cells)
    assert weight.sum(axis=1) == pytest.approx(mix.weight)
    within = weight / mix.weight[:, None]
    assert (within * seconds).sum(axis=1) == pytest.approx(mean, rel=1e-9)
    spread_ = (within * (seconds - mean[:, None]) ** 2).sum(axis=1)
    assert spread_ == pytest.approx(steps**2 * (1.0 - share) * variance, rel=0.05)
    assert np.all(many.prompt.reshape(len(steps), cells) == mix.prompt[:, None])


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.8])
def test_a_stretched_delay(factor: float) -> None:
    """f Exp(m) = Exp(f m): mean, variance, quantiles, and sums with another delay."""
    stretched, plain = Stretched(exponential(0.3), factor), exponential(0.3 * factor)
    assert stretched.mean == pytest.approx(plain.mean)
    assert stretched.variance == pytest.approx(plain.variance, rel=1e-3)
    for p in (0.1, 0.5, 0.99):
        assert stretched.quantile(p) == pytest.approx(plain.quantile(p), rel=1e-3)
        both = total([stretched, constant(0.2)]).quantile(p)
        assert both == pytest.approx(0.2 + plain.quantile(p), rel=1e-3)


def test_a_known_mean_is_the_mean() -> None:
    """Quantiles stay the law's; sums add the known mean."""
    known = KnownMean(exponential(1.0), 1.1)
    assert known.mean == 1.1
    assert known.quantile(0.9) == pytest.approx(math.log(10.0), rel=1e-3)
    assert total([known, constant(0.4)]).mean == pytest.approx(1.5)


def test_no_load_has_no_spread() -> None:
    """Requests of one kind, each alone: steps differ by the growing context only."""
    predictor, d = decoding(1e-9, fixed(1000.0, 100.0))
    mix = predictor.mix
    steps = mix.output - 1.0
    mean = steps * d.requests.mean_steps(steps, mix.prompt)
    _, seconds = spread(mix, mean, steps, d, 24, np.zeros(len(steps)))
    apart = seconds.reshape(len(steps), -1) / mean[:, None] - 1.0
    assert np.abs(apart).max() < 0.02
