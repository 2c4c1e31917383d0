"""Peers that know plain queues only: M/M/c, played by a driver that prints what came out."""

from __future__ import annotations

from pathlib import Path

from experiments.simulator.peers.cases import queue_case
from experiments.simulator.peers.peer import Command, Peer, Places

SERVERS, UTILISATION = 4, 0.8


def queue_peer(name: str, driver: str, requests: int) -> Peer:
    """``driver``, a script given customers, servers and utilisation; it sorts the waits as well.

    Its last line begins with the number of customers served.
    """

    def command(places: Places, work: Path, customers: int) -> Command:
        asked = (str(customers), str(SERVERS), str(UTILISATION))
        return Command((places.python, "-c", driver, *asked), work, {})

    return Peer(
        name=name,
        source=f"PyPI: {name.lower()}",
        models="queue",
        case=f"M/M/{SERVERS}, rho {UTILISATION}; mean and P99 of the wait",
        same=lambda: queue_case(SERVERS, UTILISATION),
        requests=requests,
        command=command,
        finished=lambda output, _: int(output.split("\n")[-2].split()[0]),
        distribution=name.lower(),
    )
