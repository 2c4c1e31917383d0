"""Shared links that cannot carry the traffic: an answer with the link's line, not an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdalloc.planning import evaluate, plan
from pdalloc.scenario import Scenario

pytestmark = pytest.mark.pipeline

SHARED = {"transfers": {"sharing": "fcfs", "scope": "fabric"}}
KV_BYTES = 327_680.0 * 1000.0
"""Of 1000 tokens of llama2-70b: 2 x 80 layers x 8 heads x 128 x 2 bytes each."""


def linked(made, gigabytes: float, **keys: Any) -> Scenario:
    """7 transfers/s of 0.328 GB each over one fabric of ``gigabytes`` GB/s."""
    more = {"traffic": [made.chat(output="20 tokens")], "simulation": SHARED} | keys
    network = {"bandwidth": f"{gigabytes} GB/s"}
    found: Scenario = made.question(network=network, **more)
    return found


@pytest.mark.parametrize("rule", ["prefill", "transfer", "decode"])
def test_no_fleet_widens_a_fabric(made, rule: str) -> None:
    """rho = 7 x 0.328 / 1.5 = 1.53, whatever the fleet; the same link at 3 GB/s has 0.76."""
    answer = plan(linked(made, 1.5, first_token=rule))
    assert answer.status == "infeasible"
    assert f"rho = {7.0 * KV_BYTES / 1.5e9:.3f}" in answer.reason
    assert "the link of the fabric" in answer.reason
    wide = plan(linked(made, 3.0, first_token=rule))
    assert wide.status == "optimal"
    assert wide.links[0].utilisation == pytest.approx(7.0 * KV_BYTES / 3e9)


def test_the_command_gives_an_answer_and_2(made, command: Callable[..., Any]) -> None:
    raw = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": [made.chat(output="20 tokens")],
        "replicas": [made.replica()],
        "prices": {"h100": "2 USD/GPU/hour"},
        "network": {"bandwidth": "1.5 GB/s"},
        "first_token": "transfer",
        "simulation": SHARED,
    }
    Path("q.yaml").write_text(yaml.safe_dump(raw))
    done = command("plan", "q.yaml", "--json", "-")
    assert done.returncode == 2
    assert json.loads(done.stdout)["status"] == "infeasible"
    assert done.stderr.startswith("pdalloc: infeasible: the link of the fabric")


@pytest.mark.parametrize("rule", ["prefill", "transfer"])
def test_pools_beside_a_full_link_are_not_overloaded(made, rule: str) -> None:
    """M/M/1 replicas of 10 req/s each, 7 req/s over two of them."""
    answer = evaluate(linked(made, 1.5, first_token=rule), "2P1D")
    assert answer.status == "infeasible" and "the link of the fabric" in answer.reason
    prefill, decode = answer.pools
    assert prefill.utilisation == pytest.approx(0.35)
    assert decode.utilisation is not None and decode.utilisation < 1.0
    assert [slo.predicted_s for slo in answer.slos] == [None]
    overloaded = evaluate(linked(made, 1.5, first_token=rule), "1P1D", simulate=True)
    assert "nothing to validate" in overloaded.warnings[-1]


def test_a_type_is_no_article(made) -> None:
    """One prefill replica sends at most 10 x 0.328 GB/s over its own link."""
    per_replica = {"transfers": {"sharing": "fcfs", "scope": "replica"}}
    answer = evaluate(linked(made, 1.5, simulation=per_replica), "1P1D")
    assert "the link of one prefill replica of type r:" in answer.reason
    more = plan(linked(made, 1.5, simulation=per_replica, first_token="transfer"))
    assert more.status == "optimal"
