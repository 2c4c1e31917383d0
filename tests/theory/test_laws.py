"""Lattice delay laws against closed forms: exponential, Erlang, hypoexponential, point masses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import gammaincc, gammainccinv

from pdalloc.errors import InputError
from pdalloc.laws import (
    LATTICE_POINTS,
    Atoms,
    Exponentials,
    Law,
    Mixture,
    StopLossLaw,
    Sum,
    constant,
    convolve,
    total,
)
from pdalloc.queueing.gamma_mixture import GammaMixture

Array = NDArray[np.float64]
LEVELS = [0.1, 0.5, 0.9, 0.95, 0.99, 0.999]
LATTICE = 1e-5
"""Relative error allowed to a law with a density: (step / scale)^2 with 8192 points."""


def exponential(mean: float, shift: float = 0.0) -> Exponentials:
    return Exponentials(np.array([mean]), np.ones(1), np.array([shift]))


def atoms(*pairs: tuple[float, float]) -> Atoms:
    return Atoms(np.array([v for v, _ in pairs]), np.array([w for _, w in pairs]))


def step_of(law: Law) -> float:
    return law._horizon_guess() / (LATTICE_POINTS - 1)


def hypoexponential_tail(means: list[float], t: float) -> float:
    """P(sum > t) for distinct means: sum_i e^{-t/m_i} prod_{j != i} m_i / (m_i - m_j)."""
    return sum(
        math.exp(-t / m) * math.prod(m / (m - other) for other in means if other != m)
        for m in means
    )


@pytest.mark.parametrize("p", LEVELS)
def test_exponential_quantile(p: float) -> None:
    """Exp(m): quantile -m ln(1-p)."""
    assert exponential(2.0).quantile(p) == pytest.approx(-2.0 * math.log1p(-p), rel=LATTICE)


@pytest.mark.parametrize("t", [0.01, 0.3, 1.0, 7.0, 20.0])
def test_exponential_tail(t: float) -> None:
    """Exp(m): P(T > t) = e^{-t/m}."""
    assert exponential(2.0).tail(t) == pytest.approx(math.exp(-t / 2.0), rel=1e-4)


@pytest.mark.parametrize("p", LEVELS)
@pytest.mark.parametrize("k", [2, 3, 10])
def test_sum_of_exponentials_is_erlang(k: int, p: float) -> None:
    """k equal exponentials: P(T > t) = Q(k, t/m), the regularised upper incomplete gamma."""
    law = Sum((exponential(0.5),) * k)
    assert law.mean == pytest.approx(0.5 * k, rel=1e-15)
    assert law.quantile(p) == pytest.approx(0.5 * gammainccinv(k, 1 - p), rel=10 * LATTICE)


@pytest.mark.parametrize("t", [0.5, 2.0, 8.0, 20.0])
def test_sum_of_unequal_exponentials_is_hypoexponential(t: float) -> None:
    means = [1.0, 3.0, 0.2]
    law = Sum(tuple(exponential(m) for m in means))
    assert law.tail(t) == pytest.approx(hypoexponential_tail(means, t), rel=1e-4)


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0, 400.0])
def test_gamma_law(shape: float) -> None:
    """Gamma(k, s): mean k s, variance k s^2, tail Q(k, t/s)."""
    law = GammaMixture(np.array([2.0]), np.array([4.0 / shape]), np.ones(1))
    assert (law.mean, law.scv) == pytest.approx((2.0, 1.0 / shape), rel=1e-9)
    for p in LEVELS[1:]:
        exact = float(2.0 / shape * gammainccinv(shape, 1 - p))
        assert law.quantile(p) == pytest.approx(exact, rel=1e-4)
        assert law.tail(exact) == pytest.approx(1 - p, rel=2e-3)


def test_gamma_law_without_variance_is_constant() -> None:
    law = GammaMixture(np.array([2.0]), np.zeros(1), np.ones(1))
    assert (law.mean, law.second_moment) == pytest.approx((2.0, 4.0), rel=1e-12)
    assert law.quantile(0.99) == pytest.approx(2.0, abs=step_of(law))


def stop_loss_laws() -> list[tuple[StopLossLaw, float, float]]:
    """Laws with E[T] and E[T^2] by hand."""
    return [
        (constant(0.3), 0.3, 0.09),
        (atoms((0.0, 0.25), (1.0, 0.5), (4.0, 0.25)), 1.5, 4.5),
        (exponential(2.0), 2.0, 8.0),
        (exponential(2.0, shift=1.0), 3.0, 13.0),  # E[(1+X)^2] = 1 + 2 m + 2 m^2
        (exponential(0.0, shift=1.0), 1.0, 1.0),
        (
            Exponentials(np.array([1.0, 5.0]), np.array([0.9, 0.1]), np.zeros(2)),
            1.4,
            0.9 * 2 + 0.1 * 50,
        ),
    ]


@pytest.mark.parametrize(("law", "mean", "second"), stop_loss_laws())
def test_moments_and_transforms_at_zero(law: StopLossLaw, mean: float, second: float) -> None:
    """pi(0) = E[T], E[((T-0)+)^2] = E[T^2], SCV = E[T^2]/E[T]^2 - 1."""
    assert law.mean == pytest.approx(mean, rel=1e-14)
    assert law.stop_loss(np.zeros(1))[0] == pytest.approx(mean, rel=1e-14)
    assert law.second_moment == pytest.approx(second, rel=1e-13)
    assert law.scv == pytest.approx(second / mean**2 - 1, abs=1e-12)


@pytest.mark.parametrize(("law", "mean", "second"), stop_loss_laws())
def test_lattice_keeps_mass_and_mean(law: StopLossLaw, mean: float, second: float) -> None:
    """Local moment matching (Gerber 1982, eq. 12) splits every mass without moving its mean."""
    step = law._horizon_guess() * 8 / (LATTICE_POINTS - 1)
    masses = law.lattice(step, LATTICE_POINTS)
    assert masses.min() >= 0
    assert masses.sum() == pytest.approx(1.0, abs=1e-6)
    assert masses @ np.arange(LATTICE_POINTS) * step == pytest.approx(mean, rel=1e-4)


@pytest.mark.parametrize(("law", "mean", "second"), stop_loss_laws())
def test_stop_loss_is_the_integral_of_the_tail(
    law: StopLossLaw, mean: float, second: float
) -> None:
    """d/dx E[((T-x)+)^2] = -2 E[(T-x)+], by central differences."""
    x, h = np.array([0.15, 0.7, 2.2]), 1e-5
    slope = (law.excess_square(x + h) - law.excess_square(x - h)) / (2 * h)
    assert slope == pytest.approx(-2 * law.stop_loss(x), rel=1e-5, abs=1e-8)


def test_two_atoms() -> None:
    """P(T <= 1) = 0.9: below that level the quantile is 1, above it 5."""
    law = atoms((1.0, 0.9), (5.0, 0.1))
    for p, exact in ((0.05, 1.0), (0.5, 1.0), (0.89, 1.0), (0.91, 5.0), (0.999, 5.0)):
        assert law.quantile(p) == pytest.approx(exact, abs=2 * step_of(law))
    for t, tail in ((0.5, 1.0), (1.01, 0.1), (4.9, 0.1), (5.01, 0.0)):
        assert law.tail(t) == pytest.approx(tail, abs=1e-9)


def test_unsorted_atoms_are_the_same_law() -> None:
    left, right = atoms((3.0, 0.2), (1.0, 0.8)), atoms((1.0, 0.8), (3.0, 0.2))
    x = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 9.0])
    assert np.array_equal(left.stop_loss(x), right.stop_loss(x))


def test_atom_at_zero() -> None:
    """With P(T = 0) = 0.6 every level up to 0.6 has quantile exactly 0."""
    law = Mixture((constant(0.0), exponential(1.0)), (0.6, 0.4))
    assert law.quantile(0.3) == law.quantile(0.599) == 0.0
    assert law.tail(0.0) == pytest.approx(0.4, abs=1e-3)
    assert law.quantile(0.99) == pytest.approx(math.log(0.4 / 0.01), rel=1e-4)


def test_law_that_is_always_zero() -> None:
    assert constant(0.0).quantile(0.99) == 0.0
    assert (constant(0.0).mean, constant(0.0).tail(1e-9)) == (0.0, 0.0)


@pytest.mark.parametrize("t", [0.5, 2.0, 9.0])
def test_mixture_tail(t: float) -> None:
    """A mixture's tail is the weighted sum of the tails."""
    law = Mixture((exponential(1.0), exponential(4.0, shift=2.0)), (0.7, 0.3))
    exact = 0.7 * math.exp(-t) + 0.3 * min(math.exp(-(t - 2.0) / 4.0), 1.0)
    assert law.mean == pytest.approx(0.7 + 0.3 * 6.0, rel=1e-15)
    assert law.tail(t) == pytest.approx(exact, rel=2e-3)


def test_a_heavy_tail_fits() -> None:
    """One request in a thousand is 1000 times slower: P99.99 = 1000 ln(1e-3/1e-4)."""
    law = Mixture((exponential(1.0), exponential(1000.0)), (0.999, 0.001))
    late = Sum((law, constant(0.0)))  # on a lattice
    assert late.tail(1000 * math.log(1e3)) == pytest.approx(1e-6, rel=1e-2)
    assert late.tail(1.0) == pytest.approx(0.999 * math.exp(-1.0) + 0.001, rel=1e-3)
    assert law.quantile(0.9999) == pytest.approx(1000 * math.log(10.0), rel=1e-3)


@pytest.mark.parametrize("slow", [100.0, 1e4, 1e6])
@pytest.mark.parametrize("p", [0.5, 0.9])
def test_a_rare_slow_part_does_not_blur_the_others(slow: float, p: float) -> None:
    """1 % of requests wait ``slow`` times longer, as for a slot near saturation: quantiles below
    P99 are still those of the rest, -ln(1 - p/0.99) up to the slow part's small share there."""
    law = Mixture((exponential(1.0), exponential(slow, shift=slow)), (0.99, 0.01))
    assert law.quantile(p) == pytest.approx(-math.log1p(-p / 0.99), rel=1e-3)
    point = Mixture((constant(0.03), exponential(slow)), (0.99, 0.01))
    assert point.quantile(p) == pytest.approx(0.03, rel=1e-2)


def test_tail_before_time_zero_is_one() -> None:
    assert exponential(1.0).tail(-1e-9) == 1.0


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_level_outside_the_open_unit_interval_is_refused(p: float) -> None:
    with pytest.raises(InputError, match="percentile level"):
        exponential(1.0).quantile(p)


def test_convolution_of_masses_is_polynomial_product() -> None:
    left, right = np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.9])
    assert convolve(left, right) == pytest.approx(np.convolve(left, right), abs=1e-15)


def test_total_of_one_part_is_that_part() -> None:
    part = exponential(1.0)
    assert total([part]) is part
    assert total([part, part]).mean == 2.0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_sum_of_constants_is_their_sum(values: list[float]) -> None:
    """Means add exactly; each constant is off by at most one step, so the sum by one a part."""
    law = Sum(tuple(constant(v) for v in values))
    exact = math.fsum(values)
    assert law.mean == pytest.approx(exact, rel=1e-14)
    for p in (0.01, 0.5, 0.99):
        assert law.quantile(p) == pytest.approx(exact, abs=(len(values) + 1) * step_of(law))


means_and_weights = st.lists(
    st.tuples(st.floats(1e-3, 1e2), st.floats(0.01, 1.0), st.floats(0.0, 10.0)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(means_and_weights, st.floats(0.0, 0.9))
def test_tails_fall_and_quantiles_invert_them(
    parts: list[tuple[float, float, float]], at_zero: float
) -> None:
    """Defining properties: P(T > t) falls in t, q(p) rises in p, and the exact tail
    sum w exp(-(t - s)+/m) passes 1 - p within .4 % of q(p)."""
    means, weights, shifts = (np.array(column) for column in zip(*parts, strict=True))
    body = Exponentials(means, weights / weights.sum(), shifts)
    law = Mixture((constant(0.0), body), (at_zero, 1 - at_zero))
    times = np.linspace(0.0, 4 * body.mean, 50)
    assert np.all(np.diff([law.tail(float(t)) for t in times]) <= 1e-12)
    levels = [p for p in (0.05, 0.3, 0.6, 0.95, 0.99, 0.9999) if p > at_zero + 0.02]
    quantiles = [law.quantile(p) for p in levels]
    assert np.all(np.diff(quantiles) >= 0)

    def tail(t: float) -> float:
        late = np.exp(-np.maximum(t - shifts, 0.0) / means)
        return (1 - at_zero) * float(weights @ late / weights.sum())

    for p, t in zip(levels, quantiles, strict=True):
        assert tail(1.004 * t) - 1e-5 <= 1 - p <= tail(t / 1.004) + 1e-5


@settings(max_examples=15, deadline=None)
@given(means_and_weights, means_and_weights)
def test_sums_add_means_and_do_not_depend_on_order(
    left: list[tuple[float, float, float]], right: list[tuple[float, float, float]]
) -> None:
    laws = []
    for parts in (left, right):
        means, weights, shifts = (np.array(column) for column in zip(*parts, strict=True))
        laws.append(Exponentials(means, weights / weights.sum(), shifts))
    law, mirrored = Sum((laws[0], laws[1])), Sum((laws[1], laws[0]))
    assert law.mean == pytest.approx(laws[0].mean + laws[1].mean, rel=1e-14)
    step = law.mean / 250
    cumulative = np.cumsum(law.lattice(step, LATTICE_POINTS))
    # E[T] = sum of tails on the lattice, within the mass left beyond the horizon.
    assert step * np.sum(1 - cumulative) == pytest.approx(law.mean, rel=1e-2)
    assert mirrored.quantile(0.9) == pytest.approx(law.quantile(0.9), rel=1e-9)


@pytest.mark.parametrize("p", LEVELS)
def test_probability_inverts_the_quantile(p: float) -> None:
    """P(T <= t) = p at the p-quantile: of densities, on lattices and in mixtures."""
    sums = Sum((exponential(1.0), exponential(0.2, shift=0.5)))
    for law in (exponential(2.0), sums, Mixture((sums, exponential(30.0)), (0.95, 0.05))):
        assert law.probability(law.quantile(p)) == pytest.approx(p, abs=2e-4)


def test_probability_counts_a_point_mass_at_its_value() -> None:
    """P(T <= t) holds an atom at t, and nothing above it."""
    law = atoms((0.0, 0.25), (1.0, 0.5), (4.0, 0.25))
    assert [law.probability(t) for t in (-1.0, 0.0, 0.999, 1.0, 3.9, 4.0)] == pytest.approx(
        [0.0, 0.25, 0.25, 0.75, 0.75, 1.0], abs=1e-12
    )
    assert exponential(0.0, shift=1.0).probability(1.0) == pytest.approx(1.0, abs=1e-12)


def test_erlang_tail_far_out() -> None:
    """A P99.99 still follows Q(k, t): nothing is lost to rounding in the FFT."""
    law = Sum((exponential(1.0),) * 3)
    t = float(gammainccinv(3, 1e-4))
    assert law.tail(t) == pytest.approx(float(gammaincc(3, t)), rel=2e-2)


@pytest.mark.parametrize("mean", [1e-3, 2.0])
def test_variance_of_a_lattice_law(mean: float) -> None:
    """Var of Exp(m) is m^2; of a sum, the sum; of a mixture with an atom p(2 - p) m^2."""
    single = Exponentials(np.array([mean]), np.ones(1), np.zeros(1))
    assert single.variance == pytest.approx(mean**2, rel=1e-3)
    assert total([single, single]).variance == pytest.approx(2.0 * mean**2, rel=1e-3)
    delayed = Mixture((constant(0.0), single), (0.7, 0.3))
    assert delayed.variance == pytest.approx(0.3 * 1.7 * mean**2, rel=2e-3)
