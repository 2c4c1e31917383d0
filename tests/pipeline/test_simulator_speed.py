"""The speed tables of the simulator, on tiny runs: what their rows say, not how fast it is."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import Value, write_csv
from experiments.simulator import speed

from pdalloc.fleet import DECODE, PREFILL
from pdalloc.latency.measured import MeasuredDecode
from pdalloc.simulation.options import PLAIN

pytestmark = pytest.mark.pipeline


def assert_positive(rows: Iterable[Mapping[str, Value]]) -> None:
    """Every number is finite and above 0."""
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float):
                assert math.isfinite(value) and value > 0, (name, row)


def number(row: Mapping[str, Value], name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float)
    return float(value)


def test_a_row_per_fleet_and_kind_of_step(tmp_path: Path) -> None:
    rows = speed.size_rows((1, 2), 2000, 1)
    assert [(row["fleet"], row["decode_step"]) for row in rows] == [
        ("1P1D", "measured"),
        ("2P2D", "measured"),
        ("1P1D", "affine"),
        ("2P2D", "affine"),
    ]
    assert_positive(rows)
    for row in rows:
        for part in ("run", "all_percentiles"):
            rate = number(row, "requests") / number(row, f"{part}_cpu_s")
            assert number(row, f"{part}_requests_per_cpu_s") == pytest.approx(rate)
        assert number(row, "all_percentiles_cpu_s") >= number(row, "run_cpu_s")
    assert write_csv(tmp_path / "sizes.csv", rows).is_file()


def test_options_are_measured_against_the_first_row() -> None:
    every = speed.options()
    chosen = {name: every[name] for name in ("none", "KV memory", "co-located, chunked")}
    rows = speed.option_rows(2, 300, 1, chosen)
    assert [row["option"] for row in rows] == list(chosen)
    assert_positive(rows)
    for part in ("run", "all_percentiles"):
        first = number(rows[0], f"{part}_requests_per_cpu_s")
        for row in rows:
            relative = number(row, f"{part}_requests_per_cpu_s") / first
            assert number(row, f"{part}_speed_over_plain") == pytest.approx(relative)


def test_every_option_is_in_the_table() -> None:
    """Each field of SimulationOptions is set by at least one row, and only one row is plain."""
    rows = list(speed.options().values())
    for name in vars(PLAIN):
        assert any(getattr(option, name) != getattr(PLAIN, name) for option in rows), name
    assert sum(option.off for option in rows) == 1


def test_cost_by_requests_is_that_of_processes_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child that takes 1 s and 2 us a request, and holds 300 bytes for each."""
    asked = []

    def child(what: str, requests: int, **given: Value) -> dict[str, float]:
        asked.append((what, requests, given))
        return {"all_cpu_s": 1.0 + 2e-6 * requests, "peak_bytes": 300.0 * requests}

    monkeypatch.setattr(speed, "in_a_new_process", child)
    rows = speed.cost_rows((10**6, 10**7))
    assert_positive(rows)
    assert [number(row, "all_percentiles_cpu_s") for row in rows] == pytest.approx([3.0, 21.0])
    each = [number(row, "all_percentiles_cpu_us_per_request") for row in rows]
    assert each == pytest.approx([3.0, 2.1])
    assert [number(row, "per_request_over_first") for row in rows] == pytest.approx([1.0, 0.7])
    assert [number(row, "peak_memory_gb") for row in rows] == pytest.approx([0.3, 3.0])
    assert {what for what, *_ in asked} == {"memory"}


def test_a_child_counts_its_own_time_and_memory() -> None:
    """This process holds 400 MB more, which a child made by fork would seem to hold."""
    held = np.ones(50_000_000)
    assert speed.peak_bytes() > held.nbytes
    (row,) = speed.cost_rows((500,), replicas=1)
    assert_positive([row])
    assert row["requests"] == 500 and row["fleet"] == "1P1D"
    assert 0.05 < number(row, "peak_memory_gb") < 0.3


def test_the_first_run_of_a_process_is_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cache that the tests have; compiling anew takes long."""
    asked = []

    def child(what: str, environment: Mapping[str, str], option: str) -> dict[str, float]:
        asked.append((what, environment["NUMBA_CACHE_DIR"], option))
        assert Path(environment["NUMBA_CACHE_DIR"]).is_dir()
        return {"import_cpu_s": 1.0, "first_cpu_s": 5.0, "second_cpu_s": 0.1}

    monkeypatch.setattr(speed, "in_a_new_process", child)
    rows = speed.compile_rows()
    assert [(row["path"], row["cache"]) for row in rows] == [
        (path, cache) for path in ("plain", "general", "co-located") for cache in ("cold", "warm")
    ]
    assert_positive(rows)
    folders = [folder for _, folder, _ in asked]
    assert folders[0::2] == folders[1::2] and len(set(folders)) == 3
    assert {option for _, _, option in asked} <= set(speed.options())


def test_a_first_run_says_what_it_cost(capsys: pytest.CaptureFixture[str]) -> None:
    speed.main(["first", json.dumps({"option": "none"})])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"import_cpu_s", "first_cpu_s", "second_cpu_s"}
    assert_positive([found])


@pytest.mark.parametrize("replicas", [1, 4, 16])
def test_demand_is_in_proportion_to_the_fleet(replicas: int) -> None:
    case = speed.paper_case(replicas)
    paper = speed.paper_case(speed.PAPER_REPLICAS)
    assert case.system.workload.rate / replicas == pytest.approx(paper.system.workload.rate / 4)
    assert case.fleet.xpyd == f"{replicas}P{replicas}D"
    assert {role for role, _ in case.rates} == {PREFILL, DECODE}


def test_the_affine_step_is_near_the_measured_one() -> None:
    """At a context of 6400 tokens a request, within 5 % over the measured batches."""
    one, two = (
        next(iter(speed.paper_case(1, kind).system.replica_types.values())).latency
        for kind in ("measured", "affine")
    )
    assert isinstance(one.decode, MeasuredDecode)
    batch = one.decode.curve.x
    expected = one.decode.seconds(batch, batch * 6400.0)
    assert two.decode.seconds(batch, batch * 6400.0) == pytest.approx(expected, rel=0.05)
    line = speed.affine_through(np.array([1.0, 2.0]), np.array([3.0, 5.0]), 100.0)
    assert (line.base, line.per_request, line.per_context_token) == pytest.approx((1.0, 1.0, 0.01))
