"""Predicted against simulated: does the plan keep its SLOs where nothing is assumed?

A fleet's mixed pools give its requests several paths, one per (prefill type, decode type).
A plan promises an SLO on each of them, so both numbers are those of the worst path; or over
all requests, and then both are of all requests of a class. The
simulation runs in independent replications, which give its numbers intervals.

An interval that holds the bound decides nothing: the SLO is *too close to call*. A request that
gets no answer is later than any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.records import RequestLog, Sample, sample_of
from pdalloc.simulation.attainment import Bound, attained
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.simulation.reference import Progress
from pdalloc.simulation.setup import replica_types
from pdalloc.simulation.statistics import Run, interval, steady
from pdalloc.simulation.summary import Simulate, replicate
from pdalloc.simulation.traffic import Rates, Seed
from pdalloc.slo.interface import Objective
from pdalloc.system import System

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Path = tuple[str, str]
Promise = TypeVar("Promise", bound=Objective)

Verdict = Literal["keeps", "breaks", "too close to call", "too few to judge"]
WORSE: tuple[Verdict, ...] = ("keeps", "too close to call", "too few to judge", "breaks")
"""Verdicts, each worse than the one before."""
DEMAND_TOLERANCE = 1e-6
"""Relative difference allowed between the rates' sum and the workload's rate."""


@dataclass(frozen=True)
class Comparison:
    """One SLO: its number as ``predicted`` and as ``simulated`` +- ``half_width`` (95 %).

    Seconds, or the share of requests that is late.
    ``replications`` says over how many runs: fewer than asked where somebody pressed ^C.
    """

    slo: Objective
    predicted: float
    simulated: float
    half_width: float
    replications: int = 0

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
        name = f"{self.slo.traffic_class}: {self.slo.title}"
        if math.isnan(self.simulated):
            return f"{name}: too few requests to judge it; simulate more"
        if math.isinf(self.simulated):
            return f"{name}: too many requests got no answer"
        against = " against" if self.verdict == "too close to call" else ""
        return (
            f"{name} simulated {self.slo.interval_text(self.simulated, self.half_width)} "
            f"{self.verdict}{against} {self.slo.text(self.slo.bound)}"
        )

    @property
    def doubt(self) -> str:
        """Where the formula is outside the interval by what is worth a word; else ''."""
        if not math.isfinite(self.simulated) or not math.isfinite(self.predicted):
            return ""
        off = self.slo.error_text(self.predicted, self.simulated)
        if self.within or not off:
            return ""
        simulated = self.slo.interval_text(self.simulated, self.half_width)
        return (
            f"{self.slo.traffic_class}: {self.slo.title} predicted {self.slo.text(self.predicted)} "
            f"lies outside the simulated {simulated}: the formula is {off} here"
        )


def verdict(slo: Objective, simulated: float, half_width: float) -> Verdict:
    """Whether ``simulated`` +- ``half_width`` keep the bound; NaN: nobody could tell."""
    if math.isnan(simulated):
        return "too few to judge"
    if abs(simulated - slo.bound) <= half_width:
        return "too close to call"
    return "keeps" if slo.keeps(simulated) else "breaks"


@dataclass(frozen=True)
class Seen:
    """What objectives read of the requests in ``keep`` (n,); a share ``lost`` got no answer."""

    run: Run
    keep: Mask
    lost: float = 0.0

    @cached_property
    def _done(self) -> Mask:
        done: Mask = self.keep & self.run.log.finished
        return done

    @property
    def answered(self) -> int:
        """How many got their whole answer."""
        return int(self._done.sum())

    def sample(self, metric: str) -> Sample:
        """``metric`` of those answered, seconds."""
        times = getattr(self.run.log, metric, None)
        return self.run.gap_sample(self._done) if times is None else sample_of(times[self._done])

    def late_share(self, limits: Mapping[str, float]) -> float:
        """Share that breaks some of ``limits``, seconds by metric; those lost are late."""
        if not self.answered:
            return 1.0 if self.lost else math.nan
        kept = attained(self.run, [Bound(m, x) for m, x in limits.items()])[self._done].mean()
        return 1.0 - (1.0 - self.lost) * float(kept)


def lost_share(run: Run, keep: Mask) -> float:
    """Share of the requests in ``keep`` (n,) that got no answer."""
    asked = int(keep.sum())
    return 1.0 - int((keep & run.log.finished).sum()) / asked if asked else 0.0


def estimated(values: Sequence[float]) -> tuple[float, float]:
    """(mean, half-width) over replications; (inf, 0) or (nan, 0) where one is that."""
    for odd in (math.nan, math.inf):
        if any(math.isnan(x) if math.isnan(odd) else x == odd for x in values):
            return odd, 0.0
    return interval(values)


def validate(
    system: System,
    slos: tuple[Promise, ...],
    fleet: Fleet,
    rates: Rates,
    predicted: Mapping[Promise, float],
    requests: int,
    replications: int,
    seed: Seed,
    progress: Progress | None = None,
    options: SimulationOptions = PLAIN,
    simulate: Simulate | None = None,
    observe: Callable[[Run], None] | None = None,
    scope: Literal["pool", "population"] = "pool",
) -> tuple[Comparison, ...]:
    """Simulate ``fleet`` under ``rates`` (requests/s per pool) and compare every SLO.

    ``predicted[slo]`` on the worst path, or in ``scope`` population over all; ``requests`` per
    replication;
    ``progress(done, total)`` counts requests of all replications; ``simulate`` is the fast
    simulator where none is given; ``observe`` is shown every run. Raises InputError for fewer
    than two replications or rates that are not those of the workload.
    """
    _check_demand(system, rates)
    samples: dict[Promise, list[dict[Path, float]]] = {slo: [] for slo in slos}

    def read(run: Run, replication: int) -> dict[str, float]:
        for slo in slos:
            samples[slo].append(dict(_measured(system, fleet, run, slo, scope)))
        if observe is not None:
            observe(run)
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
        comparisons.append(
            Comparison(slo, predicted[slo], simulated, half_width, done.replications)
        )
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


def requests_of(system: System, run: Run, traffic_class: str) -> Mask:
    """The requests of a class in the steady part of a run, (n,)."""
    classes = [c.name for c in system.workload.classes]
    mine: Mask = steady(run.log) & (run.log.traffic_class == classes.index(traffic_class))
    return mine


def _measured(
    system: System,
    fleet: Fleet,
    run: Run,
    slo: Objective,
    scope: Literal["pool", "population"],
) -> Iterator[tuple[Path, float]]:
    """The SLO's number on each path somebody took, or as one path; the lost count on all."""
    mine = requests_of(system, run, slo.traffic_class)
    lost = lost_share(run, mine)
    everyone = [(("", ""), np.ones_like(mine))]
    for path, taken in everyone if scope == "population" else _paths(fleet, run.log):
        if np.any(mine & taken) or lost == 1.0:
            yield path, slo.measure(Seen(run, mine & taken, lost))


def _paths(fleet: Fleet, log: RequestLog) -> Iterator[tuple[Path, Mask]]:
    """Each (prefill type, decode type) of the fleet and the requests that took it, (n,)."""
    prefill = np.array(replica_types(fleet, PREFILL))[log.prefill_replica]
    decode = np.array(replica_types(fleet, DECODE))[log.decode_replica]
    for p in fleet.in_role(PREFILL):
        for d in fleet.in_role(DECODE):
            path = p.replica_type, d.replica_type
            yield path, (prefill == path[0]) & (decode == path[1])


def _worst(slo: Objective, samples: list[dict[Path, float]]) -> tuple[float, float]:
    """(mean, half-width) of the path with the worst verdict, then the greatest upper end.

    A path's mean, rather than the mean of each run's worst path: with equal paths the latter
    is high.
    """

    def badness(path: tuple[float, float]) -> tuple[int, float]:
        mean, half_width = path
        return WORSE.index(verdict(slo, mean, half_width)), mean + half_width

    taken = dict.fromkeys(path for sample in samples for path in sample)
    paths = [estimated([sample.get(path, math.nan) for sample in samples]) for path in taken]
    return max(paths, key=badness, default=(math.nan, 0.0))
