"""What the README says of the simulator and of plans is what the results say."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import read_csv

pytestmark = pytest.mark.pipeline

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "simulator" / "results"
README = (ROOT / "README.md").read_text("utf-8").replace("\n", " ")


def test_speed_and_agreement_are_those_of_the_results():
    text = README
    fleets = read_csv(RESULTS / "speed_fleets.csv")
    speed = {
        row["fleet"]: float(row["all_percentiles_requests_per_cpu_s"])
        for row in fleets
        if row["decode_step"] == "affine"
    }
    for fleet in ("4P4D", "64P64D"):
        (said,) = re.findall(rf"([0-9.]+) million (?:requests per CPU-second )?at {fleet}", text)
        assert float(said) == round(speed[fleet] / 1e6, 1)
    peers = [row for row in read_csv(RESULTS / "peers.csv") if row["models"] == "P/D"]
    assert len(peers) >= 3 and all(row["status"] == "run" for row in peers)
    (said,) = re.findall(r"at least ([0-9,]+) times as many as any public P/D simulator", text)
    least = min(float(row["ratio"]) for row in peers)
    assert int(said.replace(",", "")) == int(least // 100 * 100) >= 100
    options = [
        float(row["all_percentiles_requests_per_cpu_s"])
        for row in read_csv(RESULTS / "speed_options.csv")
        if row["option"] != "none"
    ]
    (low, high) = re.findall(r"with options ([0-9.]+) to ([0-9.]+) million", text)[0]
    assert (float(low), float(high)) == (round(min(options) / 1e6, 2), round(max(options) / 1e6, 1))
    (most,) = re.findall(r"simulator to ([0-9e-]+) ms", text)
    errors = [float(row["greatest_error_ms"]) for row in read_csv(RESULTS / "distserve.csv")[:3]]
    assert max(errors) <= float(most)
    (percent,) = re.findall(r"real co-located runs within (\d+) % in mean", text)
    means = [
        abs(float(row["error_percent"]))
        for row in read_csv(RESULTS / "measured_runs.csv")
        if (row["requests"], row["statistic"]) == ("left out", "mean")
        and row["metric"] in ("ttft", "tpot", "e2e")
    ]
    assert means and max(means) <= float(percent)


def test_validation_is_told_as_it_came_out():
    summary = read_csv(ROOT / "experiments" / "validation" / "results" / "summary.csv")
    (row,) = [r for r in summary if r["feature"] == "all"]
    said = re.search(
        r"Of (\d+) random plans ([0-9.]+) % are within one point of their simulated attainment, "
        r"the worst promises ([0-9.]+) points too much",
        README,
    )
    assert said is not None
    assert [float(x) for x in said.groups()] == [
        float(row["cases"]),
        float(row["within_1_point_percent"]),
        round(float(row["greatest_over_promise_points"]), 1),
    ]


def test_plans_with_counted_memory_are_told_as_they_came_out():
    summary = read_csv(ROOT / "experiments" / "validation" / "results" / "summary.csv")
    (row,) = [r for r in summary if r["feature"] == "KV counted by token"]
    said = re.search(
        r"Of the (\d+) limited by memory, .* counted token by token, (\d+) % are; .* promises "
        r"(\d+) points too much: validate those",
        README,
    )
    assert said is not None
    assert [float(x) for x in said.groups()] == [
        float(row["cases"]),
        round(float(row["within_1_point_percent"])),
        round(float(row["greatest_over_promise_points"])),
    ]


def test_whole_fleets_and_memory_are_told_as_they_came_out():
    results = ROOT / "experiments" / "delay_laws" / "results"
    (row,) = [
        r
        for r in read_csv(results / "end_to_end_summary.csv")
        if (r["arrival_scv"], r["dispatch"]) == ("all", "all")
    ]
    said = re.search(
        r"(\d+) cases: E2E P99 within 3 % in ([0-9.]+) % of them and within 3 % plus the "
        r"simulation's own interval in (\d+) % \(worst ([0-9.]+) %\)",
        README,
    )
    assert said is not None
    assert [float(x) for x in said.groups()] == [
        float(row["cells"]),
        float(row["e2e_p99_within_3_percent"]),
        round(float(row["e2e_p99_within_3_and_ci_percent"])),
        round(float(row["e2e_p99_worst_percent"]), 1),
    ]
    cells = read_csv(results / "memory.csv")
    tpot = sorted(abs(float(r["mean_tpot_error_percent"])) for r in cells)
    waits = sorted(
        abs(float(r["mean_wait_error_percent"])) for r in cells if r["mean_wait_error_percent"]
    )
    said = re.search(
        r"counted by token, (\d+) cells: mean TPOT within ([0-9.]+) % in 95 %, mean waits off by "
        r"([0-9.]+) % at the median, (\d+) % at worst",
        README,
    )
    assert said is not None
    assert int(said[1]) == len(cells)
    assert sum(x <= float(said[2]) for x in tpot) >= 0.94 * len(cells)
    assert float(said[3]) == pytest.approx(waits[len(waits) // 2], abs=0.5)
    assert float(said[4]) == round(waits[-1])


def test_the_day_and_the_dedicated_pools_are_told_as_they_came_out():
    day = ROOT / "experiments" / "daily_schedule" / "results"
    (base,) = [row for row in read_csv(day / "totals.csv") if row["variant"] == "base"]
    (said,) = re.findall(r"costs ([0-9.]+) % less than its peak fleet all day, proven", README)
    assert float(said) == round(float(base["saved_against_peak_percent"]), 1)
    assert base["status"] == "optimal" and float(base["gap_percent"]) < 1e-3
    pools = ROOT / "experiments" / "dedicated_pools" / "results"
    changes = [float(row["change_class_percent"]) for row in read_csv(pools / "classes.csv")]
    (said,) = re.findall(r"Pools per class save up to ([0-9.]+) % where", README)
    assert float(said) == round(-min(changes), 1)
    (said,) = re.findall(r"cost ([0-9.]+) % more at 10 req/s", README)
    assert float(said) == round(max(changes), 1)
    buckets = [float(row["change_class_percent"]) for row in read_csv(pools / "buckets.csv")]
    assert sum(change > 0.0 for change in buckets) > 0.5 * len(buckets)  # "mostly lose"


def test_the_proofs_are_as_fast_as_the_readme_says():
    solvers = ROOT / "experiments" / "solvers" / "results"
    rows = [
        row
        for name in ("speed_summary.csv", "large_stock_summary.csv")
        for row in read_csv(solvers / name)
        if row["solver"] == "exact"
    ]
    assert all(row["proven"] == row["instances"] for row in rows)
    for tables, stock, word in (("linear", "512", "linear"), ("pooled", "512", "pooled")):
        (row,) = [r for r in rows if (r["tables"], r["stock_gpus_per_type"]) == (tables, stock)]
        said = re.search(rf"([0-9.]+) s at worst for {word} capacities", README)
        assert said is not None and float(row["worst_s"]) <= float(said.group(1))
    said = re.search(r"5,000 GPUs of each type within ([0-9.]+) s", README)
    large = [float(r["worst_s"]) for r in rows if r["stock_gpus_per_type"] == "5000"]
    assert said is not None and len(large) == 2 and max(large) <= float(said.group(1))
    said = re.search(
        r"1,000 demands takes ([0-9.]+) s .*? four types, ([0-9.]+) s over eight", README
    )
    assert said is not None
    for types, seconds in zip(("4", "8"), said.groups(), strict=True):
        swept = [r for r in read_csv(solvers / "sweep.csv") if r["gpu_types"] == types]
        both = [float(r["seconds"]) for r in swept if r["way"].startswith("joblib")]
        assert len(both) == 2 and max(both) <= float(seconds)
        assert all(r["proven"] == r["demands"] for r in swept)
