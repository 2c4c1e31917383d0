"""SplitwiseSim (Patel et al., ISCA 2024): an H100 machine prefills, an A100 machine decodes."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from experiments.simulator.peers.cases import OUTPUT, PROMPT, fleet_case, poisson_arrivals
from experiments.simulator.peers.peer import Command, Peer, Places

from pdalloc.latency.affine import AffineDecode

RATE = 5.5
"""Requests/s. Its BLOOM-176B takes 0.15 s a prompt, so prefill is 80 % busy."""
FOLDER = "splitwise-sim"
COLUMNS = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size"
OVERRIDES = (
    "applications.0.scheduler=mixed_pool",
    "cluster=half_half",
    "cluster.servers.0.count=1",
    "cluster.servers.1.count=1",
    "start_state=splitwise",
    "start_state.split_type=heterogeneous",
    "performance_model=db",
    "trace.filename=trace",
    "seed=0",
)


def command(places: Places, work: Path, requests: int) -> Command:
    """Its own command; its configuration without the Ray cluster of its authors."""
    assert places.checkouts is not None
    checkout = places.checkouts / FOLDER
    shutil.copytree(checkout / "configs", work / "configs")
    main = work / "configs" / "config.yaml"
    main.write_text(without_ray(main.read_text(encoding="utf-8")), encoding="utf-8")
    rows = [
        f"{i},2,0,{t},1,{PROMPT},{OUTPUT}" for i, t in enumerate(poisson_arrivals(RATE, requests))
    ]
    trace = work / "trace.csv"
    trace.write_text("\n".join([f"{COLUMNS},token_size", *rows, ""]), encoding="utf-8")
    given = (f"trace.dir={work}", f"hydra.run.dir={work / 'out'}", *OVERRIDES)
    words = ("run.py", "--config-path", str(work / "configs"), *given)
    return Command((places.python, *words), checkout, {})


def without_ray(text: str) -> str:
    """A configuration as it stands, less the choice of Ray as launcher and its settings."""
    lines = text.splitlines()
    kept = lines[: lines.index("  launcher:")] if "  launcher:" in lines else lines
    return "\n".join([line for line in kept if "hydra/launcher" not in line]) + "\n"


def finished(output: str, work: Path) -> int:
    """Rows of its table of requests."""
    with (work / "out" / "detailed" / "0.csv").open(encoding="utf-8") as table:
        return sum(1 for _ in csv.DictReader(table))


PEER = Peer(
    name="SplitwiseSim",
    source="GitHub: Mutinifni/splitwise-sim",
    models="P/D",
    case=f"1P1D, BLOOM-176B on DGX, {PROMPT} + {OUTPUT} tokens, {RATE} requests/s",
    # Its steps take about 47 ms whatever the batch of some 35.
    same=lambda: fleet_case(1, 1, RATE, 0.15, AffineDecode(0.045, 6e-5)),
    requests=6000,
    command=command,
    finished=finished,
    folder=FOLDER,
    commit="8f99e7dc",
)
