"""What is read off a service law: moments, residual lives, dispersion of departures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.delay_laws.services import law, service, tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.laws import Atoms, constant
from pdalloc.queueing.deterministic import constant_dispersion
from pdalloc.queueing.service import Service
from pdalloc.queueing.survival import SurvivalTable

NAMES = ["D", "E4", "M", "H2_4", "LN_2", "EMP"]


@pytest.mark.parametrize("name", NAMES)
def test_first_two_moments_are_the_laws(name: str) -> None:
    s = service(name)
    assert s.moment(1.0) == pytest.approx(s.mean, rel=1e-9)
    assert s.moment(2.0) == pytest.approx((1 + s.scv) * s.mean**2, rel=2e-5)
    assert s.residual.mean == pytest.approx(0.5 * (1 + s.scv) * s.mean, rel=2e-5)


def test_third_moments() -> None:
    """E[S^3]: 1 constant, 6 exponential, (1+s)^3 lognormal, (1+1/k)(1+2/k) Erlang-k."""
    assert service("D").third_moment == pytest.approx(1.0)
    assert service("M").third_moment == pytest.approx(6.0, rel=1e-4)
    assert service("LN_2").third_moment == pytest.approx(27.0, rel=1e-3)
    assert service("E4").third_moment == pytest.approx(1.25 * 1.5, rel=1e-4)


@pytest.mark.parametrize("servers", [1, 2, 7.5, 200])
def test_least_residual(servers: float) -> None:
    """gamma_1 = int (1 - F_e)^c: 1/(c+1) constant, 1/c exponential (Tijms 2003, section 9.6.2)."""
    assert service("D").least_residual_mean(servers) == pytest.approx(1 / (servers + 1), rel=1e-12)
    assert service("M").least_residual_mean(servers) == pytest.approx(1 / servers, rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_least_of_one_residual_is_the_residual(name: str) -> None:
    s = service(name)
    assert s.least_residual_mean(1) == pytest.approx(s.residual.mean, rel=1e-9)
    t = np.array([0.1, 0.7, 3.0])
    expected = s.residual.mean - s.residual.stop_loss(t)
    assert s.least_residual_integral(t, 1) == pytest.approx(expected, rel=1e-8)


def test_least_assigned() -> None:
    """Half the least length-biased service: 1/2 constant; E[min of c Erlang-2]/2 exponential."""
    assert service("D").least_assigned(4).mean == pytest.approx(0.5)
    # int ((1+x) e^-x)^4 dx = sum binom(4,k) k!/4^(k+1)
    least = sum(math.comb(4, k) * math.factorial(k) / 4 ** (k + 1) for k in range(5))
    assert service("M").least_assigned(4).mean == pytest.approx(0.5 * least, rel=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_least_assigned_of_one_is_the_residual(name: str) -> None:
    """One server: what is left of the length-biased service is the residual life."""
    s = service(name)
    assert s.least_assigned(1).mean == pytest.approx(s.residual.mean, rel=3e-3)
    for t in (0.2, 1.5):
        assert s.least_assigned(1).tail(t) == pytest.approx(s.residual.tail(t), abs=3e-3)


@pytest.mark.parametrize("name", NAMES)
def test_dispersion_runs_from_one_to_the_scv(name: str) -> None:
    """Var N(t)/E N(t) -> SCV in the long run, 1 in the short (Cox 1962, section 4.5)."""
    s = service(name)
    assert s.dispersion(0.0) == s.scv
    assert s.dispersion(1.1e-5) == pytest.approx(s.scv, abs=5e-3 * (1 + s.scv))
    assert s.dispersion(9e4) == pytest.approx(1.0, abs=2e-3)


def test_dispersion_known_functions() -> None:
    """1 for exponential; coth(theta/2) - 2/theta constant; Erlang-2 by its transform."""
    for theta in (0.02, 0.5, 3.0, 40.0):
        assert service("M").dispersion(theta) == pytest.approx(1.0, abs=1e-4)
        assert service("D").dispersion(theta) == pytest.approx(constant_dispersion(theta), abs=3e-4)
        # I = 1 + 2 f/(1-f) - 2/theta with f = (2/(2+theta))^2
        f = (2 / (2 + theta)) ** 2
        assert service("E2").dispersion(theta) == pytest.approx(
            1 + 2 * f / (1 - f) - 2 / theta, abs=3e-4
        )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.05, 20.0), st.floats(0.05, 1.0)), min_size=1, max_size=6),
    st.floats(0.01, 100.0),
)
def test_units_do_not_matter(parts: list[tuple[float, float]], unit: float) -> None:
    values, weights = (np.array(column) for column in zip(*parts, strict=True))
    weights /= weights.sum()
    one, other = Service(Atoms(values, weights)), Service(Atoms(unit * values, weights))
    assert other.scv == pytest.approx(one.scv, rel=1e-6, abs=1e-9)
    assert other.dispersion(1.3) == pytest.approx(one.dispersion(1.3), rel=1e-6, abs=1e-7)
    assert other.overlap == pytest.approx(one.overlap, rel=1e-6)
    assert other.least_residual_mean(5) == pytest.approx(
        unit * one.least_residual_mean(5), rel=1e-6
    )


def test_overlap() -> None:
    """int P(S > t)^2 / E[S]: 1 constant, 1/2 exponential; Gini's mean difference in between."""
    assert service("D").overlap == 1.0
    assert service("M").overlap == pytest.approx(0.5, rel=1e-4)
    assert 0.5 < service("E4").overlap < 1.0


def test_token_prompts_are_the_law_in_whole_tokens() -> None:
    for name in ("D", "M", "E4", "EMP"):
        prompts, seconds = tokens(name)
        assert np.array_equal(prompts, np.rint(prompts)) and prompts.min() >= 1
        assert seconds.mean == pytest.approx(1.0)
        assert seconds.scv == pytest.approx(service(name).scv, rel=3e-3, abs=1e-9)


def test_a_law_without_a_mean_is_refused() -> None:
    for seconds in (0.0, math.inf, math.nan):
        with pytest.raises(InputError):
            Service(constant(seconds))


def test_survival_table_of_a_uniform_law() -> None:
    """Uniform on (0, 2): E[(T-x)+] = (2-x)^2/4, E[((T-x)+)^2] = (2-x)^3/6."""
    uniform = SurvivalTable(np.array([0.0, 0.5, 2.0]), np.array([1.0, 0.75, 0.0]))
    x = np.array([0.0, 0.3, 1.0, 1.9, 2.5])
    left = np.maximum(2 - x, 0)
    assert uniform.stop_loss(x) == pytest.approx(left**2 / 4)
    assert uniform.excess_square(x) == pytest.approx(left**3 / 6)
    assert (uniform.mean, uniform.scv) == pytest.approx((1.0, 1 / 3))
    assert uniform.tail(1.0) == pytest.approx(0.5)
    assert uniform.tail(-1.0) == 1.0


def test_survival_table_of_an_exponential_law() -> None:
    t = np.linspace(0.0, 40.0, 4001)
    survival = np.exp(-t)
    survival[-1] = 0.0
    table = SurvivalTable(t, survival)
    for p in (0.1, 0.5, 0.99):
        assert table.quantile(p) == pytest.approx(-math.log1p(-p), rel=1e-6)
    assert table.excess_square(np.array([1.0]))[0] == pytest.approx(2 * math.exp(-1), rel=1e-4)


def test_every_named_law_has_mean_one() -> None:
    for name in ("D", "M", "E2", "E4", "H2_2", "H2_4", "LN_0.5", "LN_2", "LN_4", "EMP"):
        assert law(name).mean == pytest.approx(1.0, rel=1e-9)
