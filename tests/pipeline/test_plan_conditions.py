"""Headroom and redundancy from a scenario file to the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdalloc.errors import InputError
from pdalloc.planning.plan import evaluate, plan
from pdalloc.scenario import Scenario, load_scenario

PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper_2603_04716" / "scenario.yaml"

pytestmark = pytest.mark.pipeline


def test_one_more_replica_of_each_role_survives_a_loss() -> None:
    """One type per role: the SLOs with any one replica lost take one more of each."""
    alone = plan(load_scenario(PAPER))
    safe = plan(load_scenario(PAPER, overrides=["redundancy=1"]))
    counts = [{p.role: p.replicas for p in answer.pools} for answer in (alone, safe)]
    assert counts[1] == {role: n + 1 for role, n in counts[0].items()}
    assert safe.status == "optimal"


def test_headroom_is_a_larger_demand() -> None:
    roomy = plan(load_scenario(PAPER, overrides=["headroom=0.5"]))
    alone = plan(load_scenario(PAPER))
    assert roomy.cost_usd_per_hour is not None and alone.cost_usd_per_hour is not None
    assert roomy.cost_usd_per_hour > alone.cost_usd_per_hour
    assert (
        roomy.demand_requests_per_s == alone.demand_requests_per_s
    )  # predicted at the demand itself


@pytest.mark.parametrize("wrong", ["headroom=-0.1", "redundancy=-1"])
def test_negative_conditions_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="must not be negative"):
        plan(load_scenario(PAPER, overrides=[wrong]))


def tp_mix(made, **keys: Any) -> Scenario:
    """A cheap prefill of 4 GPUs and a dearer one of 8, a decode type of 8 only."""
    cheap = made.replica("p4", gpus=4, roles=["prefill"])
    dear = made.replica("p8", gpus=8, roles=["prefill"])
    decode = made.replica("d8", gpus=8, roles=["decode"])
    traffic = [made.chat(output="20 tokens")]
    found: Scenario = made.question(cheap, dear, decode, traffic=traffic, **keys)
    return found


@pytest.mark.parametrize("fits", ["equal_gpus", [["p8", "d8"]]])
def test_types_that_do_not_fit_are_not_paired(made, fits: Any) -> None:
    """Equal speed at half the price: p4 is chosen unless it does not fit the decode type."""
    free, bound = plan(tp_mix(made)), plan(tp_mix(made, compatible=fits))
    types = [{p.replica_type for p in a.pools if p.role == "prefill"} for a in (free, bound)]
    assert types == [{"p4"}, {"p8"}]
    assert bound.status == "optimal"
    assert (bound.cost_usd_per_hour or 0.0) > (free.cost_usd_per_hour or 0.0)
    refused = evaluate(tp_mix(made, compatible=fits), "prefill/p4=2,decode/d8=1")
    assert refused.status == "infeasible" and "do not fit each other" in refused.reason


def test_no_pair_fits(made) -> None:
    answer = plan(tp_mix(made, compatible=[]))
    assert answer.status == "infeasible" and "types that fit each other" in answer.reason


@pytest.mark.parametrize(
    ("fits", "words"),
    [
        ([["p4", "d9"]], "compatible.0: no decode type 'd9'; known: d8"),
        ([["p4", "d8"], ["d8", "d8"]], "compatible.1: no prefill type 'd8'; known: p4, p8"),
        ("equal_tp", "compatible"),
    ],
)
def test_pairs_of_unknown_types_are_refused(made, fits: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tp_mix(made, compatible=fits)
