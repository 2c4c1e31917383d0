"""Decode pools under a central queue: whoever has a free place first takes the oldest.

While somebody waits, the pool's boundaries are played one by one in order of (time, replica);
while nobody does, each replica is played ahead on its own.
"""

from __future__ import annotations

import math

from pdalloc.records import Array, Ints
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.plain.decode import Ring, advance
from pdalloc.simulation.kernels.plain.replica import NOBODY, Replicas


@kernel
def advance_pool(
    times: Array,
    whole: Ints,
    decodes: Replicas,
    leaving: Ring,
    base: Array,
    first: int,
    until: float,
) -> None:
    """Play the boundaries of the pool of replica ``first``, its first, before ``until`` (s)."""
    after = decodes[first].after
    while decodes[first].head != NOBODY:
        earliest = first
        for r in range(first + 1, after):
            if decodes[r].boundary < decodes[earliest].boundary:
                earliest = r
        now = decodes[earliest].boundary
        if now >= until:
            return
        just_after = math.nextafter(now, math.inf)
        advance(times, whole, decodes, leaving, base, earliest, just_after)
    for r in range(first, after):
        advance(times, whole, decodes, leaving, base, r, until)
