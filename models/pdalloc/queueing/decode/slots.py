r"""Waiting for a slot: what the law of the answers' length changes.

With K slots busy a replica is K servers of constant speed 1/t(K). For exponential lengths the
wait follows from birth and death; for others it is scaled as in M/G/K at the same K and load

.. math:: P(W>0): \frac{1+s}{(1-s) C/P_D + 2 s}, \qquad
          E[W]: \frac{(1+s) W_D}{2\alpha W_D + (1-\alpha) W_M}

(harmonic interpolation, and Boxma, Cohen, Huffels 1979, eqs. 17, 19; C, W_M of M/M/K, P_D, W_D
of M/D/K, s the SCV of the steps, alpha from the least of K residual lengths).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pdalloc.queueing.decode.work import DecodeWork
from pdalloc.queueing.deterministic import mdc
from pdalloc.queueing.erlang import erlang_c

RARE = 1e-200
"""Erlang's C below this: nobody waits."""


@lru_cache(maxsize=4096)
def least_residual(work: DecodeWork, servers: float) -> float:
    """E[min of ``servers`` residual lengths] / E[length]: int P(R > u)^c du, R linear between."""
    order = np.argsort(work.steps)
    steps, weight = work.steps[order], work.weight[order]
    width = np.diff(steps, prepend=0.0)
    above = np.cumsum(weight[::-1])[::-1]  # P(n > u) before each point
    slope = above / work.mean_steps
    left = np.append(1.0, np.maximum(1.0 - np.cumsum(slope * width), 0.0))
    cells = (left[:-1] ** (servers + 1.0) - left[1:] ** (servers + 1.0)) / (servers + 1.0)
    used = slope > 0
    return float((cells[used] / slope[used]).sum()) / work.mean_steps


def slot_factors(work: DecodeWork, servers: float, load: float) -> tuple[float, float]:
    """(factor on P(wait), factor on E[wait]) over exponential lengths, ``load`` per slot < 1.

    1 and (1 + s)/2 for one slot (Pollaczek-Khinchine).
    """
    s = work.scv
    if servers <= 1.0:
        return 1.0, 0.5 * (1.0 + s)
    c = erlang_c(servers, load * servers)
    d_wait, d_probability = mdc(servers, load)
    if c < RARE or d_probability < RARE or d_wait <= 0.0:
        return 1.0, 1.0
    probability = (1.0 + s) / ((1.0 - s) * c / d_probability + 2.0 * s)
    m_wait = c / (servers * (1.0 - load))
    alpha = ((1.0 + s) / least_residual(work, servers) - (servers + 1.0)) / (servers - 1.0)
    below = 2.0 * alpha * d_wait + (1.0 - alpha) * m_wait
    wait = (1.0 + s) * d_wait / below if below > 0.0 else 0.5 * (1.0 + s)
    ratio = min(max(probability, 0.0), 1.0 / c) if probability > 0.0 else 1.0 / c
    return ratio, max(wait, 0.0)
