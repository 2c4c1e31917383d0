"""The compiled simulator in cells of queues whose laws are known exactly.

M/G/1: Pollaczek-Khinchine. M/M/c: Erlang C. M/D/c and M/PH/c: exact calculations (embedded
chain; matrix-geometric method, Neuts 1981, "Matrix-Geometric Solutions in Stochastic Models",
chapter 4), mean service 1. GI/M/1: the root of z = E exp(-(1 - z) T). Decode: the stationary
law of processor sharing at state-dependent speed.

All cells must hold at once: the bound is 4 standard errors of 10 replications.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.simulator import grids
from scipy.optimize import brentq

EFFORT = grids.Effort(per_gap=6_000, replications=10)
STANDARD_ERRORS = 4.0
SCV = {"D": 0.0, "E4": 0.25, "E2": 0.5, "LN_0.5": 0.5, "M": 1.0, "H2_2": 2.0, "H2_4": 4.0}


def confirm(samples: list[float], expected: float, seen: float = 0.1) -> None:
    """``expected`` lies within the bound, which is narrow enough to see an error of ``seen``."""
    error = float(np.std(samples, ddof=1)) / math.sqrt(len(samples))
    assert error < seen * expected, (error, expected)
    assert float(np.mean(samples)) == pytest.approx(expected, abs=STANDARD_ERRORS * error)


def queue(law: str, servers: int, rho: float, gaps: str = "M", gaps_scv: float = 1.0):
    """Samples of EW and PW of a cell."""
    service = grids.service_of(law, SCV.get(law, 0.0))
    system = grids.prefill_queue(service, grids.arrivals_of(gaps, gaps_scv, rho * servers))
    seed = 100 * servers + round(100 * rho) + len(law)
    return EFFORT.samples(system, (servers, 1), rho, grids.waits, seed, service.options)


def erlang_c(servers: int, load: float) -> float:
    """P(W > 0) of M/M/c from Erlang B: B_n = a B_(n-1) / (n + a B_(n-1)), B_0 = 1."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    rho = load / servers
    return blocked / (1.0 - rho + rho * blocked)


@pytest.mark.parametrize(("law", "rho"), [(law, 0.7) for law in SCV] + [("D", 0.9), ("M", 0.9)])
def test_m_g_1_waits_as_pollaczek_khinchine(law: str, rho: float) -> None:
    """EW = rho (1 + SCV) / (2 (1 - rho)), PW = rho."""
    found = queue(law, 1, rho)
    confirm(found["EW"], rho * (1.0 + SCV[law]) / (2.0 * (1.0 - rho)))
    confirm(found["PW"], rho)


def test_the_empirical_law_waits_by_its_own_scv() -> None:
    """4096 lengths of mean 1: EW = rho E[S^2] / (2 (1 - rho))."""
    law, rho = grids.empirical(), 0.7
    assert law.mean() == pytest.approx(1.0)
    assert law.var() == pytest.approx(1.977553, rel=1e-5)
    confirm(queue("EMP", 1, rho)["EW"], rho * (law**2).mean() / (2.0 * (1.0 - rho)))


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.8), (4, 0.9), (16, 0.9)])
def test_m_m_c_waits_as_erlang_c(servers: int, rho: float) -> None:
    """PW = C(c, a), EW = C / (c (1 - rho)); P99 = ln(100 C) / (c (1 - rho)) for C > 1 %."""
    found, wait = queue("M", servers, rho), erlang_c(servers, rho * servers)
    confirm(found["PW"], wait)
    confirm(found["EW"], wait / (servers * (1.0 - rho)))
    confirm(found["P99"], math.log(100.0 * wait) / (servers * (1.0 - rho)))


@pytest.mark.parametrize(
    ("law", "servers", "rho", "mean", "waiting"),
    [
        ("D", 2, 0.5, 0.1767410571, 0.3232589429),
        ("D", 10, 0.9, 0.3445820504, 0.6468612839),
        ("E2", 4, 0.9, 1.4872733409, 0.7843520357),
        ("H2_2", 4, 0.9, 2.9019402318, 0.7922961265),
        ("H2_4", 16, 0.95, 2.3205859063, 0.7937534581),
    ],
)
def test_m_g_c_has_its_exact_values(
    law: str, servers: int, rho: float, mean: float, waiting: float
) -> None:
    found = queue(law, servers, rho)
    confirm(found["EW"], mean)
    confirm(found["PW"], waiting)


def transform(gaps: str, scv: float, x: float) -> float:
    """E exp(-x T) of gaps T of mean 1: Erlang-4 or hyperexponential."""
    if gaps == "E4":
        return float((1.0 + x / 4.0) ** -4)
    share, means = grids.hyperexponential(scv)
    return float(share @ (1.0 / (1.0 + x * means)))


@pytest.mark.parametrize(("gaps", "scv"), [("E4", 0.25), ("H2_2", 2.0), ("H2_4", 4.0)])
def test_gi_m_1_waits_by_the_root_of_its_gaps(gaps: str, scv: float) -> None:
    """An arrival finds n with probability (1 - z) z^n: EW = z / (1 - z), PW = z."""
    rho = 0.7
    z = brentq(lambda z: transform(gaps, scv, (1.0 - z) / rho) - z, 0.0, 1.0 - 1e-6)
    found = queue("M", 1, rho, gaps, scv)
    confirm(found["PW"], z)
    confirm(found["EW"], z / (1.0 - z))


@pytest.mark.parametrize("lengths", ["D", "geom", "LN2"])
def test_decode_shares_the_processor(lengths: str) -> None:
    """E[T | L] = L (a + b) / (1 - rho), rho = rate E[L] b, for every law of lengths."""
    a, b, rho = 10.0, 1.0, 0.7
    system = grids.decode_batch(grids.decode_lengths(lengths, 200.0), a, b, math.inf, rho)
    found = EFFORT.samples(system, (1, 1), rho, grids.decoding, 5)
    confirm(found["tpot_mean"], (a + b) / (1.0 - rho))
    assert max(found["wait_mean"]) < a + b * 200.0  # less than a step, as nobody lacks a slot


def test_slots_make_decode_m_m_c() -> None:
    """Steps of a s, whatever the batch (b = 0), and geometric lengths: K servers, mean L a."""
    slots, rho, a, length = 8, 0.8, 1.0, 200.0
    law = grids.decode_lengths("geom", length)
    system = grids.decode_batch(law, a, 0.0, float(slots), rho)
    found = EFFORT.samples(system, (1, 1), rho, grids.decoding, 6)
    queued = erlang_c(slots, rho * slots) * length * a / (slots * (1.0 - rho))
    boundary = 0.5 * a  # who finds a slot still waits for the step to end
    confirm(found["wait_mean"], queued + boundary, seen=0.15)
    confirm(found["tpot_mean"], a)


def test_a_row_compares_and_a_summary_counts() -> None:
    """Exact rows have no half-width of their own; a summary counts cells per measure."""
    cell = {"dist": "M", "scv": "1", "c": "2", "rho": "0.5", "method": "exact"}
    values = {"EW": 1.0 / 3.0, "PW": 1.0 / 3.0, "P99": math.log(100.0 / 3.0)}
    cell |= {name: str(value) for name, value in values.items()}
    cell |= {f"{name}_ci": "0" for name in values}
    rows = grids.queue_rows(cell, 3, grids.Effort(20_000, 10))
    assert [row["measure"] for row in rows] == list(values)
    assert all(row["exact"] and row["law"] == "M" for row in rows)
    for row in rows:
        gap = abs(float(row["simulated"] or 0.0) - float(row["reference"] or 0.0))
        assert row["inside"] == (gap <= float(row["half_width"] or 0.0))
    summary = grids.summary_rows({"mgc": rows})
    assert [row["cells"] for row in summary] == [1, 1, 1]
    assert [row["inside_percent"] for row in summary] == [100.0 * bool(r["inside"]) for r in rows]


def test_cells_are_chosen_by_servers_load_and_waiting() -> None:
    cells = [
        {"c": "1", "rho": "0.5", "PW": "0.5"},
        {"c": "32", "rho": "0.5", "PW": "0.5"},
        {"c": "8", "rho": "0.98", "PW": "0.5"},
        {"c": "16", "rho": "0.5", "PW": "0.001"},
        {"rho": "0.9"},
    ]
    assert grids.chosen(cells) == [cells[0], cells[4]]


def test_an_interrupted_poisson_process_has_the_gaps_it_is_asked_for() -> None:
    """Mean 1 / rate, and the SCV within 4 standard errors of independent streams."""
    scv, rate = 4.0, 2.0
    process = grids.arrivals_of("H2_4", scv, rate)
    assert process.rate == pytest.approx(rate)
    streams = [process.times(20_000, np.random.default_rng(seed)) for seed in range(20)]
    found = [np.diff(times).var() / np.diff(times).mean() ** 2 for times in streams]
    error = np.std(found, ddof=1) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(scv, abs=STANDARD_ERRORS * error)
