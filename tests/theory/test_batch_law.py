"""The decode batch law against its closed forms, and against iteration-level simulation.

tests/data/queueing/decode_grid.csv: t = a + b k with b = 1, mean output 200 tokens; columns
``_sim`` simulated, ``_ps`` and ``_bd`` the stationary law evaluated independently.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

from pdalloc.errors import PdallocError, UnstableError
from pdalloc.queueing.batch import BatchLaw

Array = NDArray[np.float64]
DATA = Path(__file__).resolve().parents[1] / "data" / "queueing" / "decode_grid.csv"
STEPS = 200.0


def affine(a: float, b: float) -> Callable[[Array], Array]:
    def step(batch: Array) -> Array:
        times: Array = a + b * np.asarray(batch, float)
        return times

    return step


def unlimited(a: float, b: float, rho: float, steps: float = STEPS) -> BatchLaw:
    return BatchLaw(rho / (steps * b), steps, affine(a, b))


def limited(a: float, b: float, rho: float, slots: int, steps: float = STEPS) -> BatchLaw:
    """K slots at utilisation rho_K = lambda L t(K)/K."""
    return BatchLaw(rho * slots / (steps * (a + b * slots)), steps, affine(a, b), slots)


def negative_binomial(r: float, rho: float, count: int) -> Array:
    """pi(k) = Gamma(k + r)/(Gamma(r) k!) (1 - rho)^r rho^k for k = 0..count-1."""
    k = np.arange(count, dtype=float)
    log_pi = gammaln(k + r) - gammaln(r) - gammaln(k + 1)
    pi: Array = np.exp(log_pi + r * math.log1p(-rho) + k * math.log(rho))
    return pi


def nbinom_ppf(p: float, r: float, rho: float) -> int:
    """Least k with P(N <= k) = I_{1-rho}(r, k + 1) >= p."""
    k = 0
    while betainc(r, k + 1, 1 - rho) < p:
        k += 1
    return k


def birth_death(law: BatchLaw, states: int) -> Array:
    """Stationary law by balance: lambda pi(k-1) = mu(k) pi(k), mu = min(k,K)/(L t(min(k,K)))."""
    pi = np.ones(states)
    for k in range(1, states):
        busy = np.array([min(float(k), law.slots)])
        rate = busy[0] / (law.steps * law.step_time(busy)[0])
        pi[k] = pi[k - 1] * law.rate / rate
    pi /= pi.sum()
    return pi


CASES = [(5.0, 1.0, 0.3), (10.0, 1.0, 0.9), (40.0, 2.0, 0.6), (0.02, 3e-4, 0.8)]


@pytest.mark.parametrize(("a", "b", "rho"), CASES)
def test_affine_law_is_negative_binomial(a: float, b: float, rho: float) -> None:
    """Reference notes 2: pi is NB(1 + a/b, 1 - rho)."""
    _, pi, _ = unlimited(a, b, rho)._law
    assert pi == pytest.approx(negative_binomial(1 + a / b, rho, len(pi)), abs=1e-11)


@pytest.mark.parametrize(("a", "b", "rho"), CASES)
def test_affine_means(a: float, b: float, rho: float) -> None:
    """E[N] = (a/b + 1) rho/(1 - rho); mean TPOT = (a + b)/(1 - rho)."""
    law = unlimited(a, b, rho)
    assert law.mean_batch == pytest.approx((a / b + 1) * rho / (1 - rho), rel=1e-9)
    assert law.mean_step == pytest.approx((a + b) / (1 - rho), rel=1e-9)
    assert law.itl.mean == pytest.approx((a + b) / (1 - rho), rel=1e-9)
    assert law.utilisation == pytest.approx(rho, rel=1e-3)
    assert (law.wait_probability, law.mean_slot_wait) == (0.0, 0.0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(("a", "b", "rho"), CASES)
def test_itl_and_batch_quantiles(a: float, b: float, rho: float, p: float) -> None:
    """ITL_p = a + b (1 + NB.ppf(p)); the batch exceeded with probability 1-p is NB.ppf(p)."""
    law = unlimited(a, b, rho)
    k = nbinom_ppf(p, 1 + a / b, rho)
    assert law.batch_quantile(p) == k
    assert law.itl.quantile(p) == pytest.approx(a + b * (1 + k), abs=b / 2)


@pytest.mark.parametrize("slots", [1, 2, 7, 32])
@pytest.mark.parametrize("rho", [0.2, 0.6, 0.95])
def test_finite_slots_are_birth_and_death(slots: int, rho: float) -> None:
    """Beyond K the speed is that of K: E[min(N, K)], P(N >= K) and E[(N - K)+] by balance."""
    law = limited(20.0, 1.0, rho, slots)
    pi = birth_death(law, slots + 2000)
    n = np.arange(len(pi))
    assert law.utilisation == pytest.approx(rho, rel=1e-12)
    assert law.mean_batch == pytest.approx(float(pi @ np.minimum(n, slots)), rel=1e-9)
    assert law.wait_probability == pytest.approx(float(pi[n >= slots].sum()), rel=1e-9)
    queued = float(pi @ np.maximum(n - slots, 0))
    assert law.mean_slot_wait == pytest.approx(queued / law.rate, rel=1e-8)


@pytest.mark.parametrize("rho", [0.2, 0.7, 0.95])
def test_one_slot_is_mm1(rho: float) -> None:
    """K = 1: an M/M/1 of service L t(1); its wait is rho/(1-rho) services (Kleinrock 3.26)."""
    law = limited(3.0, 1.0, rho, 1)
    assert law.wait_probability == pytest.approx(rho, rel=1e-12)
    assert law.mean_slot_wait == pytest.approx(rho / (1 - rho) * STEPS * 4.0, rel=1e-12)
    assert law.mean_step == pytest.approx(4.0, rel=1e-12)


def test_constant_step_without_limit_is_infinite_server() -> None:
    """t(k) = a: nobody slows anybody, N is Poisson(lambda L a)."""
    law = BatchLaw(0.1, STEPS, affine(0.5, 0.0))
    pi, k = law._law[1], np.arange(len(law._law[1]))
    assert pi == pytest.approx(np.exp(-10 + k * math.log(10) - gammaln(k + 1)), abs=1e-11)
    assert law.mean_step == pytest.approx(0.5, rel=1e-12)


step_tables = st.lists(st.floats(0.0, 5.0), min_size=4, max_size=12)


@settings(max_examples=40, deadline=None)
@given(step_tables, st.floats(0.05, 0.95), st.floats(0.1, 10.0))
def test_little_for_any_step_curve(rises: list[float], rho: float, first: float) -> None:
    """Little over the slots, E[min(N,K)] = lambda L E[gap], with the gap seen by a token."""
    curve = first + np.cumsum(rises)
    slots = len(curve)

    def step(batch: Array) -> Array:
        times: Array = np.interp(batch, np.arange(1, slots + 1), curve)
        return times

    law = BatchLaw(rho * slots / (STEPS * curve[-1]), STEPS, step, slots)
    assert law.mean_batch == pytest.approx(law.token_rate * law.itl.mean, rel=1e-9)
    assert first - 1e-12 <= law.mean_step <= curve[-1] * (1 + 1e-12)
    assert law.entry.mean == pytest.approx(law.mean_entry, rel=1e-6, abs=1e-9 * law.mean_step)
    assert law.first_token.mean == pytest.approx(law.mean_first_token, rel=1e-6)


@pytest.mark.parametrize("law", [unlimited(20.0, 1.0, 0.8), limited(20.0, 1.0, 0.9, 16)])
def test_entry_and_first_token_laws_keep_their_means(law: BatchLaw) -> None:
    """entry = half a step under way (0 if idle) + slot wait; first token = entry + one gap."""
    times, pi, _ = law._law
    joins = pi[1:] if math.isinf(law.slots) else np.append(pi[1:-1], 0.0)
    half_step = 0.5 * float(joins @ times)
    assert law.mean_boundary_wait == pytest.approx(half_step, rel=1e-12)
    assert law.mean_entry == pytest.approx(half_step + law.mean_slot_wait, rel=1e-12)
    assert law.entry.mean == pytest.approx(law.mean_entry, rel=1e-9)
    assert law.first_token.mean == pytest.approx(law.mean_entry + law.itl.mean, rel=1e-9)
    assert law.first_token.quantile(0.99) > law.entry.quantile(0.99)


@pytest.mark.parametrize("slots", [math.inf, 16])
def test_idle_replica(slots: float) -> None:
    """No load: one request alone takes t(1) a step and waits for nothing."""
    law = BatchLaw(0.0, STEPS, affine(20.0, 1.0), slots)
    assert (law.utilisation, law.mean_batch, law.mean_entry) == (0.0, 0.0, 0.0)
    assert law.mean_step == law.itl.mean == law.first_token.mean == 21.0
    assert law.itl.quantile(0.99) == pytest.approx(21.0, rel=2e-3)
    assert law.batch_quantile(0.99) == 0.0


@pytest.mark.parametrize("slots", [math.inf, 32.0])
@pytest.mark.parametrize("rho", [1.0001, 1.2, 3.7])
def test_overload_is_refused_when_the_law_is_made(rho: float, slots: float) -> None:
    """lambda L b >= 1 (no limit) or lambda L t(K)/K >= 1: named before anything is read."""
    most = 1 / STEPS if math.isinf(slots) else slots / (STEPS * (20.0 + slots))
    with pytest.raises(UnstableError) as caught:
        BatchLaw(rho * most, STEPS, affine(20.0, 1.0), slots)
    assert f"more than {math.floor(rho)} replicas" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rate", "steps", "slots"),
    [(math.nan, 10.0, 4.0), (-0.1, 10.0, 4.0), (0.1, math.nan, 4.0), (0.1, 10.0, 2.5)],
)
def test_numbers_that_make_no_law_are_refused(rate: float, steps: float, slots: float) -> None:
    with pytest.raises(PdallocError):
        _ = BatchLaw(rate, steps, affine(0.02, 0.001), slots).mean_step


def test_load_close_to_saturation() -> None:
    """(a + b)/(1 - rho) still holds at rho = .999, with E[N] = 10 989 requests."""
    assert unlimited(10.0, 1.0, 0.999).mean_step == pytest.approx(11.0 / 1e-3, rel=1e-6)


def test_a_stable_load_never_takes_more_than_zero_replicas() -> None:
    """At rho = .9999 E[N] is 110 000: a law or a refusal, but not one naming 0."""
    try:
        assert unlimited(10.0, 1.0, 0.9999).mean_step == pytest.approx(11.0 / 1e-4, rel=1e-3)
    except UnstableError as error:
        assert "more than 0" not in str(error)


def grid(limited_slots: bool) -> list[dict[str, str]]:
    with DATA.open(newline="") as file:
        return [r for r in csv.DictReader(file) if (r["K"] != "inf") == limited_slots]


def row_id(row: dict[str, str]) -> str:
    return "-".join(row[key][:4] for key in ("K", "a_over_b", "Ldist", "rho_realised"))


def law_of(row: dict[str, str]) -> BatchLaw:
    a, rho = float(row["a_over_b"]), float(row["rho_realised"])
    if row["K"] == "inf":
        return unlimited(a, 1.0, rho, float(row["meanL"]))
    return limited(a, 1.0, rho, int(row["K"]), float(row["meanL"]))


@pytest.mark.parametrize("row", grid(False) + grid(True), ids=row_id)
def test_law_columns_of_the_grid(row: dict[str, str]) -> None:
    """The independent evaluation of the same law, to rounding; ITL to the lattice."""
    law = law_of(row)
    assert law.mean_step == pytest.approx(float(row["tpot_mean_ps"]), rel=1e-9)
    assert law.mean_batch == pytest.approx(float(row["EN_ps"]), rel=1e-9)
    assert law.wait_probability == pytest.approx(float(row["pwait_bd"]), abs=1e-12)
    for level in (90, 99):
        assert law.itl.quantile(level / 100) == pytest.approx(
            float(row[f"itl_p{level}_ps"]), abs=0.5
        )


@pytest.mark.parametrize("row", grid(False), ids=row_id)
def test_simulation_without_limit(row: dict[str, str]) -> None:
    """Reference notes 2: batch law mean +-1.3 % (beside the simulation's own interval), ITL
    P99 -6..+4 % over the whole grid."""
    law = law_of(row)
    simulated, half_width = float(row["tpot_mean_sim"]), float(row["tpot_mean_ci"])
    assert abs(law.mean_step - simulated) <= 0.013 * simulated + half_width
    assert -0.06 <= law.itl.quantile(0.99) / float(row["itl_p99_sim"]) - 1 <= 0.04


@pytest.mark.parametrize("row", grid(True), ids=row_id)
def test_simulation_with_slots(row: dict[str, str]) -> None:
    """Reference notes 2: finite K, mean TPOT +-.4 %, ITL P99 -2..+1.4 %; P(wait) within 7 %
    for geometric lengths, up to +17 % for fixed ones; their mean wait -9..+6 % (geometric)."""
    law = law_of(row)
    assert law.mean_step == pytest.approx(float(row["tpot_mean_sim"]), rel=0.0045)
    assert -0.02 <= law.itl.quantile(0.99) / float(row["itl_p99_sim"]) - 1 <= 0.0145
    waits = float(row["pwait_sim"])
    if waits >= 0.05:
        allowed = 0.07 if row["Ldist"] == "geom" else 0.175
        assert abs(law.wait_probability / waits - 1) <= allowed
    if waits >= 0.05 and row["Ldist"] == "geom":
        assert -0.09 <= law.mean_slot_wait / float(row["wait_mean_sim"]) - 1 <= 0.135
