"""What people and programs read of a simulation: every number is the answer's, with its unit."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from pdalloc.planning import Answer, Effort, Simulation, plan
from pdalloc.planning.answer import SloAnswer
from pdalloc.planning.simulation_answer import EstimateAnswer, SimulationAnswer
from pdalloc.records import STATUSES
from pdalloc.report.log_csv import log_as_csv
from pdalloc.report.simulation_table import (
    STAGE_NAMES,
    print_simulation,
    with_interval,
    worst_verdict,
)
from pdalloc.report.table import print_answer, seconds, verdict
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

EFFORT = Effort(1500, 3)
Case = tuple[Scenario, Simulation]


def shown(answer: SimulationAnswer, width: int = 80, **console: Any) -> str:
    pipe = io.StringIO()
    print_simulation(answer, Console(file=pipe, width=width, **console))
    return pipe.getvalue()


def sentence(text: str) -> str:
    return " ".join(text.split())


def row(text: str, *starts: str) -> str:
    """The one table row that starts with these words."""
    rows = [sentence(line) for line in text.splitlines()]
    (found,) = [cells for cells in rows if cells.split()[: len(starts)] == list(starts)]
    return found


def estimate(value: float, half_width: float) -> EstimateAnswer:
    return EstimateAnswer(value=value, half_width=half_width)


# The table.


def test_the_headline_is_fleet_verdict_and_cost(plain: Case, busy: Case, together: Case) -> None:
    assert "2P1D on 24 x h100 breaks an SLO in simulation, 48.00 USD/h" in shown(plain[1].answer)
    assert "r=2 co-located on 16 x h100 keeps every SLO" in sentence(shown(together[1].answer))
    assert shown(busy[1].answer).splitlines()[0].strip() == "[b]two[/b] classes"


def test_the_worst_slo_speaks_for_all(plain: Case) -> None:
    answer = plain[1].answer
    for found, worst, words in (
        (["keeps"] * 5, "keeps", "keeps every SLO"),
        (["keeps", "too close to call", "keeps", "keeps", "keeps"], "too close to call", "close"),
        (["too close to call", "keeps", "breaks", "keeps", "keeps"], "breaks", "breaks an SLO"),
    ):
        slos = [
            s.model_copy(update={"verdict": v}) for s, v in zip(answer.slos, found, strict=True)
        ]
        changed = answer.model_copy(update={"slos": slos})
        assert worst_verdict(changed) == worst
        assert words in sentence(shown(changed)).split("Demand")[0]


def test_what_was_asked_and_how_much_was_simulated(plain: Case) -> None:
    text = sentence(shown(plain[1].answer))
    assert "Demand 0.4284 Mtoken/min (7 req/s); 3 replications of 1,500 requests" in text
    assert "95 % intervals" in text


def test_every_slo_is_a_row_of_bound_interval_and_verdict(case: Case) -> None:
    answer = case[1].answer
    text = shown(answer, 120)
    several = len({slo.traffic_class for slo in answer.slos}) > 1
    for slo in answer.slos:
        name = slo.statistic if slo.statistic == "mean" else slo.statistic.upper()
        starts = [slo.traffic_class] if several else []
        found = row(text, *starts, slo.metric.upper(), name, *seconds(slo.bound_s).split())
        interval = "-"
        if slo.simulated_s is not None and slo.half_width_s is not None:
            interval = with_interval(estimate(slo.simulated_s, slo.half_width_s), "±", 1e3, " ms")
        assert found.endswith(f"{interval} {slo.verdict}")


def test_every_latency_is_a_row(case: Case) -> None:
    answer = case[1].answer
    text = shown(answer, 120)
    several = len({r.traffic_class for r in answer.latencies}) > 1
    assert {r.metric for r in answer.latencies} == {"ttft", "tpot", "itl", "e2e"}
    for r in answer.latencies:
        starts = [r.traffic_class] if several else []
        interval = with_interval(r.mean_s, "±", 1e3, " ms").split()
        found = row(text, *starts, r.metric.upper(), *interval)
        assert found.endswith(" ".join(seconds(e.value) for e in (r.p90_s, r.p95_s, r.p99_s)))


def test_every_pool_is_a_row(case: Case) -> None:
    answer = case[1].answer
    text = shown(answer)
    for p in answer.pools:
        found = row(text, p.role, p.replica_type)
        counts = f"{p.replicas} {p.replicas * p.gpus_per_replica} {p.rate_per_s:.2f}"
        busy = with_interval(p.utilisation, "±", 100.0, " %")
        assert found == f"{p.role} {p.replica_type} {counts} {busy}"


def test_attainment_goodput_stages_and_cost_are_told(case: Case) -> None:
    answer = case[1].answer
    text = sentence(shown(answer))
    met = with_interval(answer.attainment, "±", 100.0, " %")
    assert f"Attainment {met} of requests keep {'; '.join(answer.attainment_bounds)}" in text
    assert f"goodput {with_interval(answer.goodput_requests_per_s, '±', 1.0, '')} req/s" in text
    for stage, mean in answer.stages.items():
        assert f"{STAGE_NAMES[stage]} {mean.value:.3g}" in text
    assert answer.usd_per_million_tokens is not None
    assert f"{answer.usd_per_million_tokens.value:.2f} USD per million tokens served" in text


def test_bounds_that_hold_together_are_named_with_their_class(plain: Case, busy: Case) -> None:
    assert plain[1].answer.attainment_bounds == [
        "TTFT <= 4000 ms", "TPOT <= 5 ms", "ITL <= 50 ms (99 % of its gaps)", "E2E <= 3000 ms"
    ]  # fmt: skip
    assert busy[1].answer.attainment_bounds == ["TTFT of chat <= 2000 ms", "E2E of code <= 9000 ms"]
    assert "at once" in shown(plain[1].answer)


def test_one_bound_alone_is_not_kept_at_once(together: Case) -> None:
    assert "keep TTFT <= 1000 ms: goodput" in sentence(shown(together[1].answer))


def test_who_got_nothing_is_told_only_where_there_is_somebody(plain: Case, busy: Case) -> None:
    answer = busy[1].answer
    text = sentence(shown(answer))
    (told,) = [part for part in text.split(". ") if part.startswith("Of 100 requests")]
    for share, words in (
        (answer.timeout_share, "time out"),
        (answer.rejected_share, "rejected"),
        (answer.retries_per_request, "retries"),
    ):
        assert share.value > 0.0 and words in told
        assert with_interval(share, "±", 100.0, "") in told
    assert "KV caches lost" not in told
    assert "Of 100 requests" not in shown(plain[1].answer)


def test_warnings_and_estimates_are_all_printed(busy: Case) -> None:
    answer = busy[1].answer.model_copy(update={"estimates": ["r: a guess (no measurement)"]})
    text = sentence(shown(answer))
    assert answer.warnings
    assert all(f"Warning: {line}" in text for line in answer.warnings)
    assert "Estimate: r: a guess (no measurement)" in text


@pytest.mark.parametrize(
    ("value", "half_width", "scale", "unit", "text"),
    [
        (0.7774, 0.01234, 1e3, " ms", "777 ± 12 ms"),
        (0.7774, 0.001234, 1e3, " ms", "777.4 ± 1.2 ms"),
        (0.01943, 0.0000123, 1e3, " ms", "19.430 ± 0.012 ms"),
        (42.0, 123.4, 1.0, " s", "42 ± 123 s"),
        (0.914, 0.0155, 100.0, " %", "91.4 ± 1.6 %"),
        (5.0, 0.0, 1.0, "", "5.00 ± 0.00"),
        (5.0, 1e-12, 1.0, "", "5.00 ± 0.00"),
    ],
)
def test_numbers_go_to_the_second_digit_of_their_half_width(
    value: float, half_width: float, scale: float, unit: str, text: str
) -> None:
    assert with_interval(estimate(value, half_width), "±", scale, unit) == text


def test_terminals_without_the_sign_get_plain_letters(case: Case) -> None:
    raw = io.BytesIO()
    pipe = io.TextIOWrapper(raw, encoding="ascii")
    print_simulation(case[1].answer, Console(file=pipe, width=80))
    pipe.flush()
    text = raw.getvalue().decode("ascii")
    assert " +- " in text and "?" not in text


@pytest.mark.parametrize("width", [80, 100, 200])
def test_lines_fit_and_pipes_get_no_colour_codes(case: Case, width: int) -> None:
    text = shown(case[1].answer, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert "\x1b[" in shown(case[1].answer, force_terminal=True, color_system="standard")


# The plan's table.


@pytest.mark.parametrize(
    ("kept", "binding", "simulated", "words"),
    [
        (True, False, None, "kept"),
        (True, False, "keeps", "kept"),
        (True, True, "keeps", "kept, binding"),
        (True, False, "breaks", "kept; simulated BROKEN"),
        (True, True, "too close to call", "kept, binding; simulation too close"),
        (False, True, "keeps", "BROKEN"),
    ],
)
def test_the_verdict_names_the_simulation_where_it_says_something_else(
    kept: bool, binding: bool, simulated: str | None, words: str
) -> None:
    slo = SloAnswer.model_validate(
        {
            "traffic_class": "all", "metric": "ttft", "statistic": "mean", "bound_s": 1.0,
            "predicted_s": 0.5, "kept": kept, "binding": binding, "simulated_verdict": simulated,
        }
    )  # fmt: skip
    assert verdict(slo) == words


def test_a_repaired_plan_says_what_was_added(made) -> None:
    slow = {"slow": [{"role": "prefill", "replica": 0, "factor": 1.3}]}
    block = made.chat(output="2 tokens", slo={"ttft": {"mean": "0.4 s"}})
    answer = plan(made.question(traffic=[block], simulation=slow), repair=True, effort=EFFORT)
    pipe = io.StringIO()
    print_answer(answer, Console(file=pipe, width=80))
    assert "Repaired: the plan was 1P1D; with prefill/r=1 added" in sentence(pipe.getvalue())
    assert Answer.model_validate_json(answer.to_json()) == answer


# The log.


def test_the_log_is_read_back_as_it_was(case: Case) -> None:
    scenario, simulation = case
    log = simulation.log
    table = pd.read_csv(io.StringIO(log_as_csv(scenario, log)), index_col="request")
    assert len(table) == len(log) and list(table.index) == list(range(len(log)))
    names = [c.name for c in scenario.system.workload.classes]
    assert list(table["traffic_class"]) == [names[q] for q in log.traffic_class]
    for name in ("prompt_tokens", "output_tokens", "prefill_replica", "decode_replica"):
        assert np.array_equal(table[name], getattr(log, name))
    for name in ("arrival", "prefill_start", "prefill_end", "decode_start", "finish", "ttft"):
        read = table[f"{name}_s"].to_numpy()
        assert read == pytest.approx(getattr(log, name), rel=1e-8, abs=1e-8, nan_ok=True)


def test_every_column_of_a_time_says_seconds_and_adds_up(case: Case) -> None:
    """TTFT = first token - arrival; E2E = finish - arrival; stages follow each other."""
    table = pd.read_csv(io.StringIO(log_as_csv(*case_log(case))), index_col="request")
    times = [name for name in table.columns if table[name].dtype == float]
    assert all(name.endswith("_s") for name in times)
    done = table[table["finish_s"].notna()]
    assert len(done) > 100
    for name, end in (("ttft_s", "first_token_s"), ("e2e_s", "finish_s")):
        assert done[name].to_numpy() == pytest.approx(
            (done[end] - done["arrival_s"]).to_numpy(), abs=1e-5
        )
    gaps = done["finish_s"] - done["first_token_s"]
    expected = (gaps / (done["output_tokens"] - 1)).to_numpy()
    assert done["tpot_s"].to_numpy() == pytest.approx(expected, abs=1e-5)
    order = ["arrival_s", "prefill_start_s", "prefill_end_s", "decode_start_s", "finish_s"]
    assert (done[order].diff(axis=1).iloc[:, 1:] >= -1e-6).all(axis=None)


def case_log(case: Case) -> tuple[Scenario, Any]:
    return case[0], case[1].log


def test_what_became_of_a_request_is_a_column_where_options_are_on(plain: Case, busy: Case) -> None:
    assert "status" not in log_as_csv(*case_log(plain)).splitlines()[0]
    table = pd.read_csv(io.StringIO(log_as_csv(*case_log(busy))))
    assert set(table["status"]) == set(STATUSES)
    lost = table[table["status"] != "finished"]
    assert lost["finish_s"].isna().all() and lost["left_s"].notna().all()
    assert (lost["decode_replica"] == -1).all()
    assert lost["retries"].max() == 1
