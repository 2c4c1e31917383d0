"""Plans for joint SLOs: closed forms, percentiles as a special case, coupled stages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pdalloc.capacity import Capacity
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency, Noise
from pdalloc.slo.interface import Objective
from pdalloc.slo.joint import JointSlo, within
from pdalloc.slo.objective import Slo
from pdalloc.slo.statistics import Percentile
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

MU = 10.0
"""Requests/s that one prefill replica can do: 1000 tokens at 0.1 ms."""
STEP = 1e-3
RULES: list[FirstToken] = ["prefill", "transfer", "decode"]
LIMITS = {"ttft": 0.6, "tpot": 0.03, "e2e": 5.0}


def joint(share: float, **limits: float) -> JointSlo:
    return JointSlo("all", share, within(limits))


def capacity(
    *slos: Objective,
    lengths: LengthLaw | None = None,
    first: FirstToken = "prefill",
    decode: AffineDecode | None = None,
    move: float = 0.0,
    noise: Noise = "exponential",
    dispatch: Any = "random",
) -> Capacity:
    """M/M/1 prefill; steps of STEP seconds whatever the batch, unless ``decode`` says otherwise."""
    latency = Latency(AffinePrefill(0.0, 1e-4), decode or AffineDecode(STEP, 0.0), noise)
    system = System(
        Llm("t", "T", 1e9, 1e3, 1e5, 1e9),
        Workload((TrafficClass("all", 100.0, lengths or fixed(1000.0, 201.0)),)),
        {"r": ReplicaType("r", Gpu("r", "R"), 1, ROLES, latency, 1.0)},
        Link(move),
        dict.fromkeys(ROLES, dispatch),
        first,
    )
    return Capacity(system, slos)


def mm1_rate(late: float, seconds: float) -> float:
    """Where P(T > t) = exp(-(mu - lambda) t) is ``late`` (Kleinrock 1975, eq. 5.119)."""
    return MU - math.log(1.0 / late) / seconds


@pytest.mark.parametrize("share", [0.8, 0.9, 0.95])
def test_constant_decode_leaves_the_mm1_rate(share: float) -> None:
    """TPOT is one step for everybody: P(both) = P(TTFT <= x)."""
    c = capacity(joint(share, ttft=1.0, tpot=0.05))
    rate = c.admissible_rate(PREFILL, c.system.replica_types["r"], 1)
    assert rate == pytest.approx(mm1_rate(1.0 - share, 1.0), rel=6e-3)


def test_those_late_by_decode_leave_less_to_prefill() -> None:
    """A tenth of the answers has one gap, which holds the transfer, and is late in TPOT.

    P(both) = 0.9 P(TTFT <= x): of a share s, P(TTFT <= x) must be s / 0.9.
    """
    lengths = joint_table(np.full(2, 1000.0), np.array([2.0, 201.0]), np.array([1.0, 9.0]))
    c = capacity(joint(0.8, ttft=1.0, tpot=0.05), lengths=lengths, move=0.1)
    rate = c.admissible_rate(PREFILL, c.system.replica_types["r"], 1)
    assert rate == pytest.approx(mm1_rate(1.0 - 0.8 / 0.9, 1.0), rel=6e-3)


def test_e2e_takes_decode_time_from_ttft() -> None:
    """E2E = TTFT + 200 steps: P(both) = P(T <= min(x, z - 200 t)), within a step's boundary."""
    c = capacity(joint(0.9, ttft=1.0, e2e=0.9))
    rate = c.admissible_rate(PREFILL, c.system.replica_types["r"], 1)
    assert rate == pytest.approx(mm1_rate(0.1, 0.9 - 200 * STEP), rel=8e-3)


@pytest.mark.parametrize("dispatch", ["random", "central_queue"])
@pytest.mark.parametrize("first", RULES)
@pytest.mark.parametrize("metric", list(LIMITS))
def test_one_limit_is_a_percentile(metric: str, first: FirstToken, dispatch: str) -> None:
    """P(T <= t) >= p is t_p <= t: the same rates, so the same plans."""
    seconds = LIMITS[metric]
    decode = AffineDecode(0.015, 3e-4)
    slos = joint(0.9, **{metric: seconds}), Slo("all", metric, Percentile(90.0), seconds)
    both = [capacity(slo, first=first, decode=decode, dispatch=dispatch) for slo in slos]
    assert both[0].coupled == both[1].coupled
    for role, replicas in ((PREFILL, 1), (PREFILL, 3), (DECODE, 2)):
        rates = [c.admissible_rate(role, c.system.replica_types["r"], replicas) for c in both]
        assert rates[0] > 0.0
        assert rates[0] == pytest.approx(rates[1], rel=2e-4)


@pytest.mark.parametrize("first", RULES)
def test_slack_falls_with_the_load_of_either_role(first: FirstToken) -> None:
    c = capacity(joint(0.9, **LIMITS), first=first, decode=AffineDecode(0.015, 3e-4))
    r = c.system.replica_types["r"]
    for role in ROLES:
        other = c.idle(DECODE if role == PREFILL else PREFILL, r)
        rates = np.linspace(0.0, 0.95, 12) * c.stability_limit(role, r)
        room = [c.room(role, r, float(rate), 1, [other]) for rate in rates]
        assert np.all(np.diff(room) <= 1e-9)
        assert room[0] > 0.0 > room[-1]


@pytest.mark.parametrize("role", ROLES)
def test_the_admissible_rate_is_where_the_share_is_met(role: Any) -> None:
    slo = joint(0.9, **LIMITS)
    c = capacity(slo, decode=AffineDecode(0.015, 3e-4))
    r = c.system.replica_types["r"]
    rate = c.admissible_rate(role, r, 1)
    for factor, kept in ((1.0, True), (1.001, False)):
        p = c.predictor.prefill(r, factor * rate if role == PREFILL else 0.0)
        d = c.predictor.decode(r, factor * rate if role == DECODE else 0.0)
        assert slo.keeps(c.value(slo, 0, p, d)) == kept


@pytest.mark.parametrize(
    ("limits", "first", "coupled"),
    [
        ({"ttft": 1.0}, "prefill", False),
        ({"ttft": 1.0}, "decode", True),
        ({"tpot": 1.0}, "decode", False),
        ({"ttft": 1.0, "tpot": 1.0}, "prefill", True),
        ({"e2e": 1.0}, "prefill", True),
    ],
)
def test_limits_on_both_stages_couple_them(
    limits: dict[str, float], first: FirstToken, coupled: bool
) -> None:
    assert capacity(joint(0.9, **limits), first=first).coupled == coupled


def test_a_joint_slo_is_harder_than_each_of_its_limits() -> None:
    """Fréchet 1935: P(all) <= min P(each)."""
    decode = AffineDecode(0.015, 3e-4)

    def rate(*slos: Objective) -> float:
        c = capacity(*slos, decode=decode)
        r = c.system.replica_types["r"]
        loaded = c.predictor.decode(r, 1.0)
        return c.prefill_rate(r, [loaded])

    together = rate(joint(0.9, **LIMITS))
    apart = rate(*(joint(0.9, **{metric: x}) for metric, x in LIMITS.items()))
    assert 0.0 < together <= apart * (1.0 + 1e-3)


def test_gaps_in_a_joint_slo_have_no_prediction() -> None:
    c = capacity(joint(0.9, ttft=1.0, itl=0.05))
    with pytest.raises(UnsupportedError, match="bound on itl; put bounds on"):
        c.admissible_rate(PREFILL, c.system.replica_types["r"], 1)
