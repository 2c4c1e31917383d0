r"""Square-root staffing of a pooled (central queue) role: n = a + beta sqrt(a).

Halfin and Whitt (1981): with a erlangs of work and beta fixed, P(W > 0) tends to
[1 + beta Phi(beta)/phi(beta)]^-1 as a grows. Exact counts by Erlang C stand beside each: for
a = 1 to 10^4 and P(W > 0) from .01 to .8 the rule, rounded up, is at most two servers short
(one from .05 on) and never one too many.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pdalloc.closed_forms.checks import not_negative, positive, probability
from pdalloc.queueing.erlang import erlang_c


def wait_probability(margin: float) -> float:
    """Halfin-Whitt's [1 + beta Phi(beta)/phi(beta)]^-1 (1981, prop. 1); ``margin`` = beta >= 0.

    >>> round(wait_probability(1.0), 4)
    0.2234
    """
    from scipy.special import log_ndtr

    not_negative(margin=margin)
    if margin == 0.0:
        return 1.0
    log_hazard = 0.5 * margin**2 + 0.5 * math.log(2.0 * math.pi) + float(log_ndtr(margin))
    return math.exp(-math.log1p(margin * math.exp(log_hazard))) if log_hazard < 700.0 else 0.0


def square_root_count(load: float, p_wait: float) -> float:
    """Servers (real) so that about ``p_wait`` of requests wait: a + beta sqrt(a).

    ``load`` = a = lambda/mu erlangs. beta solves :func:`wait_probability` = ``p_wait``.

    >>> round(square_root_count(100.0, 0.2234), 1)
    110.0
    """
    positive(load=load)
    probability(p_wait=p_wait)
    return load + _least(lambda beta: wait_probability(beta) <= p_wait) * math.sqrt(load)


def square_root_count_wait(load: float, wait: float) -> float:
    """Servers (real) for a mean wait of ``wait`` mean services: P(W>0)/(beta sqrt(a)) = wait."""
    positive(load=load, wait=wait)
    room = wait * math.sqrt(load)
    return load + _least(lambda beta: wait_probability(beta) <= room * beta) * math.sqrt(load)


def erlang_count(load: float, p_wait: float) -> int:
    """Least whole servers with Erlang C(n, ``load``) <= ``p_wait``.

    >>> erlang_count(100.0, 0.2234)  # the square root says 110
    111
    """
    positive(load=load)
    probability(p_wait=p_wait)
    return _least_whole(load, lambda n: erlang_c(n, load) <= p_wait)


def erlang_count_wait(load: float, wait: float) -> int:
    """Least whole servers whose mean wait C(n, a)/(n - a) is at most ``wait`` mean services."""
    positive(load=load, wait=wait)
    return _least_whole(load, lambda n: erlang_c(n, load) <= wait * (n - load))


def _least(enough: Callable[[float], bool]) -> float:
    """The margin where ``enough`` turns true, by bisection to double precision."""
    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _least_whole(load: float, enough: Callable[[int], bool]) -> int:
    """The least n > load with ``enough``, by doubling and bisection."""
    low, step = math.floor(load), 1
    while not enough(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
