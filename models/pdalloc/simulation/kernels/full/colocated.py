"""Co-located serving (:mod:`pdalloc.simulation.colocated`): every server does both roles.

The servers are those of the prefill pools. ``waiting`` holds prompts, preempted requests in
front, ``members`` those that decode, ``moving`` the prompts in the running pass; steps are
written in the diary, passes that take prompts where other servers write recompute passes.
"""

from __future__ import annotations

import math

import numpy as np

from pdalloc.records import REJECTED, TIMED_OUT
from pdalloc.simulation.events import ARRIVAL, STEP_END, STEP_START, TIMEOUT
from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.batch import begin_decoding, join, take_out
from pdalloc.simulation.kernels.full.clients import finish, give_up
from pdalloc.simulation.kernels.full.decode import end_step, lose, step_seconds
from pdalloc.simulation.kernels.full.dispatch import add_load, group_end, prefill_target
from pdalloc.simulation.kernels.full.lists import append, prepend, remove, take_all
from pdalloc.simulation.kernels.full.memory import fits, hold, release
from pdalloc.simulation.kernels.full.passes import pass_seconds
from pdalloc.simulation.kernels.full.state import (
    KIND,
    NOBODY,
    State,
    context_of,
    gain,
    schedule,
    write_down,
)
from pdalloc.simulation.kernels.heap import pop
from pdalloc.simulation.kernels.plain.replica import CENTRAL
from pdalloc.simulation.kernels.plain.table import AT_DECODE


@kernel
def play_both_roles(s: State, most: int, room: int) -> None:
    """As ``loop.play``."""
    for _ in range(most):
        if s.rules[0].gone == s.rules[0].requests or s.events[0].index >= room:
            return
        now, kind, index = s.events[1].time, s.events[1].index // KIND, s.events[1].index % KIND
        pop(s.events)
        if kind == STEP_START:
            start_pass(s, now, index)
        elif kind == STEP_END:
            end_pass(s, now, index)
        elif kind == ARRIVAL:
            arrive_at_both(s, now, index)
        elif kind == TIMEOUT:
            time_out_at_both(s, now, index)


@part
def arrive_at_both(s: State, now: float, i: int) -> None:
    """Request i comes, for the first time or again."""
    rules = s.rules[0]
    if s.whole[rows.RETRIES, i] == 0 and i + 1 < rules.requests:
        schedule(s, s.times[rows.ARRIVAL, i + 1], ARRIVAL, i + 1)
    k = prefill_target(s, i)
    after = group_end(s, k)
    idle = NOBODY
    for each in range(after - 1, k - 1, -1):
        if s.servers[each].busy == 0:
            idle = each
    full = s.lists[s.servers[k].waiting].length >= rules.max_queue * (after - k)
    if full and idle == NOBODY:
        give_up(s, now, i, REJECTED)
        return
    s.whole[rows.PREFILL_TARGET, i] = k
    s.whole[rows.DECODE_TARGET, i] = k
    add_load(s, k, 1)
    append(s, s.servers[k].waiting, i)
    if idle != NOBODY:
        wake_up(s, now, idle)
    if rules.timeout < math.inf:
        s.times[rows.DEADLINE, i] = now + rules.timeout
        schedule(s, now + rules.timeout, TIMEOUT, i)


@part
def time_out_at_both(s: State, now: float, i: int) -> None:
    """Request i has waited long enough, if no pass has taken it yet."""
    if s.times[rows.DEADLINE, i] == now and np.isnan(s.times[rows.PREFILL_START, i]):
        k = s.whole[rows.PREFILL_TARGET, i]
        remove(s, s.servers[k].waiting, i)
        add_load(s, k, -1)
        give_up(s, now, i, TIMED_OUT)


@kernel
def wake_up(s: State, now: float, k: int) -> None:
    """Server ``k``, if idle, starts a pass once all of this instant have come."""
    if s.servers[k].busy == 0:
        s.servers[k].busy = 1
        schedule(s, now, STEP_START, k)


@part
def start_pass(s: State, now: float, k: int) -> None:
    """Server ``k`` starts a pass over prompts, its batch, or both; or finds nothing to do."""
    server = s.servers[k]
    tokens, squares = take_prompts(s, k)
    first = s.lists[server.moving].head
    decodes = s.lists[server.members].head != NOBODY
    decodes = decodes and (s.rules[0].split == 1 or first == NOBODY)
    server.recomputing = k if decodes else NOBODY
    if first == NOBODY and not decodes:
        server.busy = 0
        return
    seconds = 0.0
    if first != NOBODY:
        seconds = pass_seconds(s, k, tokens, squares)
        if decodes:
            seconds = max(seconds - pass_seconds(s, k, 0.0, 0.0), 0.0)
        seconds *= s.times[rows.FACTOR, first]
    if decodes:
        seconds += step_seconds(s, k)
        begin_decoding(s, now, k)
    seconds *= server.slow
    if first != NOBODY:
        write_down(s, server.recompute_diary + server.recomputes, now, seconds)
        server.recomputes += 1
    if decodes:
        write_down(s, server.diary + server.begun, now, seconds)
        server.begun += 1
    server.due = now + seconds
    schedule(s, server.due, STEP_END, k)
    i = first
    while i != NOBODY:
        s.whole[rows.PREFILL_REPLICA, i] = k
        s.whole[rows.DECODE_REPLICA, i] = k
        if np.isnan(s.times[rows.PREFILL_START, i]):
            s.times[rows.PREFILL_START, i] = now
        i = s.whole[rows.NEXT, i]


@part
def take_prompts(s: State, k: int) -> tuple[float, float]:
    """Choose the prompts of a pass; returns its sum(n - h) and sum(n^2 - h^2)."""
    server, split = s.servers[k], s.rules[0].split == 1
    decoding = s.lists[server.members].length
    room = s.rules[0].budget - (decoding if split else 0)
    tokens, squares = 0.0, 0.0
    while server.partial != NOBODY or s.lists[server.waiting].head != NOBODY:
        begun = server.partial != NOBODY
        i = server.partial if begun else s.lists[server.waiting].head
        goal = float(s.whole[rows.PROMPT, i])
        if not np.isnan(s.times[rows.PREFILL_END, i]):
            goal = float(context_of(s, i))
        at, parts = s.times[rows.AT, i], s.lists[server.moving].length
        size, left = goal - at, room - tokens
        if (split and left <= 0.0) or (not split and parts > 0 and size > left):
            break
        if not begun:
            if decoding + parts >= server.limit or not fits(s, k, i):
                break
            remove(s, server.waiting, i)
            hold(s, k, i)
        whole = size <= left or not split
        end = goal if whole else at + left
        tokens += size if whole else left
        squares += end * end - at * at
        s.times[rows.AT, i] = end
        server.partial = NOBODY if whole else i
        append(s, server.moving, i)
    return tokens, squares


@part
def end_pass(s: State, now: float, k: int) -> None:
    """The pass of server ``k`` is over: tokens, finished prompts, then memory."""
    server = s.servers[k]
    server.due = np.nan
    if server.recomputing != NOBODY:
        end_step(s, now, k)
        server.fresh = 0
    i = take_all(s, server.moving)
    while i != NOBODY and i != server.partial:
        following = s.whole[rows.NEXT, i]
        if np.isnan(s.times[rows.PREFILL_END, i]):
            for row in (rows.PREFILL_END, rows.TRANSFER_START, rows.TRANSFER_END):
                s.times[row, i] = now
            if s.rules[0].first_token != AT_DECODE:
                gain(s, now, i, 0, 1)
        if s.whole[rows.TO_GO, i] == 0:
            s.times[rows.DECODE_START, i] = now
            release(s, k, i)
            finish(s, now, i)
        else:
            join(s, k, i)
        i = following
    while server.used > server.memory:
        i = s.lists[server.members].tail
        server.fresh = max(server.fresh - 1, 0)
        take_out(s, k, i)
        lose(s, k, i)
        s.times[rows.AT, i] = 0.0
        prepend(s, server.waiting, i)
    if s.lists[server.waiting].head != NOBODY:
        first = server.first if server.rule == CENTRAL else k
        for each in range(first, group_end(s, first)):
            wake_up(s, now, each)
    schedule(s, now, STEP_START, k)
