"""Predicted against simulated attainment of random plans.

    python experiments/validation/run.py

Each case of :mod:`.generator` at the demand where its SLO binds (:mod:`.demand`), simulated until
the 95 % half-width is WIDTH or ALL_REQUESTS are spent. Writes results/cases.csv, one row per
case, summary.csv, by feature, and manifest.json. Cases limited by memory are asked a second time
with their KV cache counted token by token, by the laws and by the simulation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.manifest import write_manifest
from experiments.results import Row, Value, write_csv
from experiments.validation.demand import Binding, binding
from experiments.validation.generator import CASES, SEED, Case, cases

from pdalloc.fleet import DECODE, PREFILL
from pdalloc.simulation import fast
from pdalloc.simulation.attainment import attained
from pdalloc.simulation.options import PLAIN, KvMemory, SimulationOptions
from pdalloc.simulation.statistics import Run, interval, steady
from pdalloc.simulation.traffic import child_seed

RESULTS = Path(__file__).parent / "results"
REQUESTS = 60_000
"""Per replication at least; more where it takes a decode pool longer to forget how it began."""
MEMORIES = 60.0
"""Relaxation times of the decode pool in a run: the requests in it over 1 - utilisation."""
MOST_REQUESTS = 1_000_000
ALL_REQUESTS = 5_000_000
"""Over all replications, unless REPLICATIONS need more."""
REPLICATIONS = 6
"""At least."""
WIDTH = 0.3
"""Points of attainment, 95 % half-width."""
WITHIN, OVER = 1.0, 2.0
"""Points: the bar for 95 % of the cases, and for the greatest promise above the simulated."""
MEMORY = SimulationOptions(kv=KvMemory())
NOT_COUNTED: Row = dict.fromkeys(
    (
        "memory_rate_per_s",
        "memory_decode_utilisation",
        "predicted_memory_percent",
        "simulated_memory_percent",
        "memory_half_width_points",
        "memory_error_points",
    )
)


def simulated(
    case: Case, bound: Binding, options: SimulationOptions, requests: int, most: int
) -> tuple[float, float, int]:
    """(attainment, 95 % half-width, replications) of the case at its demand.

    ``requests`` per replication; REPLICATIONS of them, or more up to ``most``.
    """
    system = case.system.with_workload(case.system.workload.scaled(bound.rate))
    kept: list[float] = []
    for i in range(max(most, REPLICATIONS)):
        seed = child_seed(SEED, 2, case.number, i)
        log = fast.simulate(system, case.fleet, case.shares, requests, seed, options=options)
        kept.append(float(attained(Run(log, (), ()), bound.bounds)[steady(log)].mean()))
        if i + 1 >= REPLICATIONS and 100.0 * interval(kept)[1] <= WIDTH:
            break
    return *interval(kept), len(kept)


def requests_per_replication(bound: Binding) -> int:
    """Enough for a steady state: the decode pools' batches, over what is left of their time."""
    present = [
        s.replicas * s.law.mean_batch / (1.0 - s.utilisation)
        for s in bound.prediction.decode.values()
    ]
    return int(min(max(MEMORIES * sum(present), REQUESTS), MOST_REQUESTS))


def utilisations(bound: Binding) -> tuple[float, float]:
    """Greatest utilisation of a prefill and of a decode pool."""
    p, d = bound.prediction.prefill, bound.prediction.decode
    return max(s.utilisation for s in p.values()), max(s.utilisation for s in d.values())


def row(case: Case, all_requests: int = ALL_REQUESTS) -> Row:
    """One case: features, predicted and simulated attainment in percent, error in points."""
    bound = binding(case)
    requests = min(requests_per_replication(bound), all_requests // REPLICATIONS)
    share, half_width, used = simulated(case, bound, PLAIN, requests, all_requests // requests)
    prefill, decode = utilisations(bound)
    waits = max(s.law.wait_probability for s in bound.prediction.decode.values())
    values: dict[str, Value] = {
        "case": case.number,
        "metrics": "+".join(case.metrics),
        "lengths": case.lengths,
        "first_token": case.system.first_token,
        "prefill_dispatch": case.system.dispatch[PREFILL],
        "decode_dispatch": case.system.dispatch[DECODE],
        "fleet": str(case.fleet),
        "arrival_scv": case.arrival_scv,
        "mixed": case.mixed,
        "limit": case.limit,
        "rate_per_s": bound.rate,
        "prefill_utilisation": prefill,
        "decode_utilisation": decode,
        "slot_wait_probability": waits,
        **{f"{m}_bound_s": None for m in ("ttft", "tpot", "e2e")},
        **{f"{b.metric}_bound_s": b.seconds for b in bound.bounds},
        "predicted_percent": 100.0 * bound.predicted,
        "simulated_percent": 100.0 * share,
        "half_width_points": 100.0 * half_width,
        "requests": used * requests,
        "error_points": 100.0 * (bound.predicted - share),
    }
    return {**values, **(counted(case, all_requests) if case.limit == "memory" else NOT_COUNTED)}


def counted(case: Case, all_requests: int = ALL_REQUESTS) -> Row:
    """The case with its KV memory counted by token, at the demand where its SLO binds then."""
    bound = binding(case, MEMORY)
    requests = min(requests_per_replication(bound), all_requests // REPLICATIONS)
    share, half_width, _ = simulated(case, bound, MEMORY, requests, 0)
    return {
        "memory_rate_per_s": bound.rate,
        "memory_decode_utilisation": utilisations(bound)[1],
        "predicted_memory_percent": 100.0 * bound.predicted,
        "simulated_memory_percent": 100.0 * share,
        "memory_half_width_points": 100.0 * half_width,
        "memory_error_points": 100.0 * (bound.predicted - share),
    }


Group = tuple[str, str, Callable[[Row], bool]]


def groups(rows: Sequence[Row]) -> Iterable[Group]:
    """(feature, value, whether a row has it)."""
    yield "all", "", lambda r: True
    yield "bursty", "yes", lambda r: float(r["arrival_scv"] or 1.0) > 1.0
    yield "bursty", "no", lambda r: float(r["arrival_scv"] or 1.0) == 1.0
    for feature in ("mixed", "limit", "metrics", "prefill_dispatch", "decode_dispatch",
                    "first_token", "lengths"):  # fmt: skip
        for value in sorted({str(r[feature]) for r in rows}):
            yield feature, value, lambda r, f=feature, v=value: str(r[f]) == v  # type: ignore[misc]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Share of cases within WITHIN, and the greatest promise above the simulated, by feature."""
    found = [
        _line(*group, rows, "error_points") for group in groups(rows) if any(map(group[2], rows))
    ]
    counted = [r for r in rows if r["memory_error_points"] is not None]
    if counted:
        found.append(
            _line("KV counted by token", "", lambda r: True, counted, "memory_error_points")
        )
    return found


def _line(
    feature: str, value: str, has: Callable[[Row], bool], rows: Sequence[Row], column: str
) -> Row:
    error = np.array([float(r[column] or 0.0) for r in rows if has(r)])
    return {
        "feature": feature,
        "value": value,
        "cases": len(error),
        "within_1_point_percent": 100.0 * float(np.mean(np.abs(error) <= WITHIN)),
        "median_abs_error_points": float(np.median(np.abs(error))),
        "greatest_over_promise_points": float(error.max()),
        "greatest_under_promise_points": float(-error.min()),
        "over_promised_by_2_points": int(np.sum(error > OVER)),
    }


def main(
    folder: Path = RESULTS, numbers: range = range(CASES), all_requests: int = ALL_REQUESTS
) -> None:
    """Write the tables and the manifest."""
    started = time.perf_counter()
    rows: list[Row] = []
    for case in cases(numbers):
        rows.append(row(case, all_requests))
        r = rows[-1]
        print(
            *(r[k] for k in ("case", "metrics", "limit")), f"{r['error_points']:+.2f}", flush=True
        )
    write_csv(folder / "cases.csv", rows)
    table = summary(rows)
    write_csv(folder / "summary.csv", table)
    write_manifest(folder, SEED, started)
    for line in table:
        print(*(f"{v:.3g}" if isinstance(v, float) else v for v in line.values()))


if __name__ == "__main__":
    main()
