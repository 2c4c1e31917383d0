"""KV transfers on a shared link: known values, and simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import UnstableError
from pdalloc.laws import Atoms, constant
from pdalloc.queueing.transfer import Feed, SharedLink, fed_wait

RATE = 4.0


def link(values: list[float], **more: Any) -> SharedLink:
    """Transfers of these seconds, equally likely."""
    n = len(values)
    return SharedLink("the link", RATE, Atoms(np.array(values), np.full(n, 1.0 / n)), **more)


@pytest.mark.parametrize("values", [[0.1], [0.05, 0.15], [0.02, 0.02, 0.5]])
def test_a_link_of_many_is_m_g_1(values: list[float]) -> None:
    """E[W] = lambda E[s^2] / (2 (1 - rho)) (Pollaczek-Khinchine; Kleinrock 1975, eq. 5.62)."""
    s = np.array(values)
    rho = RATE * float(s.mean())
    exact = RATE * float((s**2).mean()) / (2.0 * (1.0 - rho))
    found = link(values)
    assert found.utilisation == pytest.approx(rho, rel=1e-12)
    assert found.mean_delay == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("sharing", ["fcfs", "processor_sharing"])
def test_points_keep_the_mean(sharing: Any) -> None:
    of = link([0.02, 0.1, 0.3], sharing=sharing)
    points, weights = of.delays(of.work.values)
    assert np.all(points >= 0.0) and weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert of.work.weights @ points @ weights == pytest.approx(of.mean_delay, rel=1e-9)


def test_shares_of_the_speed() -> None:
    """E[T | s] = s / (1 - rho), whatever the law of s (Kleinrock 1976, eq. 4.17)."""
    of = link([0.02, 0.1, 0.3], sharing="processor_sharing")
    points, weights = of.delays(of.work.values)
    assert of.work.values + points @ weights == pytest.approx(
        of.work.values / (1.0 - of.utilisation), rel=1e-9
    )


def test_spread_under_shared_speed() -> None:
    """Short transfers see the link as it is: Var(T | s) = rho s^2 / (1 - rho)^2, that of s times a
    geometric number of others; long ones Var(T | s) / s = lambda E[s^2] / (1 - rho)^3."""
    of = link([0.1, 0.2], sharing="processor_sharing")
    rho, square = of.utilisation, float((of.work.values**2).mean())
    _, variance = of._excess(np.array([1e-6, 1e3]))
    assert variance[0] == pytest.approx(rho * 1e-12 / (1 - rho) ** 2, rel=1e-2)
    assert variance[1] / 1e3 == pytest.approx(RATE * square / (1 - rho) ** 3, rel=1e-2)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.99), st.floats(0.1, 0.95))
def test_equal_transfers_behind_one_replica_never_wait(ratio: float, rho: float) -> None:
    """They begin a prefill time apart at least, and take less."""
    seconds = rho / RATE
    of = SharedLink("l", RATE, constant(ratio * seconds), Feed(np.array([seconds]), 1.0 - rho))
    assert of.mean_delay == pytest.approx(0.0, abs=1e-3 * seconds)
    points, _ = of.delays(np.array([ratio * seconds]))
    assert points.max() <= 0.02 * seconds


def test_a_long_prompt_before_a_short_one() -> None:
    """Light traffic, two in a row while the replica is busy: the second waits w_1 - s_2 where
    that is positive; P(the next follows without idling | s_1) = 1 - e^(-lambda s_1)."""
    rate, s = 0.02, np.array([0.1, 2.0])
    w = 0.5 * s
    share = np.array([0.5, 0.5])
    found = fed_wait(Atoms(w, share), Feed(s, 1.0 - rate * 1.05), rate)
    direct = 0.25 * -np.expm1(-rate * 2.0) * (1.0 - 0.1)  # long, then short
    # after idling: A beyond the prefill, still on the link
    meets = 0.25 * rate * 0.5 * (1.0 - 0.1) ** 2
    assert found.mean == pytest.approx(direct + meets, rel=0.1)


def test_the_replica_spaces_its_transfers() -> None:
    """The more loaded the replica, the less wait beside a Poisson stream of the same."""
    s = np.array([0.02, 0.05, 0.2])
    work = Atoms(0.8 * s, np.full(3, 1 / 3))
    ratios = []
    for rho in (0.3, 0.6, 0.9):
        rate = rho / float(s.mean())
        fed = SharedLink("l", rate, work, Feed(s, 1.0 - rho)).mean_delay
        ratios.append(fed / SharedLink("l", rate, work).mean_delay)
    assert ratios[0] > ratios[1] > ratios[2] > 0.0 and ratios[2] < 0.7


def test_noise_is_another_point() -> None:
    """A kind of request given twice is the same law."""
    s = np.array([0.05, 0.2])
    one = fed_wait(Atoms(0.6 * s, np.full(2, 0.5)), Feed(s, 0.4), RATE)
    two = fed_wait(Atoms(np.tile(0.6 * s, 2), np.full(4, 0.25)), Feed(np.tile(s, 2), 0.4), RATE)
    assert two.mean == pytest.approx(one.mean, rel=1e-9)


@pytest.mark.parametrize("sharing", ["fcfs", "processor_sharing"])
def test_an_overloaded_link_says_which_and_how_to_mend(sharing: Any) -> None:
    with pytest.raises(UnstableError, match=r"the link: .*rho = 1\.200.* 1\.2 times the bandwidth"):
        link([0.3], sharing=sharing)


@pytest.mark.parametrize("sharing", ["fcfs", "processor_sharing"])
def test_no_transfers_no_delay(sharing: Any) -> None:
    of = SharedLink("l", 0.0, constant(0.1), sharing=sharing)
    assert of.mean_delay == 0.0
    assert of.delays(np.array([0.1]))[0].max() == 0.0
