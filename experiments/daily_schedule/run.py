"""Which fleet in which hour of a day, what it saves, and what start costs and limits change.

    python experiments/daily_schedule/run.py

Writes results/*.csv and results/manifest.json in about two minutes. No random numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.manifest import write_manifest
from experiments.results import Row, Value, write_csv

from pdalloc.errors import InputError
from pdalloc.planning.effort import SEED
from pdalloc.planning.schedule import schedule
from pdalloc.planning.schedule_answer import HOURLY, PEAK, ScheduleAnswer
from pdalloc.scenario import load_scenario

FOLDER = Path(__file__).resolve().parent
SCENARIO, RESULTS = FOLDER / "scenario.yaml", FOLDER / "results"
VARIANTS = (
    *(None, "dear_starts", "three_starts", "two_starts"),
    *("prefill_first_token", "shared_queues"),
)
START_MINUTES = (0, 20, 60, 120, 180, 240, 360, 480, 720)
"""Paid minutes of a start, at which the schedule is sought again."""
TIME_LIMIT = 20.0


def answered(variant: str | None, *overrides: str) -> ScheduleAnswer:
    """The schedule of one variant."""
    return schedule(load_scenario(SCENARIO, variant, overrides), TIME_LIMIT)


def hour_rows(answers: Mapping[str, ScheduleAnswer]) -> list[Row]:
    """One row per variant and hour."""
    return [
        {
            "variant": variant,
            "start_hour": p.start_hour,
            "demand_requests_per_s": p.demand_requests_per_s,
            "fleet": p.fleet,
            "gpus": sum(p.gpus_by_type.values()),
            "starts": sum(p.started.values()),
            "stops": sum(p.stopped.values()),
            "cost_usd_per_hour": p.cost_usd_per_hour,
            "own_optimum_usd_per_hour": p.own_optimum_usd_per_hour,
            "prefill_utilisation": p.utilisation["prefill"],
            "decode_utilisation": p.utilisation["decode"],
        }
        for variant, answer in answers.items()
        for p in answer.periods
    ]


def total_row(answer: ScheduleAnswer) -> dict[str, Value]:
    """What a day costs: the schedule, its bound, and its rivals."""
    rivals, cost = {r.name: r for r in answer.rivals}, answer.cost
    if cost is None:
        raise InputError(f"{answer.variant}: {answer.reason}")
    hourly = rivals[HOURLY]
    return {
        "status": answer.status,
        "running_usd_per_day": cost.running_usd,
        "starting_usd_per_day": cost.starting_usd,
        "total_usd_per_day": cost.total_usd,
        "bound_usd_per_day": answer.bound_usd,
        "gap_percent": None if answer.gap is None else 100.0 * answer.gap,
        "starts": cost.starts,
        "peak_usd_per_day": rivals[PEAK].total_usd,
        "saved_against_peak_percent": 100.0 * (answer.saving(PEAK) or 0.0),
        "hourly_usd_per_day": hourly.total_usd,
        "hourly_starts": hourly.starts,
        "hourly_keeps_limits": hourly.keeps_limits,
        "saved_against_hourly_percent": 100.0 * (answer.saving(HOURLY) or 0.0),
    }


def start_rows(minutes: tuple[int, ...] = START_MINUTES) -> list[Row]:
    """The day's cost against what a start costs."""
    return [
        {
            "start_cost_minutes": paid,
            **total_row(answered(None, f"periods.start_cost={paid} min")),
        }
        for paid in minutes
    ]


def tables() -> dict[str, list[Row]]:
    """Every table by name."""
    answers = {variant or "base": answered(variant) for variant in VARIANTS}
    return {
        "hours": hour_rows(answers),
        "totals": [{"variant": name, **total_row(answer)} for name, answer in answers.items()],
        "start_cost": start_rows(),
    }


def main(folder: Path = RESULTS) -> None:
    """Write every table, then the manifest, to ``folder``."""
    started = time.perf_counter()
    for name, rows in tables().items():
        print(write_csv(folder / f"{name}.csv", rows).name)
    write_manifest(folder, SEED, started, {"time_limit_s": TIME_LIMIT})


if __name__ == "__main__":
    main()
