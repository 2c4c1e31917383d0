"""The demand at which a question's SLO binds, by prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.validation.generator import Case
from scipy.optimize import brentq

from pdalloc.attainment import attainment
from pdalloc.capacity import Capacity
from pdalloc.errors import UnsupportedError
from pdalloc.prediction import Prediction, Predictor, predict
from pdalloc.simulation.attainment import Bound
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.system import System

IDLE = 0.02
"""Utilisation of an idle fleet."""
MOST = 0.95
"""Greatest utilisation of any pool: beyond, a run would have to be very long to be steady."""
IDLE_LEVEL = 0.999
"""Percentile that a bound's slack multiplies."""
ACCURACY = 3e-4
"""Of demand, relative to the most."""
STEP = 0.85
"""Bounds that never bind are tightened by this."""
TRIALS = 60


@dataclass(frozen=True)
class Binding:
    """A question at its demand in requests/s: bounds, and the share that is to keep them."""

    rate: float
    bounds: tuple[Bound, ...]
    predicted: float
    prediction: Prediction


def at(case: Case, rate: float, options: SimulationOptions = PLAIN) -> tuple[System, Prediction]:
    """The case under ``rate`` requests/s, and its prediction."""
    system = case.system.with_workload(case.system.workload.scaled(rate))
    rates = {key: share * rate for key, share in case.shares.items()}
    return system, predict(Predictor(system, options), case.fleet, rates)


def greatest_rate(case: Case, options: SimulationOptions = PLAIN) -> float:
    """Requests/s at which the busiest pool is fully used."""
    capacity = Capacity(case.system, (), options)
    return min(
        case.fleet.counts[role, name]
        * capacity.stability_limit(role, case.system.replica_types[name])
        / share
        for (role, name), share in case.shares.items()
    )


def binding(case: Case, options: SimulationOptions = PLAIN) -> Binding:
    """Bounds at the case's slack, tightened until they bind below MOST; the demand where they do.

    All bounds by the same factor, no further than an idle fleet keeps them to the target.
    """
    most = greatest_rate(case, options)
    _, idle = at(case, IDLE * most, options)
    _, busy = at(case, MOST * most, options)
    floor = [_idle_quantile(idle, metric) for metric in case.metrics]
    low, high, factor = 0.0, math.inf, 1.0
    for _ in range(TRIALS):
        bounds = tuple(
            Bound(metric, factor * x * f)
            for metric, x, f in zip(case.metrics, case.slack, floor, strict=True)
        )
        if attainment(busy, bounds) >= case.target:
            high = factor
        elif attainment(idle, bounds) <= case.target:
            low = factor
        else:
            return _bound_at_target(case, bounds, (IDLE * most, MOST * most), options)
        factor = 0.5 * (low + high) if low > 0.0 else STEP * factor
    raise UnsupportedError(f"case {case.number}: attainment does not depend on demand")


def _idle_quantile(idle: Prediction, metric: str) -> float:
    laws = (idle.predictor.law(metric, 0, p, d) for p, d in idle.paths())
    return max(law.quantile(IDLE_LEVEL) for law in laws)


def _bound_at_target(
    case: Case,
    bounds: tuple[Bound, ...],
    between: tuple[float, float],
    options: SimulationOptions,
) -> Binding:
    """Log odds of attainment fall with demand, about linearly: Brent's method."""

    def excess(rate: float) -> float:
        kept = min(max(attainment(at(case, rate, options)[1], bounds), 1e-9), 1.0 - 1e-9)
        return logit(kept) - logit(case.target)

    rate = float(brentq(excess, *between, xtol=ACCURACY * between[1]))
    _, prediction = at(case, rate, options)
    return Binding(rate, bounds, attainment(prediction, bounds), prediction)


def logit(p: float) -> float:
    """Log odds of ``p``."""
    return math.log(p / (1.0 - p))
