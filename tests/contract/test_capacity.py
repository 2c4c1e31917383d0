"""Capacity inverts prediction: at the admissible rate every SLO holds, just above one breaks."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pdalloc.capacity import Capacity, demand_limit, greatest_rate
from pdalloc.closed_forms import decode_count, mm1_count, mm1_count_percentile
from pdalloc.errors import UnstableError
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency, Noise
from pdalloc.prediction import predict
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import parse_statistic
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, independent
from pdalloc.workload.traffic import TrafficClass, Workload

LLM = Llm("toy", "Toy", 1e9, 1000.0, 1e5, 1e9)
MOVE = 0.05
MIXED_LENGTHS = independent([200.0, 800.0, 2500.0], [20.0, 150.0, 400.0])  # type: ignore[arg-type]
Bounds = dict[str, float]


def replica(
    name: str = "r",
    prefill: float = 2e-4,
    base: float = 0.02,
    per_request: float = 2e-4,
    noise: Noise = "exponential",
    max_batch: float = math.inf,
) -> ReplicaType:
    latency = Latency(AffinePrefill(0.0, prefill), AffineDecode(base, per_request), noise)
    gpu = Gpu(name, name)
    return ReplicaType(name, gpu, 1, (PREFILL, DECODE), latency, 1.0, max_batch=max_batch)


def capacity(
    bounds: Bounds,
    rule: FirstToken = "transfer",
    lengths: LengthLaw | None = None,
    types: tuple[ReplicaType, ...] = (replica(),),
) -> Capacity:
    """``bounds`` maps ``ttft.p90`` to seconds."""
    slos = []
    for name, bound in bounds.items():
        metric, _, statistic = name.partition(".")
        slos.append(Slo("all", metric, parse_statistic(statistic), bound))
    workload = Workload((TrafficClass("all", 1.0, lengths or fixed(1000, 200)),))
    random = {PREFILL: "random", DECODE: "random"}
    by_name = {r.name: r for r in types}
    system = System(LLM, workload, by_name, Link(MOVE), random, rule)  # type: ignore[arg-type]
    return Capacity(system, tuple(slos))


def only(cap: Capacity) -> ReplicaType:
    return next(iter(cap.system.replica_types.values()))


def test_mean_ttft_closed_form() -> None:
    """Design 3.7.1: one M/M/1 replica admits mu - 1/(tau - overhead)."""
    cap = capacity({"ttft.mean": 1.0})
    rate = cap.relaxed_rate(PREFILL, only(cap))
    assert rate == pytest.approx(5.0 - 1 / 0.95, rel=1e-9)
    assert 7.0 / rate == pytest.approx(mm1_count(7.0, 5.0, 0.95), rel=1e-9)


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_percentile_ttft_closed_form(percent: float) -> None:
    """Design 3.7.2: mu - ln(1/(1-p))/(tau - overhead)."""
    cap = capacity({f"ttft.p{percent}": 2.0})
    rate = cap.relaxed_rate(PREFILL, only(cap))
    assert rate == pytest.approx(5.0 - math.log(1 / (1 - percent / 100)) / 1.95, rel=1e-4)
    assert 7.0 / rate == pytest.approx(
        mm1_count_percentile(7.0, 5.0, 1.95, percent / 100), rel=1e-4
    )


def test_mean_tpot_closed_form() -> None:
    """Design 3.7.5: one replica admits (1 - (a + b)/tau)/(L b), for long answers; with L = 200
    steps of whole length a little more."""
    cap = capacity({"tpot.mean": 0.05}, "decode")
    rate = cap.relaxed_rate(DECODE, only(cap))
    assert rate == pytest.approx((1 - 0.0202 / 0.05) / (200 * 2e-4), rel=1e-4)
    assert 7.0 / rate == pytest.approx(decode_count(7.0, 200, 0.02, 2e-4, 0.05), rel=1e-4)


SLOS: list[Bounds] = [
    {"ttft.mean": 1.0},
    {"ttft.p95": 2.0},
    {"tpot.mean": 0.05},
    {"tpot.p99": 0.05},
    {"itl.mean": 0.05},
    {"itl.p90": 0.05},
    {"e2e.mean": 9.0},
    {"e2e.p90": 20.0},
    {"ttft.p90": 2.0, "tpot.p90": 0.04, "e2e.p99": 25.0},
]


@pytest.mark.parametrize("rule", ["prefill", "transfer", "decode"])
@pytest.mark.parametrize("bounds", SLOS, ids=lambda b: "+".join(b))
@pytest.mark.parametrize("lengths", [fixed(1000, 200), MIXED_LENGTHS], ids=["fixed", "mixed"])
def test_inverse(bounds: Bounds, rule: FirstToken, lengths: LengthLaw) -> None:
    """Each role at its greatest rate beside an idle partner: kept there, broken 0.01 % above
    (or saturated)."""
    cap = capacity(bounds, rule, lengths)
    r = only(cap)
    p, d = cap.predictor.prefill(r, 0.0), cap.predictor.decode(r, 0.0)
    assert cap.slack(p, d) > 0
    for role in (PREFILL, DECODE):
        rate = cap.relaxed_rate(role, r)
        assert 0 < rate < cap.stability_limit(role, r)

        def slack(y: float, role: str = role) -> float:
            if role == PREFILL:
                return cap.slack(cap.predictor.prefill(r, y), d)
            return cap.slack(p, cap.predictor.decode(r, y))

        assert slack(rate) >= 0
        try:
            assert slack(rate * 1.0001) < 0
        except UnstableError:
            assert rate == pytest.approx(cap.stability_limit(role, r), rel=1e-3)


def test_unreachable_bound_admits_nothing() -> None:
    """tau below one prefill plus transfer: rate 0, never a negative number."""
    cap = capacity({"ttft.mean": 0.249})
    assert cap.relaxed_rate(PREFILL, only(cap)) == 0.0
    assert cap.route(Fleet.of({(PREFILL, "r"): 1000, (DECODE, "r"): 1000}), 1.0) is None


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["ttft.mean", "ttft.p90", "tpot.mean", "itl.mean", "e2e.mean"]),
    st.floats(1.05, 20.0),
    st.floats(1.01, 2.0),
)
def test_looser_bounds_admit_more(name: str, tightness: float, factor: float) -> None:
    """The admissible rate rises with the bound, in both roles."""
    probe = capacity({name: 1e3})
    p, d = (probe.idle(role, only(probe)) for role in (PREFILL, DECODE))
    floor = probe.value(probe.slos[0], 0, p, d)  # type: ignore[arg-type]
    tight, loose = (capacity({name: floor * tightness * f}) for f in (1.0, factor))
    for role in (PREFILL, DECODE):
        slow, fast = (cap.relaxed_rate(role, only(cap)) for cap in (tight, loose))
        assert fast >= slow * (1 - 1e-9)


@pytest.mark.parametrize(
    ("slack", "root"),
    [(lambda y: 1 - y, 1.0), (lambda y: 4 - y * y, 2.0), (lambda y: -1.0, 0.0)],
)
def test_greatest_rate_of_known_functions(slack: object, root: float) -> None:
    found = greatest_rate(slack, 10.0)  # type: ignore[arg-type]
    assert found == pytest.approx(root, rel=1e-9)
    assert root == 0.0 or slack(found) >= 0  # type: ignore[operator]


def test_greatest_rate_stops_below_saturation() -> None:
    """Where only stability binds, the answer is just under the limit."""
    found = greatest_rate(lambda y: 1.0, 10.0)
    assert 10.0 * (1 - 1e-6) < found < 10.0


TWO_TYPES = (replica("fast"), replica("slow", prefill=3.5e-4, base=0.03, per_request=3e-4))
BOTH = Fleet.of(
    {(PREFILL, "fast"): 9, (PREFILL, "slow"): 9, (DECODE, "fast"): 1, (DECODE, "slow"): 1}
)
COUPLED: Bounds = {"ttft.mean": 1.0, "tpot.mean": 0.08, "e2e.mean": 12.0}


@pytest.mark.parametrize(
    ("bounds", "share"),
    [(COUPLED, 0.2), (COUPLED, 0.9), (COUPLED, 0.9999), ({**COUPLED, "ttft.p90": 4.0}, 0.6)],
)
def test_coupled_route_keeps_every_slo_on_every_path(bounds: Bounds, share: float) -> None:
    """All (prefill, decode) pairs with traffic keep all SLOs, and each role carries exactly
    the demand."""
    cap = capacity(bounds, "decode", types=TWO_TYPES)
    assert cap.coupled
    demand = share * demand_limit(capacity(COUPLED, "decode", types=TWO_TYPES), BOTH, 50.0)
    rates = cap.route(BOTH, demand)
    assert rates is not None
    for role in (PREFILL, DECODE):
        carried = sum(rate for (at, _), rate in rates.items() if at == role)
        assert carried == pytest.approx(demand, rel=1e-9)
    prediction = predict(cap.predictor, BOTH, rates)
    assert min(cap.slack(p, d) for p, d in prediction.paths()) >= -1e-9


@pytest.mark.parametrize("bounds", [COUPLED, {"e2e.mean": 12.0}])
def test_coupled_decode_pools_run_at_one_level(bounds: Bounds) -> None:
    """Decode types that carry traffic are equally far from the first token, in the mean (where
    only E2E spans the stages: from the last)."""
    cap = capacity(bounds, "decode", types=TWO_TYPES)
    split = cap.decode_split(BOTH, 0.9 * demand_limit(cap, BOTH, 50.0))
    assert split is not None and all(rate > 0 for rate in split.values())
    types = cap.system.replica_types
    batches = [cap.predictor.decode(types[name], rate).law for name, rate in split.items()]
    levels = [
        b.mean_first_token if "ttft.mean" in bounds else b.mean_entry + 200 * b.mean_step
        for b in batches
    ]
    assert levels[0] == pytest.approx(levels[1], rel=2e-3)


def test_light_load_leaves_the_slow_decode_type_idle() -> None:
    """No pool is slower than the level: below the slow type's idle first token it gets none."""
    cap = capacity(COUPLED, "decode", types=TWO_TYPES)
    split = cap.decode_split(BOTH, 0.5)
    assert split is not None and split["slow"] == 0.0


@pytest.mark.parametrize("rule", ["transfer", "decode"])
def test_demand_limit_agrees_with_route(rule: FirstToken) -> None:
    """Served at the limit (less the search's 1e-6), not 0.1 % above it."""
    bounds: Bounds = {"ttft.mean": 1.0, "tpot.mean": 0.06}
    cap = capacity(bounds, rule, types=TWO_TYPES)
    limit = demand_limit(cap, BOTH, 50.0)
    assert cap.route(BOTH, limit * (1 - 1e-9)) is not None
    assert cap.route(BOTH, limit * 1.001) is None
    assert demand_limit(cap, BOTH, 0.5 * limit) == pytest.approx(0.5 * limit, rel=1e-9)


def test_uncoupled_demand_limit_is_the_smaller_role() -> None:
    """n_P (mu - 1/tau') against n_D (1 - (a + b)/tau)/(L b), L = 199 steps here."""
    cap = capacity({"ttft.mean": 1.0, "tpot.mean": 0.06})
    assert not cap.coupled
    for prefills, decodes in ((1, 50), (50, 1)):
        fleet = Fleet.of({(PREFILL, "r"): prefills, (DECODE, "r"): decodes})
        rates = [cap.relaxed_rate(role, only(cap)) for role in (PREFILL, DECODE)]
        exact = min(prefills * rates[0], decodes * rates[1])
        assert demand_limit(cap, fleet, 1e3) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("counts", [(4, 1), (1, 4), (1, 1)])
def test_overload_is_no_route_not_an_error(counts: tuple[int, int]) -> None:
    """Whichever role saturates, the answer is None."""
    fleet = Fleet.of({(PREFILL, "r"): counts[0], (DECODE, "r"): counts[1]})
    for rule in ("prefill", "transfer", "decode"):
        cap = capacity({"ttft.mean": 1.0, "tpot.mean": 0.06}, rule)
        assert cap.route(fleet, 500.0) is None


counts = st.integers(0, 4)


def grows(cap: Capacity, fleet: dict[tuple[str, str], int], share: float) -> None:
    """A fleet that keeps the SLOs still does with any one replica more."""
    start = Fleet.of(fleet)
    assume(all(start.in_role(role) for role in (PREFILL, DECODE)))
    demand = share * demand_limit(cap, start, 20.0)
    assume(demand > 0 and cap.route(start, demand) is not None)
    for key in fleet:
        more = Fleet.of({**fleet, key: fleet[key] + 1})
        assert cap.route(more, demand) is not None, f"{start} + {key} at {demand} req/s"


APART = capacity({"ttft.mean": 2.0, "tpot.mean": 0.06}, types=TWO_TYPES)
"""Shared, so that the rates of a replica are found once."""


@settings(max_examples=40, deadline=None)
@given(counts, counts, counts, counts, st.floats(0.1, 0.999))
def test_adding_a_replica_never_hurts(pf: int, ps: int, df: int, ds: int, share: float) -> None:
    """Stages apart: TTFT is prefill's alone, TPOT decode's."""
    pools = {(PREFILL, "fast"): pf, (PREFILL, "slow"): ps}
    grows(APART, {**pools, (DECODE, "fast"): df, (DECODE, "slow"): ds}, share)


@settings(max_examples=5, deadline=None)
@given(counts, counts, counts, counts, st.floats(0.1, 0.999))
def test_adding_a_replica_never_hurts_coupled(
    pf: int, ps: int, df: int, ds: int, share: float
) -> None:
    """Stages coupled by TTFT and E2E: one more replica can at worst stay idle."""
    cap = capacity({"ttft.mean": 1.0, "e2e.mean": 20.0}, "decode", types=TWO_TYPES)
    pools = {(PREFILL, "fast"): pf, (PREFILL, "slow"): ps}
    grows(cap, {**pools, (DECODE, "fast"): df, (DECODE, "slow"): ds}, share)


def test_a_decode_type_with_few_slots_never_hurts() -> None:
    """Slot waits of a four-slot type cost TTFT, so it may carry less, never make a fleet fail."""
    few = replica("few", base=0.015, per_request=4e-4, max_batch=4)
    many = replica("many", base=0.04, per_request=1.5e-4)
    cap = capacity({"ttft.p90": 2.0}, "decode", fixed(1200, 90), (many, few))
    fleet = {(PREFILL, "many"): 8, (DECODE, "many"): 1}
    demand = 0.9 * demand_limit(cap, Fleet.of(fleet), 100.0)
    assert cap.route(Fleet.of(fleet), demand) is not None
    assert cap.route(Fleet.of({**fleet, (DECODE, "few"): 1}), demand) is not None
