"""What a fleet does to all requests of each class, in plain arithmetic on the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pdalloc.allocation.certify import Certificate, SloCheck, resource_violations
from pdalloc.allocation.population.curves import on_one_latency
from pdalloc.allocation.population.split import Split, refined_split
from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.capacity import Capacity
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.laws import Mixture
from pdalloc.prediction import PoolKey, Prediction, predict

TOLERANCE = 1e-7
"""Relative excess over a bound that still counts as kept: splits come from a linear program."""


def certify_population(problem: AllocationProblem, fleet: Fleet) -> Certificate:
    """Check ``fleet`` under the best split of its traffic on the tabulated burdens."""
    rates = _best_rates(problem, fleet)
    if rates is None:
        unknown = tuple(SloCheck(slo, None) for slo in problem.capacity.slos)
        broken = resource_violations(problem, fleet)
        return Certificate(fleet, None, unknown, (*broken, "no steady state at this demand"))
    return population_certificate(problem, fleet, rates)


def population_traffic(
    problem: AllocationProblem, fleet: Fleet
) -> tuple[dict[PoolKey, float] | None, bool]:
    """(requests/s of each pool under the best split, whether it keeps every SLO).

    (None, False) when the fleet cannot carry the demand.
    """
    rates, capacity = _best_rates(problem, fleet), problem.capacity
    if rates is None:
        return None, False
    try:
        prediction = predict(capacity.predictor, fleet, rates)
        prediction.links()  # UnstableError where one is full
        values = population_values(capacity, prediction)
    except UnstableError:
        return rates, False
    return rates, all(s.keeps(v, TOLERANCE) for s, v in zip(capacity.slos, values, strict=True))


def _best_rates(problem: AllocationProblem, fleet: Fleet) -> dict[PoolKey, float] | None:
    """Requests/s of each pool of ``fleet`` under the best split of the tabulated burdens."""
    every = (o for role in ROLES for o in problem.in_role(role))
    used = tuple(o for o in every if fleet.count(o.role, o.replica_type))
    counts = np.array([float(fleet.count(o.role, o.replica_type)) for o in used])
    b, split = refined_split(replace(problem, options=used), counts)
    return None if split is None else pool_rates(b.options, split)


def population_certificate(
    problem: AllocationProblem, fleet: Fleet, rates: Mapping[PoolKey, float]
) -> Certificate:
    """Check stock, limits and every SLO over all requests when pools get ``rates`` requests/s."""
    capacity, broken = problem.capacity, resource_violations(problem, fleet)
    try:
        prediction = predict(capacity.predictor, fleet, rates)
        prediction.links()  # UnstableError where one is full
        values = population_values(capacity, prediction)
    except UnstableError as error:
        unknown = tuple(SloCheck(slo, None) for slo in capacity.slos)
        return Certificate(fleet, None, unknown, (*broken, str(error)))
    pairs = zip(capacity.slos, values, strict=True)
    checks = tuple(SloCheck(slo, value, TOLERANCE) for slo, value in pairs)
    broken += [
        f"{c.slo.title} {c.predicted:.4g} s over all requests is above {c.slo.bound:.4g} s"
        for c in checks
        if not c.kept
    ]
    return Certificate(fleet, prediction, checks, tuple(broken))


def pool_rates(options: Sequence[Option], split: Split) -> dict[PoolKey, float]:
    """Requests/s of each pool under ``split``."""
    pairs = zip(options, split.rates, strict=True)
    return {(o.role, o.replica_type): float(max(rate, 0.0)) for o, rate in pairs}


def population_values(capacity: Capacity, prediction: Prediction) -> list[float]:
    """Each SLO's statistic over all requests of its class, seconds, in the order of the SLOs.

    A request takes each path with the product of its pools' shares of the traffic.
    """
    total = {
        role: sum(rate for (of, _), rate in prediction.rates.items() if of == role)
        for role in (PREFILL, DECODE)
    }
    values = []
    for slo, index in capacity.slo_classes:
        laws, weights = [], []
        for p, d in prediction.paths():
            first = prediction.rates[PREFILL, p.replica_type.name] / total[PREFILL]
            second = prediction.rates[DECODE, d.replica_type.name] / total[DECODE]
            laws.append(capacity.predictor.law(slo.metric, index, p, d))
            weights.append(first * second)
        values.append(on_one_latency(slo).statistic.of_law(Mixture(tuple(laws), tuple(weights))))
    return values
