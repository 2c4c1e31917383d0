"""Which requests keep every bound at once, by hand and against the gaps written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.errors import InputError
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.simulation.attainment import Bound, attained
from pdalloc.simulation.options import Clients, MultiToken
from pdalloc.workload.lengths import independent

BUSY = Latency(AffinePrefill(0.01, 0.0), AffineDecode(0.02, 0.01))


def clockwork(lab, n: int = 20):
    """A request every 4 s: TTFT 1.875 s, then gaps of 0.9375 and 1 s."""
    return lab.run(lab.system(), lab.draws(np.arange(n) * 4.0, [2] * n, [3] * n))


def test_a_request_keeps_all_bounds_or_none(lab) -> None:
    run = clockwork(lab)
    assert attained(run, []).all()
    assert attained(run, [Bound("ttft", 1.9), Bound("tpot", 1.0), Bound("e2e", 3.9)]).all()
    assert not attained(run, [Bound("ttft", 1.9), Bound("tpot", 0.9)]).any()


def test_a_share_of_the_gaps_is_enough(lab) -> None:
    """One of two gaps exceeds 0.95 s: half of them keep it, not 51 %."""
    run = clockwork(lab)
    assert attained(run, [Bound("itl", 1.0)]).all()
    assert attained(run, [Bound("itl", 0.95, share=0.5)]).all()
    assert not attained(run, [Bound("itl", 0.95, share=0.51)]).any()


def test_nine_of_ten_gaps_is_a_share_of_nine_tenths(lab) -> None:
    """(1 - 0.9) 10 is 0.9999999999999998 in floating point: one late gap is allowed."""
    ten = Latency(AffinePrefill(1.0, 0.0), AffineDecode(1.0, 0.0, 0.001))
    run = lab.run(lab.system(ten), lab.draws([0.0], [2], [11]))
    last = run.gaps(np.ones(1, bool)).max()
    assert attained(run, [Bound("itl", 0.9999 * last, share=0.9)]).all()
    assert not attained(run, [Bound("itl", 0.9999 * last, share=0.91)]).any()


def test_one_token_has_no_gap_to_be_late(lab) -> None:
    run = lab.run(lab.system(), lab.draws([0.0], [2], [1]))
    assert attained(run, [Bound("tpot", 0.1), Bound("itl", 0.1)]).all()


def test_a_bound_is_on_its_class(lab) -> None:
    run = clockwork(lab)
    log = run.log
    assert attained(run, [Bound("ttft", 0.1, traffic_class=1)]).all()
    assert not attained(run, [Bound("ttft", 0.1, traffic_class=0)]).any()
    assert set(log.traffic_class.tolist()) == {0}


def test_who_gets_no_answer_attains_nothing(lab) -> None:
    draws = lab.draws([0.0, 0.125, 0.25], [2, 2, 2], [1, 1, 1])
    run = lab.run(lab.system(), draws, clients=Clients(timeout=1.0))
    assert attained(run, []).tolist() == run.log.finished.tolist()
    assert not run.log.finished.all()


@pytest.mark.parametrize("options", [{}, {"multi_token": MultiToken(1.5)}])
@pytest.mark.parametrize("first_token", ["prefill", "decode"])
def test_late_gaps_are_counted_as_if_written_out(lab, options, first_token) -> None:
    lengths = independent(np.array([1.0, 5.0]), np.array([1.0, 2.0, 9.0]))
    s = lab.system(BUSY, lengths, 5.0, first_token=first_token)
    run = lab.simulate(s, 300, 1, **options)
    everyone = np.arange(len(run.log))
    sample = run.gap_sample(everyone >= 0)
    written_out = np.sort(np.repeat(sample.values, sample.counts))
    assert np.array_equal(written_out, np.sort(run.gaps(everyone >= 0)))
    for bound in (0.0, 0.03, 0.05, 0.2):
        counted = run.gaps_over(bound)
        for i in everyone:
            assert counted[i] == (run.gaps(everyone == i) > bound).sum()


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (("tokens", 1.0), "ttft, tpot, e2e, itl"),
        (("ttft", 0.0), "positive"),
        (("ttft", math.nan), "positive"),
        (("itl", 1.0, None, 0.0), "share"),
        (("itl", 1.0, None, 1.5), "share"),
    ],
)
def test_bounds_that_say_nothing_are_refused(bound, words) -> None:
    with pytest.raises(InputError, match=words):
        Bound(*bound)
