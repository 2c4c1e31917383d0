"""The batch of a decode replica: who is in it, and who is done after which step.

Where every step gives everybody one token (``rules.walk`` 0) nothing is done per token: a
request that joins after j steps with L tokens to go is done after j + L, and waits for that in
the slot of a ring. Its TO_GO and HELD are brought up to date when it is taken out early.
"""

from __future__ import annotations

import numpy as np

from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.lists import append, remove
from pdalloc.simulation.kernels.full.memory import need, release
from pdalloc.simulation.kernels.full.state import NOBODY, State, context_of, gain


@kernel
def join(s: State, k: int, i: int) -> None:
    """Request i joins the batch of server ``k``, at the back."""
    server, d = s.servers[k], k - s.rules[0].prefills
    s.whole[rows.HOME, i] = k
    s.whole[rows.DECODE_REPLICA, i] = d
    append(s, server.members, i)
    server.context += context_of(s, i)
    server.fresh += 1
    if s.rules[0].walk == 0:
        last = server.step + s.whole[rows.TO_GO, i]
        slot = last & (s.ring.shape[1] - 1)
        s.whole[rows.LAST_STEP, i] = last
        head = s.ring[d, slot]
        s.whole[rows.SLOT_NEXT, i] = head
        s.whole[rows.SLOT_PREVIOUS, i] = NOBODY
        if head != NOBODY:
            s.whole[rows.SLOT_PREVIOUS, head] = i
        s.ring[d, slot] = i


@kernel
def take_out(s: State, k: int, i: int) -> None:
    """Request i leaves the batch of server ``k`` before it has all its tokens."""
    server, d = s.servers[k], k - s.rules[0].prefills
    remove(s, server.members, i)
    if s.rules[0].walk == 0:
        s.whole[rows.TO_GO, i] = s.whole[rows.LAST_STEP, i] - server.step
        s.whole[rows.HELD, i] = need(s, i)
        after, before = s.whole[rows.SLOT_NEXT, i], s.whole[rows.SLOT_PREVIOUS, i]
        if before == NOBODY:
            s.ring[d, s.whole[rows.LAST_STEP, i] & (s.ring.shape[1] - 1)] = after
        else:
            s.whole[rows.SLOT_NEXT, before] = after
        if after != NOBODY:
            s.whole[rows.SLOT_PREVIOUS, after] = before
    server.context -= context_of(s, i)


@part
def begin_decoding(s: State, now: float, k: int) -> None:
    """A step begins: the first one of those that joined since the last."""
    i = s.lists[s.servers[k].members].tail
    for _ in range(s.servers[k].fresh):
        if np.isnan(s.times[rows.DECODE_START, i]):
            s.times[rows.DECODE_START, i] = now
        i = s.whole[rows.PREVIOUS, i]


@part
def first_tokens(s: State, now: float, k: int) -> None:
    """A step is over: whoever joined for it sees a token, the first one perhaps."""
    i = s.lists[s.servers[k].members].tail
    for _ in range(s.servers[k].fresh):
        if np.isnan(s.times[rows.FIRST_TOKEN, i]):
            s.times[rows.FIRST_TOKEN, i] = now
        i = s.whole[rows.PREVIOUS, i]


@part
def count_step(s: State, now: float, k: int) -> int:
    """A token for everybody; returns the first of those that are done, others by SLOT_NEXT."""
    server, d = s.servers[k], k - s.rules[0].prefills
    first_tokens(s, now, k)
    server.step += 1
    slot = server.step & (s.ring.shape[1] - 1)
    done = s.ring[d, slot]
    s.ring[d, slot] = NOBODY
    together = s.lists[server.members].length
    server.context += together
    if s.rules[0].kv == 1 and s.rules[0].full == 0:
        server.used += together
    i = done
    while i != NOBODY:
        remove(s, server.members, i)
        s.whole[rows.TO_GO, i] = 0
        server.context -= context_of(s, i)
        s.whole[rows.HELD, i] = need(s, i)
        release(s, k, i)
        i = s.whole[rows.SLOT_NEXT, i]
    return int(done)


@part
def give_tokens(s: State, now: float, k: int, i: int, tokens: int) -> bool:
    """``tokens`` for request i of the batch; returns whether it is done and out."""
    server = s.servers[k]
    to_go = s.whole[rows.TO_GO, i]
    gain(s, now, i, s.whole[rows.OUTPUT, i] - to_go, tokens)
    s.whole[rows.TO_GO, i] = to_go - tokens
    server.context += tokens
    if to_go > tokens:
        if s.rules[0].kv == 1 and s.rules[0].full == 0:
            server.used += tokens
            s.whole[rows.HELD, i] += tokens
        return False
    remove(s, server.members, i)
    server.context -= context_of(s, i)
    release(s, k, i)
    return True
