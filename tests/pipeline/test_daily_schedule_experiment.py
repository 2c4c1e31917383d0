"""The committed day: its claims hold, and the code still gives it (in miniature)."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.daily_schedule import run
from experiments.results import cell, numbers, read_csv

pytestmark = pytest.mark.pipeline
SLACK = 2e-5
"""Relative; results hold six digits."""


@pytest.fixture(scope="module")
def totals() -> dict[str, dict[str, str]]:
    return {row["variant"]: row for row in read_csv(run.RESULTS / "totals.csv")}


@pytest.fixture(scope="module")
def hours() -> list[dict[str, str]]:
    return read_csv(run.RESULTS / "hours.csv")


@pytest.fixture(scope="module")
def starts() -> list[dict[str, str]]:
    return read_csv(run.RESULTS / "start_cost.csv")


def of(hours: list[dict[str, str]], variant: str) -> list[dict[str, str]]:
    return [row for row in hours if row["variant"] == variant]


def pools(fleet: str) -> dict[str, int]:
    return {name: int(n) for name, n in (part.split("=") for part in fleet.split(","))}


def test_every_variant_has_a_day(totals, hours) -> None:
    assert list(totals) == [variant or "base" for variant in run.VARIANTS]
    profile = yaml.safe_load(run.SCENARIO.read_text("utf-8"))["periods"]["factors"]
    assert len(profile) == 24 and max(profile) == 1.0
    for variant in totals:
        demands = numbers(of(hours, variant), "demand_requests_per_s")
        assert demands == pytest.approx([50.0 * factor for factor in profile])


def test_totals_are_sums_of_the_hours(totals, hours) -> None:
    for variant, row in totals.items():
        running = sum(numbers(of(hours, variant), "cost_usd_per_hour"))
        assert float(row["running_usd_per_day"]) == pytest.approx(running, rel=SLACK)
        total = running + float(row["starting_usd_per_day"])
        assert float(row["total_usd_per_day"]) == pytest.approx(total, rel=SLACK)
        assert int(row["starts"]) == sum(numbers(of(hours, variant), "starts"))


def test_fleets_change_by_what_starts_and_stops(hours, totals) -> None:
    for variant in totals:
        day = of(hours, variant)
        for before, now in zip([day[-1], *day[:-1]], day, strict=True):
            old, new = pools(before["fleet"]), pools(now["fleet"])
            change = [new.get(k, 0) - old.get(k, 0) for k in {**old, **new}]
            assert sum(n for n in change if n > 0) == int(now["starts"])
            assert -sum(n for n in change if n < 0) == int(now["stops"])


def test_bounds_hold_and_are_met(totals, starts) -> None:
    """Every answer is proven to the tolerance that decision 10 states."""
    for row in (*totals.values(), *starts):
        total, bound = float(row["total_usd_per_day"]), float(row["bound_usd_per_day"])
        assert bound <= total * (1.0 + SLACK)
        assert row["status"] == "optimal" and float(row["gap_percent"]) <= 3.1e-4
        assert total <= float(row["peak_usd_per_day"]) * (1.0 + SLACK)
        if row["hourly_keeps_limits"] == "yes":
            assert total <= float(row["hourly_usd_per_day"]) * (1.0 + SLACK)


def test_no_hour_is_cheaper_than_its_own_optimum(hours) -> None:
    for row in hours:
        own = float(row["own_optimum_usd_per_hour"])
        assert float(row["cost_usd_per_hour"]) >= own * (1.0 - SLACK)


def test_limits_are_kept_and_cost_more(totals, hours) -> None:
    for variant, most in (("three_starts", 3), ("two_starts", 2)):
        assert max(numbers(of(hours, variant), "starts")) == most
        assert totals[variant]["hourly_keeps_limits"] == "no"
    costs = [float(totals[v]["total_usd_per_day"]) for v in ("base", "three_starts", "two_starts")]
    assert costs[0] < costs[1] < costs[2]


def test_few_starts_bring_the_faster_type_in(hours) -> None:
    """A start of an H100 replica brings more: where starts are few, the dearer type is used."""
    used = {
        variant: {name for row in of(hours, variant) for name in pools(row["fleet"])}
        for variant in ("base", "two_starts")
    }
    assert not any("h100" in name for name in used["base"])
    assert any("h100" in name for name in used["two_starts"])


def test_start_costs_smooth_the_day(starts) -> None:
    """The least total is concave and rising in the start cost; starts become fewer."""
    paid, total = numbers(starts, "start_cost_minutes"), numbers(starts, "total_usd_per_day")
    assert paid == sorted(paid) and total == sorted(total)
    points = itertools.pairwise(zip(paid, total, strict=True))
    slopes = [(b - a) / (y - x) for (x, a), (y, b) in points]
    assert all(b <= a * (1.0 + 1e-3) for a, b in itertools.pairwise(slopes))
    count = numbers(starts, "starts")
    assert count == sorted(count, reverse=True) and count[0] > count[-1]
    saved = numbers(starts, "saved_against_hourly_percent")
    assert saved[0] == pytest.approx(0.0, abs=1e-3) and saved[-1] > 5.0


def test_savings_are_relative_to_their_rivals(totals, starts) -> None:
    for row in (*totals.values(), *starts):
        for rival in ("peak", "hourly"):
            total, other = (float(row[f"{name}_usd_per_day"]) for name in ("total", rival))
            saved = float(row[f"saved_against_{rival}_percent"])
            assert saved == pytest.approx(100.0 * (1.0 - total / other), abs=2e-3)


def test_the_code_gives_the_committed_day(totals, starts) -> None:
    """Free starts, and the base; which of several equally cheap fleets is named may differ."""
    (free,) = run.start_rows((0,))
    for row, stored in (
        (free, starts[0]),
        ({"variant": "base", **run.total_row(run.answered(None))}, totals["base"]),
    ):
        assert list(row) == list(stored)
        for key in ("status", "peak_usd_per_day", "total_usd_per_day"):
            value = row[key]
            if isinstance(value, float):
                assert float(stored[key]) == pytest.approx(value, rel=SLACK)
            else:
                assert cell(value) == stored[key]


def test_the_manifest_says_what_made_the_results() -> None:
    found = json.loads((run.RESULTS / "manifest.json").read_text("utf-8"))
    assert found["experiment"] == "daily_schedule"
    assert found["command"] == ["python", "experiments/daily_schedule/run.py"]
    assert found["git"]["dirty"] is False and len(found["git"]["commit"]) == 40
    assert found["time_limit_s"] == run.TIME_LIMIT and found["seconds"] > 0.0
