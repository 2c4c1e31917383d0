"""The conic program: golden rows in both languages, and what its arrays make of the laws."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.formulation.canonical import Row, both, cvxpy_rows, pyomo_rows

from pdalloc.allocation.conic import ConicData, Tangent, burdens_of, conic_data
from pdalloc.allocation.linear import COVERED, linear_data
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.allocation.solvers import cvxpy_relaxation, pyomo_ipopt, pyomo_misocp
from pdalloc.capacity import Capacity
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Mean, Percentile

LABELS = ["prefill/p", "prefill/q", "decode/d"]
P, Q, D = LABELS


@pytest.fixture
def data(small: Any) -> ConicData:
    """Two SLOs; p and q queue in both, d's burden on the second is two tangents."""
    rows = [
        (PREFILL, "p", "a", 2, 3.0, 2.0, 1, 4.0),
        (PREFILL, "q", "b", 1, 5.0, 4.0, 0, math.inf),
        (DECODE, "d", "a", 1, 2.0, 1.0, 0, math.inf),
    ]
    linear = linear_data(small.problem_of(rows, 8.0, {"a": 9}))
    return ConicData(
        linear,
        ("all/ttft.mean", "all/e2e.mean"),
        full=np.array([2.0, 4.0, 1.0]),
        cap=np.array([0.9, 1.0, 0.8]),
        work=np.array([[0.1, 0.2, 0.0], [0.3, 0.4, 0.0]]),
        queue=np.array([[0.01, 0.02, 0.0], [0.03, 0.04, 0.0]]),
        curved=np.array([[False, False, False], [False, False, True]]),
        room=linear.ceiling,
        tangents=(Tangent(1, 2, 0.5, 0.0), Tangent(1, 2, 4.0, -1.0)),
    )


def busy(label: str, weight: float) -> dict[str, float]:
    return {f"busy_count[{label}]": weight}


GOLDEN: dict[str, Row] = {
    # 2/8 of the demand per busy replica of p, 4/8 of q, 1/8 of d
    "demand[prefill]": (busy(P, 0.25) | busy(Q, 0.5), COVERED),
    "demand[decode]": (busy(D, 0.125), COVERED),
    "stock[a]": (both(P, -2.0) | both(D, -1.0), -9.0),
    "limit[prefill/p]": (both(P, -1.0), -4.0),
    "busy[prefill/p]": (both(P, 0.9) | busy(P, -1.0), 0.0),
    "busy[prefill/q]": (both(Q, 1.0) | busy(Q, -1.0), 0.0),
    "busy[decode/d]": (both(D, 0.8) | busy(D, -1.0), 0.0),
    "idle[prefill/p]": (both(P, -1.0) | busy(P, 1.0) | {f"idle_count[{P}]": 1.0}, 0.0),
    "idle[prefill/q]": (both(Q, -1.0) | busy(Q, 1.0) | {f"idle_count[{Q}]": 1.0}, 0.0),
    "slo[all/ttft.mean]": (
        busy(P, -0.1) | busy(Q, -0.2) | {f"wait[{P}]": -0.01, f"wait[{Q}]": -0.02},
        -1.0,
    ),
    "slo[all/e2e.mean]": (
        busy(P, -0.3) | busy(Q, -0.4) | {f"wait[{P}]": -0.03, f"wait[{Q}]": -0.04, "bend": -1.0},
        -1.0,
    ),
    "tangent[all/e2e.mean,decode/d,0]": (busy(D, -0.5) | {"bend": 1.0}, 0.0),
    # 4 a - n <= z, divided by the slope
    "tangent[all/e2e.mean,decode/d,1]": (busy(D, -1.0) | both(D, 0.25) | {"bend": 0.25}, 0.0),
}


def rows_in_pyomo(data: ConicData) -> dict[str, Row]:
    m = pyomo_misocp.model(data, integer=True)
    return pyomo_rows(m, lambda name: "bend" if name.startswith("bend") else name)


def rows_in_cvxpy(data: ConicData) -> dict[str, Row]:
    def name_of(vector: str, k: int) -> str:
        if vector == "bend":
            return vector
        return f"{vector}{'_count' if vector in ('busy', 'idle') else ''}[{LABELS[k]}]"

    return cvxpy_rows(cvxpy_relaxation.model(data, integer=False)[0], name_of)


@pytest.mark.parametrize("rows", [rows_in_pyomo, rows_in_cvxpy])
def test_every_linear_row_is_the_golden_one(data: ConicData, rows: Any) -> None:
    found = rows(data)
    assert set(found) == set(GOLDEN)
    for name, (terms, bound) in GOLDEN.items():
        assert found[name][0] == pytest.approx(terms, abs=1e-12), name
        assert found[name][1] == pytest.approx(bound, abs=1e-12), name


def test_the_cone_is_the_same_in_both(data: ConicData) -> None:
    """a^2 <= q (n - a): its boundary is a^2/(n - a) in every form, also for ipopt."""
    from pyomo.environ import value

    problem, *_ = cvxpy_relaxation.model(data, integer=False)
    cones = {str(c.label): c for c in problem.constraints if str(c.label).startswith("queue")}
    assert set(cones) == {f"queue[{P}]", f"queue[{Q}]"}
    plain = pyomo_misocp.model(data, integer=True)
    ratio = pyomo_ipopt.as_ratios(pyomo_misocp.model(data, integer=False), data)
    n, a, q = 3.0, 2.5, 2.5**2 / 0.5
    for room, kept in ((1e-6, True), (-1e-6, False)):
        for v in problem.variables():
            numbers = {"owned": 1.0, "bought": n - 1.0, "busy": a, "idle": n - a, "wait": q + room}
            v.save_value(np.full(v.shape, numbers.get(v.name(), 0.0)))
        for m in (plain, ratio):
            for x in (P, Q):
                m.owned[x].value, m.bought[x].value = 1.0, n - 1.0
                m.busy_count[x].value, m.wait[x].value = a, q + room
                m.idle_count[x].value = n - a
        for x in (P, Q):
            left, right = cones[f"queue[{x}]"].args
            assert bool(left.value <= right.value) is kept
            for m in (plain, ratio):
                assert (value(m.queue[x].body) <= value(m.queue[x].upper)) is kept


def test_both_minimise_the_price_of_bought_replicas(data: ConicData) -> None:
    from pyomo.repn import generate_standard_repn

    repn = generate_standard_repn(pyomo_misocp.model(data, integer=True).cost.expr)
    found = {v.name: w for v, w in zip(repn.linear_vars, repn.linear_coefs, strict=True)}
    assert found == {f"bought[{P}]": 3.0, f"bought[{Q}]": 5.0, f"bought[{D}]": 2.0}
    problem, *_ = cvxpy_relaxation.model(data, integer=False)
    (bought,) = problem.objective.variables()
    bought.save_value(np.array([1.0, 10.0, 100.0]))
    assert float(problem.objective.expr.value) == 3.0 + 50.0 + 200.0


def on_laws(small: Any, bounds: dict[str, float], **changes: Any) -> AllocationProblem:
    problem: AllocationProblem = small.problem_on(small.two_type_system(1, "transfer"), bounds)
    return replace(problem, **{"slo_scope": "population", **changes})


def test_the_mean_wait_of_prefill_is_a_cone(small: Any) -> None:
    """Pollaczek-Khinchine: fixed prompts wait rho/(2 (1 - rho)) services, kappa = 1/2."""
    p = on_laws(small, {"ttft": 2.0})
    data, burdens = conic_data(p, "x")
    types = p.capacity.system.replica_types
    for i in data.linear.members(PREFILL):
        r = types[data.linear.options[i].replica_type]
        service = float(r.latency.prefill_seconds(np.array([1500.0]), np.zeros(1))[0])
        scale = p.demand * 2.0
        assert data.full[i] == pytest.approx(1.0 / service)
        assert data.queue[0, i] == pytest.approx(0.5 / scale, rel=1e-6)
        # an idle request: its service, and the transfer (0.02 s)
        assert data.work[0, i] == pytest.approx((1.0 + 0.02 / service) / scale, rel=1e-6)
    assert not data.curved.any() and not burdens
    assert not data.queue[:, data.linear.members(DECODE)].any()


def test_tangents_stay_below_the_laws(small: Any) -> None:
    """Decode with a batch limit is of no family: lines below y D(y), none far from it."""
    p = on_laws(small, {"ttft": 2.0, "tpot": 0.05})
    data, burdens = conic_data(p, "x")
    assert set(burdens) == set(data.linear.members(DECODE)) == {i for _, i in data.bends}
    for (k, i), u in ((pair, u) for pair in data.bends for u in (0.1, 0.45, 0.75, 0.93)):
        there = burdens[i].at(u)[k]
        lines = [t.slope * u + t.level for t in data.tangents if (t.k, t.i) == (k, i)]
        assert 0.8 * there < max(lines) < there * (1.0 + 1e-7)
        own = [t for t in data.tangents if (t.k, t.i) == (k, i)]
        assert [s.slope for s in own] == sorted(s.slope for s in own)  # convex


def test_a_replica_is_half_busy_at_half_its_greatest_rate(small: Any) -> None:
    """The burden is y D(y) over lambda tau, straight from the predictor's law."""
    p = on_laws(small, {"ttft": 2.0})
    o = p.in_role(PREFILL)[0]
    r = p.capacity.system.replica_types[o.replica_type]
    y = 0.5 * p.capacity.stability_limit(PREFILL, r)
    idle = p.capacity.predictor.decode(p.capacity.system.types_for(DECODE)[0], 0.0)
    law = p.capacity.predictor.law("ttft", 0, p.capacity.predictor.prefill(r, y), idle)
    found = burdens_of(p, o, p.capacity.slo_classes).at(0.5)
    assert found == pytest.approx([y * law.mean / (p.demand * 2.0)])


def test_where_each_pool_keeps_slos_of_one_stage_the_program_is_linear(small: Any) -> None:
    p = on_laws(small, {"ttft": 2.0, "tpot": 0.05}, slo_scope="pool")
    data, _ = conic_data(p, "x")
    assert data.slos == () and not data.queues and np.all(data.cap == 1.0)
    rates = [p.rate(o) for role in ROLES for o in p.in_role(role)]
    assert data.linear.share * p.demand == pytest.approx(rates)


def test_spanning_slos_of_pools_are_relaxed_where_there_are_several_types(small: Any) -> None:
    p = on_laws(small, {"e2e": 12.0, "tpot": 0.05}, slo_scope="pool")
    data, _ = conic_data(p, "x")
    assert data.slos == ("all/e2e.mean",) and data.relaxed
    alone = replace(p, options=tuple(o for o in p.options if o.replica_type == "big"))
    one, _ = conic_data(alone, "x")
    assert not one.relaxed
    # the SLO on TPOT caps decode: no replica is busier than it allows
    (d,) = one.linear.members(DECODE)
    assert one.cap[d] * one.full[d] == pytest.approx(alone.rate(one.linear.options[d]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"redundancy": 1}, "redundancy"),
        ({"compatible": frozenset()}, "compatible"),
        ({"pooled": True}, "dispatch: random"),
        ({"percentile": True}, "adds up means"),
    ],
)
def test_what_has_no_conic_form_is_refused_in_one_line(
    small: Any, change: dict[str, Any], words: str
) -> None:
    p = on_laws(small, {"e2e": 12.0})
    if change.pop("pooled", False):
        system = replace(p.capacity.system, dispatch=dict.fromkeys(ROLES, "central_queue"))
        change = {"capacity": Capacity(system, p.capacity.slos)}
    if change.pop("percentile", False):
        slos = (Slo("all", "e2e", Percentile(90.0), 20.0), Slo("all", "ttft", Mean(), 3.0))
        change = {"capacity": Capacity(p.capacity.system, slos)}
    for scope in ("population", "pool"):
        with pytest.raises(UnsupportedError, match=words) as caught:
            conic_data(replace(p, slo_scope=scope, **change), "some_solver")
        assert "\n" not in str(caught.value)
