"""Pools and fleets: counting, naming, and reading what users write."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet, Pool, parse_both_roles, parse_fleet

ONE = {PREFILL: ["h200x8"], DECODE: ["h200x8"]}
TWO = {PREFILL: ["a100x8", "h100x8"], DECODE: ["a100x8", "h100x8"]}


@pytest.mark.parametrize("replicas", [True, 2.0, 2.5, math.nan, "2", None, -1])
def test_pool_refuses_what_is_no_count(replicas: object) -> None:
    with pytest.raises(InputError, match="prefill/r: replicas must"):
        Pool(PREFILL, "r", replicas)  # type: ignore[arg-type]


def test_fleet_drops_empty_pools_and_orders_the_rest() -> None:
    fleet = Fleet.of({(DECODE, "b"): 1, (PREFILL, "z"): 2, (PREFILL, "a"): 3, (DECODE, "a"): 0})
    assert [pool.label for pool in fleet.pools] == ["prefill/a", "prefill/z", "decode/b"]
    assert fleet.counts == {(PREFILL, "a"): 3, (PREFILL, "z"): 2, (DECODE, "b"): 1}
    assert (fleet.count(PREFILL, "a"), fleet.count(DECODE, "a")) == (3, 0)
    assert str(fleet) == "prefill/a=3,prefill/z=2,decode/b=1"


def test_xpyd_counts_replicas_over_types() -> None:
    """3P4D counts replicas, not GPUs nor nodes."""
    assert Fleet.of({(PREFILL, "a"): 1, (PREFILL, "b"): 2, (DECODE, "a"): 4}).xpyd == "3P4D"
    assert Fleet(()).xpyd == "0P0D"


@pytest.mark.parametrize("text", ["3P4D", "3p4d", " 3P4D ", "03P04D"])
def test_short_form(text: str) -> None:
    assert parse_fleet(text, ONE).counts == {(PREFILL, "h200x8"): 3, (DECODE, "h200x8"): 4}


@pytest.mark.parametrize(
    "text",
    ["prefill/a100x8=2,decode/h100x8=3", " decode/h100x8 = 3 , prefill/a100x8=2 "],
)
def test_long_form(text: str) -> None:
    assert parse_fleet(text, TWO).counts == {(PREFILL, "a100x8"): 2, (DECODE, "h100x8"): 3}


def test_repeated_pools_add_up() -> None:
    fleet = parse_fleet("prefill/a100x8=2,prefill/a100x8=1", TWO)
    assert fleet.counts == {(PREFILL, "a100x8"): 3}


BAD = [  # text, types, what the message must name
    ("", ONE, "3P4D"),
    ("3P", ONE, "3P4D"),
    ("P3D4", ONE, "3P4D"),
    ("-3P4D", ONE, "3P4D"),
    ("3.5P4D", ONE, "3P4D"),
    ("3P4D,", ONE, "3P4D"),
    ("prefill/h200x8", ONE, "role/type=replicas"),
    ("prefill/h200x8=-1", ONE, "role/type=replicas"),
    ("prefill/h200x8=1.5", ONE, "role/type=replicas"),
    ("prefill/h200x8=", ONE, "role/type=replicas"),
    ("encode/h200x8=1", ONE, "encode"),
    ("prefill/h20x8=1", ONE, "h200x8"),
    ("3P4D", TWO, "prefill/a100x8=3"),
    ("prefill/a100x8=1;decode/a100x8=1", TWO, "role/type=replicas"),
]


@pytest.mark.parametrize(("text", "types", "names"), BAD)
def test_unreadable_fleets(text: str, types: dict[str, list[str]], names: str) -> None:
    """One line, quoting what was written and saying what to write."""
    with pytest.raises(InputError) as caught:
        parse_fleet(text, types)
    assert repr(text) in str(caught.value)
    assert names in str(caught.value)
    assert "\n" not in str(caught.value)


names = st.sampled_from(["a100x8", "h100x8"])
pools = st.dictionaries(st.tuples(st.sampled_from(ROLES), names), st.integers(0, 1000))


@given(pools)
def test_text_round_trip(counts: dict[tuple[str, str], int]) -> None:
    """A fleet is read back from its own text."""
    fleet = Fleet.of(counts)
    if fleet.pools:
        assert parse_fleet(str(fleet), TWO) == fleet
    prefill, decode = (sum(n for (at, _), n in counts.items() if at == role) for role in ROLES)
    assert fleet.xpyd == f"{prefill}P{decode}D"


# Co-located fleets: every replica does both roles.


@pytest.mark.parametrize(
    "text", ["7", " 7 ", "h200x8=7", " h200x8 = 7 ", "07", "h200x8=3,h200x8=4"]
)
def test_co_located_replicas_stand_in_both_roles(text: str) -> None:
    fleet = parse_both_roles(text, ONE)
    assert fleet.counts == {(PREFILL, "h200x8"): 7, (DECODE, "h200x8"): 7}


def test_co_located_fleets_of_several_types() -> None:
    fleet = parse_both_roles("h100x8=2,a100x8=1", TWO)
    for role in ROLES:
        assert [(p.replica_type, p.replicas) for p in fleet.in_role(role)] == [
            ("a100x8", 1), ("h100x8", 2)
        ]  # fmt: skip


def test_the_short_form_needs_one_type_that_does_both() -> None:
    types = {PREFILL: ["a100x8", "h100x8"], DECODE: ["h100x8"]}
    assert parse_both_roles("2", types).counts == {(PREFILL, "h100x8"): 2, (DECODE, "h100x8"): 2}


def test_no_replicas_are_no_fleet() -> None:
    assert parse_both_roles("0", ONE) == parse_both_roles("h200x8=0", ONE) == Fleet(())


BAD_TOGETHER = [  # text, types, what the message must name
    ("", ONE, "type=replicas"),
    ("3P4D", ONE, "type=replicas"),
    ("prefill/h200x8=3", ONE, "type=replicas"),
    ("-7", ONE, "type=replicas"),
    ("7.5", ONE, "type=replicas"),
    ("=7", ONE, "type=replicas"),
    ("h200x8=", ONE, "type=replicas"),
    ("h200x8", ONE, "type=replicas"),
    ("7,", ONE, "type=replicas"),
    ("h200x8=7;h200x8=1", ONE, "type=replicas"),
    ("h20x8=7", ONE, "known: h200x8"),
    ("7", TWO, "2 replica types may serve both roles; write type=7 (known: a100x8, h100x8)"),
    ("7", {PREFILL: ["a"], DECODE: ["b"]}, "0 replica types may serve both"),
    ("a=7", {PREFILL: ["a"], DECODE: ["b"]}, "known: none"),
]


@pytest.mark.parametrize(("text", "types", "names"), BAD_TOGETHER)
def test_unreadable_co_located_fleets(text: str, types: dict[str, list[str]], names: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_both_roles(text, types)
    assert repr(text) in str(caught.value)
    assert names in str(caught.value)
    assert "\n" not in str(caught.value)


together = st.dictionaries(names, st.integers(1, 1000), min_size=1)


@given(together)
def test_co_located_text_round_trip(counts: dict[str, int]) -> None:
    """Both roles have the same pools, as many as written."""
    text = ",".join(f"{name}={count}" for name, count in counts.items())
    fleet = parse_both_roles(text, TWO)
    assert fleet.counts == {(role, name): n for role in ROLES for name, n in counts.items()}
