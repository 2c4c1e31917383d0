"""Random plans against simulation: the generator, the demand where SLOs bind, a small run."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import read_csv
from experiments.validation import demand, run
from experiments.validation.generator import (
    BALANCE,
    CASES,
    ENGINE_BATCH,
    LIMITED_BALANCE,
    METRICS,
    MOST_REPLICAS,
    SLACKS,
    TARGETS,
    capacity,
    cases,
    log_uniform,
)

from pdalloc.attainment import attainment
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.simulation.options import PLAIN

pytestmark = pytest.mark.pipeline

RESULTS = Path(run.__file__).parent / "results"


@pytest.fixture(scope="module")
def every():
    return cases()


def test_a_case_follows_from_its_number(every):
    again = cases(range(17, 19))
    for one, other in zip(again, every[17:19], strict=True):
        assert (one.number, one.metrics, one.slack, one.target) == (
            other.number,
            other.metrics,
            other.slack,
            other.target,
        )
        assert one.fleet == other.fleet
        assert one.shares == other.shares
        law, same = one.system.workload.classes[0].lengths, other.system.workload.classes[0].lengths
        assert np.array_equal(law.prompt, same.prompt)
        assert np.array_equal(law.output, same.output)


def test_a_quarter_at_least_has_each_feature(every):
    assert len(every) == CASES
    for count in (
        sum(c.bursty for c in every),
        sum(c.mixed for c in every),
        sum(c.limit != "" for c in every),
    ):
        assert CASES / 4 <= count <= CASES / 2
    assert {c.limit for c in every} == {"", "slots", "memory"}


def test_everything_that_may_be_drawn_is(every):
    for role in ROLES:
        assert len({c.system.dispatch[role] for c in every}) == 4
    assert {c.system.first_token for c in every} == {"prefill", "transfer", "decode"}
    assert {c.metrics for c in every} == set(METRICS)
    assert len({c.lengths for c in every}) == 4
    noise = {r.latency.prefill_noise for c in every for r in c.system.replica_types.values()}
    assert noise == {"none", "exponential"}


def test_cases_are_in_range(every):
    for c in every:
        assert TARGETS[0] <= c.target <= TARGETS[1]
        assert all(SLACKS[0] <= x <= SLACKS[1] for x in c.slack)
        assert all(1 <= n <= MOST_REPLICAS for n in c.fleet.counts.values())
        assert c.arrival_scv == 1.0 or 2.0 <= c.arrival_scv <= 4.0
        for role in ROLES:
            assert sum(s for key, s in c.shares.items() if key[0] == role) == pytest.approx(1.0)


def test_roles_can_serve_about_as_much(every):
    """Decode over prefill capacity; a limited decode is the smaller role."""
    for c in every:
        [traffic] = c.system.workload.classes
        most = dict.fromkeys(ROLES, 0.0)
        for (role, name), n in c.fleet.counts.items():
            kind = c.system.replica_types[name]
            most[role] += n * capacity(role, kind, traffic.lengths, c.system.first_token)
        low, high = LIMITED_BALANCE if c.limit else BALANCE
        assert low <= most[DECODE] / most[PREFILL] <= high


def test_limited_cases_have_few_slots(every):
    for c in every:
        for kind in c.system.replica_types.values():
            assert (kind.max_batch < ENGINE_BATCH) == (c.limit == "slots")
            assert math.isfinite(kind.kv_tokens) == (c.limit == "memory")
            law = c.system.workload.classes[0].lengths
            assert kind.kv_tokens >= float((law.prompt + law.output).max())


def test_a_log_uniform_number_stays_between():
    """Median sqrt(low high); P(X <= x) = log(x/low)/log(high/low)."""
    rng = np.random.default_rng(1)
    found = np.array([log_uniform(rng, 1.0, 16.0) for _ in range(4000)])
    assert found.min() >= 1.0
    assert found.max() <= 16.0
    below = float(np.mean(found <= 4.0))
    assert abs(below - 0.5) < 4.0 * math.sqrt(0.25 / len(found))


@pytest.mark.parametrize("number", [3, 8])
def test_demand_is_where_the_slo_binds(every, number):
    """At the demand the target is kept, at 3 % less by more and at 3 % more by fewer."""
    case = every[number]
    bound = demand.binding(case)
    assert bound.predicted == pytest.approx(case.target, abs=5e-3)
    less, more = (
        attainment(demand.at(case, f * bound.rate)[1], bound.bounds) for f in (0.97, 1.03)
    )
    assert more < bound.predicted < less
    assert max(run.utilisations(bound)) <= demand.MOST + 1e-9
    assert [b.metric for b in bound.bounds] == list(case.metrics)


def test_log_odds():
    assert demand.logit(0.5) == 0.0
    assert demand.logit(0.9) == pytest.approx(math.log(9.0), rel=1e-12)


def test_a_run_is_long_where_a_pool_forgets_slowly(every):
    """Requests grow with those present over what is left of the pool's time, within limits."""
    bound = demand.binding(every[8])
    [pool] = bound.prediction.decode.values()
    present = pool.replicas * pool.law.mean_batch / (1.0 - pool.utilisation)
    expected = min(max(run.MEMORIES * present, run.REQUESTS), run.MOST_REQUESTS)
    assert run.requests_per_replication(bound) == int(expected)


def test_a_simulated_share_is_an_interval(every):
    case = every[3]
    bound = demand.binding(case)
    share, half_width, used = run.simulated(case, bound, PLAIN, 2000, 0)
    assert 0.0 < share <= 1.0
    assert half_width > 0.0
    assert used == run.REPLICATIONS
    assert run.simulated(case, bound, PLAIN, 2000, 0) == (share, half_width, used)


def test_two_cases_from_end_to_end(tmp_path, capsys):
    folder = tmp_path / "validation" / "results"
    run.main(folder, range(8, 10), 12_000)
    rows = read_csv(folder / "cases.csv")
    assert [r["case"] for r in rows] == ["8", "9"]
    for r in rows:
        error = float(r["predicted_percent"]) - float(r["simulated_percent"])
        assert float(r["error_points"]) == pytest.approx(error, abs=1e-3)
    [total] = [r for r in read_csv(folder / "summary.csv") if r["feature"] == "all"]
    assert total["cases"] == "2"
    worst = max(float(r["error_points"]) for r in rows)
    assert float(total["greatest_over_promise_points"]) == pytest.approx(worst, abs=1e-3)
    assert (folder / "manifest.json").is_file()
    assert "all" in capsys.readouterr().out


def test_summary_counts_by_feature():
    base = dict.fromkeys(
        ("limit", "metrics", "prefill_dispatch", "decode_dispatch", "first_token", "lengths"), "x"
    )
    rows = [
        {**base, "arrival_scv": scv, "mixed": mixed, "error_points": e, "memory_error_points": m}
        for scv, mixed, e, m in (
            (1.0, True, 0.5, None),
            (3.0, False, -1.5, 4.0),
            (3.0, True, 2.5, None),
        )
    ]
    found = {(r["feature"], r["value"]): r for r in run.summary(rows)}
    assert found["all", ""]["within_1_point_percent"] == pytest.approx(100.0 / 3.0)
    assert found["all", ""]["greatest_over_promise_points"] == 2.5
    assert found["all", ""]["greatest_under_promise_points"] == 1.5
    assert found["all", ""]["over_promised_by_2_points"] == 1
    assert found["bursty", "yes"]["cases"] == 2
    assert found["mixed", "True"]["within_1_point_percent"] == 50.0
    assert found["KV counted by token", ""]["cases"] == 1


def test_the_committed_results_hold_every_case():
    rows = read_csv(RESULTS / "cases.csv")
    assert [int(r["case"]) for r in rows] == list(range(CASES))
    again = run.summary([_numbers(r) for r in rows])
    for line, kept in zip(again, read_csv(RESULTS / "summary.csv"), strict=True):
        assert (line["feature"], line["value"]) == (kept["feature"], kept["value"])
        share = float(kept["within_1_point_percent"])
        assert line["within_1_point_percent"] == pytest.approx(share, abs=1e-2)


def _numbers(row):
    """A row as it was before it became text, where the summary needs it."""
    memory = row["memory_error_points"]
    return {
        **row,
        "mixed": row["mixed"] == "yes",
        "arrival_scv": float(row["arrival_scv"]),
        "error_points": float(row["error_points"]),
        "memory_error_points": float(memory) if memory else None,
    }
