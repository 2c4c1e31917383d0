"""The benchmark of other simulators: adapters, and what becomes of a peer that is not there."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.results import write_csv
from experiments.simulator import peers
from experiments.simulator.peers import cases, peer
from experiments.simulator.peers.adapters import blis, ciw, distserve, splitwise, vidur
from experiments.simulator.peers.peer import Command, Peer, PeerError, Places

from pdalloc.latency.affine import AffineDecode
from pdalloc.simulation import fast

pytestmark = pytest.mark.pipeline

NOWHERE = Places(None, "/no/such/python")
HERE = Places(None, sys.executable)


def clock(script: str, requests: int = 1000) -> Peer:
    """A peer that is a script; it is given the number of requests."""

    def command(places: Places, work: Path, count: int) -> Command:
        return Command((places.python, "-c", script, str(count)), work, {"PEER": "1"})

    return Peer(
        name="clock",
        source="here",
        models="queue",
        case="none",
        same=lambda: cases.queue_case(2, 0.5),
        requests=requests,
        command=command,
        finished=lambda output, work: int(output),
        distribution="numpy",
    )


SPIN = """
import os, sys, time
n = int(sys.argv[1]) * int(os.environ["PEER"])
end = time.process_time() + n * 2e-4
while time.process_time() < end:
    pass
print(n)
"""


def test_every_adapter_is_found_and_says_what_it_is() -> None:
    found = peers.discovered()
    assert {p.name for p in found} == {
        "BLIS",
        "Ciw",
        "DistServe simulator",
        "SimPy",
        "SplitwiseSim",
        "Vidur",
        "vllm-sr-sim",
    }
    for p in found:
        assert p.case and p.source and p.models and p.requests >= 1000
        assert bool(p.distribution) != bool(p.folder and p.commit)


def test_absent_peers_are_rows_that_say_so(tmp_path: Path) -> None:
    rows = peers.rows(NOWHERE)
    assert len(rows) == len(peers.discovered())
    assert {row["status"] for row in rows} == {"absent"}
    assert all(row["requests"] is None and row["ratio"] is None for row in rows)
    assert write_csv(tmp_path / "peers.csv", rows).read_text("utf-8").count("absent") == len(rows)


def test_places_are_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(peer.FOLDER, raising=False)
    monkeypatch.delenv(peer.PYTHON, raising=False)
    assert Places.from_environment() == HERE
    monkeypatch.setenv(peer.FOLDER, str(tmp_path))
    monkeypatch.setenv(peer.PYTHON, "other")
    assert Places.from_environment() == Places(tmp_path, "other")


def test_versions_are_those_that_are_there(tmp_path: Path) -> None:
    assert peer.version_of(clock(SPIN), HERE) == np.__version__
    assert peer.version_of(replace(clock(SPIN), distribution="no-such-thing"), HERE) is None
    at = Places(tmp_path, sys.executable)
    assert peer.version_of(distserve.PEER, at) is None
    (tmp_path / distserve.FOLDER).mkdir()
    assert peer.version_of(distserve.PEER, at) == distserve.PEER.commit


def test_a_row_has_the_cost_beyond_the_shorter_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of 5,000 requests per CPU-second, whatever it takes to start."""
    monkeypatch.setattr(peer, "PDALLOC_REQUESTS", 2000)
    row: Any = peer.row(clock(SPIN, 2000), HERE)
    assert row["status"] == "run"
    assert row["requests"] == 1800
    assert row["requests_per_cpu_s"] == pytest.approx(row["requests"] / row["cpu_s"])
    assert 1000 < row["requests_per_cpu_s"] < 20_000
    ratio = row["pdalloc_requests_per_cpu_s"] / row["requests_per_cpu_s"]
    assert row["ratio"] == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise SystemExit('no model')", "failed: exit 1, no model"),
        ("raise SystemExit(3)", "failed: exit 3, nothing"),
        ("print(5)", "failed: its longer run did not take longer"),
    ],
)
def test_a_peer_that_does_not_run_is_a_row_that_says_why(script: str, said: str) -> None:
    row = peer.row(clock(script), HERE)
    assert row["status"] == said
    assert row["requests"] is None and row["pdalloc_requests_per_cpu_s"] is None


def test_a_peer_without_its_program_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / blis.FOLDER).mkdir()
    row: Any = peer.row(blis.PEER, Places(tmp_path, sys.executable))
    assert row["status"].startswith("failed: ") and "blis" in row["status"]


# What adapters write for their peers, and read.


def test_queues_print_their_customers_first() -> None:
    assert ciw.PEER.finished("a warning\n3000 0.71 4.5\n", Path()) == 3000


def test_blis_counts_the_requests_of_the_cluster(tmp_path: Path) -> None:
    heading = "=== Simulation Metrics ===\n"
    parts = [
        json.dumps({"instance_id": name, "completed_requests": n}, indent=2)
        for name, n in (("instance_0", 40), ("cluster", 70))
    ]
    output = heading + parts[0] + "\n" + heading + parts[1] + "\n=== Anomaly Counters ===\n"
    assert blis.finished(output, tmp_path) == 70
    with pytest.raises(PeerError, match="no metrics of the cluster"):
        blis.finished(heading + parts[0], tmp_path)
    words = blis.command(Places(tmp_path, "python"), tmp_path, 90).words
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given["--num-requests"] == "90"
    assert given["--prompt-tokens"] == given["--prompt-tokens-max"] == str(cases.PROMPT)
    assert int(given["--prefill-instances"]) + int(given["--decode-instances"]) == 8


def test_distserve_reads_a_workload_and_writes_latencies(tmp_path: Path) -> None:
    command = distserve.command(Places(tmp_path, "python"), tmp_path, 5)
    stream = json.loads((tmp_path / "workload.json").read_text("utf-8"))
    assert len(stream) == 5
    times = [request["start_time"] for request in stream]
    assert times == sorted(times) and times[0] > 0
    assert stream[0]["prompt_len"] == cases.PROMPT
    assert command.cwd == tmp_path / distserve.FOLDER
    assert str(tmp_path / "workload.json") in command.words
    (tmp_path / "latency.csv").write_text("first_token_latency,tpot\n1,2\n3,4\n", "utf-8")
    assert distserve.finished("", tmp_path) == 2


CONFIG = """defaults:
  - trace: some
  - override hydra/launcher: ray
  - _self_

hydra:
  job:
    chdir: True
  launcher:
    ray:
      init: here
"""


def test_splitwise_runs_without_its_authors_cluster(tmp_path: Path) -> None:
    configs = tmp_path / splitwise.FOLDER / "configs"
    configs.mkdir(parents=True)
    (configs / "config.yaml").write_text(CONFIG, "utf-8")
    work = tmp_path / "work"
    work.mkdir()
    command = splitwise.command(Places(tmp_path, "python"), work, 3)
    text = (work / "configs" / "config.yaml").read_text("utf-8")
    assert "launcher" not in text and text.endswith("chdir: True\n")
    assert splitwise.without_ray(text) == text
    trace = (work / "trace.csv").read_text("utf-8").splitlines()
    assert trace[0].endswith(",prompt_size,token_size") and len(trace) == 4
    assert trace[3].startswith("2,2,0,") and trace[3].endswith(f",{cases.PROMPT},{cases.OUTPUT}")
    assert f"trace.dir={work}" in command.words
    (work / "out" / "detailed").mkdir(parents=True)
    (work / "out" / "detailed" / "0.csv").write_text("request_ids\n0.0\n1.0\n2.0\n", "utf-8")
    assert splitwise.finished("", work) == 3


def test_vidur_counts_rows_of_its_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "some-date"
    folder.mkdir(parents=True)
    (folder / "request_metrics.csv").write_text("Request Id,request_e2e_time\n0,1.5\n", "utf-8")
    assert vidur.finished("", tmp_path) == 1
    command = vidur.command(Places(tmp_path, "python"), tmp_path, 7)
    assert command.environment["PYTHONPATH"] == str(tmp_path / vidur.FOLDER)
    assert "7" in command.words


# The same cases for the fast simulator.


@pytest.mark.parametrize("each", peers.discovered(), ids=lambda p: p.name)
def test_the_same_case_is_stable_and_loaded(each: Peer) -> None:
    """No queue grows: the last requests wait like the first; and prompts do wait."""
    case = each.same()
    log = fast.simulate(case.system, case.fleet, case.rates, 6000, 1, options=case.options)
    wait = log.prefill_start - log.arrival
    assert wait.mean() > 0
    assert log.finish[-1] - log.arrival[-1] < 20 * (log.finish - log.arrival).mean()
    assert (log.finish - log.arrival)[-500:].mean() < 3 * (log.finish - log.arrival).mean()


def test_the_queue_is_an_mmc_queue() -> None:
    """M/M/4 at rho 0.8: Erlang C 0.5964, mean wait C / (c mu (1 - rho)) = 0.7455 s."""
    case = cases.queue_case(4, 0.8)
    log = fast.simulate(case.system, case.fleet, case.rates, 400_000, 3)
    assert (log.prefill_start - log.arrival).mean() == pytest.approx(0.7455, rel=0.05)
    assert (log.finish == log.prefill_end).all()


def test_fleet_cases_have_the_load_that_is_asked_for() -> None:
    case = cases.fleet_case(2, 1, 8.0, 0.1, AffineDecode(0.01, 1e-4))
    assert case.system.workload.rate == 8.0
    assert case.fleet.xpyd == "2P1D"
    run = fast.simulate(case.system, case.fleet, case.rates, 2000, 1)
    assert (run.prefill_end - run.prefill_start).mean() == pytest.approx(0.1)
    assert (run.output_tokens == cases.OUTPUT).all()


def test_traces_for_peers_are_poisson_and_repeat() -> None:
    """20,000 gaps of mean 1/8 s and SCV 1; five standard errors."""
    times = np.array(cases.poisson_arrivals(8.0, 20_000))
    gaps = np.diff(times)
    assert (gaps > 0).all()
    assert 8.0 * gaps.mean() == pytest.approx(1.0, abs=5 / math.sqrt(20_000))
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1.0, abs=5 * math.sqrt(8 / 20_000))
    assert times.tolist() == cases.poisson_arrivals(8.0, 20_000)
