"""Merit order with limits, and what whole replicas cost beyond real ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdalloc.closed_forms.checks import not_negative, positive
from pdalloc.errors import InfeasibleError, InputError


@dataclass(frozen=True)
class Merit:
    """A replica type: ``price`` USD/h, ``capacity`` requests/s it admits, ``limit`` replicas."""

    price: float
    capacity: float
    limit: float = math.inf

    def __post_init__(self) -> None:
        positive(price=self.price, capacity=self.capacity)
        if math.isnan(self.limit) or self.limit < 0:
            raise InputError(f"limit must not be negative, got {self.limit:g}")


@dataclass(frozen=True)
class MeritOrder:
    """Least cost with real ``counts`` (as given); ``price`` USD/h per request/s at the margin."""

    counts: tuple[float, ...]
    cost: float
    price: float


def merit_order(rate: float, types: Sequence[Merit]) -> MeritOrder:
    """Cover ``rate`` requests/s with the types of least price/capacity first.

    Source: theorem ``merit_order``. Raises InfeasibleError when all limits together fall short.

    >>> merit_order(5.0, [Merit(4.0, 1.0), Merit(3.0, 1.0, limit=2)])
    MeritOrder(counts=(3.0, 2), cost=18.0, price=4.0)
    """
    not_negative(rate=rate)
    counts, left, margin = [0.0] * len(types), rate, 0.0
    for i in sorted(range(len(types)), key=lambda i: types[i].price / types[i].capacity):
        if left <= 0.0:
            break
        margin = types[i].price / types[i].capacity
        wanted = left / types[i].capacity
        counts[i] = min(wanted, types[i].limit)
        left = 0.0 if counts[i] == wanted else left - counts[i] * types[i].capacity
    if left > 1e-12 * rate:
        raise InfeasibleError(
            f"all replicas together admit {rate - left:.4g} of {rate:.4g} requests/s: raise a limit"
        )
    cost = math.fsum(n * t.price for n, t in zip(counts, types, strict=True))
    return MeritOrder(tuple(counts), cost, margin)


def rounding_bound(counts: Sequence[float], prices: Sequence[float]) -> float:
    """USD/h that rounding ``counts`` (real, optimal) up adds: sum c_i (ceil n_i - n_i).

    No whole fleet costs less than the real one, so the rounded fleet is within this of the
    best; it is below the sum of the prices of types with a fraction. Source: theorem
    ``rounding``.

    >>> rounding_bound([2.5, 3.0], [4.0, 9.0])
    2.0
    """
    for n, price in zip(counts, prices, strict=True):
        not_negative(count=n)
        positive(price=price)
    return math.fsum(c * (math.ceil(n) - n) for n, c in zip(counts, prices, strict=True))
