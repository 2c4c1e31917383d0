r"""How many prefill replicas per decode replica: under each kind of SLO, and the golden ratio.

With separate SLOs each role is sized alone, so price drops out. Under a shared budget the
ratio depends on price through beta only, and runs from the golden ratio (tight) to load
matching (loose), monotonically. Derivations: theorems ``pd_ratio`` and ``golden_ratio``.
"""

from __future__ import annotations

import math

from pdalloc.closed_forms.checks import positive
from pdalloc.closed_forms.stages import Stage, shared_budget


def golden_ratio(
    prefill_work: float, decode_work: float, prefill_price: float, decode_price: float
) -> float:
    r"""P/D = sqrt(A C_d / (B C_p)): least P C_p + D C_d under A/P + B/D <= tau.

    ``prefill_work`` = A and ``decode_work`` = B in replica-seconds, speeds inside them; prices
    USD/h. A/P treats a pool as one fast server without a queue: see ``pd_ratio`` for queues.

    >>> golden_ratio(4.0, 1.0, 1.0, 1.0)
    2.0
    """
    positive(prefill_work=prefill_work, decode_work=decode_work)
    positive(prefill_price=prefill_price, decode_price=decode_price)
    return math.sqrt(prefill_work * decode_price / (decode_work * prefill_price))


def separate_ratio(prefill: Stage, decode: Stage, ttft: float, decode_delay: float) -> float:
    """P/D when each role keeps its own mean, s: ``ttft``, and ``decode_delay`` = L x TPOT.

    n_P/n_D of :meth:`Stage.replicas`; prices and the rate cancel.
    """
    return prefill.replicas(1.0, ttft) / decode.replicas(1.0, decode_delay)


def shared_ratio(prefill: Stage, decode: Stage, budget: float) -> float:
    """P/D under a bound on TTFT + decode time together (mean E2E), s; the rate cancels."""
    prefill_count, decode_count = shared_budget(1.0, [prefill, decode], budget).counts
    return prefill_count / decode_count


def tight_ratio(prefill: Stage, decode: Stage) -> float:
    """The limit of :func:`shared_ratio` as the budget falls to the floors: the golden ratio.

    A = congestion of prefill (1/mu^2 per request/s for M/M/1), B that of decode.
    """
    return golden_ratio(prefill.congestion, decode.congestion, prefill.price, decode.price)


def loose_ratio(prefill: Stage, decode: Stage) -> float:
    """The limit of :func:`shared_ratio` as the budget grows: load matching, free of prices."""
    return prefill.work / decode.work
