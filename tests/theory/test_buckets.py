"""A class split by prompt length: shares, lengths and gaps of its buckets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdalloc.errors import InputError, UnsupportedError
from pdalloc.workload.arrivals import MarkovModulated, Renewal, Sessions, TimeVarying, Trace
from pdalloc.workload.buckets import candidate_edges, split_by_prompt, thinned_scv
from pdalloc.workload.lengths import LengthLaw, fixed
from pdalloc.workload.traffic import TrafficClass, Workload

EDGES = (300.0, 900.0)


def drawn_class(seed: int = 0, scv: float = 1.0) -> TrafficClass:
    """30 random points; some prompts on an edge itself."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(1, 1500, 30).astype(float)
    prompt[:4] = 300.0, 900.0, 10.0, 1400.0
    weight = rng.random(30)
    output = rng.integers(1, 200, 30).astype(float)
    return TrafficClass("chat", 8.0, LengthLaw(prompt, output, weight / weight.sum()), scv, 0.25)


@pytest.mark.parametrize("seed", range(5))
def test_shares_sum_to_one_and_the_mixture_of_the_buckets_is_the_class(seed):
    c = drawn_class(seed)
    parts = split_by_prompt(c, EDGES)
    assert [p.name for p in parts] == ["chat[<=300]", "chat[300-900]", "chat[>900]"]
    shares = np.array([p.rate / c.rate for p in parts])
    assert shares.sum() == pytest.approx(1.0, rel=1e-14)
    # law of total probability: sum over buckets of share x conditional weight, point by point
    points: dict[tuple[float, float], float] = {}
    for share, part in zip(shares, parts, strict=True):
        law = part.lengths
        for p, o, w in zip(law.prompt, law.output, law.weight, strict=True):
            points[p, o] = points.get((p, o), 0.0) + share * w
    for p, o, w in zip(c.lengths.prompt, c.lengths.output, c.lengths.weight, strict=True):
        mine = (c.lengths.prompt == p) & (c.lengths.output == o)
        assert points[p, o] == pytest.approx(c.lengths.weight[mine].sum(), rel=1e-12), w


@pytest.mark.parametrize("seed", range(5))
def test_means_and_tokens_are_conserved(seed):
    c = drawn_class(seed)
    parts = split_by_prompt(c, EDGES)
    for mean in ("mean_prompt", "mean_output"):
        # law of total expectation
        total = sum(p.rate / c.rate * getattr(p.lengths, mean) for p in parts)
        assert total == pytest.approx(getattr(c.lengths, mean), rel=1e-12)
    whole, split = Workload((c,)), Workload(parts)
    assert split.rate == pytest.approx(whole.rate, rel=1e-14)
    assert split.tokens_per_second == pytest.approx(whole.tokens_per_second, rel=1e-12)


def test_a_prompt_on_an_edge_is_in_the_lower_bucket():
    parts = split_by_prompt(drawn_class(), EDGES)
    assert parts[0].lengths.prompt.max() == 300.0
    assert parts[1].lengths.prompt.max() == 900.0
    assert parts[1].lengths.prompt.min() > 300.0
    assert parts[2].lengths.prompt.min() > 900.0


def test_what_is_not_length_or_rate_is_kept():
    for part in split_by_prompt(drawn_class(), EDGES):
        assert part.prefix_hit_rate == 0.25
        assert part.arrivals is None


def test_points_without_weight_make_no_bucket():
    law = LengthLaw(np.array([10.0, 100.0]), np.ones(2), np.array([1.0, 0.0]))
    with pytest.raises(InputError, match="no prompt of c is in >50 tokens; move an edge"):
        split_by_prompt(TrafficClass("c", 1.0, law), [50.0])


# Gaps


def test_poisson_stays_poisson():
    # Kingman 1993, section 5.1: independent marks split a Poisson process into Poisson ones
    assert all(p.arrival_scv == 1.0 for p in split_by_prompt(drawn_class(), EDGES))


@pytest.mark.parametrize("scv", [0.0, 0.5, 4.0])
def test_the_scv_of_thinned_gaps_is_that_of_geometric_sums(scv):
    """A kept gap is a sum of N gaps, N geometric: Var = E[N] sigma^2 + m^2 Var N (Wald)."""
    for p in (0.1, 0.37, 1.0):
        mean_count, var_count = 1.0 / p, (1.0 - p) / p**2
        variance = mean_count * scv + var_count  # gaps of mean 1
        assert thinned_scv(scv, p) == pytest.approx(variance / mean_count**2, rel=1e-12)


def test_buckets_of_bursty_classes_have_thinned_gaps():
    c = drawn_class(scv=5.0)
    for part in split_by_prompt(c, EDGES):
        assert part.arrival_scv == pytest.approx(1.0 + part.rate / c.rate * 4.0, rel=1e-12)


def test_thinned_gaps_of_a_simulated_stream_have_that_scv():
    """Marks drawn for a gamma renewal stream; SCV of kept gaps over independent replications."""
    p, scv, found = 0.3, 4.0, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        times = Renewal(1.0, scv).times(40_000, rng)
        gaps = np.diff(times[rng.random(len(times)) < p])
        found.append(gaps.var() / gaps.mean() ** 2)
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - thinned_scv(scv, p)) <= 4.0 * error
    assert error < 0.05


def test_bursts_and_profiles_keep_their_pattern_at_a_share_of_the_rate():
    """A thinned doubly stochastic Poisson stream has p times the rates, its clock unchanged."""
    base = drawn_class()
    bursts = MarkovModulated((4.0, 20.0), (30.0, 10.0))
    day = TimeVarying((4.0, 12.0), (100.0, 100.0))
    for arrivals in (bursts, day):
        c = replace(base, rate=arrivals.rate, arrivals=arrivals, arrival_scv=arrivals.dispersion)
        for part in split_by_prompt(c, EDGES):
            share = part.rate / c.rate
            mine = part.arrivals
            assert isinstance(mine, type(arrivals))
            assert mine.rates == pytest.approx([share * r for r in arrivals.rates])
            assert mine.rate == pytest.approx(part.rate)
            # the rule of thinning is exact for its dispersion: 1 + 2 Cov term, linear in the rate
            assert mine.dispersion == pytest.approx(part.arrival_scv, rel=1e-9)


def test_a_renewal_process_is_thinned_by_its_scv_in_its_own_law():
    c = replace(drawn_class(scv=2.0), arrivals=Renewal(8.0, 2.0, "weibull"))
    for part in split_by_prompt(c, EDGES):
        assert isinstance(part.arrivals, Renewal)
        assert part.arrivals.scv == pytest.approx(part.arrival_scv)
        assert part.arrivals.law == "weibull"
        assert part.arrivals.rate == pytest.approx(part.rate)


# Edges to try


@pytest.mark.parametrize("count", [2, 4, 8])
def test_candidate_edges_are_the_quantiles_of_requests(count):
    """F(x - 1) < k / count <= F(x): the least prompt with that share at or below it."""
    c = drawn_class(3)
    edges = candidate_edges(c, count)
    assert list(edges) == sorted(set(edges)) and edges
    for k in range(1, count):
        at = min(x for x in np.unique(c.lengths.prompt) if share_below(c, x) >= k / count - 1e-12)
        assert at in edges or at == c.lengths.prompt.max()
    assert all(edge in c.lengths.prompt for edge in edges)


def share_below(c: TrafficClass, x: float) -> float:
    return float(c.lengths.weight[c.lengths.prompt <= x].sum())


def test_every_candidate_splits_the_class_in_two():
    c = drawn_class(4)
    for edge in candidate_edges(c, 8):
        short, long = split_by_prompt(c, [edge])
        assert short.rate + long.rate == pytest.approx(c.rate)


def test_one_prompt_length_has_no_edge():
    assert candidate_edges(TrafficClass("c", 1.0, fixed(500.0, 10.0)), 8) == ()


def test_few_lengths_have_few_edges_and_points_without_weight_none():
    law = LengthLaw(np.array([10.0, 20.0, 30.0]), np.ones(3), np.array([0.5, 0.5, 0.0]))
    assert candidate_edges(TrafficClass("c", 1.0, law), 8) == (10.0,)


# What cannot be split


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((), "edges must rise, e.g. '2048 8192 tokens', got none"),
        ((900.0, 300.0), "got 900, 300"),
        ((300.0, 300.0), "got 300, 300"),
        ((0.5, 900.0), "no prompt of chat is in <=0.5 tokens; move an edge"),
        ((300.0, 300.5), "no prompt of chat is in 300-300.5 tokens"),
        ((300.0, 5000.0), "no prompt of chat is in >5000 tokens"),
    ],
)
def test_edges_that_make_no_buckets_are_refused_in_one_line(edges, message):
    with pytest.raises(InputError) as error:
        split_by_prompt(drawn_class(), edges)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arrivals", "kind"),
    [(Sessions(1.0, 2.0, 5.0, 10_000.0), "sessions"), (Trace((0.0, 1.0, 2.0)), "a trace")],
)
def test_lengths_that_depend_on_when_requests_come_are_not_split(arrivals, kind):
    c = TrafficClass("c", arrivals.rate, fixed(100.0, 10.0), arrivals=arrivals)
    with pytest.raises(UnsupportedError, match=f"the prompt lengths of {kind}"):
        split_by_prompt(c, [50.0])
