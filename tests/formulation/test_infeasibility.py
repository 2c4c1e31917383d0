"""Infeasible answers say in one line which bound or stock is at fault, and what would do."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import solver_named
from pdalloc.capacity import Capacity
from pdalloc.fleet import DECODE, PREFILL
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

UNIT = {"ms": 1e-3, "s": 1.0}


def infeasible_reason(problem: AllocationProblem) -> str:
    answer = solver_named("exact").solve(problem)
    assert answer.status == "infeasible"
    assert answer.cost is None and answer.bound is None and not answer.fleet.pools
    assert answer.reason and "\n" not in answer.reason
    return answer.reason


def with_bound(problem: AllocationProblem, metric: str, bound: float) -> AllocationProblem:
    """``problem`` with the SLOs on ``metric`` set to ``bound`` seconds."""
    capacity = problem.capacity
    slos = tuple(
        replace(s, bound=bound) if isinstance(s, Slo) and s.metric == metric else s
        for s in capacity.slos
    )
    return replace(problem, capacity=Capacity(capacity.system, slos))


def suggested(reason: str) -> float:
    """The nearest feasible bound, in seconds, that the reason names."""
    match = re.search(r"set a bound above ([\d.e-]+) (ms|s)$", reason)
    assert match, reason
    return float(match[1]) * UNIT[match[2]]


@pytest.mark.parametrize("rule", ["prefill", "transfer", "decode"])
@pytest.mark.parametrize(("metric", "bound"), [("ttft", 0.1), ("tpot", 0.002), ("e2e", 0.5)])
def test_a_bound_below_the_unloaded_time_names_it_and_the_least_that_works(
    small: Any, metric: str, bound: float, rule: str
) -> None:
    system = small.two_type_system(1, rule)
    bounds = {"ttft": 5.0, "tpot": 0.5, "e2e": 60.0} | {metric: bound}
    problem = small.problem_on(system, bounds)
    reason = infeasible_reason(problem)
    assert reason.startswith(f"{metric.upper()} mean of 'all' cannot be")
    least = suggested(reason)
    assert least > bound
    above = solver_named("exact").solve(with_bound(problem, metric, 1.3 * least))
    assert above.status in ("optimal", "feasible")
    below = solver_named("exact").solve(with_bound(problem, metric, 0.98 * least))
    assert below.status == "infeasible"


def test_ttft_floor_is_taken_apart(small: Any) -> None:
    problem = small.problem_on(small.two_type_system(2, "transfer"), {"ttft": 0.05})
    assert "(prefill " in infeasible_reason(problem)
    assert "+ KV transfer 20 ms on average)" in infeasible_reason(problem)


def test_all_unreachable_slos_are_named(small: Any) -> None:
    problem = small.problem_on(small.two_type_system(2), {"ttft": 0.05, "tpot": 0.001})
    reason = infeasible_reason(problem)
    assert "TTFT mean of 'all' cannot" in reason and "TPOT mean of 'all' cannot" in reason


def test_too_little_stock_names_gpu_need_and_stock(small: Any) -> None:
    problem = small.problem_of(
        [
            (PREFILL, "p", "h100", 4, 10.0, 1.0, 0, math.inf),
            (DECODE, "d", "h100", 8, 20.0, 2.0, 0, math.inf),
        ],
        5.0,
        {"h100": 40},
    )
    reason = infeasible_reason(problem)
    assert "stock or limits are too small for 5 req/s" in reason
    assert "5P3D (prefill/p=5,decode/d=3)" in reason
    assert "44 h100 GPUs against 40 in stock (4 short)" in reason
    assert solver_named("exact").solve(replace(problem, stock={"h100": 44})).status == "optimal"


def test_a_limit_names_option_need_and_limit(small: Any) -> None:
    problem = small.problem_of(
        [(PREFILL, "p", "g", 1, 1.0, 1.0, 0, 4.0), (DECODE, "d", "g", 1, 1.0, 1.0, 0, math.inf)],
        5.0,
        {},
    )
    assert "5 replicas of prefill/p against a limit of 4" in infeasible_reason(problem)


def test_stock_that_other_fleets_do_not_fit_either(small: Any) -> None:
    """The cheapest fleet without stock fits no GPU; neither does any other."""
    rows = [
        (PREFILL, "p", "a", 1, 1.0, 1.0, 0, math.inf),
        (PREFILL, "q", "b", 1, 2.0, 1.0, 0, math.inf),
        (DECODE, "d", "a", 1, 1.0, 1.0, 0, math.inf),
    ]
    reason = infeasible_reason(small.problem_of(rows, 6.0, {"a": 5, "b": 9}))
    assert "12 a GPUs against 5 in stock (7 short)" in reason


@pytest.mark.parametrize("role", [PREFILL, DECODE])
def test_a_role_without_types_is_asked_for(small: Any, role: str) -> None:
    problem = small.problem_on(small.two_type_system(1, "transfer"), {"ttft": 1.0})
    rest = tuple(o for o in problem.options if o.role != role)
    reason = infeasible_reason(replace(problem, options=rest))
    assert reason == "a role has no replica type that may serve it; add a replica type"


def two_classes() -> System:
    """Type x is quick on short prompts, y on long ones; both decode alike."""
    types = {}
    for name, base, per_token in (("x", 0.0, 2e-4), ("y", 0.3, 1e-5)):
        latency = Latency(AffinePrefill(base, per_token), AffineDecode(0.01, 0.001))
        types[name] = ReplicaType(name, Gpu(name, name), 1, (PREFILL, DECODE), latency, 1.0)
    classes = (
        TrafficClass("short", 1.0, fixed(100, 50)),
        TrafficClass("long", 1.0, fixed(1e4, 50)),
    )
    random: Any = {PREFILL: "random", DECODE: "random"}
    llm = Llm("m", "m", 1e9, 0.0, 1e6, 1e9)
    return System(llm, Workload(classes), types, Link(0.0), random, "transfer")


def test_slos_that_no_one_type_keeps_together(small: Any) -> None:
    """Idle TTFT is 20 ms / 2 s on x and 301 / 400 ms on y: no type keeps 100 ms and 1 s."""
    system = two_classes()
    slos = (Slo("short", "ttft", Mean(), 0.1), Slo("long", "ttft", Mean(), 1.0))
    problem = replace(small.problem_on(system, {}), capacity=Capacity(system, slos))
    for slo in slos:
        alone = replace(problem, capacity=Capacity(system, (slo,)))
        assert solver_named("exact").solve(alone).status == "optimal"
    assert infeasible_reason(problem) == (
        "each SLO can be met, but no pair of replica types meets all of them at once"
    )


@pytest.mark.parametrize("name", ["exact", "cvxpy", "pyomo"])
def test_every_exact_solver_gives_the_same_reason(small: Any, name: str) -> None:
    problem = small.problem_on(small.two_type_system(4), {"ttft": 0.05})
    assert solver_named(name).solve(problem).reason == infeasible_reason(problem)
