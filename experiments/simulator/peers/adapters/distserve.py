"""DistServe's simulator (Zhong et al., OSDI 2024): one prefill and one decode instance."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from experiments.simulator.peers.cases import OUTPUT, PROMPT, fleet_case, poisson_arrivals
from experiments.simulator.peers.peer import Command, Peer, Places

from pdalloc.latency.affine import AffineDecode

RATE = 5.5
"""Requests/s. Its OPT-13B takes 0.133 s a prompt, so prefill is 73 % busy."""
FOLDER = "DistServe"


def command(places: Places, work: Path, requests: int) -> Command:
    """Its own command on a workload of ours; reads no data set."""
    assert places.checkouts is not None
    stream = [
        {"start_time": t, "prompt_len": PROMPT, "output_len": OUTPUT}
        for t in poisson_arrivals(RATE, requests)
    ]
    (work / "workload.json").write_text(json.dumps(stream), encoding="utf-8")
    given = {
        "--backend": "distserve",
        "--model": "facebook/opt-13b",
        "--arrival": "custom",
        "--workload": str(work / "workload.json"),
        "--N": str(requests),
        "--output-request-latency": str(work / "latency.csv"),
    }
    words = [word for pair in given.items() for word in pair]
    checkout = places.checkouts / FOLDER
    module = ("-m", "simdistserve.benchmarks.simulate_dist")
    return Command((places.python, *module, *words), checkout, {"PYTHONPATH": str(checkout)})


def finished(output: str, work: Path) -> int:
    """Rows of its table of latencies."""
    with (work / "latency.csv").open(encoding="utf-8") as table:
        return sum(1 for _ in csv.DictReader(table))


PEER = Peer(
    name="DistServe simulator",
    source="GitHub: LLMServe/DistServe",
    models="P/D",
    case=f"1P1D, OPT-13B on A100, {PROMPT} + {OUTPUT} tokens, {RATE} requests/s",
    # Its small-batch fit at b = 6.3e-7 s a context token, c = 3.9e-5 s a request.
    same=lambda: fleet_case(1, 1, RATE, 0.133, AffineDecode(0.0219, 1.385e-4, 6.27e-7)),
    requests=3000,
    command=command,
    finished=finished,
    folder=FOLDER,
    commit="82831f16",
)
