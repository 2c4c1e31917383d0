"""The state of a replica, of either role, and how a pool chooses one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdalloc.fleet import Dispatch
from pdalloc.simulation.kernels.compile import kernel

RANDOM, ROUND_ROBIN, LEAST_LOADED, CENTRAL = range(4)
RULES: dict[Dispatch, int] = {
    "random": RANDOM,
    "round_robin": ROUND_ROBIN,
    "least_loaded": LEAST_LOADED,
    "central_queue": CENTRAL,
}
NOBODY = -1

Replicas = NDArray[Any]
REPLICA = np.dtype(
    [
        # The pool: its number, its replicas first..after-1, its rule.
        ("pool", np.int64),
        ("first", np.int64),
        ("after", np.int64),
        ("rule", np.int64),
        # The replica that had the last turn; kept by the first of the pool.
        ("turn", np.int64),
        # Assigned and unfinished: prompt tokens in prefill, requests in decode.
        ("load", np.int64),
        # The replica that keeps the queue, and the list it keeps (see lists.py).
        ("queue", np.int64),
        ("head", np.int64),
        ("tail", np.int64),
        # Prefill: the request that is being prefilled.
        ("running", np.int64),
        # Decode: the next boundary (s; inf when idle), how many steps came before it, and
        # the batch of the step that ends there with its context tokens.
        ("boundary", np.float64),
        ("step", np.int64),
        ("batch", np.int64),
        ("context", np.float64),
        # Decode: the first and the latest of all that joined its batch (see JOINED_NEXT).
        ("first_joined", np.int64),
        ("last_joined", np.int64),
        # Decode: K, and a step of S context tokens takes factor (base[pool, B] + slope S) s.
        ("limit", np.int64),
        ("factor", np.float64),
        ("slope", np.float64),
        # Decode: how many of a request's tokens exist when its cache comes, 0 or 1.
        ("by_prefill", np.int64),
        # How often it was woken, and how many requests left from here.
        ("woken", np.int64),
        ("finished", np.int64),
    ]
)


def idle_replicas(rule: Dispatch, pools: Sequence[int]) -> Replicas:
    """``pools[p]`` idle replicas in pool p, all under ``rule``; shape (their sum,)."""
    replicas = np.zeros(sum(pools), REPLICA)
    ends = np.cumsum(pools)
    replicas["pool"] = np.repeat(np.arange(len(pools)), pools)
    replicas["after"] = np.repeat(ends, pools)
    replicas["first"] = np.repeat(ends - pools, pools)
    replicas["turn"] = replicas["after"] - 1
    replicas["rule"] = RULES[rule]
    replicas["queue"] = replicas["first"] if rule == "central_queue" else np.arange(len(replicas))
    for name in ("head", "tail", "running", "first_joined", "last_joined"):
        replicas[name] = NOBODY
    replicas["boundary"] = np.inf
    return replicas


@kernel
def choose(replicas: Replicas, meant: int) -> int:
    """The replica for a request that is ``meant`` for one, or for the pool it is first of."""
    pool = replicas[meant]
    if pool.rule == ROUND_ROBIN:
        pool.turn = pool.turn + 1 if pool.turn + 1 < pool.after else pool.first
        return int(pool.turn)
    if pool.rule == LEAST_LOADED:
        least = pool.first
        for r in range(pool.first + 1, pool.after):
            if replicas[r].load < replicas[least].load:
                least = r
        return int(least)
    return meant
