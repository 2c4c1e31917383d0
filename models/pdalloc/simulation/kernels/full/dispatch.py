"""Which server of a pool the next request is sent to, when servers may be down."""

from __future__ import annotations

from pdalloc.simulation import hashing
from pdalloc.simulation.kernels.chance import uniform
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.full.rows import (
    DECODE_DISPATCHES,
    DECODE_PICK,
    DECODE_POOL,
    PREFILL_DISPATCHES,
    PREFILL_PICK,
    PREFILL_POOL,
)
from pdalloc.simulation.kernels.full.state import NOBODY, State
from pdalloc.simulation.kernels.plain.replica import CENTRAL, RANDOM, ROUND_ROBIN


@kernel
def prefill_target(s: State, i: int) -> int:
    """The prefill replica for request i, the pool's first under a central queue."""
    pick, k = s.times[PREFILL_PICK, i], s.whole[PREFILL_DISPATCHES, i]
    if k > 0:
        pick = uniform(s.rules[0].key, hashing.PREFILL_PICK, i, k, 0)
    s.whole[PREFILL_DISPATCHES, i] = k + 1
    return target(s, s.whole[PREFILL_POOL, i], pick)


@kernel
def decode_target(s: State, i: int) -> int:
    """The decode replica (as a server) for request i, likewise."""
    pick, k = s.times[DECODE_PICK, i], s.whole[DECODE_DISPATCHES, i]
    if k > 0:
        pick = uniform(s.rules[0].key, hashing.DECODE_PICK, i, k, 0)
    s.whole[DECODE_DISPATCHES, i] = k + 1
    return target(s, s.whole[DECODE_POOL, i], pick)


@kernel
def target(s: State, pool: int, pick: float) -> int:
    """By the rule of the pool whose first server is ``pool``, among its servers that are up."""
    first = s.servers[pool]
    if first.rule == CENTRAL:
        return pool
    count = 0
    for k in range(first.first, first.after):
        count += s.servers[k].up
    all_down = count == 0
    if first.rule == RANDOM:
        left = int(pick * (first.after - first.first if all_down else count))
        for k in range(first.first, first.after):
            if all_down or s.servers[k].up == 1:
                if left == 0:
                    return k
                left -= 1
    if first.rule == ROUND_ROBIN:
        while True:
            first.turn = first.turn + 1 if first.turn + 1 < first.after else first.first
            if all_down or s.servers[first.turn].up == 1:
                return int(first.turn)
    least = NOBODY
    for k in range(first.first, first.after):
        less = least == NOBODY or s.servers[k].load < s.servers[least].load
        if less and (all_down or s.servers[k].up == 1):
            least = k
    return least


@kernel
def group_end(s: State, k: int) -> int:
    """The servers that share a queue with ``k`` end before this one (they begin at ``k``)."""
    return int(s.servers[k].after if s.servers[k].rule == CENTRAL else k + 1)


@kernel
def add_load(s: State, k: int, load: int) -> None:
    """``load`` more for ``k``, or for its whole pool under a central queue."""
    for each in range(k, group_end(s, k)):
        s.servers[each].load += load
