"""Formulas of theorems whose arguments are stages: sympy's value is the numeric function's."""

from __future__ import annotations

from random import Random

import pytest
import sympy

from pdalloc.closed_forms import (
    Merit,
    Stage,
    itl_count,
    merit_order,
    mixing_gain,
    population_mix,
    price_only_gain,
    replica_dual,
    shared_budget,
    shared_ratio,
    wait_probability,
)
from pdalloc.theory import theorems

THEOREMS = theorems()
SEEDS = pytest.mark.parametrize("seed", range(8))


def value(name: str, symbol: str, **numbers: float) -> float:
    """The formula for ``symbol`` of theorem ``name`` at ``numbers`` (by the symbols' names)."""
    (formula,) = [f for f in THEOREMS[name].formulas if str(f.symbol) == symbol]
    point = {s: sympy.Float(numbers[str(s)], 30) for s in formula.value.free_symbols}
    return float(formula.value.subs(point).evalf(25))


def random_stage(rng: Random) -> Stage:
    return Stage(rng.uniform(1, 9), rng.uniform(0.1, 2), rng.uniform(0.05, 4), rng.uniform(0, 2))


def roots(*stages: Stage) -> dict[str, float]:
    """Symbols of theorem shared_budget for two stages."""
    named: dict[str, float] = {}
    for i, s in enumerate(stages, 1):
        named |= {f"c_{i}": s.price, f"alpha_{i}": s.load_cost, f"f_{i}": s.floor}
        named[f"r_{i}"] = s.delay_cost**0.5
    return named


@SEEDS
def test_shared_budget(seed: int) -> None:
    rng = Random(seed)
    one, two, rate, slack = random_stage(rng), random_stage(rng), rng.uniform(1, 9), 0.7
    tau = one.floor + two.floor + slack
    found = shared_budget(rate, [one, two], tau)
    numbers = roots(one, two) | {"lambda": rate, "sigma": slack, "tau": tau}
    assert value("shared_budget", "T_1", **numbers) == pytest.approx(found.delays[0], rel=1e-9)
    assert value("shared_budget", "C", **numbers) == pytest.approx(found.cost, rel=1e-9)
    assert value("shared_budget", "n_1", **numbers) == pytest.approx(found.counts[0], rel=1e-9)
    assert value("price_of_latency", "eta", **numbers) == pytest.approx(
        found.price_of_latency, rel=1e-9
    )


@SEEDS
def test_pd_ratio(seed: int) -> None:
    rng = Random(seed)
    prefill, decode, slack = random_stage(rng), random_stage(rng), rng.uniform(0.1, 3)
    numbers = {"sigma": slack}
    for role, s in (("p", prefill), ("d", decode)):
        numbers |= {
            f"w_{role}": s.work,
            f"c_{role}": s.price,
            f"kappa_{role}": s.congestion / s.work**2,
        }
    found = shared_ratio(prefill, decode, prefill.floor + decode.floor + slack)
    assert value("pd_ratio", "R", **numbers) == pytest.approx(found, rel=1e-9)


@SEEDS
def test_two_types_regimes(seed: int) -> None:
    """m, s, d, e are the theorem's square roots."""
    rng = Random(seed)
    m1, s1, d, e = (rng.uniform(0.3, 2.0) for _ in range(4))
    m2, s2 = m1 + d, s1 * (m1 + d) / m1 + e
    numbers = {"m_1": m1, "s_1": s1, "d": d, "e": e}
    top, bottom, nu = (value("two_types", name, **numbers) for name in ("T_1^*", "T_2^*", "nu^*"))
    mix = population_mix(
        1.0, [Stage.mm1(s1**2, m1**2), Stage.mm1(s2**2, m2**2)], (top + bottom) / 2
    )
    assert mix.delays == pytest.approx((top, bottom), rel=1e-9)
    assert mix.price_of_latency == pytest.approx(nu, rel=1e-9)


@SEEDS
def test_dual_cut(seed: int) -> None:
    rng = Random(seed)
    stage = random_stage(rng)
    q = rng.uniform(1.1, 4.0)
    nu = stage.floor + stage.congestion / stage.work * (q**2 - 1)
    found = value("dual_cut", "D", kappa=stage.congestion / stage.work**2, q=q)
    assert found == pytest.approx(replica_dual(stage, nu), rel=1e-9)


@SEEDS
def test_mixing_gain(seed: int) -> None:
    rng = Random(seed)
    d, e = rng.uniform(0.05, 2), rng.uniform(0.05, 2)
    speed, price = (1 + d) ** 2, (1 + d + e) ** 2
    assert value("mixing_gain", "G", d=d, e=e) == pytest.approx(mixing_gain(price, speed))
    assert value("mixing_gain", "G_0", d=d, e=e) == pytest.approx(price_only_gain(price))


def test_merit_order_and_rounding() -> None:
    found = merit_order(7.0, [Merit(3.0, 2.0), Merit(4.0, 2.0)])
    numbers = {"lambda": 7.0, "c_1": 3.0, "kappa_1": 2.0}
    assert value("merit_order", "C_min", **numbers) == pytest.approx(found.cost)
    share = value("rounding", "Delta", c_1=3.0, c_2=4.0, k=found.price, **{"lambda": 7.0})
    assert share == pytest.approx(7.0 / found.cost)


@pytest.mark.parametrize("margin", [0.2, 1.0, 3.0])
def test_square_root(margin: float) -> None:
    assert value("square_root", "P_W", beta=margin) == pytest.approx(
        wait_probability(margin), rel=1e-12
    )


@SEEDS
def test_itl_percentile_by_the_beta_integral(seed: int) -> None:
    """sum pi(j) over j <= k is 1 minus the integral of the theorem's density over rho."""
    from pdalloc.theory import itl_percentile as proof

    rng = Random(seed)
    shape, k, p = rng.randint(2, 9), rng.randint(0, 6), rng.uniform(0.6, 0.99)
    b, rate, steps = 1e-3, 2.0, 100.0
    base = (shape - 1) * b
    n = itl_count(rate, steps, base, b, base + b * (k + 1), p)
    load = rate * steps * b / n
    density = proof.beta_density.subs({proof.s: shape, proof.k: k})
    lost = sympy.integrate(sympy.expand(density), (proof.rho, 0, sympy.Float(load, 30)))
    assert 1 - float(lost) == pytest.approx(p, rel=1e-9)
