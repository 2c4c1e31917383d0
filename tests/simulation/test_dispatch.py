"""Dispatch rules when replicas are down, and what is shared under a central queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from pdalloc.fleet import Dispatch
from pdalloc.simulation.dispatch import Dispatcher
from pdalloc.simulation.requests import Request


@dataclass(eq=False)
class Stub:
    """A replica as dispatch sees it."""

    name: str
    load: int = 0
    up: bool = True
    queue: deque[Request] = field(default_factory=deque)
    lost: deque[Request] = field(default_factory=deque)


def pool(rule: Dispatch, down: str = "", shared: tuple[str, ...] = ("queue",)) -> Dispatcher[Stub]:
    replicas = [Stub(name, up=name not in down) for name in "abcd"]
    made = Dispatcher(rule, replicas, shared)
    made.look()
    return made


def chosen(of: Dispatcher[Stub], picks: list[float]) -> str:
    return "".join(of.candidates(pick)[0].name for pick in picks)


@pytest.mark.parametrize(
    ("down", "expected"),
    [("", "abcdabcd"), ("b", "acdacdac"), ("ad", "bcbcbcbc"), ("abc", "d" * 8)],
)
def test_round_robin_takes_turns_among_those_that_are_up(down: str, expected: str) -> None:
    assert chosen(pool("round_robin", down), [0.0] * 8) == expected


def test_round_robin_keeps_its_place_when_one_comes_back() -> None:
    turns = pool("round_robin", "c")
    assert chosen(turns, [0.0] * 3) == "abd"
    turns.replicas[2].up = True
    turns.look()
    assert chosen(turns, [0.0] * 4) == "abcd"


@pytest.mark.parametrize(("down", "expected"), [("", "aabcd"), ("b", "aacdd"), ("abc", "ddddd")])
def test_random_divides_the_unit_interval_among_those_that_are_up(down: str, expected: str) -> None:
    assert chosen(pool("random", down), [0.0, 0.24, 0.49, 0.74, 0.99]) == expected


def test_least_loaded_takes_the_first_of_equals_that_is_up() -> None:
    loads = pool("least_loaded")
    for replica, load in zip(loads.replicas, (3, 1, 1, 0), strict=True):
        replica.load = load
    assert chosen(loads, [0.9]) == "d"
    loads.replicas[3].up = False
    loads.look()
    assert chosen(loads, [0.9]) == "b"


@pytest.mark.parametrize("rule", ["random", "round_robin", "least_loaded"])
def test_when_all_are_down_all_may_be_chosen(rule: Dispatch) -> None:
    nobody = pool(rule, "abcd")
    seen = set()
    for i in range(8):
        (replica,) = nobody.candidates(i / 8)
        replica.load += 1
        seen.add(replica.name)
    assert seen == set("abcd")


def test_a_central_queue_is_one_queue_and_names_all() -> None:
    central = pool("central_queue", "a", ("queue", "lost"))
    assert [r.name for r in central.candidates(0.3)] == list("abcd")
    first, second = central.replicas[:2]
    assert first.queue is second.queue and first.lost is second.lost
    own = pool("random", shared=("queue", "lost")).replicas
    assert own[0].queue is not own[1].queue and own[0].lost is not own[1].lost
    only = pool("central_queue", shared=("lost",)).replicas
    assert only[0].queue is not only[1].queue and only[0].lost is only[1].lost
