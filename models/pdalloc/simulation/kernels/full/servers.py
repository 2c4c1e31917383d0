"""The state of the servers: prefill replicas 0..P-1, then decode replicas P..P+D-1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Servers = NDArray[Any]
_INT, _FLOAT = np.int64, np.float64
SERVER = np.dtype(
    [
        # The pool: its number in its role, its servers first..after-1, its dispatch rule, and
        # the server that had the last turn (kept by the first).
        ("pool", _INT),
        ("first", _INT),
        ("after", _INT),
        ("rule", _INT),
        ("turn", _INT),
        # Assigned and unfinished: prompt tokens in prefill, requests in decode.
        ("load", _INT),
        # Whether it is up; how often it has failed; factor on its times.
        ("up", _INT),
        ("failures", _INT),
        ("slow", _FLOAT),
        # When the running pass or step ends, s; NaN when none runs.
        ("due", _FLOAT),
        # Numbers of its lists: waiting (prefill: prompts, decode: caches that are here),
        # members (of the running pass, or of the decode batch), and for decode: caches to be
        # recomputed, requests that wait for KV space, transfers on the way.
        ("waiting", _INT),
        ("members", _INT),
        ("lost", _INT),
        ("pending", _INT),
        ("moving", _INT),
        # Time of a prefill pass (also of a recompute): factor x the affine form, or the curve
        # in knots[from_knot : to_knot] where there is one, `tail` its slope beyond.
        ("pass_factor", _FLOAT),
        ("pass_base", _FLOAT),
        ("per_token", _FLOAT),
        ("per_token_sq", _FLOAT),
        ("floor", _FLOAT),
        ("from_knot", _INT),
        ("to_knot", _INT),
        ("tail", _FLOAT),
        # Prefill: a prompt of which earlier passes did a part; finished prompts that it keeps.
        ("partial", _INT),
        ("blocking", _INT),
        # Decode: batch limit, KV tokens that it has and that are held.
        ("limit", _INT),
        ("memory", _FLOAT),
        ("used", _INT),
        # Decode: step time factor (base[pool, B] + slope S); S; steps ended; requests that
        # joined since the last one; whether it is awake; whose cache it recomputes.
        ("factor", _FLOAT),
        ("slope", _FLOAT),
        ("context", _INT),
        ("step", _INT),
        ("fresh", _INT),
        ("busy", _INT),
        ("recomputing", _INT),
        # How many steps (prefill: passes) and recompute passes it began, and where in the
        # diary they are written.
        ("begun", _INT),
        ("recomputes", _INT),
        ("diary", _INT),
        ("recompute_diary", _INT),
    ]
)
LISTS_PER_SERVER = 5

RULES = np.dtype(
    [
        ("prefills", _INT),
        ("requests", _INT),
        ("gone", _INT),
        ("key", np.uint64),
        ("first_token", _INT),
        ("budget", _FLOAT),
        ("split", _INT),
        ("step_noise", _INT),
        ("step_scv", _FLOAT),
        ("sharing", _INT),
        ("per_replica", _INT),
        ("kv", _INT),
        ("full", _INT),
        ("watermark", _FLOAT),
        ("back_pressure", _INT),
        ("tokens_law", _INT),
        ("tokens_mean", _FLOAT),
        ("timeout", _FLOAT),
        ("max_queue", _FLOAT),
        ("retries", _INT),
        ("retry_delay", _FLOAT),
        ("mtbf", _FLOAT),
        ("mttr", _FLOAT),
        ("walk", _INT),
    ]
)
"""The options as numbers, and what is counted over the whole run.

``budget`` 0: one prompt a pass. ``walk``: tokens are given one request at a time (several a
step, or to write down when each came), not by counting steps.
"""
ONE_EACH, FIXED, GEOMETRIC = range(3)
"""Laws of the tokens that a step gives a request."""
ALONE, FCFS, PROCESSOR_SHARING = range(3)
"""How transfers share a link."""
LINK_STATE = np.dtype(
    [
        # fcfs: when it is through with what it has, s.
        ("free_at", _FLOAT),
        # processor sharing: virtual time, when it was last looked at, the transfer of least
        # mark, how many there are, and when the first is through (NaN: none), s.
        ("virtual", _FLOAT),
        ("since", _FLOAT),
        ("root", _INT),
        ("count", _INT),
        ("due", _FLOAT),
    ]
)
LIST = np.dtype([("head", _INT), ("tail", _INT), ("length", _INT)])
