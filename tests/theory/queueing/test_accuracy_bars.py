"""How far the defaults may be from the reference grids: 423 M/G/c cells, GI/G/c, dispatch.

Grids: exact, or simulated with intervals far below these bars (tests/data/queueing). Errors
count where P(W > 0) >= .01 (mean) or .02 (P99).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from experiments.delay_laws.accuracy import cases, errors
from experiments.delay_laws.services import HELD_OUT

from pdalloc.queueing.delay_law import DelayLaw
from pdalloc.queueing.delay_laws import delay_law, law_named
from pdalloc.queueing.station import Station

Keep = Callable[[str, str, Station], bool]


@cache
def default_errors() -> list[tuple[str, str, Station, dict[str, float]]]:
    """Relative errors in percent of the default law at every cell."""
    return [(g, n, at, errors(delay_law(at), known)) for g, n, at, known in cases()]


def spread(keep: Keep, statistic: str) -> tuple[float, float, float]:
    """Median, 95th percentile and worst of |error| over the cells that ``keep`` keeps."""
    kept = [abs(e[statistic]) for g, n, at, e in default_errors() if keep(g, n, at)]
    found = np.array([e for e in kept if not math.isnan(e)])
    assert len(found) > 5
    return float(np.median(found)), float(np.quantile(found, 0.95)), float(found.max())


def within(keep: Keep, statistic: str, median: float, most: float, worst: float) -> None:
    found = spread(keep, statistic)
    assert found[0] <= median and found[1] <= most and found[2] <= worst, found


def mgc(grid: str, name: str, at: Station) -> bool:
    return grid == "mgc" and at.servers > 1


def test_mean_wait_of_mgc() -> None:
    """Median <= .5 %, 95th percentile <= 8 % asked; 4 % is kept, worst 6 %."""
    within(mgc, "mean_wait", 0.5, 4.0, 6.5)


def test_p99_of_mgc() -> None:
    """Median <= 1.5 %, 95th percentile <= 12 % asked, 5 % hoped for: 5 % is kept."""
    within(mgc, "p99_wait", 1.5, 5.0, 7.0)


def test_p_wait_of_mgc() -> None:
    within(mgc, "p_wait", 0.2, 1.0, 2.0)


@pytest.mark.parametrize("name", HELD_OUT)
def test_service_laws_that_no_formula_was_made_on(name: str) -> None:
    """Uniform, base + exponential, two points, Pareto: simulated after the laws were fixed.

    Two points are the hardest; published formulas have their 95th percentile at 11 to 33 %.
    """
    mean, p99 = {"TWO": ((4.0, 14.0, 16.0), (5.0, 10.0, 12.0))}.get(
        name, ((2.5, 6.0, 7.0), (3.0, 5.0, 6.0))
    )
    within(lambda g, n, at: n == name, "mean_wait", *mean)
    within(lambda g, n, at: n == name, "p99_wait", *p99)


def test_one_server_is_exact() -> None:
    """M/G/1 and GI/G/1 with gaps of known law: what the grids' own intervals leave."""
    within(lambda g, n, at: at.servers == 1, "mean_wait", 0.1, 1.5, 2.0)
    within(lambda g, n, at: at.servers == 1, "p99_wait", 0.2, 2.5, 5.0)


def test_gigc() -> None:
    """Bursty and regular arrivals at one queue of many servers."""
    within(lambda g, n, at: g == "gigc", "mean_wait", 1.2, 12.0, 30.0)
    within(lambda g, n, at: g == "gigc", "p99_wait", 1.6, 12.0, 25.0)


@pytest.mark.parametrize("dispatch", ["random", "round_robin"])
def test_separate_queues_are_exact(dispatch: str) -> None:
    """Random (thinned) and round robin (every c-th): simulation within its noise."""
    within(lambda g, n, at: g == "dispatch" and at.dispatch == dispatch, "mean_wait", 0.6, 2.0, 3.0)
    within(lambda g, n, at: g == "dispatch" and at.dispatch == dispatch, "p99_wait", 1.5, 4.0, 5.0)


def assigned(grid: str, name: str, at: Station) -> bool:
    return at.dispatch == "least_loaded" and at.servers > 1 and at.arrival_scv == 1.0


def test_least_assigned_work() -> None:
    """The rule's fitted correction, on the cells that it was fitted to, c <= 200.

    The worst are many servers with little waiting (c 200, rho .95), and err to the safe side.
    """
    within(assigned, "mean_wait", 2.0, 16.0, 42.0)
    within(assigned, "p99_wait", 4.0, 30.0, 95.0)


def test_one_queue_would_be_further_from_least_assigned_work() -> None:
    """Dispatch matters: the central queue's law is 9 times as far at the median."""
    gaps = []
    for grid, name, at, known in cases():
        if assigned(grid, name, at) and not math.isnan(known["mean_wait"]):
            one = Station(at.rate, at.service, at.servers)
            gaps.append(abs(delay_law(one).mean_wait / known["mean_wait"] - 1))
    assert np.median(gaps) > 0.1


def test_rivals_are_where_the_literature_has_them() -> None:
    """Boxma-Cohen-Huffels and Takahashi lead the published ones; Lee-Longton is far behind."""
    worst: dict[str, float] = {}
    for name in ("boxma_cohen_huffels", "takahashi", "kimura", "lee_longton", "dispersion"):
        found = [
            abs(errors(law_named(name)(at), known)["mean_wait"])
            for g, n, at, known in cases()
            if mgc(g, n, at) and not math.isnan(known["mean_wait"])
        ]
        worst[name] = float(np.quantile(found, 0.95))
    assert worst["dispersion"] < worst["boxma_cohen_huffels"] < worst["kimura"] < 10.0
    assert worst["lee_longton"] > 35.0


def test_no_law_is_measured_on_nothing() -> None:
    kinds: dict[str, type[DelayLaw]] = {
        type(delay_law(at)).name: type(delay_law(at)) for *_, at, _ in cases()
    }
    assert {
        "dispersion",
        "mdc",
        "mmc",
        "mg1",
        "single_servers",
        "fast_server",
        "least_assigned",
    } <= set(kinds)
