r"""The wait at one server that gets a share of a renewal stream.

Under random dispatch, to pools and to replicas, each request of the whole stream comes to the
server with probability p = rate/whole rate. Poisson stays Poisson: M/G/1, exactly. Otherwise the
gaps at the server are geometric sums of gaps, of SCV 1 + p (c_a^2 - 1) (Cox 1962, "Renewal
Theory", section 8.5): exact for independent gamma gaps. How many other servers there are does
not matter.
"""

from __future__ import annotations

from pdalloc.laws import Law, StopLossLaw
from pdalloc.queueing.random_walk import gap_law, walk_wait
from pdalloc.queueing.single_server import SingleServerWait

NEAR_POISSON = 1e-3
"""An SCV this near 1 is 1: it moves the wait by as little, and the lattice would by more."""


def thinned_wait(service: StopLossLaw, rate: float, whole: float, scv: float) -> Law:
    """Law of the wait in seconds of a server offered ``rate`` of a stream of ``whole`` requests/s.

    ``scv`` is that of the whole stream's gaps. A ``rate`` above ``whole`` is a faster stream,
    not split. Raises UnstableError at utilisation >= 1.
    """
    alone = SingleServerWait(rate, service)
    if scv == 1.0 or rate == 0.0:
        return alone
    keep = min(rate / whole, 1.0)
    if abs(keep * (scv - 1.0)) < NEAR_POISSON:
        return alone
    return walk_wait(service, gap_law(keep / rate, scv), keep=keep)
