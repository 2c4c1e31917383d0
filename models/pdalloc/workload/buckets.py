r"""A traffic class split by prompt length: each bucket its share of the rate and its own lengths.

Requests are marked by their bucket, independently of when they come and of each other. A Poisson
stream split so is independent Poisson streams (Kingman 1993, "Poisson Processes", section 5.1);
one whose rate is itself random or follows the clock keeps its pattern at p times the rate. Gaps
of SCV c^2 become geometric sums of gaps, whose SCV is

.. math:: c_p^2 = 1 + p\,(c^2 - 1),

exact for independent gaps (Whitt 1983, "The Queueing Network Analyzer", eq. 24); for the
dispersion of any stationary stream it is exact too (Var N thinned). A renewal stream with other
than exponential gaps is no longer a gamma or Weibull stream after that: a simulation of a bucket
draws gaps of the class's law with that SCV.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pdalloc.errors import InputError, UnsupportedError
from pdalloc.workload.arrivals import ArrivalProcess, Renewal, Sessions, Trace
from pdalloc.workload.lengths import LengthLaw
from pdalloc.workload.traffic import TrafficClass


def split_by_prompt(c: TrafficClass, edges: Sequence[float]) -> tuple[TrafficClass, ...]:
    """``c`` in one class per bucket: prompts up to the first edge, up to the next, ..., longer.

    ``edges`` in tokens. Names end in ``[<=2048]``, ``[2048-8192]`` (longer than the first, up to
    the second) or ``[>8192]``. Raises InputError for edges that do not rise and for buckets
    without a request, UnsupportedError for sessions and traces.
    """
    if isinstance(c.arrivals, Sessions | Trace):
        kind = "sessions" if isinstance(c.arrivals, Sessions) else "a trace"
        raise UnsupportedError(
            f"the prompt lengths of {kind} are not drawn independently of when they come; give "
            "each bucket as a class of its own"
        )
    if not edges or any(b <= a for a, b in itertools.pairwise(edges)):
        raise InputError(
            f"edges must rise, e.g. '2048 8192 tokens', got {_listed(edges) or 'none'}"
        )
    bucket = np.searchsorted(np.asarray(edges, float), c.lengths.prompt, side="left")
    parts = []
    for i in range(len(edges) + 1):
        mine = (bucket == i) & (c.lengths.weight > 0.0)
        if not mine.any():
            raise InputError(f"no prompt of {c.name} is in {_range(edges, i)} tokens; move an edge")
        parts.append(_bucket(c, f"{c.name}[{_range(edges, i)}]", mine))
    return tuple(parts)


def candidate_edges(c: TrafficClass, count: int) -> tuple[float, ...]:
    """Prompt lengths, tokens, at or below which lie k in ``count`` requests or a few more; rising.

    They are values of the law itself; its longest prompt, above which there is nothing, is none.
    """
    order = np.argsort(c.lengths.prompt, kind="stable")
    prompt, below = c.lengths.prompt[order], np.cumsum(c.lengths.weight[order])
    at = np.searchsorted(below, np.arange(1, count) / count)
    longest = prompt[c.lengths.weight[order] > 0.0][-1]
    return tuple(float(x) for x in np.unique(prompt[at]) if x < longest)


def thinned_scv(scv: float, share: float) -> float:
    """SCV of the gaps of a stream of which each arrival is kept with probability ``share``.

    >>> thinned_scv(4.0, 0.5), thinned_scv(1.0, 0.1)
    (2.5, 1.0)
    """
    return 1.0 + share * (scv - 1.0)


def _bucket(c: TrafficClass, name: str, mine: np.ndarray) -> TrafficClass:
    law = c.lengths
    share = float(law.weight[mine].sum())
    lengths = LengthLaw(law.prompt[mine], law.output[mine], law.weight[mine] / share)
    return replace(
        c,
        name=name,
        rate=c.rate * share,
        lengths=lengths,
        arrival_scv=thinned_scv(c.arrival_scv, share),
        arrivals=None if c.arrivals is None else _thinned(c.arrivals, share),
    )


def _thinned(arrivals: ArrivalProcess, share: float) -> ArrivalProcess:
    """``arrivals`` of which ``share`` are kept, each by its own chance."""
    kept = arrivals.scaled(share)
    if isinstance(kept, Renewal):
        return replace(kept, scv=thinned_scv(kept.scv, share))
    return kept


def _range(edges: Sequence[float], i: int) -> str:
    if i == 0:
        return f"<={edges[0]:g}"
    return f">{edges[-1]:g}" if i == len(edges) else f"{edges[i - 1]:g}-{edges[i]:g}"


def _listed(edges: Sequence[float]) -> str:
    return ", ".join(f"{edge:g}" for edge in edges)
