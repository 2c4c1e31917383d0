"""Pools per class in a scenario file: the parts they become, one line for what they cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from pdalloc.errors import InputError, PdallocError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.scenario import Scenario, scenario_from_mapping
from pdalloc.scenario.pools import check_shared, fitting, together


def traffic(name: str = "chat", **keys: Any) -> dict[str, Any]:
    block: dict[str, Any] = {
        "name": name,
        "rate": "7 req/s",
        "prompt": ["500 tokens", "1500 tokens"],
    }
    block |= {"output": "10 tokens", "slo": {"ttft": {"mean": "1 s"}, "tpot": {"p90": "1 s"}}}
    return block | keys


def replica(name: str = "r", **keys: Any) -> dict[str, Any]:
    service = {
        "source": "made up",
        "prefill": {"throughput": "10000 token/s"},
        "decode": {"base": "10 ms", "per_request": "1 ms/request"},
    }
    return {"name": name, "gpu": "h100", "gpus": 1, "service": service} | keys


def scenario(*classes: dict[str, Any], **keys: Any) -> Scenario:
    raw = {
        "name": "q",
        "llm": "llama2-70b",
        "traffic": list(classes) or [traffic()],
        "replicas": [replica()],
        "prices": {"h100": "2 USD/GPU/hour"},
        "stock": {"h100": 8},
        "pools": "dedicated",
    }
    return scenario_from_mapping(raw | keys)


def classes_of(found: Scenario) -> list[list[str]]:
    return [[c.name for c in part.system.workload.classes] for part in found.parts]


def test_shared_pools_have_no_parts():
    found = scenario(pools="shared")
    assert found.parts == ()
    check_shared(found)


def test_each_class_has_a_part_with_its_own_promises():
    batch = traffic("batch", slo={"e2e": {"mean": "9 s"}})
    batch["attainment"] = [{"share": 0.9, "within": {"ttft": "3 s"}}]
    batch["best_effort"] = [{"within": {"ttft": "1 s"}, "price": "1 USD/krequest"}]
    found = scenario(traffic(), batch)
    assert classes_of(found) == [["chat"], ["batch"]]
    chat, late = found.parts
    assert {slo.traffic_class for slo in chat.slos} == {"chat"}
    assert len(chat.slos) == 2 and chat.best_effort == ()
    assert [type(slo).__name__ for slo in late.slos] == ["Slo", "JointSlo"]
    assert [b.traffic_class for b in late.best_effort] == ["batch"]
    assert found.demand == pytest.approx(sum(part.demand for part in found.parts))


def test_parts_keep_stock_limits_headroom_and_options():
    found = scenario(
        traffic(),
        traffic("code"),
        replicas=[replica(limits={"decode": 3})],
        headroom=0.2,
        redundancy=1,
        simulation={"step_noise": {"law": "gamma", "scv": 0.5}},
    )
    for part in found.parts:
        assert part.stock == {"h100": 8}
        assert part.limits == {(DECODE, "r"): 3}
        assert (part.headroom, part.redundancy) == (0.2, 1)
        assert part.options == found.options


def test_buckets_split_a_class_and_each_keeps_its_slos():
    found = scenario(traffic(buckets="1000 tokens"), traffic("code"))
    assert classes_of(found) == [["chat[<=1000]"], ["chat[>1000]"], ["code"]]
    for part in found.parts[:2]:
        assert part.demand == pytest.approx(3.5)
        assert {slo.traffic_class for slo in part.slos} == {part.title}
        assert len(part.slos) == 2
    assert [c.name for c in found.system.workload.classes] == ["chat", "code"]


def test_groups_share_pools_in_the_order_of_the_classes():
    found = scenario(
        traffic(), traffic("code"), traffic("batch"), pools=[["batch"], ["code", "chat"]]
    )
    assert classes_of(found) == [["batch"], ["chat", "code"]]


def test_groups_name_buckets():
    found = scenario(
        traffic(buckets="1000 tokens"),
        traffic("code"),
        pools=[["chat[<=1000]"], ["chat[>1000]", "code"]],
    )
    assert classes_of(found) == [["chat[<=1000]"], ["chat[>1000]", "code"]]


def test_a_rate_in_tokens_is_that_of_the_class_before_it_is_split():
    found = scenario(traffic(rate="60600 token/s", buckets="1000 tokens"))
    # 1000 prompt tokens and 10 of output on average: 60 requests/s, half of them in each bucket
    assert [part.demand for part in found.parts] == pytest.approx([30.0, 30.0])


# KV memory


def test_types_too_small_for_a_part_do_not_decode_it():
    small = replica("small", kv_tokens=1000.0)
    found = scenario(traffic(buckets="1000 tokens"), replicas=[replica(), small])
    short, long = found.parts
    assert short.system.type_names == {PREFILL: ["r", "small"], DECODE: ["r", "small"]}
    assert long.system.type_names == {PREFILL: ["r", "small"], DECODE: ["r"]}
    assert fitting(found.system).type_names[DECODE] == ["r"]


def test_a_type_that_only_decodes_and_is_too_small_is_gone():
    small = replica("small", kv_tokens=1000.0, roles=["decode"])
    found = scenario(traffic(buckets="1000 tokens"), replicas=[replica(), small])
    assert list(found.parts[1].system.replica_types) == ["r"]


def test_no_type_for_a_part_is_one_line():
    with pytest.raises(InputError, match=r"no type's KV tokens hold a request of 1510 tokens"):
        scenario(traffic(buckets="1000 tokens"), replicas=[replica(kv_tokens=1000.0)])


# All together again


def test_together_is_the_parts_traffic_and_promises_on_shared_pools():
    found = scenario(traffic(buckets="1000 tokens"), traffic("code"))
    shared = together(found)
    assert shared is not None and shared.parts == ()
    names = [c.name for c in shared.system.workload.classes]
    assert names == ["chat[<=1000]", "chat[>1000]", "code"]
    assert shared.demand == pytest.approx(found.demand)
    assert len(shared.slos) == 6


def test_buckets_of_bursts_are_not_put_together_again():
    assert together(scenario(traffic(buckets="1000 tokens", arrival_scv=4.0))) is None
    assert together(scenario(traffic(arrival_scv=4.0), traffic("code"))) is not None


# Buckets to choose from


def test_auto_buckets_are_choices_of_one_edge_and_of_none():
    prompts = [f"{n} tokens" for n in (100, 200, 300, 400)]
    found = scenario(traffic(prompt=prompts, buckets="auto"), traffic("code"))
    assert [classes_of(choice)[:-1] for choice in found.choices] == [
        [["chat"]],
        [["chat[<=100]"], ["chat[>100]"]],
        [["chat[<=200]"], ["chat[>200]"]],
        [["chat[<=300]"], ["chat[>300]"]],
    ]
    assert all(classes_of(choice)[-1] == ["code"] for choice in found.choices)
    assert found.parts == found.choices[0].parts
    assert all(choice.choices == () for choice in found.choices)
    for choice in found.choices:
        assert sum(part.demand for part in choice.parts) == pytest.approx(found.demand)


def test_edges_that_are_given_stay_beside_auto_ones():
    found = scenario(traffic(buckets="auto"), traffic("code", buckets="1000 tokens"))
    assert classes_of(found.choices[1]) == [
        ["chat[<=500]"],
        ["chat[>500]"],
        ["code[<=1000]"],
        ["code[>1000]"],
    ]


# Refused in one line

BUCKETS = {"buckets": "1000 tokens"}
LINES: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([traffic(**BUCKETS)], {"pools": "shared"}, "traffic.0.buckets: shared pools serve every"),
    ([traffic()], {"pools": [["chat", "cod"]]}, "pools.0: no traffic class 'cod'; known: chat"),
    (
        [traffic(**BUCKETS)],
        {"pools": [["chat"]]},
        "pools.0: no traffic class 'chat'; known: chat[<=1000], chat[>1000]",
    ),
    (
        [traffic(), traffic("b")],
        {"pools": [["chat", "b"], ["b"]]},
        "pools.1: b is in two groups, or twice in one; keep one",
    ),
    ([traffic()], {"pools": [["chat", "chat"]]}, "pools.0: chat is in two groups, or twice"),
    ([traffic(), traffic("b")], {"pools": [["chat"]]}, "pools: b is in no group; add it to one"),
    ([traffic()], {"pools": [["chat"], []]}, "pools.1: the group is empty"),
    ([traffic()], {"pools": []}, "pools: chat is in no group"),
    ([traffic()], {"pools": "apart"}, "pools: must be 'shared' or 'dedicated', got 'apart'"),
    ([traffic(buckets="2000 1000 tokens")], {}, "traffic.0.buckets: edges must rise"),
    ([traffic(buckets="9000 tokens")], {}, "traffic.0.buckets: no prompt of chat is in >9000"),
    (
        [traffic(buckets="auto"), traffic("b", buckets="auto")],
        {},
        "traffic.1.buckets: auto is for one class, under pools: dedicated",
    ),
    ([traffic(buckets="auto")], {"pools": [["chat"]]}, "traffic.0.buckets: auto is for one class"),
    ([traffic(buckets="auto")], {"pools": "shared"}, "traffic.0.buckets: shared pools serve"),
    ([traffic(buckets="1 s")], {}, "traffic.0.buckets"),
    ([traffic(buckets=1000.0)], {}, "traffic.0.buckets: 1000.0 needs a number and a unit"),
    (
        [traffic(arrivals={"process": "sessions", "turns": 3.0, "think": "10 s"}, **BUCKETS)],
        {},
        "traffic.0.buckets: the prompt lengths of sessions",
    ),
    (
        [
            traffic(),
            traffic(
                "b", slo={}, best_effort=[{"within": {"ttft": "1 s"}, "price": "1 USD/krequest"}]
            ),
        ],
        {},
        "pools: best effort alone sizes no fleet for b",
    ),
    (
        [traffic(arrival_scv=3.0, **BUCKETS)],
        {"pools": [["chat[<=1000]", "chat[>1000]"]]},
        "pools.0: buckets of one class that is not Poisson",
    ),
    (
        [traffic()],
        {
            "network": {"bandwidth": "25 GB/s"},
            "simulation": {"transfers": {"sharing": "fcfs", "scope": "fabric"}},
        },
        "pools: dedicated pools would share the links of scope fabric",
    ),
]


@pytest.mark.parametrize(("classes", "keys", "message"), LINES)
def test_what_cannot_be_is_one_line(classes, keys, message):
    with pytest.raises(PdallocError) as error:
        scenario(*classes, **keys)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_questions_other_than_plan_are_refused():
    with pytest.raises(UnsupportedError, match="which only pdalloc plan answers"):
        check_shared(scenario())
