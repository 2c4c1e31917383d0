"""The decode replicas: steps, recompute passes, preemption."""

from __future__ import annotations

import math

import numpy as np

from pdalloc.simulation import hashing
from pdalloc.simulation.events import STEP_END
from pdalloc.simulation.kernels.chance import noise, uniform
from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.batch import (
    begin_decoding,
    count_step,
    give_tokens,
    join,
    take_out,
)
from pdalloc.simulation.kernels.full.clients import finish
from pdalloc.simulation.kernels.full.lists import prepend, remove
from pdalloc.simulation.kernels.full.memory import fits, hold, release
from pdalloc.simulation.kernels.full.passes import pass_seconds
from pdalloc.simulation.kernels.full.routing import memory_freed
from pdalloc.simulation.kernels.full.servers import FIXED, ONE_EACH
from pdalloc.simulation.kernels.full.state import (
    NOBODY,
    State,
    context_of,
    schedule,
    write_down,
)
from pdalloc.simulation.kernels.plain.replica import CENTRAL


@kernel
def start_turn(s: State, now: float, k: int) -> None:
    """Decode replica ``k`` starts a recompute pass or a step, or finds nothing to do."""
    server = s.servers[k]
    if server.busy == 0 or not np.isnan(server.due):
        return
    lost = s.lists[server.lost].head
    room = server.limit - s.lists[server.members].length
    if lost != NOBODY and room > 0 and fits(s, k, lost):
        remove(s, server.lost, lost)
        server.recomputing = lost
        hold(s, k, lost)
        context = float(context_of(s, lost))
        seconds = server.slow * pass_seconds(s, k, context, context * context)
        write_down(s, server.recompute_diary + server.recomputes, now, seconds)
        server.recomputes += 1
    else:
        while s.lists[server.waiting].head != NOBODY and room > 0:
            i = s.lists[server.waiting].head
            remove(s, server.waiting, i)
            join(s, k, i)
            room -= 1
        if s.lists[server.members].length == 0:
            server.busy = 0
            return
        seconds = step_seconds(s, k) * server.slow
        begin_decoding(s, now, k)
        write_down(s, server.diary + server.begun, now, seconds)
        server.begun += 1
    server.due = now + seconds
    schedule(s, server.due, STEP_END, k - s.rules[0].prefills)


@kernel
def step_seconds(s: State, k: int) -> float:
    """Length of the step that server ``k`` begins, noise included, were it not slow, s."""
    server, rules = s.servers[k], s.rules[0]
    base = s.base[server.pool, s.lists[server.members].length]
    seconds = server.factor * (base + server.slope * server.context)
    if rules.step_noise != 0:
        d = k - rules.prefills
        seconds *= noise(
            rules.step_noise, rules.step_scv, rules.key, hashing.STEP_NOISE, d, server.begun
        )
    return float(seconds)


@part
def end_turn(s: State, now: float, k: int) -> bool:
    """The step or recompute pass of decode replica ``k`` is over, unless it was lost."""
    server = s.servers[k]
    if server.due != now:
        return False
    server.due = np.nan
    if server.recomputing != NOBODY:
        join(s, k, server.recomputing)
        server.recomputing = NOBODY
    else:
        end_step(s, now, k)
        server.fresh = 0
        preempt(s, k)
    memory_freed(s, now, server.first if server.rule == CENTRAL else k)
    return True


@part
def end_step(s: State, now: float, k: int) -> None:
    """Everybody in the batch gets tokens; who has all of them leaves."""
    if s.rules[0].walk == 0:
        i = count_step(s, now, k)
        while i != NOBODY:
            finish(s, now, i)
            i = s.whole[rows.SLOT_NEXT, i]
        return
    i = s.lists[s.servers[k].members].head
    while i != NOBODY:
        following = s.whole[rows.NEXT, i]
        if give_tokens(s, now, k, i, accepted(s, i)):
            finish(s, now, i)
        i = following


@part
def accepted(s: State, i: int) -> int:
    """Tokens that a step gives request i, at least 1 and at most what it still needs."""
    rules, to_go = s.rules[0], s.whole[rows.TO_GO, i]
    if rules.tokens_law == ONE_EACH:
        return 1
    u = uniform(rules.key, hashing.ACCEPTED, i, to_go, 0)
    if rules.tokens_law == FIXED:
        whole = math.floor(rules.tokens_mean)
        tokens = whole + (1 if u < rules.tokens_mean - whole else 0)
    else:
        tokens = 1 + math.floor(math.log(u) / math.log(1.0 - 1.0 / rules.tokens_mean))
    return int(min(tokens, to_go))


@part
def preempt(s: State, k: int) -> None:
    """While the batch has outgrown the memory, who joined last loses its KV cache."""
    server = s.servers[k]
    while server.used > server.memory:
        i = s.lists[server.members].tail
        take_out(s, k, i)
        lose(s, k, i)
        prepend(s, server.lost, i)


@kernel
def lose(s: State, k: int, i: int) -> None:
    """The KV cache of request i at server ``k`` is gone."""
    release(s, k, i)
    s.whole[rows.RECOMPUTES, i] += 1
    s.whole[rows.HOME, i] = NOBODY
