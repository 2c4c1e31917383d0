"""The committed results: their claims hold, and the code still gives them (in miniature).

Where a number below is compared with, the comment says whose claim it is.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.mixed_fleet import pairings, prices
from experiments.mixed_fleet import run as mixed_run
from experiments.paper_2603_04716 import plans, predictions
from experiments.paper_2603_04716 import run as paper_run
from experiments.results import Row, Value, cell, numbers, read_csv
from experiments.simulated import simulated_rows

pytestmark = pytest.mark.pipeline

ROOT = Path(__file__).resolve().parents[2]
PAPER, MIXED = paper_run.RESULTS, mixed_run.RESULTS
TOLERANCE = 2e-4
"""Relative; results hold six digits, and searches stop at less."""
CENT = 0.005


def committed(folder: Path, name: str) -> list[dict[str, str]]:
    return read_csv(folder / f"{name}.csv")


def chosen(rows: Iterable[Mapping[str, str]], **wanted: str) -> list[Mapping[str, str]]:
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert found, f"no row with {wanted}"
    return found


def same(value: Value, text: str) -> bool:
    """Whether a computed value is what the CSV holds, numbers up to TOLERANCE."""
    if isinstance(value, float) and text:
        return float(text) == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE)
    return cell(value) == text


def assert_same(
    rows: Sequence[Row], stored: list[dict[str, str]], keys: tuple[str, ...] = ()
) -> None:
    """Every row is in ``stored``: at its place, or where it has the same ``keys``."""
    by_key = {tuple(row[k] for k in keys): row for row in stored}
    for i, row in enumerate(rows):
        old = by_key[tuple(cell(row[k]) for k in keys)] if keys else stored[i]
        assert list(row) == list(old)
        wrong = {k: (v, old[k]) for k, v in row.items() if not same(v, old[k])}
        assert not wrong, f"run the experiment again: {wrong}"


# The paper's case


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("service_law", lambda: predictions.service_law(predictions.measured_points())),
        ("prediction", lambda: predictions.predictions(predictions.measured_points())),
        ("prediction_worst", lambda: predictions.worst_errors(predictions.measured_points())),
        ("calibration", lambda: predictions.calibration(predictions.measured_points())),
        ("fleets", plans.fleet_rows),
        ("paper", plans.paper_rows),
    ],
)
def test_the_code_gives_the_committed_table(name, compute):
    rows, stored = compute(), committed(PAPER, name)
    assert len(rows) == len(stored)
    # Margins (in percent) come from a bisection with a coarser tolerance of its own.
    coarse = [key for key in rows[0] if key.startswith("margin")]
    for row, old in zip(rows, stored, strict=True):
        for key in coarse:
            value = row[key]
            assert (value is None) == (old[key] == "")
            assert value is None or float(old[key]) == pytest.approx(value, abs=0.2)
    kept = [{k: v for k, v in row.items() if k not in coarse} for row in rows]
    assert_same(kept, [{k: v for k, v in row.items() if k not in coarse} for row in stored])


def test_the_sweep_is_the_committed_one_at_some_demands():
    keys = ("variant", "fleet", "demand_mtoken_per_min")
    stored = committed(PAPER, "sweep")
    known = {tuple(row[k] for k in keys) for row in stored}
    rows = plans.sweep_rows([3.0, 4.0, 5.0, 6.0])
    shared = [row for row in rows if tuple(cell(row[k]) for k in keys) in known]
    # Curves add points of their own near saturation; the demands asked for are all there.
    assert len(shared) >= 4 * 2 * len(plans.DRAWN)
    assert_same(shared, stored, keys)


def test_deterministic_prefill_is_refuted():
    """The issue: M/D/1 is 32-40 % low at the measured points; M/M/1 within 20 % of five."""
    rows = committed(PAPER, "service_law")
    assert len(rows) == 6
    assert max(numbers(rows, "md1_error_percent")) < -25.0
    below = chosen(rows, keeps_ttft_slo="yes")
    assert len(below) == 5
    assert max(abs(float(row["mm1_error_percent"])) for row in below) <= 20.0


def test_uncalibrated_tpot_is_within_8_percent_at_all_six_points():
    rows = chosen(committed(PAPER, "prediction"), variant="uncalibrated", metric="tpot")
    errors = numbers(rows, "error_percent")
    assert len(errors) == 6
    assert max(abs(error) for error in errors) <= 8.0
    assert max(errors) < 0.0  # the cluster is slower than its benchmark everywhere


def test_one_factor_carries_over_to_the_points_it_was_not_fitted_on():
    rows = committed(PAPER, "calibration")
    fitted, unseen = chosen(rows, used_in_fit="yes"), chosen(rows, used_in_fit="no")
    assert {row["fleet"] for row in fitted} == {"3P3D"}
    assert {row["fleet"] for row in unseen} == {"3P4D"}
    assert max(abs(float(row["calibrated_error_percent"])) for row in unseen) <= 3.0
    again = chosen(committed(PAPER, "prediction"), variant="calibrated", metric="tpot")
    assert max(abs(float(row["error_percent"])) for row in again) <= 3.0


def test_the_scenario_holds_the_fitted_factor():
    """The factor in scenario.yaml is the fit, rounded to the digits that stand there."""
    text = yaml.safe_load(predictions.SCENARIO.read_text("utf-8"))
    written = text["variants"]["calibrated"]["set"]["replicas.0.calibration.decode"]
    points = [p for p in predictions.measured_points() if p.fleet == predictions.FITTED]
    digits = len(str(written).partition(".")[2])
    assert digits >= 3
    assert round(predictions.decode_factor(points), digits) == written


def test_the_fit_has_the_least_error():
    points = [p for p in predictions.measured_points() if p.fleet == predictions.FITTED]
    best = predictions.decode_factor(points)

    def misfit(factor: float) -> float:
        override = f"replicas.0.calibration.decode={factor}"
        seconds = [predictions.predicted(p.fleet, p.demand, None, override)["tpot"] for p in points]
        return sum((s / p.tpot - 1.0) ** 2 for s, p in zip(seconds, points, strict=True))

    assert misfit(best) < min(misfit(best - 0.002), misfit(best + 0.002))


def test_the_papers_numbers_are_reproduced():
    """arXiv 2603.04716 as the issue quotes it: 25,075, about 1,700, 3.07, 3.7-3.8, 0.82, 3P4D."""
    found = {row["quantity"]: row["reproduced"] for row in committed(PAPER, "paper")}
    assert float(found["prefill_throughput"]) == pytest.approx(25_075, abs=1)
    assert float(found["decode_throughput"]) == pytest.approx(1_700, rel=0.01)
    assert float(found["prefill_replicas"]) == pytest.approx(3.07, abs=0.005)
    assert 3.7 <= float(found["decode_replicas"]) <= 3.8
    assert float(found["ratio"]) == pytest.approx(0.82, abs=0.005)
    assert found["deployed"] == "3P4D"


def test_the_answers_to_the_papers_question():
    rows = committed(PAPER, "fleets")
    exact = {row["variant"]: row for row in chosen(rows, made_by="plan exact")}
    assert exact["bench_curve"]["fleet"] == "4P4D"
    assert exact["calibrated"]["fleet"] == "4P5D"
    assert all(row["cost_usd_per_hour"] == row["bound_usd_per_hour"] for row in exact.values())

    def limit(variant: str, fleet: str) -> float:
        (row,) = chosen(rows, variant=variant, fleet=fleet, made_by="evaluate")
        return float(row["demand_limit_mtoken_per_min"])

    assert limit("bench_curve", "3P4D") == pytest.approx(4.89, abs=0.005)
    # About 4.74 by the issue, whose TPOT leaves out the wait for a step to end.
    assert limit("calibrated", "4P4D") == pytest.approx(4.74, abs=0.02)
    (four,) = chosen(rows, variant="calibrated", fleet="4P4D", made_by="evaluate")
    assert four["keeps_slos"] == "no"


# The mixed fleet


def pairing_tables() -> list[dict[str, str]]:
    return [row for name in ("pairings", "pairings_p90") for row in committed(MIXED, name)]


def test_every_answer_is_proven_and_no_dearer_than_one_type():
    rows = [*pairing_tables(), *committed(MIXED, "llama31")]
    assert len(rows) == 12 + 12 + 9
    for row in rows:
        assert row["status"] == "optimal"
        cost, bound = float(row["cost_usd_per_hour"]), float(row["bound_usd_per_hour"])
        assert cost == pytest.approx(bound, rel=1e-9)
        assert cost <= float(row["best_single_usd_per_hour"]) + CENT
        assert float(row["saving_percent"]) >= 0.0


@pytest.mark.parametrize("name", ["pairings", "pairings_p90"])
def test_all_four_pairings_win_somewhere(name):
    found = {row["pairing"] for row in committed(MIXED, name)}
    assert found == {"a100/a100", "a100/h100", "h100/a100", "h100/h100"}


def test_looser_bounds_never_cost_more():
    for name in ("pairings", "pairings_p90", "llama31"):
        rows = committed(MIXED, name)
        for row in rows:
            tighter = [
                other
                for other in rows
                if other["trace"] == row["trace"]
                and float(other["ttft_bound_s"]) <= float(row["ttft_bound_s"])
                and float(other["tpot_mean_bound_ms"]) <= float(row["tpot_mean_bound_ms"])
            ]
            least = min(numbers(tighter, "cost_usd_per_hour"))
            assert float(row["cost_usd_per_hour"]) <= least + CENT


def test_predictions_keep_their_bounds():
    for row in pairing_tables():
        statistic = row["ttft_statistic"]
        slack = 1.0 + 1e-5  # six digits
        assert float(row[f"predicted_ttft_{statistic}_s"]) <= slack * float(row["ttft_bound_s"])
        tpot_ms = 1e3 * float(row["predicted_tpot_mean_s"])
        assert tpot_ms <= slack * float(row["tpot_mean_bound_ms"])


def test_prompts_beyond_the_window_are_warned_of():
    assert all("window" in row["warnings"] for row in pairing_tables())


PAIR_KEYS = ("trace", "ttft_statistic", "ttft_bound_s", "tpot_mean_bound_ms")
STABLE = ("pairing", "cost_usd_per_hour", "bound_usd_per_hour", "best_single_usd_per_hour")
"""Columns that do not depend on which of several equally cheap fleets is named."""


@pytest.mark.parametrize(
    ("name", "statistic", "ttft", "tpot", "trace", "scenario"),
    [
        ("pairings", "mean", 1.0, 0.06, "conversation", pairings.SPLITWISE),
        ("pairings", "mean", 2.0, 0.1, "code", pairings.SPLITWISE),
        ("pairings_p90", "p90", 4.0, 0.1, "conversation", pairings.SPLITWISE),
        ("llama31", "mean", 1.0, 0.03, "conversation", pairings.LLAMA31),
    ],
)
def test_the_code_gives_the_committed_pairing(name, statistic, ttft, tpot, trace, scenario):
    traces = {trace: pairings.TRACES[trace]}
    rows = pairings.pairing_rows(statistic, [ttft], [tpot], traces, scenario)
    stored = committed(MIXED, name)
    assert list(rows[0]) == list(stored[0])
    keep = PAIR_KEYS + STABLE
    assert_same(
        [{k: row[k] for k in keep} for row in rows],
        [{k: row[k] for k in keep} for row in stored],
        PAIR_KEYS,
    )


def test_the_code_gives_the_committed_price_ratio():
    case, ratio = prices.SWEPT[0], prices.RATIOS[2]
    rows = prices.ratio_rows([case], [ratio])
    keys = (*case.columns, "h100_over_a100_price")
    keep = (*keys, "cost_usd_per_hour")
    stored = [{k: row[k] for k in keep} for row in committed(MIXED, "price_ratio")]
    assert_same([{k: row[k] for k in keep} for row in rows], stored, keys)


def test_the_code_gives_the_committed_switching_ratios():
    rows, stored = prices.switch_rows(prices.CASES, []), committed(MIXED, "price_switch")
    swept = ("h100_leads_up_to_ratio", "a100_leads_from_ratio")
    assert_same(
        [{k: v for k, v in row.items() if k not in swept} for row in rows],
        [{k: v for k, v in row.items() if k not in swept} for row in stored],
    )


def test_plans_change_hands_near_the_closed_form():
    """In the relaxation a role changes hands at the ratio of rates per GPU; integers blur it.

    At 1,000 requests/s a role has dozens of replicas, so that what is left is the step of the
    sweep and the load of the partner role, which the closed form leaves out.
    """
    step = prices.RATIOS[1] - prices.RATIOS[0]
    rows = committed(MIXED, "price_switch")
    for row in chosen(rows, rate_requests_per_s="1000"):
        low, high = float(row["h100_leads_up_to_ratio"]), float(row["a100_leads_from_ratio"])
        assert high - low == pytest.approx(step)
        assert low - step <= float(row["switch_price_ratio"]) <= high + step


def test_h100_wins_both_roles_at_list_prices_for_the_newer_model():
    scenario = yaml.safe_load(pairings.LLAMA31.read_text("utf-8"))["traffic"][0]
    ttft, tpot = scenario["slo"]["ttft"]["mean"], scenario["slo"]["tpot"]["mean"]
    row, *_ = chosen(
        committed(MIXED, "llama31"),
        ttft_bound_s=ttft.removesuffix(" s"),
        tpot_mean_bound_ms=tpot.removesuffix(" ms"),
    )
    assert row["pairing"] == "h100/h100"
    assert float(row["prefill_share_percent"]) == float(row["decode_share_percent"]) == 100.0
    base = [r for r in committed(MIXED, "price_switch") if r["tpot_mean_bound_ms"] == "30"]
    assert {r["winner_at_list_prices"] for r in base} == {"h100"}


# Predicted beside simulated


@pytest.mark.parametrize("folder", [PAPER, MIXED])
def test_simulations_agree_with_the_predictions(folder):
    """Within three times the half-width: eight intervals of 95 % may well miss once."""
    for row in committed(folder, "simulated"):
        gap = abs(float(row["predicted_s"]) - float(row["simulated_s"]))
        assert gap <= 3.0 * float(row["simulated_half_width_s"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "scenario", "variants"),
    [
        (PAPER, predictions.SCENARIO, (plans.BENCH, plans.CALIBRATED)),
        (MIXED, pairings.SPLITWISE, tuple(pairings.TRACES.values())),
    ],
)
def test_the_same_seed_gives_the_committed_simulation(folder, scenario, variants):
    assert_same(simulated_rows(scenario, variants), committed(folder, "simulated"))


# What a run leaves behind


@pytest.mark.parametrize(("folder", "run"), [(PAPER, paper_run), (MIXED, mixed_run)])
def test_the_manifest_says_what_made_the_results(folder, run):
    found = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert found["experiment"] == folder.parent.name
    assert found["command"] == ["python", Path(run.__file__).relative_to(ROOT).as_posix()]
    assert len(found["git"]["commit"]) == 40
    assert isinstance(found["git"]["dirty"], bool)
    assert isinstance(found["seed"], int)
    assert {"pdalloc", "numpy", "scipy"} <= set(found["versions"])
    assert found["python"].startswith("3.")
    assert found["machine"]["cpu"]
    assert found["machine"]["cpus"] >= 1
    assert found["seconds"] > 0.0
