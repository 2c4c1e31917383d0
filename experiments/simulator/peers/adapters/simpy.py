"""SimPy, a library for discrete-event simulation in Python: a plain queue."""

from __future__ import annotations

from pathlib import Path

from experiments.simulator.peers.cases import queue_case
from experiments.simulator.peers.peer import Command, Peer, Places

SERVERS, UTILISATION = 4, 0.8
DRIVER = """
import random
import sys

import simpy

customers, servers, rho = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rng, environment, waits = random.Random(1), simpy.Environment(), []
desk = simpy.Resource(environment, servers)


def customer():
    '''Waits for a server and keeps it for an exponential time.'''
    came = environment.now
    with desk.request() as place:
        yield place
        waits.append(environment.now - came)
        yield environment.timeout(rng.expovariate(1.0))


def arrivals():
    '''A Poisson stream.'''
    for _ in range(customers):
        yield environment.timeout(rng.expovariate(rho * servers))
        environment.process(customer())


environment.process(arrivals())
environment.run()
waits.sort()
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
    name="SimPy",
    source="PyPI: simpy",
    models="queue",
    case="M/M/4, rho 0.8; mean and P99 of the wait",
    same=lambda: queue_case(SERVERS, UTILISATION),
    requests=200_000,
    command=command,
    finished=finished,
    distribution="simpy",
)
