"""SLOs of a scenario file: what they become, and one line for what they cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from pdalloc.errors import PdallocError
from pdalloc.scenario import Scenario, scenario_from_mapping
from pdalloc.slo.joint import JointSlo

TOGETHER = {"share": 0.99, "within": {"tpot": "50 ms", "ttft": "2 s"}}
PRICED = {"within": {"ttft": "1 s"}, "price": "0.5 USD/krequest"}
MEAN = {"ttft": {"mean": "1 s"}}
SHED = {"price": "2 USD/krequest", "most": 0.2}
FREE = {"price": "0 USD/request"}


def scenario(*classes: dict[str, Any], **keys: Any) -> Scenario:
    common = {"rate": "5 req/s", "prompt": "1000 tokens", "output": "50 tokens"}
    service = {
        "source": "made up",
        "prefill": {"throughput": "10000 token/s"},
        "decode": {"base": "10 ms", "per_request": "0.5 ms/request"},
    }
    raw: dict[str, Any] = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": [
            {"name": f"c{i}"} | common | block for i, block in enumerate(classes or (keys,))
        ],
        "replicas": [{"gpu": "h100", "gpus": 8, "service": service}],
        "prices": {"h100": "2 USD/GPU/hour"},
    }
    return scenario_from_mapping(raw, origin="file.yaml")


def test_a_joint_slo_is_read_in_seconds() -> None:
    found = scenario(attainment=[TOGETHER])
    assert found.slos == (JointSlo("c0", 0.99, (("ttft", 2.0), ("tpot", 0.05))),)
    assert found.best_effort == ()


def test_slos_on_one_latency_come_before_joint_ones() -> None:
    found = scenario({"attainment": [TOGETHER], "slo": MEAN}, {"slo": MEAN})
    assert [s.traffic_class for s in found.slos] == ["c0", "c1", "c0"]
    assert [s.metric for s in found.slos] == ["ttft", "ttft", "ttft+tpot"]


def test_best_effort_is_a_price_per_request() -> None:
    """0.5 USD per thousand requests."""
    found = scenario({"slo": MEAN}, {"best_effort": [PRICED]})
    (effort,) = found.best_effort
    assert (effort.traffic_class, effort.limits) == ("c1", {"ttft": 1.0})
    assert effort.price == pytest.approx(5e-4)
    assert [s.traffic_class for s in found.slos] == ["c0"]  # the other class binds nothing


def test_shed_is_a_price_per_request_and_a_share() -> None:
    found = scenario({"slo": MEAN, "shed": SHED}, {"slo": MEAN}, {"slo": MEAN, "shed": FREE})
    one, other = found.shed
    assert (one.traffic_class, one.most) == ("c0", 0.2)
    assert one.price == pytest.approx(2e-3)
    assert (other.traffic_class, other.price, other.most) == ("c2", 0.0, 1.0)  # all of it
    # 2e-3 USD for each of 5 x 3600 requests
    assert one.usd_per_hour(5.0) == pytest.approx(36.0)


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"attainment": [TOGETHER | {"within": {}}]}, ["traffic.0.attainment.0.within", "at least"]),
    (
        {"attainment": [TOGETHER | {"within": {"tftt": "2 s"}}]},
        ["traffic.0.attainment.0.within.tftt", "did you mean 'ttft'"],
    ),
    (
        {"attainment": [TOGETHER | {"within": {"ttft": "-2 s"}}]},
        ["traffic.0.attainment.0.within.ttft", "must be positive", "-2 s"],
    ),
    (
        {"attainment": [TOGETHER | {"within": {"ttft": "2 tokens"}}]},
        ["traffic.0.attainment.0.within.ttft", "20 ms"],
    ),
    ({"attainment": [TOGETHER | {"share": 1}]}, ["traffic.0.attainment.0.share", "between 0 and"]),
    ({"attainment": [TOGETHER | {"share": 0}]}, ["traffic.0.attainment.0.share", "between 0 and"]),
    ({"attainment": [TOGETHER | {"share": 99}]}, ["traffic.0.attainment.0.share", "e.g. 0.99"]),
    ({"attainment": [TOGETHER | {"share": "99 %"}]}, ["traffic.0.attainment.0.share", "number"]),
    ({"attainment": [{"share": 0.9}]}, ["traffic.0.attainment.0.within", "missing"]),
    ({"attainment": TOGETHER}, ["traffic.0.attainment", "list"]),
    ({"attainment": [TOGETHER | {"shar": 1}]}, ["traffic.0.attainment.0.shar", "'share'"]),
    ({"attainment": [TOGETHER, TOGETHER]}, ["traffic.0.attainment.1.within", "twice"]),
    ({"slo": MEAN, "best_effort": [PRICED | {"price": 5}]}, ["best_effort.0.price", "krequest"]),
    (
        {"slo": MEAN, "best_effort": [PRICED | {"price": "1 USD/GPU/hour"}]},
        ["traffic.0.best_effort.0.price", "USD/krequest"],
    ),
    (
        {"slo": MEAN, "best_effort": [PRICED | {"price": "-1 USD/request"}]},
        ["traffic.0.best_effort.0.price", "must be positive"],
    ),
    (
        {"slo": MEAN, "best_effort": [PRICED | {"within": {"ttft": {"mean": "1 s"}}}]},
        ["traffic.0.best_effort.0.within.ttft", "has no mean", "seconds"],
    ),
    (
        {"slo": MEAN, "best_effort": [PRICED | {"within": {"e2": "1 s"}}]},
        ["traffic.0.best_effort.0.within.e2", "'e2e'"],
    ),
    ({"slo": MEAN, "best_effort": [PRICED, PRICED]}, ["traffic.0.best_effort.1.within", "twice"]),
    ({"best_effort": [PRICED]}, ["traffic.0.slo", "sizes no fleet"]),
    ({"shed": SHED}, ["traffic.0.slo", "at least one SLO"]),
    ({"slo": MEAN, "shed": SHED | {"most": 1.2}}, ["traffic.0.shed", "most", "between 0 and 1"]),
    ({"slo": MEAN, "shed": SHED | {"most": -0.1}}, ["traffic.0.shed", "most", "got -0.1"]),
    ({"slo": MEAN, "shed": SHED | {"most": "20 %"}}, ["traffic.0.shed.most", "number"]),
    (
        {"slo": MEAN, "shed": SHED | {"price": "-2 USD/krequest"}},
        ["traffic.0.shed", "price", "not negative", "-0.002"],
    ),
    ({"slo": MEAN, "shed": SHED | {"price": 2}}, ["traffic.0.shed.price", "USD/krequest"]),
    (
        {"slo": MEAN, "shed": SHED | {"price": "2 USD/GPU/hour"}},
        ["traffic.0.shed.price", "USD/krequest"],
    ),
    ({"slo": MEAN, "shed": {"most": 0.2}}, ["traffic.0.shed.price", "missing"]),
    ({"slo": MEAN, "shed": SHED | {"share": 0.2}}, ["traffic.0.shed.share", "unknown key", "most"]),
    ({"slo": MEAN, "shed": [SHED]}, ["traffic.0.shed", "block"]),
    ({}, ["traffic.0.slo", "at least one SLO"]),
]


@pytest.mark.parametrize(("keys", "words"), WRONG, ids=[" ".join(w) for _, w in WRONG])
def test_one_line_says_what_is_wrong(keys: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(PdallocError) as caught:
        scenario(keys)
    message = str(caught.value)
    assert message.startswith("file.yaml: ") and len(message.splitlines()) == 1
    for word in words:
        assert word in message
