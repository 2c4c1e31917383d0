r"""The stationary law of a replica's batch, its slots and what waits for them.

Product form over *quanta* of z requests: with z = 1 (Poisson arrivals, no context term, one
replica) it is exact,

.. math:: \pi(k) \propto \prod_{j\le k} \lambda E[n] t(j) / j ,

and a batch that varies z times as much (:mod:`.fluctuations`) is one whose k/z quanta follow the
same product, t read at zj: Hayward's way with peaked traffic (Fredericks 1980). z = 1/R is the
pool of R replicas whose batches are kept equal. For t = a + s k it is negative binomial with
Var/E = z/(1 - rho). Sums over quanta are read between whole numbers by Euler-Maclaurin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from pdalloc.errors import UnstableError
from pdalloc.laws import Array
from pdalloc.queueing.decode.station import DecodeStation

NEGLIGIBLE = 34.0
"""exp(-NEGLIGIBLE) is where the law is cut off."""
MOST_REQUESTS = 1 << 18


@dataclass(frozen=True)
class Batches:
    """``batch`` sizes (n,) from ``first``, ``share`` of time at each; ``full`` P(all slots taken).

    ``seconds`` of a step at each (the mean context), ``load`` sigma = lambda E[n] t(K)/K of the
    full replica (0 where it never fills).
    """

    batch: Array
    share: Array
    seconds: Array
    full: float
    load: float


def batches(station: DecodeStation, quantum: float, centre: float, deviation: float) -> Batches:
    """Law of the batch about ``centre``, in quanta of ``quantum`` requests."""
    work = station.replica_rate * station.work.mean_steps
    span = max(64.0, 10.0 * deviation)
    while True:
        low = max(math.floor(centre - span), 0)
        high = min(math.ceil(centre + span), station.slots)
        if high > MOST_REQUESTS:
            raise UnstableError(
                f"a decode batch of more than {MOST_REQUESTS} requests: utilisation rho = "
                f"{station.utilisation:.6f} is too near 1; add replicas"
            )
        k = np.arange(low, high + 1.0)
        t = station.seconds(np.maximum(k, 1.0))
        log_share = log_shares(k, np.log(work * t), quantum)
        top = float(log_share.max())
        cut_low = low == 0 or log_share[0] < top - NEGLIGIBLE
        cut_high = high == station.slots or log_share[-1] < top - NEGLIGIBLE
        if cut_low and cut_high:
            break
        span *= 2.0
    share = np.exp(log_share - top)
    full, load = 0.0, 0.0
    if high == station.slots:
        load = float(work * t[-1] / k[-1])
        waiting = quantum / (1.0 - load)
        below = 0.5 * (1.0 - quantum)  # between whole numbers of requests
        share[-1] *= waiting + below
        full = float(share[-1] / share.sum()) * min(waiting / (waiting + below), 1.0)
    return Batches(k, share / share.sum(), t, full, load)


def log_shares(k: Array, log_work: Array, z: float) -> Array:
    """log pi at whole ``k`` in quanta of ``z``, but for a constant; log(lambda E[n] t(k)) given."""
    sums = np.concatenate([[0.0], np.cumsum(0.5 * (log_work[1:] + log_work[:-1]))])
    quanta = k / z
    values: Array = (sums - k * math.log(z)) / z + 0.5 * log_work - gammaln(quanta + 1.0)
    return values
