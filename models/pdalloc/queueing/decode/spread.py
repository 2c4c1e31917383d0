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
from pdalloc.queueing.decode.fluctuations import Fluctuation, Moments, Spectrum, transforms
from pdalloc.queueing.decode.station import DecodeStation

UNEVEN = 0.25
"""Variance of a replica's batch about the pool's mean under least_loaded, requests^2 (simulated:
.15 to .5, of which 1/6 is that batches are whole)."""
ALTERNATING = 0.9
"""With few replicas boundaries alternate: clumps vary less by 1 - ALTERNATING / R^2."""
LOW = 1e-3
"""Frequencies below this over the rate are 0: F has no linear term."""
POOLED = ("least_loaded", "central_queue")


@dataclass(frozen=True, eq=False)
class Spread:
    """Moments of one replica, and those of what decides that nobody finds a slot."""

    own: Moments
    pool: Moments
    fluctuation: Fluctuation


def renewal_spectrum(rate: float, scv: float, every: int = 1) -> Spectrum:
    """F of the stream of each ``every``-th arrival of gamma gaps of that SCV.

    F = Re (1 + phi)/(1 - phi), phi the characteristic function of a gap (Cox and Lewis 1966,
    eq. 4.5.13); ``rate`` in requests/s before thinning.
    """

    def spectrum(frequency: Array) -> Array:
        if scv > 0.0:
            phi = (1.0 + 1j * frequency * scv / rate) ** (-every / scv)
        else:
            phi = np.exp(-1j * frequency * every / rate)
        low = frequency * max(every, scv) < LOW * rate
        phi = np.where(low, 0.0, phi)
        values: Array = np.where(low, scv / every, ((1.0 + phi) / (1.0 - phi)).real)
        return values

    return spectrum


def replica_spectrum(station: DecodeStation) -> Spectrum | None:
    """F of the stream that one replica on its own gets; None for Poisson."""
    r, scv = station.replicas, station.arrival_scv
    if station.dispatch == "round_robin" and r > 1:
        return renewal_spectrum(station.rate, scv, r)
    if scv == 1.0:
        return None
    whole = renewal_spectrum(station.rate, scv)
    if station.dispatch == "random" and r > 1:
        return lambda frequency: 1.0 + (whole(frequency) - 1.0) / r
    return whole


def spread(station: DecodeStation, step: float, slopes: tuple[float, float]) -> Spread:
    """Of ``station`` with mean step ``step`` s and the step time's slopes (b, c) there."""
    rate, r = station.replica_rate, station.replicas
    kernel = transforms(station.work)
    pool = kernel.at(step, rate, slopes, replica_spectrum(station))
    if station.dispatch not in POOLED or r == 1:
        return Spread(pool.moments, pool.moments, pool)
    shared = _scaled(pool.moments, 1.0 / r)
    if station.dispatch == "least_loaded":
        own = _even(station, shared, slopes)
    else:
        own = _without_feedback(station, shared, slopes)
    return Spread(own, shared, pool)


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


def _without_feedback(
    station: DecodeStation, shared: Moments, slopes: tuple[float, float]
) -> Moments:
    rate, r = station.replica_rate, station.replicas
    kernel = transforms(station.work)
    free = kernel.at(shared.step, 1e-9 * rate, slopes, None).moments  # no feedback to speak of
    clump = 1.0 + shared.batch / station.work.mean_steps
    share = (1.0 - 1.0 / r) * (1.0 - ALTERNATING / r**2) * clump
    return replace(
        shared,
        var_step=shared.var_step + 1e9 * share * free.var_step,
        var_batch=shared.var_batch + 1e9 * share * free.var_batch,
        batch_step=shared.batch_step + 1e9 * share * free.batch_step,
        itl_lift=shared.itl_lift + share * free.itl_lift,
        gap_batch=shared.gap_batch + share * free.gap_batch,
        tpot_lift=shared.tpot_lift + share * free.tpot_lift,
    )
