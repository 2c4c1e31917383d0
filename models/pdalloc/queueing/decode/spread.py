r"""How dispatch shapes what one replica of a pool sees.

With R replicas the mean step time of the pool is one self-exciting process with arrivals at R
times the rate and 1/R of the effect each: its variances are 1/R of one replica's. What a replica
differs from the pool's mean depends on the rule.

* ``random``: the replica is on its own; splitting thins bursts, F = 1 + (F_pool - 1)/R.
* ``round_robin``: on its own with gaps of R summed.
* ``least_loaded``: batches differ by next to nothing (variance about UNEVEN); contexts do.
* ``central_queue``: whoever ends a step takes all who wait, so a replica gets the same number per
  step whatever its own step: arrivals without feedback, in clumps of those who came meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pdalloc.laws import Array
from pdalloc.queueing.decode.fluctuations import Fluctuation, Moments, transforms
from pdalloc.queueing.decode.station import DecodeStation
from pdalloc.queueing.departures import Spectrum, renewal_spectrum, thinned

UNEVEN = 0.25
"""Variance of a replica's batch about the pool's mean under least_loaded, requests^2 (simulated:
.15 to .5, of which 1/6 is that batches are whole)."""
ALTERNATING = 0.9
"""With few replicas boundaries alternate: clumps vary less by 1 - ALTERNATING / R^2."""
PHASES = 0.5
"""Share of a replica's own noise under central_queue that lasts as the pool's does: whose boundary
comes soon after another's gets few requests, for many steps (simulated: between 0 and 1)."""
NO_FEEDBACK = 1e-9
"""Share of the rate at which arrivals have no effect on each other to speak of."""
POOLED = ("least_loaded", "central_queue")


@dataclass(frozen=True, eq=False)
class Spread:
    """Moments of one replica, and those of what decides that nobody finds a slot."""

    own: Moments
    pool: Moments
    fluctuation: Fluctuation
    apart: Fluctuation | None = None
    lasting: float = 0.0

    def averaging(self, steps: Array) -> Array:
        """Var of one replica's mean step time over ``steps`` (n,) in a row, over Var of one step.

        What sets a replica apart from its pool is not fed back: it is sooner forgotten.
        """
        shared = self.fluctuation.averaging(steps)
        if self.apart is None or self.own.var_step <= 0.0:
            return shared
        share = min(self.pool.var_step / self.own.var_step, 1.0)
        kept = (1.0 - self.lasting) * self.apart.averaging(steps) + self.lasting * shared
        return share * shared + (1.0 - share) * kept


def replica_spectrum(station: DecodeStation) -> Spectrum | None:
    """F of the stream that one replica on its own gets; None for Poisson.

    Each r-th request of a stream that is not renewal: what Poisson gaps of r summed have, and the
    stream's own bursts, which all replicas share.
    """
    r, scv, whole = station.replicas, station.arrival_scv, station.arrivals
    if station.dispatch == "round_robin" and r > 1:
        if whole is None:
            return renewal_spectrum(station.rate, scv, r)
        turns, stream = renewal_spectrum(station.rate, 1.0, r), whole
        return lambda frequency: np.maximum(turns(frequency) + (stream(frequency) - 1.0) / r, 0.0)
    if whole is None:
        if scv == 1.0:
            return None
        whole = renewal_spectrum(station.rate, scv)
    return thinned(whole, 1.0 / r) if station.dispatch == "random" else whole


def spread(station: DecodeStation, step: float, slopes: tuple[float, float]) -> Spread:
    """Of ``station`` with mean step ``step`` s and the step time's slopes (b, c) there."""
    rate, r = station.replica_rate, station.replicas
    kernel = transforms(station.work)
    pool = kernel.at(step, rate, slopes, replica_spectrum(station))
    if station.dispatch not in POOLED or r == 1:
        return Spread(pool.moments, pool.moments, pool)
    shared = _scaled(pool.moments, 1.0 / r)
    apart = kernel.at(step, NO_FEEDBACK * rate, slopes, None)
    if station.dispatch == "least_loaded":
        own = _even(station, shared, slopes)
    else:
        own = _without_feedback(station, shared, apart.moments)
    return Spread(own, shared, pool, apart, PHASES if station.dispatch == "central_queue" else 0.0)


def _scaled(m: Moments, share: float) -> Moments:
    """Fluctuations of the mean of 1/``share`` replicas that feed back together."""
    return replace(
        m,
        var_step=share * m.var_step,
        var_batch=share * m.var_batch,
        batch_step=share * m.batch_step,
        itl_lift=share * m.itl_lift,
        gap_batch=share * m.gap_batch,
        tpot_lift=share * m.tpot_lift,
    )


def _even(station: DecodeStation, shared: Moments, slopes: tuple[float, float]) -> Moments:
    b, c = slopes
    slope = b + c * station.work.mean_context
    alone = 1.0 - 1.0 / station.replicas
    m = shared.batch
    # few requests do not meet: E B^2 >= E B, as batches are whole
    uneven = max(-UNEVEN * math.expm1(-alone * m / UNEVEN), m * (alone - m))
    contexts = c**2 * station.work.context_variance * m * alone
    lift = slope * uneven / max(m, 1e-300)
    return replace(
        shared,
        var_step=shared.var_step + slope**2 * uneven + contexts,
        var_batch=shared.var_batch + uneven,
        batch_step=shared.batch_step + slope * uneven,
        itl_lift=shared.itl_lift + lift,
        gap_batch=shared.gap_batch + uneven / max(m, 1e-300),
        tpot_lift=shared.tpot_lift + lift,
    )


def _whole_clump(mean: float) -> float:
    """Least E[N^2]/E[N] of a whole number N of that mean: the two next to it; 1 below 1."""
    low = math.floor(mean)
    return 2.0 * low + 1.0 - low * (low + 1.0) / mean if mean > 0.0 else 1.0


def _without_feedback(station: DecodeStation, shared: Moments, free: Moments) -> Moments:
    r, whole = station.replicas, 1.0 / NO_FEEDBACK
    # E[N^2]/E[N] of those who come between two boundaries
    arrivals = replica_spectrum(station)
    irregular = 1.0  # bursts are the pool's
    if arrivals is not None:
        irregular = min(float(arrivals(np.array([r / shared.step]))[0]), 1.0)
    mean = shared.batch / station.work.mean_steps
    clump = max(irregular + mean, _whole_clump(mean))
    share = (1.0 - 1.0 / r) * (1.0 - ALTERNATING / r**2) * clump
    return replace(
        shared,
        var_step=shared.var_step + whole * share * free.var_step,
        var_batch=shared.var_batch + whole * share * free.var_batch,
        batch_step=shared.batch_step + whole * share * free.batch_step,
        itl_lift=shared.itl_lift + share * free.itl_lift,
        gap_batch=shared.gap_batch + share * free.gap_batch,
        tpot_lift=shared.tpot_lift + share * free.tpot_lift,
    )
