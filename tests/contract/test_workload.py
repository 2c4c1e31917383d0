"""Length laws, traffic classes and their mix: moments by hand, errors by name."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.workload.lengths import LengthLaw, fixed, independent, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

Array = NDArray[np.float64]


def column(*values: float) -> Array:
    return np.array(values, float)


def test_fixed() -> None:
    law = fixed(6144, 512)
    assert (law.mean_prompt, law.mean_output) == (6144.0, 512.0)
    assert law.weight.tolist() == [1.0]


def test_joint_table_normalises_counts() -> None:
    law = joint_table(column(100, 300), column(10, 50), column(3, 1))
    assert law.weight.tolist() == [0.75, 0.25]
    assert (law.mean_prompt, law.mean_output) == (150.0, 20.0)
    assert law.mean(law.prompt * law.output) == 0.75 * 1000 + 0.25 * 15000


def test_independent_lengths_factorise() -> None:
    """E[P L] = E[P] E[L]."""
    law = independent(column(100, 300, 500), column(10, 50))
    assert len(law.weight) == 6
    assert (law.mean_prompt, law.mean_output) == pytest.approx((300.0, 30.0))
    assert law.mean(law.prompt * law.output) == pytest.approx(300.0 * 30.0, rel=1e-12)


def test_longer_outputs_keep_one_token() -> None:
    law = joint_table(column(100, 300), column(2, 50), column(1, 1))
    assert law.scaled_output(0.1).output.tolist() == [1.0, 5.0]
    assert law.scaled_output(3.0).mean_output == 3 * law.mean_output
    assert law.scaled_output(3.0).prompt.tolist() == law.prompt.tolist()


LAWS = [  # prompt, output, weight, what the message names
    (column(), column(), column(), "at least 1"),
    (column(1, 2), column(1), column(1), "as many"),
    (column(1), column(1), column(0.5, 0.5), "as many"),
    (column(math.nan), column(1), column(1), "prompt"),
    (column(1), column(math.inf), column(1), "output"),
    (column(0), column(1), column(1), "prompt"),
    (column(1), column(0.5), column(1), "output"),
    (column(-1), column(1), column(1), "prompt"),
    (column(1), column(1), column(0.9), "weights"),
    (column(1, 2), column(1, 2), column(1.5, -0.5), "weights"),
    (column(1), column(1), column(math.nan), "weights"),
]


@pytest.mark.parametrize(("prompt", "output", "weight", "names"), LAWS)
def test_unusable_length_laws(prompt: Array, output: Array, weight: Array, names: str) -> None:
    with pytest.raises(InputError, match=names):
        LengthLaw(prompt, output, weight)


@pytest.mark.parametrize(
    "counts", [column(0, 0), column(-1, 2), column(math.nan, 1), column(math.inf, 1)]
)
def test_unusable_counts(counts: Array) -> None:
    with pytest.raises(InputError, match="counts"):
        joint_table(column(1, 2), column(1, 2), counts)


def test_empty_independent_lists() -> None:
    with pytest.raises(InputError, match="at least 1"):
        independent(column(), column(1))


CLASSES = [  # changed field, value, what the message names
    ("rate", 0.0, "rate"),
    ("rate", -1.0, "rate"),
    ("rate", math.nan, "rate"),
    ("rate", math.inf, "rate"),
    ("arrival_scv", -0.1, "arrival_scv"),
    ("arrival_scv", math.nan, "arrival_scv"),
    ("arrival_scv", math.inf, "arrival_scv"),
    ("prefix_hit_rate", 1.0, "prefix_hit_rate"),
    ("prefix_hit_rate", -0.1, "prefix_hit_rate"),
    ("prefix_hit_rate", math.nan, "prefix_hit_rate"),
]


@pytest.mark.parametrize(("field", "value", "names"), CLASSES)
def test_unusable_classes(field: str, value: float, names: str) -> None:
    with pytest.raises(InputError, match=f"'chat'.*{names}"):
        replace(TrafficClass("chat", 1.0, fixed(1, 1)), **{field: value})  # type: ignore[arg-type]


def test_workload_needs_distinct_classes() -> None:
    with pytest.raises(InputError, match="at least one"):
        Workload(())
    one = TrafficClass("a", 1.0, fixed(1, 1))
    with pytest.raises(InputError, match="names must differ"):
        Workload((one, one))


def two_classes() -> Workload:
    return Workload(
        (
            TrafficClass("a", 3.0, fixed(100, 10), arrival_scv=1.0),
            TrafficClass("b", 1.0, fixed(1000, 50), arrival_scv=5.0, prefix_hit_rate=0.5),
        )
    )


def test_rates_of_the_whole() -> None:
    """lambda = sum lambda_i; tokens/s = sum lambda_i E[P_i + L_i]; SCV weighted by rate."""
    whole = two_classes()
    assert whole.rate == 4.0
    assert whole.tokens_per_second == 3 * 110 + 1050
    assert whole.mean_tokens == pytest.approx((3 * 110 + 1050) / 4)
    assert whole.arrival_scv == pytest.approx((3 * 1 + 1 * 5) / 4)


def test_mix_draws_classes_by_rate() -> None:
    mix = two_classes().mix()
    assert mix.weight.tolist() == [0.75, 0.25]
    assert mix.cached.tolist() == [0.0, 500.0]
    assert mix.traffic_class.tolist() == [0, 1]
    alone = mix.of_class(1)
    assert (alone.weight.tolist(), alone.prompt.tolist()) == ([1.0], [1000.0])


def test_scaling() -> None:
    whole = two_classes()
    assert whole.scaled(2.5).rate == 10.0
    assert whole.scaled(2.5).mean_tokens == whole.mean_tokens
    longer = whole.with_longer_outputs(2.0)
    assert longer.rate == whole.rate
    assert longer.tokens_per_second == 3 * 120 + 1100


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_scaling_by_nonsense(factor: float) -> None:
    with pytest.raises(InputError):
        two_classes().scaled(factor)


points = st.lists(
    st.tuples(st.floats(1, 1e5), st.floats(1, 1e4), st.floats(0.01, 1e6)), min_size=1, max_size=20
)


@given(points)
def test_tables_are_laws(rows: list[tuple[float, float, float]]) -> None:
    """Weights sum to 1 and means stay within the values."""
    prompt, output, counts = (np.array(c) for c in zip(*rows, strict=True))
    law = joint_table(prompt, output, counts)
    assert law.weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert prompt.min() * (1 - 1e-12) <= law.mean_prompt <= prompt.max() * (1 + 1e-12)
    mix = Workload((TrafficClass("a", 2.0, law), TrafficClass("b", 3.0, law))).mix()
    assert mix.weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert mix.weight @ mix.output == pytest.approx(law.mean_output, rel=1e-9)


def test_points_that_never_come_are_left_out() -> None:
    """Weight 0 beside weight 1: the law of the other point, also given that outputs are long."""
    table = joint_table(np.array([5.0, 10.0]), np.array([1.0, 2.0]), np.array([0.0, 3.0]))
    assert table.prompt.tolist() == [10.0] and table.weight.tolist() == [1.0]
    law = LengthLaw(np.array([5.0, 10.0]), np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    mix = Workload((TrafficClass("a", 2.0, law), TrafficClass("b", 2.0, law))).mix()
    assert mix.output.tolist() == [2.0, 2.0] and mix.weight.tolist() == [0.5, 0.5]
    assert mix.traffic_class.tolist() == [0, 1]
    with pytest.raises(InputError, match="as many prompts"):
        joint_table(np.ones(1), np.ones(2), np.ones(2))
