"""What a fleet does to all requests of each class, in plain arithmetic on the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pdalloc.allocation.certify import Certificate, SloCheck, resource_violations
from pdalloc.allocation.population.burden import burdens, on_one_latency
from pdalloc.allocation.population.split import Split, best_split
from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.capacity import Capacity
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.laws import Mixture
from pdalloc.prediction import PoolKey, Prediction, predict


def certify_population(problem: AllocationProblem, fleet: Fleet) -> Certificate:
    """Check ``fleet`` under the best split of its traffic on the tabulated burdens."""
    b = burdens(problem)
    counts = np.array([float(fleet.count(o.role, o.replica_type)) for o in b.options])
    split = best_split(b, counts)
    if split is None:
        unknown = tuple(SloCheck(slo, None) for slo in problem.capacity.slos)
        broken = resource_violations(problem, fleet)
        return Certificate(fleet, None, unknown, (*broken, "no steady state at this demand"))
    return population_certificate(problem, fleet, pool_rates(b.options, split))


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
    checks = tuple(SloCheck(s, v) for s, v in zip(capacity.slos, values, strict=True))
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
