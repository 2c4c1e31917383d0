"""The transfers on a shared link, least mark first: a skew heap through the requests' rows.

Sleator, Tarjan (1986), "Self-adjusting heaps". CHILD and OTHER_CHILD are a transfer's children;
equal marks go by request. The order in which transfers come out does not depend on the heap's
shape.
"""

from __future__ import annotations

from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full.rows import CHILD, MARK, OTHER_CHILD
from pdalloc.simulation.kernels.full.state import NOBODY, State


@kernel
def before(s: State, i: int, j: int) -> bool:
    """Whether request i is through before request j."""
    a, b = s.times[MARK, i], s.times[MARK, j]
    return bool(a < b or (a == b and i < j))


@kernel
def merge(s: State, i: int, j: int) -> int:
    """One heap of the heaps with roots i and j (or NOBODY); returns its root."""
    if i == NOBODY or j == NOBODY:
        return j if i == NOBODY else i
    if before(s, j, i):
        i, j = j, i
    root = i
    while True:
        # i precedes j: its children change sides, and j goes where OTHER_CHILD was.
        rest = s.whole[OTHER_CHILD, i]
        s.whole[OTHER_CHILD, i] = s.whole[CHILD, i]
        if rest == NOBODY:
            s.whole[CHILD, i] = j
            return root
        if before(s, j, rest):
            rest, j = j, rest
        s.whole[CHILD, i] = rest
        i = rest


@part
def without_least(s: State, root: int) -> int:
    """The root of the heap once ``root`` is out."""
    return merge(s, s.whole[CHILD, root], s.whole[OTHER_CHILD, root])
