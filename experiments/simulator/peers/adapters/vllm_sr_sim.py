"""vllm-sr-sim (fleet_sim): a fleet of co-located GPUs, one event a request.

Its disaggregated mode is a formula and simulates nothing; it knows no steps and no token gaps.
"""

from __future__ import annotations

from pathlib import Path

from experiments.simulator.peers.cases import OUTPUT, PROMPT, fleet_case
from experiments.simulator.peers.peer import Command, Peer, Places

from pdalloc.latency.affine import AffineDecode

RATE = 120.0
"""Requests/s; by its own service times eight GPUs take more than that."""
DRIVER = """
import random
import sys

from fleet_sim import H100_80GB, Fleet, FleetConfig, PoolConfig, Request

requests, rate, prompt, output = int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:5])
rng, now, arrivals = random.Random(1), 0.0, []
for i in range(requests):
    now += rng.expovariate(rate)
    arrivals.append((now, Request(req_id=i, arrival_time=now, l_in=prompt, l_out=output)))
pool = PoolConfig("all", H100_80GB, 8, 8192, lb_strategy="round_robin")
result = Fleet(FleetConfig([pool], router_type="RandomRouter")).run(arrivals)
print(len(result.completed), result.percentile("ttft", 99), result.percentile("queue_wait", 99))
"""


def command(places: Places, work: Path, requests: int) -> Command:
    """The driver, which reads percentiles of TTFT and of the wait as well."""
    words = (requests, RATE, PROMPT, OUTPUT)
    return Command((places.python, "-c", DRIVER, *map(str, words)), work, {})


def finished(output: str, work: Path) -> int:
    """The first number of the last line."""
    return int(output.split("\n")[-2].split()[0])


PEER = Peer(
    name="vllm-sr-sim",
    source="PyPI: vllm-sr-sim",
    models="co-located, a request at a time",
    case=f"8 H100 (fast simulator: 4P4D), {PROMPT} + {OUTPUT} tokens, {RATE:g} requests/s",
    same=lambda: fleet_case(4, 4, RATE, 0.024, AffineDecode(0.012, 1e-4, 1e-7)),
    requests=60_000,
    command=command,
    finished=finished,
    distribution="vllm-sr-sim",
)
