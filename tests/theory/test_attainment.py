"""Joint attainment: closed forms, its limits, and percentiles turned round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from pdalloc.attainment import attainment, exponential_points
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency, Noise
from pdalloc.prediction import Prediction, Predictor, predict, spread_nodes
from pdalloc.simulation import fast
from pdalloc.simulation.attainment import Bound, attained
from pdalloc.simulation.statistics import Run, interval, steady
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

MIXED = joint_table(
    np.array([200.0, 1000.0, 3000.0]), np.array([1.0, 100.0, 250.0]), np.array([2.0, 5.0, 3.0])
)
RULES: list[FirstToken] = ["prefill", "transfer", "decode"]
METRICS = ("ttft", "tpot", "e2e")


def predicted(
    lengths: Sequence[LengthLaw] = (MIXED,),
    first: FirstToken = "prefill",
    noise: Noise = "none",
    rate: float = 12.0,
    counts: tuple[int, int] = (2, 2),
    base: float = 0.0,
    slots: float = math.inf,
) -> Prediction:
    """Each of ``lengths`` a class of an equal share; 0.1 ms a prompt token."""
    latency = Latency(AffinePrefill(base, 1e-4), AffineDecode(0.015, 3e-4, 2e-8), noise)
    types = {
        "a": ReplicaType("a", Gpu("a", "A"), 1, ROLES, latency, 1.0, max_batch=slots),
        "b": ReplicaType("b", Gpu("b", "B"), 1, ROLES, latency.slowed(1.5, 1.2), 1.0),
    }
    classes = tuple(TrafficClass(str(i), rate / len(lengths), law) for i, law in enumerate(lengths))
    system = System(
        Llm("t", "T", 1e9, 1e5, 1e5, 1e9),
        Workload(classes),
        types,
        Link(0.005, 1e10),
        dict.fromkeys(ROLES, "random"),
        first,
    )
    fleet = Fleet.of({(role, t): n for role in ROLES for t, n in zip("ab", counts, strict=True)})
    weight = {"a": 1.3 * counts[0], "b": 1.0 * counts[1]}
    total = sum(weight.values())
    rates = {key: rate * weight[key[1]] / total for key in fleet.counts}
    return predict(Predictor(system), fleet, rates)


def median(prediction: Prediction, metric: str, p: float = 0.5) -> float:
    """Bound that a share ``p`` keeps, by bisection, s."""
    low, high = 0.0, 100.0
    while high - low > 1e-7 * high:
        middle = 0.5 * (low + high)
        kept = attainment(prediction, [Bound(metric, middle)])
        low, high = (low, middle) if kept >= p else (middle, high)
    return high


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.5])
def test_mm1_sojourn(seconds: float) -> None:
    """P(T <= t) = 1 - exp(-(mu - lambda) t) (Kleinrock 1975, eq. 5.119)."""
    prediction = predicted([fixed(1000.0, 50.0)], noise="exponential", rate=6.0, counts=(1, 0))
    exact = 1.0 - math.exp(-(10.0 - 6.0) * seconds)
    assert attainment(prediction, [Bound("ttft", seconds)]) == pytest.approx(exact, abs=1e-3)
    loose = [Bound("ttft", seconds), Bound("tpot", 1e3)]
    assert attainment(prediction, loose) == pytest.approx(exact, abs=3e-3)


@pytest.mark.parametrize("first", RULES)
def test_one_kind_of_request_has_the_product(first: FirstToken) -> None:
    """Given the lengths TTFT and TPOT are independent: P(both) = P(TTFT) P(TPOT)."""
    prediction = predicted([fixed(1000.0, 60.0)], first, counts=(4, 0), rate=25.0)
    for x, y in product((0.15, 0.3), (0.016, 0.02, 0.025)):
        bounds = [Bound("ttft", x), Bound("tpot", y)]
        singles = [attainment(prediction, [b]) for b in bounds]
        assert attainment(prediction, bounds) == pytest.approx(math.prod(singles), abs=3e-3)


@pytest.mark.parametrize("first", RULES)
def test_common_lengths_make_bounds_kept_together(first: FirstToken) -> None:
    """Two kinds of requests: the joint share is the mixture of the kinds' products."""
    short, long = fixed(200.0, 40.0), fixed(3000.0, 200.0)
    both = predicted([short, long], first)
    bounds = [Bound("ttft", 0.4), Bound("tpot", 0.03)]
    kinds = [
        math.prod(attainment(both, [Bound(b.metric, b.seconds)], q) for b in bounds) for q in (0, 1)
    ]
    # two types a role: their products differ too, a little
    assert attainment(both, bounds) == pytest.approx(0.5 * sum(kinds), abs=0.01)


@pytest.mark.parametrize("noise", ["none", "exponential"])
@pytest.mark.parametrize("first", RULES)
def test_joint_is_within_frechets_bounds(first: FirstToken, noise: Noise) -> None:
    """max(0, sum - (k - 1)) <= P(all) <= min of the singles (Fréchet 1935)."""
    prediction = predicted(first=first, noise=noise, slots=16.0)
    for levels in ((0.9, 0.9, 0.9), (0.99, 0.6, 0.95), (0.5, 0.95, 0.8)):
        found = [median(prediction, m, p) for m, p in zip(METRICS, levels, strict=True)]
        bounds = [Bound(m, max(x, 1e-9)) for m, x in zip(METRICS, found, strict=True)]
        for chosen in (bounds, bounds[:2], bounds[1:], bounds[::2]):
            singles = [attainment(prediction, [b]) for b in chosen]
            joint = attainment(prediction, chosen)
            assert sum(singles) - (len(chosen) - 1) - 0.01 <= joint <= min(singles) + 0.005


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("first", RULES)
def test_a_loose_second_bound_changes_nothing(first: FirstToken, metric: str) -> None:
    """Joint with bounds that everybody keeps: the sum over requests agrees with the law."""
    prediction = predicted(first=first, slots=24.0)
    bound = Bound(metric, median(prediction, metric, 0.95))
    loose = [Bound(other, 1e4) for other in METRICS if other != metric]
    assert attainment(prediction, [bound, *loose]) == pytest.approx(0.95, abs=6e-3)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 0.995])
def test_e2e_of_one_kind_of_request_has_its_whole_spread(p: float) -> None:
    """E2E = TTFT + n TPOT: at its p-quantile the integral over TPOT gives p."""
    prediction = predicted([fixed(800.0, 150.0)], counts=(4, 0), rate=20.0)
    [(a, d)] = prediction.paths()
    quantile = prediction.predictor.law("e2e", 0, a, d).quantile(p)
    bounds = [Bound("e2e", quantile), Bound("ttft", 1e4)]
    assert 1.0 - attainment(prediction, bounds) == pytest.approx(1.0 - p, rel=0.05)


@pytest.mark.parametrize(("kinds", "least"), [(1, 24), (10, 24), (400, 24), (400, 6)])
def test_points_of_a_spread(kinds: int, least: int) -> None:
    """Weights sum to 1; mean 0, variance 1, no skew; points beyond the normal law's P99."""
    nodes, weights = spread_nodes(kinds, least)
    moments = [float(weights @ nodes**k) for k in range(4)]
    assert moments == pytest.approx([1.0, 0.0, 1.0, 0.0], abs=1e-12)
    assert nodes.max() > 2.3263


@pytest.mark.parametrize("p", [0.8, 0.9, 0.99])
@pytest.mark.parametrize("metric", METRICS)
def test_attainment_at_a_percentile_is_its_level(metric: str, p: float) -> None:
    """One path, every answer with gaps: the bound at the p-quantile is kept by a share p.

    Nobody waits for prefill with probability .6: no lower percentile has a density.
    """
    law_of = predicted([fixed(800.0, 50.0)], counts=(3, 0), rate=15.0)
    [(a, d)] = law_of.paths()
    quantile = law_of.predictor.law(metric, 0, a, d).quantile(p)
    assert attainment(law_of, [Bound(metric, quantile)]) == pytest.approx(p, abs=1e-3)


def test_paths_count_by_their_traffic() -> None:
    """Over two types a role: sum over paths of r_p r_d / r^2 P(path)."""
    prediction = predicted()
    bound = Bound("ttft", 0.3)
    expected = sum(
        p.rate * p.replicas * d.rate * d.replicas / 12.0**2
        * prediction.predictor.law("ttft", 0, p, d).probability(0.3)
        for p, d in prediction.paths()
    )  # fmt: skip
    assert attainment(prediction, [bound]) == pytest.approx(expected, rel=1e-9)


def test_one_token_keeps_any_bound_on_tpot() -> None:
    """A fifth of the answers have one token: nobody else keeps a bound below a step."""
    assert attainment(predicted(), [Bound("tpot", 1e-4)]) == pytest.approx(0.2, abs=1e-9)


def test_bounds_hold_for_their_class_only() -> None:
    """A class without a bound keeps it; the tightest bound of a metric counts."""
    prediction = predicted([MIXED, fixed(500.0, 20.0)])
    bound = Bound("ttft", 0.3, traffic_class=0)
    assert attainment(prediction, [bound], 1) == 1.0
    alone = attainment(prediction, [bound], 0)
    assert attainment(prediction, [bound]) == pytest.approx(0.5 * (1.0 + alone), rel=1e-12)
    assert attainment(prediction, [bound, replace(bound, seconds=9.0)], 0) == alone
    assert attainment(prediction, []) == 1.0


def test_a_wider_bound_is_kept_by_more() -> None:
    prediction = predicted()
    found = [
        attainment(prediction, [Bound("ttft", 0.5), Bound("tpot", 0.03), Bound("e2e", z)])
        for z in np.linspace(0.2, 8.0, 20)
    ]
    assert np.all(np.diff(found) >= -1e-12)


def test_gap_bounds_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="a bound on itl; put bounds on"):
        attainment(predicted(), [Bound("itl", 0.05)])


def test_long_waits_and_long_steps_come_together() -> None:
    """Constant service at high load: TTFT, TPOT and E2E of a request rise together.

    The joint share lies in the simulation's interval; with independent stages it is a point and
    a half outside.
    """
    lengths = fixed(1000.0, 60.0)
    latency = Latency(AffinePrefill(0.0, 1e-4), AffineDecode(0.005, 4e-4))
    types = {"a": ReplicaType("a", Gpu("a", "A"), 1, ROLES, latency, 1.0)}
    rate = 8 * 10.0 * 0.88
    system = System(
        Llm("t", "T", 1e9, 1e5, 1e5, 1e9),
        Workload((TrafficClass("all", rate, lengths),)),
        types,
        Link(0.0, math.inf),
        {"prefill": "central_queue", "decode": "least_loaded"},
        "prefill",
    )
    fleet = Fleet.of({("prefill", "a"): 8, ("decode", "a"): 4})
    prediction = predict(Predictor(system), fleet, {(role, "a"): rate for role in ROLES})
    [(p, d)] = prediction.paths()
    law = prediction.predictor.law("e2e", 0, p, d)
    bounds = [Bound("ttft", 0.25), Bound("e2e", law.quantile(0.93))]
    kept = []
    for seed in range(6):
        log = fast.simulate(system, fleet, {(r, "a"): 1.0 for r in ROLES}, 200_000, seed)
        kept.append(float(attained(Run(log, (), ()), bounds)[steady(log)].mean()))
    share, half_width = interval(kept)
    assert attainment(prediction, bounds) == pytest.approx(share, abs=half_width + 0.004)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Predictor, "echo", lambda self, p, d, steps: np.zeros(len(steps)))
        assert attainment(prediction, bounds) > share + half_width + 0.01


@pytest.mark.parametrize("count", [16, 256])
def test_points_of_an_exponential(count: int) -> None:
    """Weights sum to 1, the mean is 1, and the tail beyond e^-7 is there."""
    values, weights = exponential_points(count)
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert weights @ values == pytest.approx(1.0, rel=1e-12)
    assert weights[values > 7.0].sum() == pytest.approx(
        math.exp(-7.0), rel=0.5 if count < 20 else 0.1
    )
    assert weights @ values**2 == pytest.approx(2.0, rel=0.1 if count < 20 else 1e-3)
