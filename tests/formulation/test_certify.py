"""certify() re-checks stock, limits, stability and every SLO in plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import AllocationProblem
from pdalloc.capacity import Capacity
from pdalloc.fleet import DECODE, PREFILL, Fleet, parse_fleet
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

BASE, STEP, TOKENS, PROMPT, RATE, MOVE = 0.01, 0.0005, 100, 1000, 20.0, 0.05


def one_type() -> System:
    """M/M/1 prefill of 0.1 s a prompt, decode steps of 10 ms + 0.5 ms per request."""
    latency = Latency(AffinePrefill(0.0, 1e-4), AffineDecode(BASE, STEP), "exponential")
    r = ReplicaType("r", Gpu("g", "G"), 2, (PREFILL, DECODE), latency, 3.0)
    workload = Workload((TrafficClass("all", RATE, fixed(PROMPT, TOKENS + 1)),))
    random: Any = {PREFILL: "random", DECODE: "random"}
    return System(
        Llm("m", "m", 1e9, 0.0, 1e6, 1e9), workload, {"r": r}, Link(MOVE), random, "transfer"
    )


def ttft(prefills: int) -> float:
    """Mean M/M/1 sojourn plus transfer, seconds."""
    return 1.0 / (10.0 - RATE / prefills) + MOVE


def tpot(decodes: int) -> float:
    """(a + b)/(1 - rho) plus the boundary wait's share of the first gap, at least."""
    return (BASE + STEP) / (1.0 - RATE / decodes * TOKENS * STEP)


def problem(small: Any, stock: int | None = None, most: float = math.inf) -> AllocationProblem:
    """TTFT of 4 prefill replicas and a TPOT that 3 decode replicas keep."""
    limits = {"g": stock} if stock is not None else {}
    p = small.problem_on(one_type(), {"ttft": ttft(4) * 1.001, "tpot": tpot(3) * 1.05}, limits)
    options = tuple(replace(o, most=most) for o in p.options)
    return AllocationProblem(p.capacity, p.demand, options, limits)


def fleet(prefill: int, decode: int) -> Fleet:
    return Fleet.of({(PREFILL, "r"): prefill, (DECODE, "r"): decode})


def test_a_fleet_that_keeps_everything_is_certified(small: Any) -> None:
    check = certify(problem(small, stock=14, most=4), fleet(4, 3))
    assert check.certified and check.broken == ()
    assert all(c.kept for c in check.slos)
    assert check.prediction is not None


def test_predictions_are_the_closed_forms(small: Any) -> None:
    predicted = {c.slo.metric: c.predicted for c in certify(problem(small), fleet(4, 3)).slos}
    assert predicted["ttft"] == pytest.approx(ttft(4), rel=1e-9)
    assert predicted["tpot"] is not None
    assert tpot(3) < predicted["tpot"] < tpot(3) * 1.05


def test_one_prefill_replica_less_breaks_ttft_only(small: Any) -> None:
    check = certify(problem(small), fleet(3, 3))
    assert [c.slo.metric for c in check.slos if not c.kept] == ["ttft"]
    (line,) = check.broken
    assert line == f"TTFT mean {ttft(3):.4g} s is above {ttft(4) * 1.001:.4g} s"


def test_one_decode_replica_less_breaks_tpot_only(small: Any) -> None:
    check = certify(problem(small), fleet(4, 2))
    assert [c.slo.metric for c in check.slos if not c.kept] == ["tpot"]
    assert check.broken[0].startswith("TPOT mean")


def test_every_broken_constraint_is_listed(small: Any) -> None:
    check = certify(problem(small, stock=9, most=2), fleet(3, 2))
    assert len(check.broken) == 4
    assert check.broken[0] == "10 g GPUs needed, stock has 9"
    assert check.broken[1] == "3 replicas of prefill/r, limit 2"


def test_stock_counts_both_roles(small: Any) -> None:
    assert certify(problem(small, stock=14), fleet(4, 3)).certified
    assert certify(problem(small, stock=13), fleet(4, 3)).broken == (
        "14 g GPUs needed, stock has 13",
    )


def test_owned_replicas_take_stock_too(small: Any) -> None:
    p = problem(small, stock=13)
    p = replace(p, options=tuple(replace(o, owned=4) for o in p.options))
    assert p.cost(fleet(4, 3)) == 0.0
    assert not certify(p, fleet(4, 3)).certified


@pytest.mark.parametrize(("n", "role"), [((0, 3), "prefill"), ((4, 0), "decode")])
def test_a_role_without_replicas_is_named(small: Any, n: tuple[int, int], role: str) -> None:
    check = certify(problem(small), fleet(*n))
    assert check.broken == (f"no replica serves {role}",)
    assert check.prediction is None
    assert all(c.predicted is None and not c.kept for c in check.slos)


@pytest.mark.parametrize("n", [(2, 3), (1, 3), (4, 1)])
def test_an_unstable_fleet_has_no_prediction_and_says_so(small: Any, n: tuple[int, int]) -> None:
    check = certify(problem(small), fleet(*n))
    assert not check.certified
    assert check.prediction is None
    assert "it takes at least" in check.broken[0] or "add replicas" in check.broken[0]


def test_an_empty_fleet_lacks_both_roles(small: Any) -> None:
    check = certify(problem(small), Fleet(()))
    assert check.broken == ("no replica serves prefill", "no replica serves decode")


def test_demand_at_capacity_is_certified_and_a_little_more_is_not(small: Any) -> None:
    p = problem(small)
    rate = p.rate(p.options[0])
    assert certify(replace(p, demand=4 * rate), fleet(4, 8)).certified
    assert not certify(replace(p, demand=4 * rate * (1 + 1e-6)), fleet(4, 8)).certified


def test_certificate_agrees_with_measured_statistics_of_the_slo(small: Any) -> None:
    """kept is Slo.keeps of the prediction: the bound itself is kept, a bit more is not."""
    slo = Slo("all", "ttft", Mean(), 0.5)
    assert slo.keeps(0.5) and slo.keeps(0.5 * (1 + 1e-12)) and not slo.keeps(0.5 * (1 + 1e-6))


@pytest.mark.parametrize("seed", range(6))
def test_certified_means_a_routing_exists(small: Any, seed: int) -> None:
    """With one type per role, or separate stages, certify and Capacity.route agree."""
    system = small.two_type_system(seed, "transfer")
    p = small.problem_on(system, {"ttft": 0.6, "tpot": 0.05})
    assert isinstance(p.capacity, Capacity) and not p.capacity.coupled
    for prefill in ((1, 0), (1, 1), (0, 3), (2, 2)):
        for decode in ((1, 0), (0, 1), (1, 2)):
            f = small.fleet_of(p, prefill, decode)
            assert certify(p, f).certified == (p.capacity.route(f, p.demand) is not None)


def test_the_text_of_a_fleet_reads_back(small: Any) -> None:
    p = problem(small)
    assert parse_fleet("4P3D", p.capacity.system.type_names) == fleet(4, 3)
