"""What people read: every number is the answer's, in words and units that make sense."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pdalloc.catalog import loader
from pdalloc.errors import InputError
from pdalloc.planning import evaluate, plan
from pdalloc.planning.answer import Answer
from pdalloc.report import progress as progress_module
from pdalloc.report.catalogue import print_catalogue
from pdalloc.report.progress import bar
from pdalloc.report.table import percent, print_answer, seconds, tokens_per_minute
from pdalloc.scenario import load_scenario

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
PAPER = EXPERIMENTS / "paper_2603_04716" / "scenario.yaml"
MIXED = EXPERIMENTS / "mixed_fleet" / "scenario.yaml"


@pytest.fixture(scope="module")
def answer() -> Answer:
    return plan(load_scenario(PAPER), alternatives=2)


@pytest.fixture(scope="module")
def mixed() -> Answer:
    return plan(load_scenario(MIXED, overrides=["stock={a100: 120}"]))


def shown(answer: Answer, width: int = 80, **console: Any) -> str:
    """What ``print_answer`` prints to a pipe."""
    pipe = io.StringIO()
    print_answer(answer, Console(file=pipe, width=width, **console))
    return pipe.getvalue()


def sentence(text: str) -> str:
    """``text`` with its line breaks gone."""
    return " ".join(text.split())


def row(text: str, *starts: str) -> list[str]:
    """Cells of the one table row that starts with ``starts``."""
    rows = [line.split() for line in text.splitlines()]
    (found,) = [cells for cells in rows if cells[: len(starts)] == list(starts)]
    return found


def with_slos(answer: Answer, *changes: dict[str, Any]) -> Answer:
    slos = [s.model_copy(update=c) for s, c in zip(answer.slos, changes, strict=True)]
    return answer.model_copy(update={"slos": slos})


# The headline


def test_the_headline_says_fleet_status_and_cost(answer: Answer) -> None:
    lines = shown(answer).splitlines()
    assert lines[0].strip() == answer.title
    assert lines[1].strip() == (
        "4P4D on 64 x h200: optimal, 229.76 USD/h (proven), 0.77 USD per million tokens"
    )
    assert "Demand 5 Mtoken/min (12.52 req/s), 78,125 tokens/min per GPU." in shown(answer)


def test_the_variant_is_named() -> None:
    assert "variant calibrated" in sentence(shown(plan(load_scenario(PAPER, "calibrated"))))


def test_a_cost_above_its_bound_is_not_called_proven(answer: Answer) -> None:
    text = shown(answer.model_copy(update={"bound_usd_per_hour": 201.04}))
    assert "229.76 USD/h (at least 201.04 is needed)" in sentence(text)
    assert "proven)" not in text


def test_evaluate_proves_nothing() -> None:
    text = sentence(shown(evaluate(load_scenario(PAPER), "6P8D")))
    assert "6P8D on 112 x h200: keeps every SLO, 402.08 USD/h (not proven cheapest)" in text


def test_infeasible_is_said_in_words_with_the_reason() -> None:
    impossible = plan(load_scenario(PAPER, overrides=["traffic.0.slo.ttft.mean=250 ms"]))
    text = sentence(shown(impossible))
    assert "No fleet keeps every SLO: TTFT mean of 'all' cannot be 250 ms" in text
    assert "set a bound above 317 ms" in text
    assert "USD" not in text and "Pools" not in text


def test_a_fleet_that_breaks_an_slo_says_which() -> None:
    broken = evaluate(load_scenario(PAPER), "3P4D")
    text = sentence(shown(broken))
    assert f"3P4D on 56 x h200 breaks: {broken.reason}; it costs 201.04 USD/h" in text


# Pools


def test_every_pool_is_a_row_of_its_numbers(answer: Answer) -> None:
    text = shown(answer)
    expected = ["h200x8", "4", "32", "12.52", "100%"]
    assert row(text, "prefill") == ["prefill", *expected, "67.9%", "-", "114.88"]
    assert row(text, "decode") == ["decode", *expected, "36.8%", "31.0", "114.88"]


def test_pools_of_a_mixed_fleet_share_the_traffic(mixed: Answer) -> None:
    text = shown(mixed)
    for pool in mixed.pools:
        cells = row(text, pool.role, pool.replica_type)
        assert cells[2:4] == [str(pool.replicas), str(pool.replicas * pool.gpus_per_replica)]
        assert pool.rate_share is not None and cells[5] == f"{pool.rate_share:.0%}"
    assert "7P13D on 120 x a100 + 40 x h100" in text


def test_owned_replicas_have_a_column_only_where_there_are_some(answer: Answer) -> None:
    owning = shown(plan(load_scenario(PAPER).owning("3P4D")))
    assert row(owning, "prefill")[:5] == ["prefill", "h200x8", "4", "32", "3"]
    assert "owned" in owning and "owned" not in shown(answer)


def test_an_overloaded_pool_says_so(answer: Answer) -> None:
    pools = [p.model_copy(update={"utilisation": None, "rate_per_s": None}) for p in answer.pools]
    slos = [s.model_copy(update={"predicted_s": None, "kept": False}) for s in answer.slos]
    text = shown(answer.model_copy(update={"pools": pools, "slos": slos, "margin": None}))
    assert text.count("overload") == 2
    assert text.count("unstable") == 2


# SLOs


def test_every_slo_is_a_row_of_bound_prediction_and_verdict(answer: Answer) -> None:
    text = shown(answer)
    ttft, tpot = (" ".join(row(text, metric)) for metric in ("TTFT", "TPOT"))
    assert ttft == "TTFT mean 2000 ms 776.8 ms kept, binding"
    assert tpot == "TPOT mean 20 ms 19.43 ms kept, binding"
    assert "simulated" not in text


def test_a_broken_slo_stands_out() -> None:
    text = shown(evaluate(load_scenario(PAPER), "3P4D"))
    assert row(text, "TTFT")[-1] == "BROKEN"
    assert row(text, "TPOT")[-2:] == ["kept,", "binding"]


def test_percentiles_are_named_as_in_the_scenario() -> None:
    slo = "traffic.0.slo={ttft: {p99.9: 8 s}, e2e: {mean: 12 s}}"
    text = shown(plan(load_scenario(PAPER, overrides=[slo])))
    assert row(text, "TTFT")[1:4] == ["P99.9", "8000", "ms"]
    assert row(text, "E2E")[1:4] == ["mean", "12", "s"]


def test_simulation_stands_beside_prediction_with_its_interval(answer: Answer) -> None:
    text = shown(
        with_slos(
            answer,
            {"simulated_s": 0.7713, "simulated_half_width_s": 0.0754},
            {"simulated_s": 0.0190, "simulated_half_width_s": 0.00012},
        )
    )
    assert row(text, "TTFT")[6:11] == ["771", "±", "75", "ms", "inside"]
    assert row(text, "TPOT")[6:12] == ["19.00", "±", "0.12", "ms", "off", "+2.3%"]


def test_terminals_without_the_sign_get_plain_letters(answer: Answer) -> None:
    simulated = {"simulated_s": 0.77, "simulated_half_width_s": 0.01}
    raw = io.BytesIO()
    pipe = io.TextIOWrapper(raw, encoding="ascii")
    print_answer(with_slos(answer, simulated, simulated), Console(file=pipe, width=80))
    pipe.flush()
    assert b"770 +- 10 ms" in raw.getvalue()


# Remarks


def test_margins_are_told_one_by_one(answer: Answer) -> None:
    text = sentence(shown(answer))
    assert (
        "Margins (one at a time): demand +4.0 %, slower prefill +26.0 %, "
        "slower decode +1.7 %, longer outputs +4.0 %."
    ) in text
    assert "Most demand within the SLOs: 5.201 Mtoken/min (13.02 req/s)." in text


def test_margins_at_the_end_of_the_search_are_at_least_that() -> None:
    small = plan(load_scenario(PAPER, overrides=["traffic.0.rate=30 ktoken/min"]))
    text = sentence(shown(small))
    assert "demand at least +300 %, slower prefill at least +300 %" in text
    assert "Most demand within the SLOs: at least 0.12 Mtoken/min" in text


def test_a_broken_fleet_is_told_what_would_mend_it() -> None:
    text = sentence(shown(evaluate(load_scenario(PAPER), "3P4D")))
    assert "To keep every SLO (one at a time): demand -2.2 %, prefill times -2.0 %" in text
    assert "decode times alone: never" in text
    assert "Most demand within the SLOs: 4.89 Mtoken/min (12.24 req/s)." in text


def test_what_mixing_saves(mixed: Answer) -> None:
    text = sentence(shown(mixed))
    assert "One GPU type alone: a100 no fleet, h100 533.12 USD/h; mixing saves 77.52 USD/h" in text
    assert "(14.5 %) against h100." in text


def test_where_mixing_saves_nothing_it_says_so(mixed: Answer) -> None:
    single = {"a100": mixed.cost_usd_per_hour, "h100": 533.12}
    assert "mixing saves nothing" in sentence(
        shown(mixed.model_copy(update={"single_type": single}))
    )
    none = mixed.model_copy(update={"single_type": {"a100": None, "h100": None}})
    assert "only a mixed fleet keeps the SLOs" in sentence(shown(none))


def test_alternatives_are_listed_with_what_they_add(answer: Answer) -> None:
    text = shown(answer)
    assert row(text, "4P5D")[-2:] == ["258.48", "+28.72"]
    assert row(text, "5P4D")[1:3] == ["prefill/h200x8=5,", "decode/h200x8=4"]


def test_the_papers_method_shows_its_numbers() -> None:
    text = sentence(shown(plan(load_scenario(PAPER), "paper")))
    assert (
        "Paper's method: 25,075 prefill and 1,714 decode tokens/s per replica, so 3.07 P and "
        "3.74 D (ratio 0.82); rounds to 3P4D."
    ) in text


def test_other_solvers_numbers_are_listed(answer: Answer) -> None:
    text = shown(answer.model_copy(update={"details": {"rounds": 2.0, "note": "hot start"}}))
    assert "Solver: rounds 2, note hot start." in text


def test_warnings_and_estimates_are_all_printed(mixed: Answer) -> None:
    text = sentence(shown(mixed))
    assert mixed.warnings and mixed.estimates
    for kind, lines in (("Warning", mixed.warnings), ("Estimate", mixed.estimates)):
        for line in lines:
            assert f"{kind}: {line}" in text


# Terminals and pipes


def test_lines_fit_80_columns_and_pipes_get_no_colour_codes(answer: Answer, mixed: Answer) -> None:
    simulated = {"simulated_s": 0.7713, "simulated_half_width_s": 0.0754}
    for found in (answer, mixed, with_slos(mixed, simulated, simulated)):
        text = shown(found)
        assert max(map(len, text.splitlines())) <= 80
        assert "\x1b" not in text


def test_terminals_get_colour(answer: Answer) -> None:
    assert "\x1b[" in shown(answer, force_terminal=True, color_system="standard")


def test_brackets_in_titles_are_just_brackets(answer: Answer) -> None:
    text = shown(answer.model_copy(update={"title": "canary [red]eu[/red] :smile:"}))
    assert "canary [red]eu[/red] :smile:" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0004321, "0.43 ms"),
        (0.02, "20 ms"),
        (0.01943, "19.43 ms"),
        (0.77678, "776.8 ms"),
        (2.4029, "2403 ms"),
        (9.9999, "10 s"),
        (12.345, "12.35 s"),
        (123.0, "123 s"),
    ],
)
def test_seconds_in_the_unit_people_use(value: float, text: str) -> None:
    assert seconds(value) == text


def test_percent_and_tokens() -> None:
    assert [percent(x) for x in (0.0402, -0.0221, 0.0, -1e-5, 3.0, None)] == [
        "+4.0 %", "-2.2 %", "+0.0 %", "+0.0 %", "at least +300 %", "-",
    ]  # fmt: skip
    assert tokens_per_minute(99_000.0) == "99 ktoken/min"
    assert tokens_per_minute(1e5) == "0.1 Mtoken/min"


# The catalogue


def listed(kind: str | None = None, name: str | None = None) -> str:
    pipe = io.StringIO()
    print_catalogue(kind, name, console=Console(file=pipe, width=80))
    return pipe.getvalue()


def test_all_kinds_are_listed_with_their_entries() -> None:
    text = listed()
    for kind in loader.KINDS:
        assert row(text, kind)[1] == str(len(loader.entries(kind)))
        assert all(name in text for name in loader.entries(kind))


@pytest.mark.parametrize("kind", loader.KINDS)
def test_every_entry_of_a_kind_has_a_source_and_a_date(kind: str) -> None:
    text = listed(kind)
    for name in loader.entries(kind):
        (place,) = [i for i, line in enumerate(text.splitlines()) if line.split()[:1] == [name]]
        below = sentence(" ".join(text.splitlines()[place : place + 12]))
        assert "(20" in below, name
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("kind", "name", "facts"),
    [
        ("gpus", "H200-SXM", ["name: h200", "memory: 141 GB", "licence: fact (vendor"]),
        ("prices", "list-2026-11", ["- gpu: ", "usd_per_gpu_hour: 3.59", "source: ", "date: "]),
        ("llms", "llama2-70b", ["layers: 80", "kv_heads: 8", "licence: "]),
        ("profiles", "splitwise/llama2-70b/h100-tp8", ["seconds: ", "source: github.com/"]),
        ("lengths", "azure-2023-code", ["licence: CC-BY-4.0", " of them, from ["]),
    ],
)
def test_an_entry_shows_its_numbers_and_their_origin(
    kind: str, name: str, facts: list[str]
) -> None:
    text = sentence(listed(kind, name))
    assert all(fact in text for fact in facts)


def test_unknown_kinds_and_entries_name_the_known_ones() -> None:
    with pytest.raises(InputError, match="no kind 'gpu'; known kinds: gpus, llms, profiles"):
        listed("gpu")
    with pytest.raises(InputError, match="did you mean 'h100'"):
        listed("gpus", "h1000")


# Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_no_bar_where_nobody_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("simulating", enabled=True) as progress:  # stderr is captured: no terminal
        assert progress is None
    assert capsys.readouterr().err == ""


def test_no_bar_when_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with bar("simulating", enabled=False) as progress:
        assert progress is None


def test_short_work_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with bar("simulating", enabled=True) as progress:
        assert progress is not None
        progress(1, 2)
        progress(2, 2)
    assert screen.getvalue() == ""


def test_long_work_shows_a_bar_and_wipes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress_module, "SHOWN_AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with bar("simulating", enabled=True) as progress:
        assert progress is not None
        progress(1, 4)
        progress(2, 4)
    assert "simulating" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")  # the line is cleared


def test_a_bar_goes_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress_module, "SHOWN_AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(InputError), bar("simulating", enabled=True) as progress:
        assert progress is not None
        progress(1, 4)
        raise InputError("stop")
    assert screen.getvalue().endswith("\x1b[2K")
