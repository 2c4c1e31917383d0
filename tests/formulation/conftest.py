"""Small problems: linear ones with rates by hand, and coupled ones on real latency laws."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pdalloc.allocation.problem import AllocationProblem, Option
from pdalloc.capacity import Capacity
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import fixed
from pdalloc.workload.traffic import TrafficClass, Workload

SHORTFALL = 1e-12


@dataclass(frozen=True)
class FixedRates:
    """Stands in for a Capacity: requests/s per replica of each (role, type), by hand."""

    rates: Mapping[tuple[str, str], float]
    coupled: bool = False
    rule: str = ""
    only_by_rule: bool = False
    slos: tuple[Slo, ...] = ()
    slo_classes: list[tuple[Slo, int]] = field(default_factory=list)

    @property
    def system(self) -> Any:
        names = {name for _, name in self.rates}
        return SimpleNamespace(replica_types={n: SimpleNamespace(name=n) for n in names})

    @property
    def predictor(self) -> Any:
        links = SimpleNamespace(shared=lambda p, r: None)
        states = {"prefill": lambda r, y: (r, y), "decode": lambda r, y: (r, y)}
        return SimpleNamespace(**states, transfers=links)

    def slack(self, p: object, d: object) -> float:
        return 1.0

    @property
    def linear(self) -> bool:
        return not self.coupled

    def pooled(self, role: str) -> bool:
        return False

    def relaxed_rate(self, role: str, r: Any, demand: float = math.inf) -> float:
        return self.rates[role, r.name]

    def prefill_rates(
        self, pools: Iterable[str], decode_pools: Mapping[str, int], demand: float
    ) -> dict[str, float]:
        return {name: self.rates["prefill", name] for name in pools}

    prefill_bounds = prefill_rates

    def route(self, fleet: Fleet, demand: float) -> dict[tuple[str, str], float] | None:
        for role in ROLES:
            most = sum(p.replicas * self.rates[role, p.replica_type] for p in fleet.in_role(role))
            if most < demand * (1.0 - SHORTFALL):
                return None
        return {(p.role, p.replica_type): demand for p in fleet.pools}

    def evaluate(self, fleet: Fleet, demand: float) -> Any:
        if self.route(fleet, demand) is None:
            raise UnstableError("demand above the fleet's rates")
        return SimpleNamespace(paths=list, links=list)


Row = tuple[str, str, str, int, float, float, int, float]
"""role, type, GPU, GPUs, USD/hour, requests/s, owned, limit."""


def problem_of(rows: list[Row], demand: float, stock: Mapping[str, int]) -> AllocationProblem:
    """A linear problem from one row per option."""
    rates = {(role, name): rate for role, name, _, _, _, rate, _, _ in rows}
    options = tuple(Option(s, n, g, k, c, owned, most) for s, n, g, k, c, _, owned, most in rows)
    return AllocationProblem(cast(Capacity, FixedRates(rates)), demand, options, stock)


def random_linear(seed: int) -> AllocationProblem:
    """2 to 4 options per role on 3 GPU types; half the time stock, limits, owned replicas."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for role in ROLES:
        for i in range(rng.randint(2, 4)):
            rows.append(
                (
                    role,
                    f"t{i}",
                    f"g{rng.randrange(3)}",
                    rng.choice([1, 1, 2, 4]),
                    rng.choice([float(rng.randint(1, 12)), rng.uniform(1.0, 12.0)]),
                    rng.choice([rng.uniform(0.6, 4.0), float(rng.randint(1, 4)), 0.0]),
                    rng.choice([0, 0, 1, 2]),
                    rng.choice([math.inf, math.inf, 1.0, 3.0]),
                )
            )
    stock = {f"g{i}": rng.randint(0, 12) for i in range(3) if rng.random() < 0.5}
    return problem_of(rows, rng.choice([rng.uniform(1.0, 9.0), float(rng.randint(2, 8))]), stock)


def vectors(problem: AllocationProblem, role: str, most: int) -> Iterator[tuple[int, ...]]:
    """Every vector of counts of one role's options, each up to ``most`` and its limit."""
    tops = (int(min(o.most, most)) for o in problem.in_role(role))
    return product(*(range(top + 1) for top in tops))


def fleet_of(problem: AllocationProblem, prefill: Any, decode: Any) -> Fleet:
    """The fleet with these counts, aligned with the options of each role."""
    options = problem.in_role(PREFILL) + problem.in_role(DECODE)
    pairs = zip(options, (*prefill, *decode), strict=True)
    return Fleet.of({(o.role, o.replica_type): n for o, n in pairs})


def brute_force(problem: AllocationProblem) -> float | None:
    """Least cost of a linear problem by enumeration; None when no fleet covers the demand.

    A count above demand/rate replicas is never needed.
    """
    best = math.inf
    need = problem.demand * (1.0 - SHORTFALL)
    covers: dict[str, list[tuple[int, ...]]] = {}
    for role in ROLES:
        rates = [problem.rate(o) for o in problem.in_role(role)]
        tops = [
            int(min(o.most, math.ceil(problem.demand / r))) if r > 0 else 0
            for o, r in zip(problem.in_role(role), rates, strict=True)
        ]
        covers[role] = [
            counts
            for counts in product(*(range(top + 1) for top in tops))
            if sum(r * n for r, n in zip(rates, counts, strict=True)) >= need
        ]
    tables = {role: _footprints(problem, role, covers[role]) for role in ROLES}
    for left in tables[PREFILL]:
        for right in tables[DECODE]:
            used = {g: left[1].get(g, 0) + right[1].get(g, 0) for g in problem.stock}
            if left[0] + right[0] < best and all(used[g] <= problem.stock[g] for g in used):
                best = left[0] + right[0]
    return best if math.isfinite(best) else None


def _footprints(
    problem: AllocationProblem, role: str, found: list[tuple[int, ...]]
) -> list[tuple[float, dict[str, int]]]:
    """(cost, stocked GPUs) of each vector, without those another one beats in everything."""
    table = []
    for counts in found:
        used = dict.fromkeys(problem.stock, 0)
        for o, n in zip(problem.in_role(role), counts, strict=True):
            if o.gpu in used:
                used[o.gpu] += o.gpus * n
        cost = sum(o.cost(n) for o, n in zip(problem.in_role(role), counts, strict=True))
        table.append((cost, used))
    unique = {(c, *u.values()): (c, u) for c, u in table}
    return list(unique.values())


def two_type_system(seed: int, first_token: str = "decode") -> System:
    """A fast, dear and a slow, cheap type for both roles; affine times, fixed lengths."""
    rng = random.Random(seed)
    types = {}
    for name, slower, base, per_request, price in (
        ("big", 1.0, 0.012, 0.0002, 10.0),
        ("small", 2.2, 0.019, 0.0005, 3.7),
    ):

        def near(value: float) -> float:
            return value * rng.uniform(0.8, 1.25)

        latency = Latency(
            AffinePrefill(near(0.01), near(1e-4 * slower), 1e-9),
            AffineDecode(near(base), near(per_request)),
        )
        types[name] = ReplicaType(
            name,
            Gpu(name, name),
            1,
            (PREFILL, DECODE),
            latency,
            near(price),
            max_batch=rng.choice([math.inf, 64.0, 16.0]),
        )
    return System(
        Llm("m", "m", 1e9, 0.0, 1e6, 1e9),
        Workload((TrafficClass("all", rng.uniform(3.0, 7.0), fixed(1500, 200)),)),
        types,
        Link(0.02),
        {PREFILL: "random", DECODE: "random"},
        cast(Any, first_token),
    )


def problem_on(
    system: System, bounds: Mapping[str, float], stock: Mapping[str, int] | None = None
) -> AllocationProblem:
    """Mean SLOs ``{metric: seconds}`` on ``system`` at its own rate, every type in its roles."""
    slos = tuple(Slo("all", metric, Mean(), bound) for metric, bound in bounds.items())
    options = tuple(
        Option(role, r.name, r.gpu.name, r.gpus, r.usd_per_hour)
        for role in ROLES
        for r in system.types_for(role)
    )
    rate = system.workload.rate
    return AllocationProblem(Capacity(system, slos), rate, options, stock or {})


@pytest.fixture(scope="session")
def small() -> SimpleNamespace:
    """The helpers of this file, for tests."""
    return SimpleNamespace(
        problem_of=problem_of,
        random_linear=random_linear,
        vectors=vectors,
        fleet_of=fleet_of,
        brute_force=brute_force,
        two_type_system=two_type_system,
        problem_on=problem_on,
    )
