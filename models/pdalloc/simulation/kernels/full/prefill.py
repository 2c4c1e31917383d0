"""The prefill replicas: passes over waiting prompts, first come first served."""

from __future__ import annotations

import numpy as np

from pdalloc.simulation.events import PREFILL_END
from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.dispatch import add_load, group_end
from pdalloc.simulation.kernels.full.lists import append, remove
from pdalloc.simulation.kernels.full.passes import pass_seconds
from pdalloc.simulation.kernels.full.state import NOBODY, State, schedule, write_down


@kernel
def enqueue(s: State, now: float, i: int, k: int) -> None:
    """Request i waits for the first of the group of ``k`` that is free, which may be now."""
    s.whole[rows.PREFILL_TARGET, i] = k
    add_load(s, k, s.whole[rows.PROMPT, i])
    append(s, s.servers[k].waiting, i)
    start_passes(s, now, k, group_end(s, k))


@kernel
def ready(s: State, k: int) -> bool:
    """Whether replica ``k`` may start a pass: up, idle and holding no finished prompt."""
    server = s.servers[k]
    return bool(server.up == 1 and np.isnan(server.due) and server.blocking == 0)


@kernel
def start_passes(s: State, now: float, first: int, after: int) -> None:
    """Those of the replicas that are free start a pass, in order, while prompts wait."""
    for k in range(first, after):
        server = s.servers[k]
        if server.partial == NOBODY and s.lists[server.waiting].head == NOBODY:
            continue
        if ready(s, k):
            start(s, now, k)


@part
def start(s: State, now: float, k: int) -> None:
    """Replica ``k`` begins a pass over the oldest waiting prompts."""
    server = s.servers[k]
    if s.rules[0].budget == 0.0:
        first = s.lists[server.waiting].head
        remove(s, server.waiting, first)
        append(s, server.members, first)
        seconds = server.slow * s.times[rows.SECONDS, first]
    else:
        tokens, squares = fill(s, k)
        factor = s.times[rows.FACTOR, s.lists[server.members].head]
        seconds = server.slow * (factor * pass_seconds(s, k, tokens, squares))
    i = s.lists[server.members].head
    while i != NOBODY:
        s.whole[rows.PREFILL_REPLICA, i] = k
        if np.isnan(s.times[rows.PREFILL_START, i]):
            s.times[rows.PREFILL_START, i] = now
        i = s.whole[rows.NEXT, i]
    write_down(s, server.diary + server.begun, now, seconds)
    server.begun += 1
    server.due = now + seconds
    schedule(s, server.due, PREFILL_END, k)


@part
def fill(s: State, k: int) -> tuple[float, float]:
    """Choose the prompts of a pass; returns its sum(n - h) and sum(n^2 - h^2)."""
    server, budget, split = s.servers[k], s.rules[0].budget, s.rules[0].split == 1
    tokens, squares = 0.0, 0.0
    while server.partial != NOBODY or s.lists[server.waiting].head != NOBODY:
        begun = server.partial != NOBODY
        i = server.partial if begun else s.lists[server.waiting].head
        at, prompt = s.times[rows.AT, i], float(s.whole[rows.PROMPT, i])
        part, room = prompt - at, budget - tokens
        if split and room <= 0.0:
            break
        if not split and s.lists[server.members].length > 0 and tokens + part > budget:
            break
        whole = part <= room or not split
        if not whole:
            part = room
        end = prompt if whole else at + part
        tokens += part
        squares += end * end - at * at
        s.times[rows.AT, i] = end
        if not begun:
            remove(s, server.waiting, i)
        server.partial = NOBODY if whole else i
        append(s, server.members, i)
    return tokens, squares
