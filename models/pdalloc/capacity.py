"""Greatest admissible rates: prediction inverted under the SLOs, and the routing it implies.

Each pool keeps the SLOs by itself (level 1 of the design): on every path between pools that
carry traffic, every SLO of every class holds. Under random dispatch replicas are
independent, so a pool of n replicas admits n times what one does.

Decode's load matters to prefill when an SLO spans both stages (E2E, or TTFT when decode
makes the first token). Then decode pools are loaded to a *common mean step time*: the split
that loads no pool beyond another's step time. With one decode type there is nothing to
choose; with several this is the routing rule the plan is optimal for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from scipy.optimize import brentq

from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, Fleet, Role
from pdalloc.prediction import DecodeState, PoolKey, Prediction, Predictor, PrefillState, predict
from pdalloc.slo.objective import METRICS, Slo
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


@dataclass(frozen=True)
class Capacity:
    """Admissible rates of one system under its SLOs.

    Rates are per replica, requests/s; they do not depend on how much traffic is offered.
    """

    system: System
    slos: tuple[Slo, ...]
    _rates: dict[PoolKey, float] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def predictor(self) -> Predictor:
        """The laws that are inverted here."""
        return Predictor(self.system)

    @cached_property
    def slo_classes(self) -> list[tuple[Slo, int]]:
        """Every SLO with the index of its traffic class."""
        names = [c.name for c in self.system.workload.classes]
        return [(slo, names.index(slo.traffic_class)) for slo in self.slos]

    @property
    def coupled(self) -> bool:
        """Whether an SLO spans both stages, so that decode's load costs prefill budget."""
        metrics = {slo.metric for slo in self.slos}
        return "e2e" in metrics or ("ttft" in metrics and self.system.first_token == "decode")

    def value(self, slo: Slo, index: int, p: PrefillState, d: DecodeState) -> float:
        """Predicted seconds of ``slo`` for class ``index`` on one path."""
        return slo.statistic.of_law(self.predictor.law(slo.metric, index, p, d))

    def decided_by(self, role: Role) -> frozenset[str]:
        """The metrics that the load of ``role`` changes."""
        if role == PREFILL:
            return frozenset({"ttft", "e2e"})
        first = {"ttft"} if self.system.first_token == "decode" else set()
        return frozenset({"tpot", "itl", "e2e"} | first)

    def slack(
        self, p: PrefillState, d: DecodeState, metrics: frozenset[str] = EVERY_METRIC
    ) -> float:
        """Least relative room 1 - predicted/bound over the SLOs; negative when one breaks."""
        room = [
            1.0 - self.value(slo, i, p, d) / slo.bound
            for slo, i in self.slo_classes
            if slo.metric in metrics
        ]
        return min(room, default=1.0)

    def idle(self, role: Role, r: ReplicaType) -> PrefillState | DecodeState:
        """A replica of type ``r`` with no load."""
        return self.predictor.prefill(r, 0.0) if role == PREFILL else self.predictor.decode(r, 0.0)

    def prefill_rate(self, r: ReplicaType, decodes: Iterable[DecodeState]) -> float:
        """Greatest requests/s of one prefill replica with every path to ``decodes`` kept."""
        states, metrics = list(decodes), self.decided_by(PREFILL)

        def slack(rate: float) -> float:
            p = self.predictor.prefill(r, rate)
            return min(self.slack(p, d, metrics) for d in states)

        return greatest_rate(slack, self.stability_limit(PREFILL, r))

    def decode_rate(self, r: ReplicaType, prefills: Iterable[PrefillState]) -> float:
        """Greatest requests/s of one decode replica with every path from ``prefills`` kept."""
        states, metrics = list(prefills), self.decided_by(DECODE)

        def slack(rate: float) -> float:
            d = self.predictor.decode(r, rate)
            return min(self.slack(p, d, metrics) for p in states)

        return greatest_rate(slack, self.stability_limit(DECODE, r))

    def stability_limit(self, role: Role, r: ReplicaType) -> float:
        """Requests/s at which one replica is fully busy."""
        if role == PREFILL:
            return 1.0 / self.predictor.prefill(r, 0.0).wait.service.mean
        probe = 1e-6
        return probe / self.predictor.decode(r, probe).utilisation

    def relaxed_rate(self, role: Role, r: ReplicaType) -> float:
        """Upper bound on a replica's rate: its best partner type of the other role idles."""
        key = (role, r.name)
        if key not in self._rates:
            other = DECODE if role == PREFILL else PREFILL
            partners = [self.idle(other, partner) for partner in self.system.types_for(other)]
            rate_of = self.prefill_rate if role == PREFILL else self.decode_rate
            self._rates[key] = max((rate_of(r, [q]) for q in partners), default=0.0)  # type: ignore[list-item]
        return self._rates[key]

    def decode_split(self, fleet: Fleet, demand: float) -> dict[str, float] | None:
        """Requests/s per replica of each decode type, at a common mean step time.

        None when the pools cannot take ``demand`` requests/s within the SLOs.
        """
        pools = {pool.replica_type: pool.replicas for pool in fleet.in_role(DECODE)}
        types = self.system.replica_types
        limits = {name: self.relaxed_rate(DECODE, types[name]) for name in pools}
        most = sum(n * limits[name] for name, n in pools.items())
        if most < demand * (1.0 - DEMAND_TOLERANCE) or not pools:
            return None
        if len(pools) == 1:
            ((name, n),) = pools.items()
            return {name: min(demand / n, limits[name])}
        if not self.coupled:
            return {name: limits[name] * min(demand / most, 1.0) for name in pools}

        def rates_at(step: float) -> dict[str, float]:
            return {name: self._rate_at_step(types[name], step, limits[name]) for name in pools}

        steps = [
            self.predictor.decode(types[name], rate).batch.mean_step
            for name in pools
            for rate in (0.0, limits[name])
        ]
        low, high = min(steps), max(steps)
        if demand >= most:
            return limits
        step = brentq(
            lambda s: sum(n * rates_at(s)[name] for name, n in pools.items()) - demand,
            low * (1.0 - 1e-9),
            high * (1.0 + 1e-9),
            rtol=1e-12,
        )
        rates = rates_at(step)
        # The root is met to rounding only: share the rest out in proportion.
        carried = sum(n * rates[name] for name, n in pools.items())
        return {name: min(y * demand / carried, limits[name]) for name, y in rates.items()}

    def _rate_at_step(self, r: ReplicaType, step: float, limit: float) -> float:
        """Requests/s at which a replica's mean step is ``step`` s, within [0, limit]."""

        def excess(rate: float) -> float:
            return self.predictor.decode(r, rate).batch.mean_step - step

        if excess(0.0) >= 0.0 or limit <= 0.0:
            return 0.0
        if excess(limit) <= 0.0:
            return limit
        return float(brentq(excess, 0.0, limit, rtol=1e-12))

    def route(self, fleet: Fleet, demand: float) -> dict[PoolKey, float] | None:
        """Requests/s offered to each pool so that every SLO holds; None when none does.

        ``demand`` in requests/s is met exactly in each role.
        """
        if all(len(fleet.in_role(role)) == 1 for role in (PREFILL, DECODE)):
            return self._route_single(fleet, demand)
        split = self.decode_split(fleet, demand)
        if split is None:
            return None
        types = self.system.replica_types
        decodes = [self.predictor.decode(types[t], y) for t, y in split.items() if y > 0]
        admits = {
            pool.replica_type: pool.replicas * self.prefill_rate(types[pool.replica_type], decodes)
            for pool in fleet.in_role(PREFILL)
        }
        most = sum(admits.values())
        if most < demand * (1.0 - DEMAND_TOLERANCE) or most <= 0.0:
            return None
        rates = {(PREFILL, name): admit * demand / most for name, admit in admits.items()}
        for pool in fleet.in_role(DECODE):
            rates[DECODE, pool.replica_type] = split[pool.replica_type] * pool.replicas
        return rates

    def _route_single(self, fleet: Fleet, demand: float) -> dict[PoolKey, float] | None:
        """:meth:`route` with one type per role: nothing to choose, only to check."""
        types = self.system.replica_types
        (prefill,), (decode,) = fleet.in_role(PREFILL), fleet.in_role(DECODE)
        try:
            p = self.predictor.prefill(types[prefill.replica_type], demand / prefill.replicas)
            d = self.predictor.decode(types[decode.replica_type], demand / decode.replicas)
            if self.slack(p, d) < -SLACK_TOLERANCE:
                return None
        except UnstableError:
            return None
        return {(pool.role, pool.replica_type): demand for pool in (prefill, decode)}

    def best_effort_route(self, fleet: Fleet, demand: float) -> dict[PoolKey, float]:
        """Rates for a fleet that breaks an SLO: shares in proportion to what pools can serve."""
        rates: dict[PoolKey, float] = {}
        for role in (PREFILL, DECODE):
            most = {
                p.replica_type: p.replicas
                * self.stability_limit(role, self.system.replica_types[p.replica_type])
                for p in fleet.in_role(role)
            }
            for name, share in most.items():
                rates[role, name] = demand * share / sum(most.values())
        return rates

    def best_route(self, fleet: Fleet, demand: float) -> dict[PoolKey, float]:
        """The routing that keeps every SLO, or the best effort where none does."""
        routed = self.route(fleet, demand)
        return routed if routed is not None else self.best_effort_route(fleet, demand)

    def evaluate(self, fleet: Fleet, demand: float) -> Prediction:
        """Prediction for ``fleet`` under its best routing.

        Raises UnstableError when that has no steady state.
        """
        return predict(self.predictor, fleet, self.best_route(fleet, demand))


def greatest_rate(slack: Callable[[float], float], limit: float) -> float:
    """Greatest rate in [0, limit) with ``slack(rate) >= 0``; 0 when even 0 has none.

    ``slack`` falls with the rate; rates with no steady state count as broken.
    """

    def safe(rate: float) -> float:
        try:
            return max(slack(rate), WORST_SLACK)
        except UnstableError:
            return WORST_SLACK

    top = limit * FULL_SHARE
    if safe(0.0) <= 0.0:
        return 0.0
    if safe(top) >= 0.0:
        return top
    root = float(brentq(safe, 0.0, top, xtol=RATE_TOLERANCE * limit, rtol=RATE_TOLERANCE))
    for back in (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8):  # keep the safe side of the root
        if safe(root * (1.0 - back)) >= 0.0:
            return root * (1.0 - back)
    low, high = 0.0, root
    while high - low > RATE_TOLERANCE * limit:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if safe(middle) >= 0.0 else (low, middle)
    return low


def demand_limit(capacity: Capacity, fleet: Fleet, most: float) -> float:
    """Greatest demand in requests/s, up to ``most``, that ``fleet`` serves within its SLOs."""
    if not capacity.coupled:
        types = capacity.system.replica_types
        admits = {PREFILL: 0.0, DECODE: 0.0}
        for pool in fleet.pools:
            r = types[pool.replica_type]
            admits[pool.role] += pool.replicas * capacity.relaxed_rate(pool.role, r)
        return min(most, *admits.values())

    def fits(demand: float) -> bool:
        return capacity.route(fleet, demand) is not None

    low, high = 0.0, most
    if fits(most):
        return most
    while high - low > 1e-6 * most:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
