"""Ciw, a library for queueing networks in Python: a plain queue."""

from __future__ import annotations

from pathlib import Path

from experiments.simulator.peers.cases import queue_case
from experiments.simulator.peers.peer import Command, Peer, Places

SERVERS, UTILISATION = 4, 0.8
DRIVER = """
import sys

import ciw

customers, servers, rho = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
network = ciw.create_network(
    arrival_distributions=[ciw.dists.Exponential(rho * servers)],
    service_distributions=[ciw.dists.Exponential(1.0)],
    number_of_servers=[servers],
)
ciw.seed(1)
queue = ciw.Simulation(network)
queue.simulate_until_max_customers(customers)
waits = sorted(record.waiting_time for record in queue.get_all_records())
print(len(waits), sum(waits) / len(waits), waits[int(0.99 * len(waits))])
"""


def command(places: Places, work: Path, requests: int) -> Command:
    """The driver, which sorts the waits as well."""
    return Command(
        (places.python, "-c", DRIVER, str(requests), str(SERVERS), str(UTILISATION)), work, {}
    )


def finished(output: str, work: Path) -> int:
    """The first number of the last line."""
    return int(output.split("\n")[-2].split()[0])


PEER = Peer(
    name="Ciw",
    source="PyPI: ciw",
    models="queue",
    case="M/M/4, rho 0.8; mean and P99 of the wait",
    same=lambda: queue_case(SERVERS, UTILISATION),
    requests=60_000,
    command=command,
    finished=finished,
    distribution="ciw",
)
