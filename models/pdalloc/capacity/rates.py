"""Greatest admissible rates of one replica: prediction inverted under the SLOs.

Each pool keeps the SLOs by itself (level 1 of the design): on every path between pools that
carry traffic, every SLO of every class holds. Under random dispatch replicas are
independent, so a pool of n replicas admits n times what one does. Under the other rules the
pool is *pooled*: the more replicas, the more each admits, up to a bound that is stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from pdalloc.attainment import on_path
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Role
from pdalloc.laws import Law
from pdalloc.prediction import DecodeState, Predictor, PrefillState
from pdalloc.queueing.decode.station import FAR
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.slo.interface import Objective
from pdalloc.slo.objective import METRICS
from pdalloc.system import ReplicaType, System

RATE_TOLERANCE = 1e-12
"""Relative accuracy of an inverted rate; the safe side is kept."""
WORST_SLACK = -1.0
"""Slack given to rates with no steady state."""
FULL_SHARE = 1.0 - 1e-9
"""Rates are searched up to this share of the stability limit."""
EVERY_METRIC = frozenset(METRICS)
SLACK_TOLERANCE = 1e-9
"""Relative amount by which a prediction may pass its bound and still keep it (rounding)."""
DEMAND_TOLERANCE = 1e-12
"""Relative shortfall of capacity that still counts as covering the demand."""
MOST_POOLED = 10_000
"""Replicas of a pooled type beyond which it admits nothing to speak of."""


@dataclass(frozen=True)
class _OnPath:
    """What objectives read: laws and shares of class ``index`` on the path p -> d."""

    predictor: Predictor
    index: int
    p: PrefillState
    d: DecodeState

    def law(self, metric: str) -> Law:
        """Law of ``metric``, seconds."""
        return self.predictor.law(metric, self.index, self.p, self.d)

    def late_share(self, limits: Mapping[str, float]) -> float:
        """Share of requests that break some of ``limits``, seconds by metric."""
        return 1.0 - on_path(self.predictor, self.index, self.p, self.d, limits)


@dataclass(frozen=True)
class Rates:
    """Admissible rates of one system under its SLOs.

    Rates are per replica, requests/s; they do not depend on how much traffic is offered
    (bursts thin by a pool's share of the workload's own rate). ``options`` are the predictor's.
    """

    system: System
    slos: tuple[Objective, ...]
    options: SimulationOptions = PLAIN
    _rates: dict[tuple[Role, str, int], float] = field(
        default_factory=dict, repr=False, compare=False
    )
    _bounds: dict[tuple[Role, str, float], float] = field(
        default_factory=dict, repr=False, compare=False
    )
    burdens: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    """Memory of :func:`pdalloc.allocation.population.burdens`, shared by all SLOs of a system."""

    @cached_property
    def predictor(self) -> Predictor:
        """The laws that are inverted here."""
        return Predictor(self.system, self.options)

    def under(self, system: System) -> Self:
        """The same question about another system."""
        return type(self)(system, self.slos, self.options)

    def asking(self, slos: tuple[Objective, ...]) -> Self:
        """The same system under other SLOs."""
        return type(self)(self.system, slos, self.options, burdens=self.burdens)

    @cached_property
    def slo_classes(self) -> list[tuple[Objective, int]]:
        """Every SLO with the index of its traffic class."""
        names = [c.name for c in self.system.workload.classes]
        return [(slo, names.index(slo.traffic_class)) for slo in self.slos]

    @property
    def first_token_spans(self) -> bool:
        """Whether an SLO on TTFT sees decode's load."""
        return "ttft" in self.decided_by(DECODE) and any("ttft" in s.limits for s in self.slos)

    @property
    def coupled(self) -> bool:
        """Whether an SLO spans both stages, so that decode's load costs prefill budget."""
        return any(self.spans(slo) for slo in self.slos)

    def spans(self, slo: Objective) -> bool:
        """Whether the load of either role changes ``slo``."""
        return all(self.decided_by(role) & slo.limits.keys() for role in ROLES)

    @property
    def links_carry_all(self) -> bool:
        """Whether a shared link carries what all prefill replicas send, and so sees the demand."""
        network = self.options.network
        return network is not None and network.sharing != "none" and network.scope != "replica"

    def pooled(self, role: Role) -> bool:
        """Whether what a replica of ``role`` admits depends on how many its pool has."""
        return self.system.dispatch[role] != "random"

    @property
    def linear(self) -> bool:
        """Whether what pools admit is rate times replicas, whatever the rest of the fleet."""
        return not (self.coupled or self.pooled(PREFILL) or self.pooled(DECODE))

    def value(self, slo: Objective, index: int, p: PrefillState, d: DecodeState) -> float:
        """Predicted number of ``slo`` for class ``index`` on one path: seconds, or share late."""
        return slo.predict(_OnPath(self.predictor, index, p, d))

    def decided_by(self, role: Role) -> frozenset[str]:
        """The metrics that the load of ``role`` changes."""
        rule, network = self.system.first_token, self.options.network
        if role == PREFILL:
            shared = network is not None and network.sharing != "none" and rule == "prefill"
            return frozenset({"ttft", "e2e"} | ({"tpot", "itl"} if shared else set()))
        waits = rule == "transfer" and self.options.kv is not None
        first = {"ttft"} if rule == "decode" or waits else set()
        return frozenset({"tpot", "itl", "e2e"} | first)

    def slack(
        self, p: PrefillState, d: DecodeState, metrics: frozenset[str] = EVERY_METRIC
    ) -> float:
        """Least relative room 1 - predicted/bound over the SLOs; negative when one breaks.

        Raises UnstableError where a shared link is full.
        """
        self.predictor.transfers.shared(p, d.replica_type)
        room = [
            slo.room(self.value(slo, i, p, d))
            for slo, i in self.slo_classes
            if slo.limits.keys() & metrics
        ]
        return min(room, default=1.0)

    def idle(self, role: Role, r: ReplicaType) -> PrefillState | DecodeState:
        """A replica of type ``r`` with no load."""
        return self.predictor.prefill(r, 0.0) if role == PREFILL else self.predictor.decode(r, 0.0)

    def room(
        self, role: Role, r: ReplicaType, rate: float, replicas: int, others: Iterable[Any]
    ) -> float:
        """Least slack of a pool's paths to ``others``, states of the other role.

        ``rate`` requests/s per replica. Raises UnstableError at full load.
        """
        metrics = self.decided_by(role)
        if role == PREFILL:
            p = self.predictor.prefill(r, rate, replicas)
            return min(self.slack(p, d, metrics) for d in others)
        d = self.predictor.decode(r, rate, replicas)
        return min(self.slack(p, d, metrics) for p in others)

    def prefill_rate(
        self, r: ReplicaType, decodes: Iterable[DecodeState], replicas: int = 1
    ) -> float:
        """Greatest requests/s per replica of a prefill pool, every path to ``decodes`` kept."""
        states = list(decodes)
        return greatest_rate(
            lambda rate: self.room(PREFILL, r, rate, replicas, states),
            self.stability_limit(PREFILL, r),
        )

    def decode_rate(
        self, r: ReplicaType, prefills: Iterable[PrefillState], replicas: int = 1
    ) -> float:
        """Greatest requests/s per replica of a decode pool, every path from ``prefills`` kept."""
        states = list(prefills)
        return greatest_rate(
            lambda rate: self.room(DECODE, r, rate, replicas, states),
            self.stability_limit(DECODE, r),
        )

    def stability_limit(self, role: Role, r: ReplicaType) -> float:
        """Requests/s at which one replica is fully busy."""
        if role == PREFILL:
            return 1.0 / self.predictor.prefill(r, 0.0).service.mean
        station = self.predictor.decode(r, 0.0).law.station
        if math.isfinite(station.limit):
            return station.limit
        far = station.seconds(np.array([FAR]))[0]  # steps as long for any batch
        return float(FAR / far / self.predictor.mean_steps)

    def admissible_rate(self, role: Role, r: ReplicaType, replicas: int) -> float:
        """Rate per replica of a pool of ``replicas`` whose best partner type idles."""
        n = replicas if self.pooled(role) else 1
        key = (role, r.name, n)
        if key not in self._rates:
            partners = self._idle_partners(role)
            rate_of = self.prefill_rate if role == PREFILL else self.decode_rate
            rates = [rate_of(r, [q], n) for q in partners]  # type: ignore[list-item]
            self._rates[key] = max(rates, default=0.0)
        return self._rates[key]

    def _idle_partners(self, role: Role) -> list[PrefillState | DecodeState]:
        """The other role's types without load; one of them where they do not matter."""
        other = DECODE if role == PREFILL else PREFILL
        others = self.system.types_for(other)
        return [self.idle(other, q) for q in (others if self.coupled else others[:1])]

    def relaxed_rate(self, role: Role, r: ReplicaType, demand: float = math.inf) -> float:
        """Upper bound on a replica's rate: its best partner type of the other role idles.

        A pooled type's is that of as many replicas as serve ``demand`` requests/s alone: larger
        pools admit more, but need no more. Without a demand, full load.
        """
        if not self.pooled(role):
            return self.admissible_rate(role, r, 1)
        if demand == math.inf:
            served = self.admissible_rate(role, r, 1) > 0.0
            return FULL_SHARE * self.stability_limit(role, r) if served else 0.0
        key = (role, r.name, demand)
        if key not in self._bounds:
            partners = self._idle_partners(role)
            self._bounds[key] = useful_rate(
                lambda n: self.admissible_rate(role, r, n),
                lambda n: any(self.room(role, r, demand / n, n, [q]) >= 0.0 for q in partners),
                demand,
                self.stability_limit(role, r),
            )
        return self._bounds[key]


def useful_rate(
    rate: Callable[[int], float], serves: Callable[[int], bool], demand: float, limit: float
) -> float:
    """Rate per replica of the smallest pool that serves ``demand`` requests/s alone.

    ``rate(n)`` of a pool of n does not fall with n, nor reach ``limit``; ``serves(n)`` is
    n rate(n) >= demand, which is quicker to tell. 0 where even MOST_POOLED do not serve it.
    """

    if rate(1) <= 0.0:  # not even without load
        return 0.0

    def enough(n: int) -> bool:
        try:
            return serves(n)
        except UnstableError:
            return False

    low = max(min(math.floor(demand / limit), MOST_POOLED) - 1, 0)  # too few
    high, step = low + 1, 1
    while not enough(high):
        if high == MOST_POOLED:
            return 0.0
        low, high, step = high, min(high + step, MOST_POOLED), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(rate(high), demand / high)  # the two may differ by rounding


def greatest_rate(slack: Callable[[float], float], limit: float) -> float:
    """Greatest rate in [0, limit) with ``slack(rate) >= 0``; 0 when even 0 has none.

    ``slack`` falls with the rate; rates with no steady state count as broken.
    """

    def safe(rate: float) -> float:
        try:
            return max(slack(rate), WORST_SLACK)
        except UnstableError:
            return WORST_SLACK

    from scipy.optimize import brentq

    top = limit * FULL_SHARE
    if safe(0.0) <= SLACK_TOLERANCE:  # room of rounding size is none
        return 0.0
    if safe(top) >= 0.0:
        return top
    root = float(brentq(safe, 0.0, top, xtol=RATE_TOLERANCE * limit, rtol=RATE_TOLERANCE))
    if safe(root * (1.0 + 1e-9)) >= 0.0:  # a level stretch, as of a discrete law: its far end
        return _last(safe, root, top, RATE_TOLERANCE * limit)
    for back in (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8):  # keep the safe side of the root
        if safe(root * (1.0 - back)) >= 0.0:
            return root * (1.0 - back)
    return _last(safe, 0.0, root, RATE_TOLERANCE * limit)


def _last(slack: Callable[[float], float], low: float, high: float, width: float) -> float:
    """Bisection for where ``slack`` turns negative in [low, high]; the side that keeps."""
    while high - low > width:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slack(middle) >= 0.0 else (low, middle)
    return low
