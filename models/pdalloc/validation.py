"""Predicted against simulated: does the plan keep its SLOs where nothing is assumed?

A fleet's mixed pools give its requests several paths, one per (prefill type, decode type).
A plan promises an SLO on each of them, so both numbers are those of the worst path. The
simulation runs in independent replications, which give its numbers intervals.

An interval that holds the bound decides nothing: the SLO is *too close to call*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.records import RequestLog, sample_of
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.simulation.reference import Progress
from pdalloc.simulation.setup import replica_types
from pdalloc.simulation.statistics import Run, interval, steady
from pdalloc.simulation.summary import Simulate, replicate
from pdalloc.simulation.traffic import Rates, Seed
from pdalloc.slo.objective import Slo
from pdalloc.system import System

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Path = tuple[str, str]

LEAST_REQUESTS = 100
"""A path is judged when at least this many requests took it in every replication."""
WORTH_A_WORD = 0.01
"""Relative errors of a prediction below this are not spelt out."""
Verdict = Literal["keeps", "breaks", "too close to call"]
VERDICTS: dict[Verdict, str] = {
    "keeps": "keeps",
    "breaks": "breaks",
    "too close to call": "too close to call against",
}
DEMAND_TOLERANCE = 1e-6
"""Relative difference allowed between the rates' sum and the workload's rate."""


@dataclass(frozen=True)
class Comparison:
    """One SLO: ``predicted`` and ``simulated`` seconds, the latter +- ``half_width`` (95 %)."""

    slo: Slo
    predicted: float
    simulated: float
    half_width: float

    @property
    def within(self) -> bool:
        """Whether the prediction lies in the simulation's interval."""
        return abs(self.predicted - self.simulated) <= self.half_width

    @property
    def relative_gap(self) -> float:
        """predicted / simulated - 1; 0 when both are 0."""
        if self.simulated == 0.0:
            return 0.0 if self.predicted == 0.0 else np.inf
        return self.predicted / self.simulated - 1.0

    @property
    def verdict(self) -> Verdict:
        """What the simulation says of the SLO, with the confidence of its interval."""
        return verdict(self.slo, self.simulated, self.half_width)

    @property
    def statement(self) -> str:
        """The verdict in one line."""
        return (
            f"{self.slo.traffic_class}: {self.slo.title} simulated {self.simulated:.4g} s "
            f"+- {self.half_width:.2g} s {VERDICTS[self.verdict]} {self.slo.bound:g} s"
        )

    @property
    def doubt(self) -> str:
        """Where the formula is outside the interval by WORTH_A_WORD, in one line; else ''."""
        if self.within or abs(self.relative_gap) < WORTH_A_WORD:
            return ""
        side = "optimistic" if self.predicted < self.simulated else "pessimistic"
        return (
            f"{self.slo.traffic_class}: {self.slo.title} predicted {self.predicted:.4g} s lies "
            f"outside the simulated {self.simulated:.4g} s +- {self.half_width:.2g} s: the "
            f"formula is {abs(self.relative_gap):.1%} {side} here"
        )


def verdict(slo: Slo, simulated: float, half_width: float) -> Verdict:
    """Whether ``simulated`` +- ``half_width`` seconds keep the bound of ``slo``."""
    if abs(simulated - slo.bound) <= half_width:
        return "too close to call"
    return "keeps" if slo.keeps(simulated) else "breaks"


def validate(
    system: System,
    slos: tuple[Slo, ...],
    fleet: Fleet,
    rates: Rates,
    predicted: Mapping[Slo, float],
    requests: int,
    replications: int,
    seed: Seed,
    progress: Progress | None = None,
    options: SimulationOptions = PLAIN,
    simulate: Simulate | None = None,
) -> tuple[Comparison, ...]:
    """Simulate ``fleet`` under ``rates`` (requests/s per pool) and compare every SLO.

    ``predicted[slo]`` in seconds on the worst path; ``requests`` per replication;
    ``progress(done, total)`` counts requests of all replications; ``simulate`` is the fast
    simulator where none is given. Raises InputError for fewer than two replications, rates
    that are not those of the workload, or so few requests that no path of a class has
    LEAST_REQUESTS.
    """
    _check_demand(system, rates)
    samples: dict[Slo, list[dict[Path, float]]] = {slo: [] for slo in slos}

    def read(run: Run, replication: int) -> dict[str, float]:
        for slo in slos:
            samples[slo].append(dict(_measured(system, fleet, run, slo)))
        return {}

    done = replicate(
        system,
        fleet,
        rates,
        requests,
        replications,
        seed,
        options,
        read,
        progress,
        simulate or _fast(),
    )
    comparisons = []
    for slo in slos:
        simulated, half_width = _worst(slo, samples[slo][: done.replications])
        comparisons.append(Comparison(slo, predicted[slo], simulated, half_width))
    return tuple(comparisons)


def _fast() -> Simulate:
    """The compiled simulator, imported here because Numba takes its time."""
    from pdalloc.simulation.fast import replay

    return replay


def _check_demand(system: System, rates: Rates) -> None:
    """A prediction for other traffic than what is simulated would be judged unfairly."""
    demand = system.workload.rate
    for role in ROLES:
        offered = sum(rate for (of_role, _), rate in rates.items() if of_role == role)
        if abs(offered - demand) > DEMAND_TOLERANCE * demand:
            raise InputError(
                f"the {role} pools are offered {offered:g} req/s but the workload {demand:g}; "
                "validate with the rates of this workload"
            )


def _measured(system: System, fleet: Fleet, run: Run, slo: Slo) -> Iterator[tuple[Path, float]]:
    """The SLO's statistic on each path with enough requests that got their answer, seconds."""
    classes = [c.name for c in system.workload.classes]
    mine = steady(run.log) & (run.log.traffic_class == classes.index(slo.traffic_class))
    mine = mine & run.log.finished
    for path, taken in _paths(fleet, run.log):
        keep = mine & taken
        if keep.sum() >= LEAST_REQUESTS:
            latencies = getattr(run.log, slo.metric, None)
            sample = run.gap_sample(keep) if latencies is None else sample_of(latencies[keep])
            # One-token answers have no gap.
            yield path, slo.statistic.of_sample(sample) if sample.size else 0.0


def _paths(fleet: Fleet, log: RequestLog) -> Iterator[tuple[Path, Mask]]:
    """Each (prefill type, decode type) of the fleet and the requests that took it, (n,)."""
    prefill = np.array(replica_types(fleet, PREFILL))[log.prefill_replica]
    decode = np.array(replica_types(fleet, DECODE))[log.decode_replica]
    for p in fleet.in_role(PREFILL):
        for d in fleet.in_role(DECODE):
            path = p.replica_type, d.replica_type
            yield path, (prefill == path[0]) & (decode == path[1])


def _worst(slo: Slo, samples: list[dict[Path, float]]) -> tuple[float, float]:
    """(mean, half-width) of the path with the greatest mean over replications, seconds.

    The worst of means rather than the mean of worsts: with equal paths the latter is high.
    """
    common = set.intersection(*(set(sample) for sample in samples))
    if not common:
        raise InputError(
            f"too few requests to judge {slo.name} of class {slo.traffic_class!r}: no path had "
            f"{LEAST_REQUESTS} of them in every replication; simulate more"
        )
    return max(interval([sample[path] for sample in samples]) for path in sorted(common))
