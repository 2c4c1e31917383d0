"""What every kind of objective keeps: one number, less is better, words for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.laws import Law, constant
from pdalloc.records import Sample, sample_of
from pdalloc.slo.interface import LEAST_BEYOND, LEAST_REQUESTS, Objective
from pdalloc.slo.joint import BestEffort, JointSlo, within
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile

JOINT = JointSlo("chat", 0.99, within({"tpot": 0.05, "ttft": 2.0}))
OBJECTIVES: list[Objective] = [
    Slo("chat", "ttft", Mean(), 2.0),
    Slo("chat", "e2e", Percentile(99.0), 2.0),
    JOINT,
]


@dataclass(frozen=True)
class Laws:
    """Everybody takes ``seconds``; a share ``late`` is late."""

    seconds: float = 1.0
    late: float = 0.2

    def law(self, metric: str) -> Law:
        return constant(self.seconds)

    def late_share(self, limits: Mapping[str, float]) -> float:
        return self.late


@dataclass(frozen=True)
class Times:
    """Measured: ``seconds`` of each answered request, whatever the metric."""

    seconds: list[float] = field(default_factory=list)
    lost: float = 0.0
    late: float = 0.2

    @property
    def answered(self) -> int:
        return len(self.seconds)

    def sample(self, metric: str) -> Sample:
        return sample_of(np.array(self.seconds))

    def late_share(self, limits: Mapping[str, float]) -> float:
        return self.late


@pytest.mark.parametrize("slo", OBJECTIVES, ids=lambda slo: slo.name)
@given(value=st.floats(0.0, 1.0))
def test_room_keeps_and_bound_agree(slo: Objective, value: float) -> None:
    number = 2.0 * value * slo.bound
    assert slo.room(number) == pytest.approx(1.0 - number / slo.bound)
    assert slo.keeps(number) == (number <= slo.bound * (1.0 + 1e-9))
    assert slo.keeps(slo.bound) and not slo.keeps(1.001 * slo.bound)


@pytest.mark.parametrize("slo", OBJECTIVES, ids=lambda slo: slo.name)
def test_words_are_one_line_and_name_the_bound(slo: Objective) -> None:
    worse = 1.5 * slo.bound
    lines = [slo.broken_text(worse), slo.unreachable_text(worse, ""), slo.title, slo.name]
    assert all(line and "\n" not in line for line in lines)
    assert slo.text(slo.bound) in slo.broken_text(worse)
    assert slo.text(worse) in slo.broken_text(worse)


def test_equal_objectives_are_one_key() -> None:
    again = JointSlo("chat", 0.99, within({"ttft": 2.0, "tpot": 0.05}))
    assert {JOINT: 1}[again] == 1
    assert len({slo.name for slo in OBJECTIVES}) == len(OBJECTIVES)


def test_a_joint_slo_counts_who_is_late() -> None:
    assert JOINT.bound == pytest.approx(0.01)
    assert JOINT.limits == {"ttft": 2.0, "tpot": 0.05}
    assert JOINT.metric == "ttft+tpot" and JOINT.level == 0.99 and JOINT.gap_share == 1.0
    assert JOINT.predict(Laws(late=0.004)) == 0.004
    assert JOINT.title == "TTFT <= 2000 ms and TPOT <= 50 ms"


@pytest.mark.parametrize(
    ("late", "words"),
    [(0.01, "99 %"), (0.0123, "98.77 %"), (0.0, "100 %"), (0.00123, "99.877 %"), (1.0, "0 %")],
)
def test_a_share_is_told_to_what_is_missing(late: float, words: str) -> None:
    assert JOINT.text(late) == words


def test_a_share_just_missed_is_told_apart() -> None:
    words = JOINT.broken_text(0.010000002)
    assert "99 % should" in words and "99 % keep" not in words


def test_latencies_are_read_by_their_statistic() -> None:
    mean, p99, _ = OBJECTIVES
    assert mean.predict(Laws(3.0)) == 3.0 == p99.predict(Laws(3.0))
    seconds = [float(x) for x in range(2000)]
    assert mean.measure(Times(seconds)) == pytest.approx(999.5)
    assert p99.measure(Times(seconds)) == pytest.approx(np.quantile(seconds, 0.99))
    assert (mean.level, p99.level) == (0.0, 0.99)
    assert (mean.gap_share, p99.gap_share) == (0.5, 0.99)


@pytest.mark.parametrize("slo", OBJECTIVES, ids=lambda slo: slo.name)
def test_few_requests_judge_nothing(slo: Objective) -> None:
    few = [1.0] * (LEAST_REQUESTS - 1)
    assert math.isnan(slo.measure(Times(few)))
    assert slo.measure(Times(few, lost=0.9)) > slo.bound  # most got no answer: that is known


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_a_share_needs_requests_beyond_it(late: float) -> None:
    """As many as a percentile: else nobody late in every run would be called certain."""
    enough = math.ceil(LEAST_BEYOND / (1.0 - JOINT.share)) + 1
    assert JOINT.measure(Times([1.0] * enough, late=late)) == late
    assert math.isnan(JOINT.measure(Times([1.0] * (enough - 3), late=late)))


def test_errors_of_predictions_worth_a_word() -> None:
    mean = OBJECTIVES[0]
    assert mean.error_text(1.0, 1.005) == ""
    assert mean.error_text(1.1, 1.0) == "10.0% pessimistic"
    assert JOINT.error_text(0.0095, 0.01) == ""
    assert JOINT.error_text(0.006, 0.01) == "0.4 points optimistic"


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, 99.0, math.nan])
def test_shares_lie_between_0_and_1(share: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        JointSlo("chat", share, within({"ttft": 1.0}))


@pytest.mark.parametrize(
    "limits", [{}, {"ttft": 0.0}, {"ttft": -1.0}, {"ttft": math.inf}, {"tft": 1.0}]
)
def test_limits_that_cannot_be(limits: dict[str, float]) -> None:
    with pytest.raises(InputError) as caught:
        within(limits)
    assert len(str(caught.value).splitlines()) == 1


def test_late_requests_have_a_price() -> None:
    """Requests/s x 3600 s x share late x USD per request."""
    effort = BestEffort("chat", within({"ttft": 1.0}), 5e-4)
    assert effort.usd_per_hour(20.0, 0.1) == pytest.approx(20 * 3600 * 0.1 * 5e-4)
    for price in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="price must be positive"):
            BestEffort("chat", within({"ttft": 1.0}), price)
