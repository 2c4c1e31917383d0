"""What requests ask for, against step-by-step counting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.queueing.decode import DecodeWork, decode_work
from pdalloc.queueing.decode.multi_token import FixedTokens

Array = NDArray[np.float64]

requests = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 500), st.floats(0.05, 1.0)),
    min_size=1,
    max_size=12,
)


def columns(points: list[tuple[int, int, float]]) -> tuple[Array, Array, Array]:
    output, prompt, weight = (np.array(x, float) for x in zip(*points, strict=True))
    return prompt, output, weight / weight.sum()


def held_by_steps(prompt: Array, output: Array, weight: Array) -> tuple[Array, Array]:
    """(tokens held, weight) of every step of every request: P, P + 1, ..., P + n - 1."""
    held = [p + np.arange(n) for p, n in zip(prompt, output, strict=True)]
    mass = [np.full(int(n), w) for n, w in zip(output, weight, strict=True)]
    return np.concatenate(held), np.concatenate(mass)


@settings(max_examples=40, deadline=None)
@given(requests)
def test_context_is_that_of_a_random_step(points: list[tuple[int, int, float]]) -> None:
    """Size-biased: E[P n + n(n-1)/2] / E[n], with variance and third moment over steps."""
    prompt, output, weight = columns(points)
    work = decode_work(prompt, output, weight)
    held, mass = held_by_steps(prompt, output, weight)
    share = mass / mass.sum()
    mean = float(share @ held)
    assert work.mean_steps == pytest.approx(float(weight @ output), rel=1e-12)
    assert work.mean_context == pytest.approx(mean, rel=1e-9, abs=1e-9)
    assert work.context_variance == pytest.approx(
        float(share @ (held - mean) ** 2), rel=1e-6, abs=1e-5
    )
    assert work.context_third == pytest.approx(
        float(share @ (held - mean) ** 3), rel=1e-6, abs=1e-2
    )


@settings(max_examples=40, deadline=None)
@given(requests)
def test_overlap_is_the_integral_of_the_squared_tail(points: list[tuple[int, int, float]]) -> None:
    """int P(n > u)^2 du / E[n], from P(min of two independent n > u)."""
    prompt, output, weight = columns(points)
    least = np.minimum(output[:, None], output[None, :])
    exact = float(weight @ least @ weight) / float(weight @ output)
    assert decode_work(prompt, output, weight).overlap == pytest.approx(exact, rel=1e-9)


def test_first_token_elsewhere() -> None:
    """L tokens take L - 1 steps, the first holding P + 1 tokens; all L - 1 gaps are theirs."""
    work = decode_work(np.array([50.0]), np.array([5.0]), np.ones(1), first_token_by_decode=False)
    assert (work.mean_steps, work.mean_context) == (4.0, 51.0 + 1.5)
    assert work.gap_steps == pytest.approx([4.0])
    assert work.gaps == pytest.approx([4.0])


def test_first_token_here() -> None:
    """L tokens take L steps; the first ends no gap."""
    work = decode_work(np.array([50.0]), np.array([5.0]), np.ones(1))
    assert (work.mean_steps, work.mean_context) == (5.0, 52.0)
    assert work.gap_steps == pytest.approx([4.0])


def test_several_tokens_a_step() -> None:
    """9 tokens at 2 a step take 5 steps of 1.8 on average; 4 gaps of 8 last, 4 are 0."""
    work = decode_work(np.zeros(1), np.array([9.0]), np.ones(1), tokens=FixedTokens(2.0))
    assert work.mean_steps == 5.0
    assert work.growth == pytest.approx(1.8)
    assert work.zero_gaps == pytest.approx(0.5)
    assert work.steps_per_gap == pytest.approx(0.5)


def test_one_token_answers_have_no_gap() -> None:
    work = decode_work(np.zeros(2), np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    assert work.gap_steps == pytest.approx([0.0, 2.0])
    assert (work.zero_gaps, work.steps_per_gap) == (0.0, 1.0)


@pytest.mark.parametrize("scale", [1.0, 3.0, 40.0])
def test_scv_does_not_know_units(scale: float) -> None:
    """Two equally likely lengths 1 and 3 have SCV 1/4 at any scale."""
    work = decode_work(np.zeros(2), scale * np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    assert work.scv == pytest.approx(0.25, rel=1e-12)


GOOD: dict[str, Any] = {
    "steps": np.ones(2),
    "context": np.ones(2),
    "growth": np.ones(2),
    "gaps": np.zeros(2),
    "weight": np.full(2, 0.5),
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": np.ones(3)}, "as many"),
        ({"weight": np.full(2, 0.4)}, "sum to 1"),
        ({"context": np.array([1.0, np.nan])}, "finite"),
        ({"growth": np.array([1.0, -1.0])}, ">= 0"),
        ({"steps": np.zeros(2)}, "nothing to decode"),
    ],
)
def test_impossible_work(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        DecodeWork(**{**GOOD, **change})


@pytest.mark.parametrize(("prompt", "output"), [(10.0, 0.0), (-1.0, 5.0)])
def test_impossible_lengths(prompt: float, output: float) -> None:
    with pytest.raises(InputError, match="at least 1 token"):
        decode_work(np.array([prompt]), np.array([output]), np.ones(1))


def test_every_answer_made_by_prefill() -> None:
    with pytest.raises(InputError, match="first_token: decode"):
        decode_work(np.ones(1), np.ones(1), np.ones(1), first_token_by_decode=False)
