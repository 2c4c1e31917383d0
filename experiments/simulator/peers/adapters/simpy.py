"""SimPy, a library for discrete-event simulation in Python: a plain queue."""

from __future__ import annotations

from experiments.simulator.peers.queue_peer import queue_peer

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

PEER = queue_peer("SimPy", DRIVER, 200_000)
