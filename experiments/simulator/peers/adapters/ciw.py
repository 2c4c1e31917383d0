"""Ciw, a library for queueing networks in Python: a plain queue."""

from __future__ import annotations

from experiments.simulator.peers.queue_peer import queue_peer

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

PEER = queue_peer("Ciw", DRIVER, 60_000)
