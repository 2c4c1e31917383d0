"""How a fleet shares its traffic so that every SLO holds, and what it does then.

Decode's load matters to prefill when an SLO spans both stages (E2E, TTFT when decode makes the
first token, or a joint SLO with limits on both). Decode pools are then loaded to a *common
level*: equal mean time to the first token (or, where only E2E spans them, to the last), and
under a joint SLO equal room beside the best idle prefill. No pool is slower than the level, and
for one mean SLO no other split leaves prefill more. For percentiles, joint SLOs, and where TTFT
and E2E both span the stages, it is a rule (:attr:`Capacity.rule`); a pool that would only harm
may stay idle. With one type per role there is nothing to choose.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pdalloc.capacity.rates import DEMAND_TOLERANCE, SLACK_TOLERANCE, Rates, useful_rate
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.laws import Array
from pdalloc.prediction import DecodeState, PoolKey, Prediction, predict
from pdalloc.slo.interface import Objective
from pdalloc.system import ReplicaType

LEVEL_POINTS, FEW_LEVEL_POINTS = 129, 17
"""Points of the table of level against rate, per decode type; few where each is dear."""
Table = tuple[Array, Array]


@dataclass(frozen=True)
class Capacity(Rates):
    """Admissible rates of one system, and the routing of fleets under them."""

    _levels: dict[tuple[str, int], Table] = field(default_factory=dict, repr=False, compare=False)

    @property
    def rule(self) -> str:
        """What the split between decode types leaves unsearched, in words; "" for nothing."""
        spanning = self._spanning
        if self._joint_spans:
            return "a joint SLO spans the stages"
        if self.only_by_rule:
            return "TTFT and E2E SLOs both span the stages"
        if len(spanning) > 1 or any(s.level > 0.0 for s in spanning):
            return "a percentile, or several SLOs, span the stages"
        return ""

    @property
    def only_by_rule(self) -> bool:
        """Whether another split between decode types is known to do with less at times."""
        return len({metric for slo in self._spanning for metric in slo.limits}) > 1

    @property
    def _spanning(self) -> list[Objective]:
        """The SLOs that make the split between decode types matter to prefill."""
        if len(self.system.types_for(DECODE)) < 2:
            return []
        return [slo for slo in self.slos if self.spans(slo)]

    def decode_split(self, fleet: Fleet, demand: float) -> dict[str, float] | None:
        """Requests/s per replica of each decode type, at a common level.

        None when the pools cannot take ``demand`` requests/s within the SLOs.
        """
        pools = {pool.replica_type: pool.replicas for pool in fleet.in_role(DECODE)}
        types = self.system.replica_types
        limits = {name: self.admissible_rate(DECODE, types[name], n) for name, n in pools.items()}
        most = sum(n * limits[name] for name, n in pools.items())
        if most < demand * (1.0 - DEMAND_TOLERANCE) or most <= 0.0:
            return None
        if len(pools) == 1:
            ((name, n),) = pools.items()
            return {name: min(demand / n, limits[name])}
        if not self.coupled or demand >= most:
            return {name: limits[name] * min(demand / most, 1.0) for name in pools}
        rates = self._at_common_level(pools, demand)
        carried = sum(n * rates[name] for name, n in pools.items())
        return {name: min(y * demand / carried, limits[name]) for name, y in rates.items()}

    def _at_common_level(self, pools: dict[str, int], demand: float) -> dict[str, float]:
        """Requests/s per replica where the pools' levels agree and they carry ``demand``."""
        types = self.system.replica_types
        tables = {name: self.level_table(types[name], n) for name, n in pools.items()}

        def rates_at(level: float) -> dict[str, float]:
            return {
                name: float(np.interp(level, table[1], table[0])) for name, table in tables.items()
            }

        low = min(float(table[1][0]) for table in tables.values())
        high = max(float(table[1][-1]) for table in tables.values())
        for _ in range(60):
            middle = 0.5 * (low + high)
            rates = rates_at(middle)
            enough = sum(n * rates[name] for name, n in pools.items()) >= demand
            low, high = (low, middle) if enough else (middle, high)
        return rates_at(high)

    def level_table(self, r: ReplicaType, replicas: int = 1) -> Table:
        """(rates in requests/s, nondecreasing levels in seconds) of a decode pool's replica."""
        key = (r.name, replicas if self.pooled(DECODE) else 1)
        if key not in self._levels:
            points = FEW_LEVEL_POINTS if self._joint_spans else LEVEL_POINTS
            rates = np.linspace(0.0, self.admissible_rate(DECODE, r, replicas), points)
            states = [self.predictor.decode(r, float(rate), replicas) for rate in rates]
            levels = np.array([self._level(state) for state in states])
            self._levels[key] = rates, np.maximum.accumulate(levels)
        return self._levels[key]

    @property
    def _joint_spans(self) -> bool:
        return any(len(slo.limits) > 1 for slo in self._spanning)

    def _level(self, d: DecodeState) -> float:
        if self._joint_spans:  # what it leaves to prefill, at best
            idle = (self.predictor.prefill(r, 0.0) for r in self.system.types_for(PREFILL))
            return -max(self.slack(p, d) for p in idle)
        if self.first_token_spans:
            return d.law.mean_first_token
        return d.law.mean_entry + self.predictor.mean_steps * d.law.mean_step

    def prefill_rates(
        self, pools: Mapping[str, int], decode_pools: Mapping[str, int], demand: float
    ) -> dict[str, float]:
        """Admissible requests/s per replica of the prefill ``pools`` (replicas by type).

        ``decode_pools`` carry ``demand`` requests/s; all 0 when they cannot.
        """
        types, states = self.system.replica_types, self._loaded(decode_pools, demand)
        if states is None:
            return dict.fromkeys(pools, 0.0)
        return {
            name: self.prefill_rate(types[name], states, n)
            if self.coupled
            else self.admissible_rate(PREFILL, types[name], n)
            for name, n in pools.items()
        }

    def prefill_bounds(
        self, names: Sequence[str], decode_pools: Mapping[str, int], demand: float
    ) -> dict[str, float]:
        """Bounds on :meth:`prefill_rates` for pools of any size, as :meth:`relaxed_rate`."""
        if not self.pooled(PREFILL):
            return self.prefill_rates(dict.fromkeys(names, 1), decode_pools, demand)
        types, states = self.system.replica_types, self._loaded(decode_pools, demand)
        if states is None:
            return dict.fromkeys(names, 0.0)
        if not self.coupled:
            return {name: self.relaxed_rate(PREFILL, types[name], demand) for name in names}

        def bound(r: ReplicaType) -> float:
            limit = self.stability_limit(PREFILL, r)
            return useful_rate(
                lambda n: self.prefill_rate(r, states, n),
                lambda n: self.room(PREFILL, r, demand / n, n, states) >= 0.0,
                demand,
                limit,
            )

        return {name: bound(types[name]) for name in names}

    def _loaded(self, pools: Mapping[str, int], demand: float) -> list[DecodeState] | None:
        """Decode pools (replicas by type) that carry ``demand``; None when they cannot."""
        if self.linear:
            return []  # prefill does not see them, and their count is the caller's care
        fleet = Fleet.of({(DECODE, name): n for name, n in pools.items()})
        split = self.decode_split(fleet, demand)
        if split is None:
            return None
        types = self.system.replica_types
        return [self.predictor.decode(types[t], y, pools[t]) for t, y in split.items() if y > 0]

    def route(self, fleet: Fleet, demand: float) -> dict[PoolKey, float] | None:
        """Requests/s offered to each pool so that every SLO holds; None when none is found.

        ``demand`` in requests/s is met exactly in each role. Decode pools may stay idle.
        """
        if all(len(fleet.in_role(role)) == 1 for role in (PREFILL, DECODE)):
            return self._route_single(fleet, demand)
        pools = {pool.replica_type: pool.replicas for pool in fleet.in_role(DECODE)}
        names = list(pools)
        sizes = range(len(names), 0, -1) if self.coupled else (len(names),)
        for used in itertools.chain.from_iterable(itertools.combinations(names, k) for k in sizes):
            rates = self._route_over({name: pools[name] for name in used}, fleet, demand)
            if rates is not None:
                return {(DECODE, name): 0.0 for name in names} | rates
        return None

    def _route_over(
        self, used: dict[str, int], fleet: Fleet, demand: float
    ) -> dict[PoolKey, float] | None:
        """:meth:`route` with the decode pools ``used`` carrying all the traffic."""
        split = self.decode_split(Fleet.of({(DECODE, t): n for t, n in used.items()}), demand)
        if split is None:
            return None
        prefills = {pool.replica_type: pool.replicas for pool in fleet.in_role(PREFILL)}
        per_replica = self.prefill_rates(prefills, used, demand)
        admits = {name: n * per_replica[name] for name, n in prefills.items()}
        most = sum(admits.values())
        if most < demand * (1.0 - DEMAND_TOLERANCE) or most <= 0.0:
            return None
        rates = {(PREFILL, name): admit * demand / most for name, admit in admits.items()}
        return rates | {(DECODE, name): split[name] * n for name, n in used.items()}

    def _route_single(self, fleet: Fleet, demand: float) -> dict[PoolKey, float] | None:
        """:meth:`route` with one type per role: nothing to choose, only to check."""
        types = self.system.replica_types
        (prefill,), (decode,) = fleet.in_role(PREFILL), fleet.in_role(DECODE)
        try:
            n, m = prefill.replicas, decode.replicas
            p = self.predictor.prefill(types[prefill.replica_type], demand / n, n)
            d = self.predictor.decode(types[decode.replica_type], demand / m, m)
            if self.slack(p, d) < -SLACK_TOLERANCE:
                return None
        except UnstableError:
            return None
        return {(pool.role, pool.replica_type): demand for pool in (prefill, decode)}

    def best_effort_route(self, fleet: Fleet, demand: float) -> dict[PoolKey, float]:
        """Rates for a fleet that breaks an SLO: shares by what pools admit, or could serve."""
        rates: dict[PoolKey, float] = {}
        types = self.system.replica_types
        for role in (PREFILL, DECODE):
            pools = fleet.in_role(role)
            most = {
                p.replica_type: p.replicas
                * self.admissible_rate(role, types[p.replica_type], p.replicas)
                for p in pools
            }
            if sum(most.values()) <= 0.0:
                most = {
                    p.replica_type: p.replicas * self.stability_limit(role, types[p.replica_type])
                    for p in pools
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


def demand_limit(capacity: Capacity, fleet: Fleet, most: float) -> float:
    """Greatest demand in requests/s, up to ``most``, that ``fleet`` serves within its SLOs."""
    if not (capacity.coupled or capacity.links_carry_all):
        types = capacity.system.replica_types
        admits = {PREFILL: 0.0, DECODE: 0.0}
        for pool in fleet.pools:
            r = types[pool.replica_type]
            rate = capacity.admissible_rate(pool.role, r, pool.replicas)
            admits[pool.role] += pool.replicas * rate
        return min(most, *admits.values())

    def fits(demand: float) -> bool:
        at = capacity
        if capacity.links_carry_all:
            system, now = capacity.system, capacity.system.workload
            at = capacity.under(system.with_workload(now.scaled(demand / now.rate)))
        return at.route(fleet, demand) is not None

    low, high = 0.0, most
    if fits(most):
        return most
    while high - low > 1e-6 * most:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
