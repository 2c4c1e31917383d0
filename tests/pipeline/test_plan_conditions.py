"""Headroom and redundancy from a scenario file to the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdalloc.errors import InputError
from pdalloc.planning.plan import plan
from pdalloc.scenario import load_scenario

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
