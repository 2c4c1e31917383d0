"""The block ``periods:`` - what each key comes to, and each mistake in one line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdalloc.errors import InputError, PdallocError, UnitError
from pdalloc.fleet import Fleet
from pdalloc.scenario import Scenario, load_scenario, scenario_from_mapping
from pdalloc.scenario.periods import ChangeCost, Periods
from pdalloc.scenario.schema import ScenarioSpec

PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper_2603_04716" / "scenario.yaml"


@cache
def paper() -> str:
    return PAPER.read_text(encoding="utf-8")


def scenario(**keys: Any) -> Scenario:
    raw: dict[str, Any] = yaml.safe_load(paper())
    return scenario_from_mapping(raw | {"periods": keys}, origin="file.yaml")


def periods(**keys: Any) -> Periods:
    found = scenario(**keys).periods
    assert found is not None
    return found


def test_without_the_block_there_are_no_periods() -> None:
    assert load_scenario(PAPER).periods is None


def test_only_factors_are_needed() -> None:
    """Hours of one, free starts, no limit, and a day that repeats."""
    found = periods(factors=[0.5, 1, 0.25])
    assert found == Periods((1.0,) * 3, (0.5, 1.0, 0.25))
    assert found.start.of(30.0) == found.stop.of(30.0) == 0.0
    assert math.isinf(found.most_starts) and math.isinf(found.most_stops)
    assert found.initial is None


def test_every_key() -> None:
    found = periods(
        factors=[0.5, 1],
        lasts="6 18 h",
        start_cost="10 min",
        stop_cost="5 USD",
        most_starts=2,
        most_stops=3,
        cyclic=False,
        initial="3P4D",
    )
    assert found.hours == (6.0, 18.0)
    assert found.start == ChangeCost(seconds=600.0)
    assert found.start.of(30.0) == pytest.approx(5.0)  # a sixth of an hour at 30 USD/h
    assert found.stop.of(30.0) == 5.0  # whatever the replica costs
    assert (found.most_starts, found.most_stops) == (2.0, 3.0)
    assert found.initial is not None and found.initial.xpyd == "3P4D"


@pytest.mark.parametrize("lasts", ["8 h", "480 min", "28800 s", "8 8 h"])
def test_one_time_for_all_or_one_each(lasts: str) -> None:
    assert periods(factors=[0.5, 1], lasts=lasts).hours == (8.0, 8.0)


def test_rates_are_factors_of_the_traffic() -> None:
    """The paper's case: 5 Mtoken/min at 6656 tokens a request."""
    tokens = periods(rates="2.5 5 10 Mtoken/min")
    assert tokens.factors == pytest.approx((0.5, 1.0, 2.0))
    per_request = 6144 + 512
    requests = [rate / 60.0 / per_request for rate in (2.5e6, 5e6, 1e7)]
    found = periods(rates=" ".join(map(repr, requests)) + " req/s")
    assert found.factors == pytest.approx((0.5, 1.0, 2.0))
    assert scenario(rates="2.5 5 Mtoken/min").demand == pytest.approx(5e6 / 60.0 / per_request)


def test_no_fleet_before_the_first_period() -> None:
    assert periods(factors=[1], cyclic=False, initial="0P0D").initial == Fleet(())


def test_a_variant_may_change_a_key() -> None:
    raw = yaml.safe_load(paper()) | {
        "periods": {"factors": [0.5, 1]},
        "variants": {"few": {"set": {"periods.most_starts": 1}}},
    }
    found = scenario_from_mapping(raw, "few").periods
    assert found is not None and found.most_starts == 1.0
    again = scenario_from_mapping(raw, None, {"periods.lasts": "12 h"}).periods
    assert again is not None and again.hours == (12.0, 12.0)


MISTAKES: list[tuple[Mapping[str, Any], list[str]]] = [
    ({}, ["periods", "either factors or rates"]),
    ({"factors": [1], "rates": "5 req/s"}, ["periods", "either factors or rates"]),
    ({"factors": []}, ["periods.factors", "at least one period"]),
    ({"factors": [1, 0]}, ["periods.factors", "needs traffic"]),
    ({"factors": [1, -0.5]}, ["periods.factors", "needs traffic"]),
    ({"factors": [1, math.nan]}, ["periods.factors"]),
    ({"factors": [1, math.inf]}, ["periods.factors"]),
    ({"factors": ["high"]}, ["periods.factors", "number"]),
    ({"factors": 3}, ["periods.factors", "list"]),
    ({"rates": 5}, ["periods.rates", "unit"]),
    ({"rates": "5 ms"}, ["periods.rates", "req/s"]),
    ({"rates": "0 5 req/s"}, ["periods.rates", "needs traffic"]),
    ({"factors": [1, 1], "lasts": "1 2 3 h"}, ["periods.lasts", "got 3 for 2 periods"]),
    ({"factors": [1], "lasts": "0 h"}, ["periods.lasts", "positive"]),
    ({"factors": [1], "lasts": "1 token"}, ["periods.lasts", "20 ms"]),
    ({"factors": [1], "start_cost": 5}, ["periods.start_cost", "unit"]),
    ({"factors": [1], "start_cost": "-5 USD"}, ["periods.start_cost", "negative"]),
    ({"factors": [1], "start_cost": "5 USD/h"}, ["periods.start_cost", "5 USD"]),
    ({"factors": [1], "stop_cost": "-1 min"}, ["periods.stop_cost", "negative"]),
    ({"factors": [1], "stop_cost": "1 token"}, ["periods.stop_cost", "20 ms"]),
    ({"factors": [1], "most_starts": -1}, ["periods.most_starts", "negative"]),
    ({"factors": [1], "most_starts": 1.5}, ["periods.most_starts"]),
    ({"factors": [1], "most_stops": -2}, ["periods.most_stops", "negative"]),
    ({"factors": [1], "initial": "3P4D"}, ["periods.initial", "cyclic: false"]),
    ({"factors": [1], "cyclic": False}, ["periods.initial", "missing"]),
    ({"factors": [1], "cyclic": False, "initial": "3X"}, ["3P4D"]),
    ({"factors": [1], "most_start": 2}, ["periods.most_start", "most_starts"]),
]


@pytest.mark.parametrize(("keys", "words"), MISTAKES, ids=lambda x: str(x)[:40])
def test_mistakes(keys: Mapping[str, Any], words: list[str]) -> None:
    with pytest.raises(PdallocError) as caught:
        scenario(**keys)
    message = str(caught.value)
    assert message.startswith("file.yaml: ") and len(message.splitlines()) == 1
    assert all(word in message for word in words), message
    assert isinstance(caught.value, InputError)


def test_a_unit_is_a_unit_error() -> None:
    with pytest.raises(UnitError):
        scenario(factors=[1], start_cost="5 parsec")


def test_the_schema_describes_every_key() -> None:
    block = ScenarioSpec.model_json_schema()["$defs"]["PeriodsSpec"]["properties"]
    assert set(block) >= {"lasts", "factors", "rates", "start_cost", "most_starts", "cyclic"}
    assert all(key.get("description") for key in block.values())
