"""Published cases where a heuristic misses the optimum.

* Melange (arXiv 2404.14527, https://github.com/tyler-griggs/melange-release at d46ab43): its toy
  example. Loads of buckets may be split between GPU types at will; the least counts n with
  sum_g x_bg = load_b and sum_b x_bg / throughput_bg <= n_g are sought. Its own formulation
  assigns each bucket, cut into slice_factor equal slices, to one type.
* llm-d's greedy trap (https://github.com/llm-d): need 100; A costs 10 and carries 200, B costs 6
  and carries 100. Cost per capacity picks A.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from experiments.results import Row
from numpy.typing import NDArray

from pdalloc.allocation.problem import Option
from pdalloc.allocation.tables import cheapest, tables
from pdalloc.allocation.tables.build import NEED
from pdalloc.fleet import DECODE, PREFILL

Array = NDArray[np.float64]

PRICES = {"A10G": 1.01, "A100-80GB": 3.67}
THROUGHPUT = np.array([[2.0, 1.0, 5.0, 2.0], [20.0, 20.0, 40.0, 20.0]])
"""Requests/s of each GPU type on each bucket alone."""
LOAD = 30.0 * np.array([0.2, 0.1, 0.5, 0.2])
"""Requests/s per bucket."""
EXACTLY_FULL = 1e-9


def least_overload(counts: Array) -> float:
    """Least t so that ``counts`` GPUs, each t times as fast, carry the load; inf without any."""
    from scipy.optimize import linprog

    types, buckets = THROUGHPUT.shape
    rows = np.zeros((types, types * buckets + 1))
    for g in range(types):
        rows[g, g * buckets : (g + 1) * buckets] = 1.0 / THROUGHPUT[g]
        rows[g, -1] = -counts[g]
    split = np.hstack([np.tile(np.eye(buckets), types), np.zeros((buckets, 1))])
    target = np.zeros(types * buckets + 1)
    target[-1] = 1.0
    found = linprog(target, rows, np.zeros(types), split, LOAD)
    return float(found.fun or 0.0) if found.status == 0 else math.inf


def split_optimum() -> tuple[Array, float]:
    """The cheapest counts that carry the load; every cheaper ones are shown to be overloaded."""
    prices = np.array(list(PRICES.values()))
    alone = [math.ceil(float((LOAD / row).sum())) for row in THROUGHPUT]
    fleets = sorted(product(*(range(n + 1) for n in alone)), key=lambda n: float(prices @ n))
    for n in fleets:
        if least_overload(np.array(n, float)) <= 1.0 + EXACTLY_FULL:
            return np.array(n), float(prices @ n)
    raise AssertionError("one type alone carries the load")


def sliced_optimum(slice_factor: int) -> tuple[Array, float]:
    """Melange's formulation: each slice of a bucket goes to one type, by enumeration."""
    prices = np.array(list(PRICES.values()))
    types, buckets = THROUGHPUT.shape
    loads = np.repeat(LOAD / slice_factor, slice_factor)
    speeds = np.repeat(THROUGHPUT, slice_factor, axis=1)
    best, counts = math.inf, np.zeros(types)
    for choice in product(range(types), repeat=buckets * slice_factor):
        of = np.array(choice)
        busy = [float((loads / speeds[g])[of == g].sum()) for g in range(types)]
        n = np.array([math.ceil(b - EXACTLY_FULL) for b in busy])
        if float(prices @ n) < best:
            best, counts = float(prices @ n), n
    return counts, best


def greedy_trap() -> tuple[float, float]:
    """(USD/hour of the exact search, of the type of least cost per capacity); decode is free."""
    need, types = 100.0, {"a": (10.0, 200.0), "b": (6.0, 100.0)}
    options = [Option(PREFILL, name, name, 1, usd) for name, (usd, _) in types.items()]
    options.append(Option(DECODE, "free", "free", 1, 0.0))
    counts = np.arange(3.0)
    admits = [counts * capacity / need for _, capacity in types.values()] + [counts]
    usd, capacity = min(types.values(), key=lambda pair: pair[0] / pair[1])
    return cheapest(tables(options, admits, {}), NEED).usd, usd * math.ceil(need / capacity)


def published_rows() -> list[Row]:
    counts, usd = split_optimum()
    whole, sliced = sliced_optimum(1)
    exact, greedy = greedy_trap()
    return [
        {
            "case": "melange toy",
            "optimum_usd_per_hour": usd,
            "optimum": _text(counts),
            "published_method_usd_per_hour": sliced,
            "published_method": _text(whole),
        },
        {
            "case": "llm-d greedy trap",
            "optimum_usd_per_hour": exact,
            "optimum": "1 b",
            "published_method_usd_per_hour": greedy,
            "published_method": "1 a",
        },
    ]


def _text(counts: Array) -> str:
    return " + ".join(f"{n:g} {name}" for n, name in zip(counts, PRICES, strict=True) if n)
