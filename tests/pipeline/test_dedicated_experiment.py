"""The committed results on dedicated pools: what is said of them holds, and the code gives them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.dedicated_pools import run
from experiments.results import Row, cell, numbers, read_csv

from pdalloc.planning import Effort
from pdalloc.scenario.build import variant_names

pytestmark = pytest.mark.pipeline

PERCENT = 1e-3


def committed(name: str) -> list[dict[str, str]]:
    return read_csv(run.RESULTS / f"{name}.csv")


def same_rows(rows: list[Row], stored: list[dict[str, str]]) -> None:
    """Every computed row is among the stored ones; results hold six digits."""
    assert rows
    for row in rows:
        assert {key: cell(value) for key, value in row.items()} in stored


def test_every_plan_is_proven_and_its_change_is_that_of_its_costs():
    for name in ("buckets", "auto", "l4_price", "classes", "stock"):
        for row in committed(name):
            if row["status"] == "infeasible":
                assert not row["dedicated_fleet"] and not row["dedicated_usd_per_hour"]
                continue
            assert row["status"] == "optimal"
            assert row["dedicated_usd_per_hour"] == row["dedicated_bound_usd_per_hour"]
            if row["shared_class_usd_per_hour"]:
                dedicated = float(row["dedicated_usd_per_hour"])
                change = 100.0 * (dedicated / float(row["shared_class_usd_per_hour"]) - 1.0)
                assert float(row["change_class_percent"]) == pytest.approx(change, abs=PERCENT)


def test_a_promise_in_every_bucket_costs_shared_pools_no_less():
    """A mean, or a percentile, kept in every bucket is kept over the class."""
    for row in committed("buckets"):
        over_class, in_bucket = row["shared_class_usd_per_hour"], row["shared_bucket_usd_per_hour"]
        assert float(over_class) <= float(in_bucket) + PERCENT


def test_buckets_lose_at_little_traffic_and_hardly_win_under_one_slo():
    rows = committed("buckets")
    few = [row for row in rows if float(row["rate_per_s"]) <= 10]
    assert few and min(numbers(few, "change_class_percent")) > 40.0
    many = [row for row in rows if float(row["rate_per_s"]) >= 50]
    assert -2.0 < min(numbers(many, "change_class_percent")) < 0.0
    assert max(numbers(many, "change_class_percent")) < 25.0


def test_the_best_edge_costs_no_more_than_none_or_than_a_given_one():
    for row in committed("auto"):
        best = float(row["dedicated_usd_per_hour"])
        # no edge is among the choices, and is what shared pools of one class are
        assert best <= float(row["shared_class_usd_per_hour"]) + PERCENT
        if " | " not in row["parts"]:
            assert float(row["change_class_percent"]) == pytest.approx(0.0, abs=PERCENT)


@pytest.mark.parametrize("rate", ["50", "200"])
def test_a_cheaper_l4_draws_short_prompts_and_makes_buckets_pay(rate):
    rows = [row for row in committed("l4_price") if row["rate_per_s"] == rate]
    assert numbers(rows, "l4_usd_per_hour") == sorted(numbers(rows, "l4_usd_per_hour"))[::-1]
    cost = numbers(rows, "dedicated_usd_per_hour")
    # the least cost over a set of fleets rises with each price
    assert cost == sorted(cost)[::-1]
    short = [row["dedicated_fleet"].split(" | ")[0] for row in rows]
    assert "prefill/l4x1" in short[-1] and "prefill/h100" not in short[-1]
    assert all("prefill/l4x1" not in row["shared_class_fleet"] for row in rows)
    assert numbers(rows, "change_class_percent")[-1] < 0.0


def test_classes_that_want_different_things_pay_for_pools_of_their_own():
    rows = committed("classes")
    large = [row for row in rows if float(row["chat_per_s"]) >= 50]
    assert max(numbers(large, "change_class_percent")) < -10.0
    assert max(numbers(rows, "change_class_percent")) > 0.0  # rounding, at little traffic


def test_buckets_make_a_small_stock_serve_what_shared_pools_cannot():
    row = next(r for r in committed("stock") if r["stock"] == "h100: 2, a100: 3, l40s: 2")
    assert row["dedicated_fleet"] and not row["shared_class_fleet"]
    assert not row["shared_bucket_fleet"]


def test_no_simulated_part_breaks_an_slo():
    rows = committed("simulated")
    assert {row["variant"] for row in rows} == {"base", *variant_names(run.SCENARIO)}
    assert all(row["verdict"] in ("keeps", "too close to call") for row in rows)
    for row in rows:
        gap = float(row["predicted_s"]) - float(row["simulated_s"])
        assert abs(gap) <= 2.0 * float(row["simulated_half_width_s"])


# The code gives them


def test_the_code_gives_rows_of_the_tables():
    same_rows(run.class_rows((50,)), committed("classes"))
    same_rows(run.stock_rows(run.STOCKS[2:3]), committed("stock"))


def test_parts_are_simulated_with_the_effort_asked_for():
    rows = run.simulated_rows(("classes",), Effort(2000, 2), seed=1)
    assert [row["part"] for row in rows] == ["chat", "chat", "batch", "batch"]
    assert len({str(row["simulated_s"]) for row in rows}) == 4


def test_a_run_writes_every_table_and_the_manifest(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "tables", lambda: {"one": [{"a": 1}]})
    folder = tmp_path / "dedicated_pools" / "results"
    run.main(folder)
    assert {path.name for path in folder.iterdir()} == {"one.csv", "manifest.json"}
