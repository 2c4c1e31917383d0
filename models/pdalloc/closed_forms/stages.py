r"""One family for every stage of independent replicas: n = lambda (work + congestion/(T - floor)).

A stage that serves lambda requests/s with mean delay T takes so many replicas (real number).
``work`` is what a request asks of a replica in seconds, ``floor`` its delay on an idle one,
``congestion`` (seconds^2) what waiting costs. With service rate mu, kappa = (1 + SCV)/2 and a
decode step of a + b k seconds for L steps,

=============  =============  ===========================  ===========
stage          work           congestion                   floor
=============  =============  ===========================  ===========
M/M/1          1/mu           1/mu^2                       1/mu
M/G/1          1/mu           kappa/mu^2                   1/mu
batch law      L b            L^2 b (a + b)                L (a + b)
=============  =============  ===========================  ===========

Sources: Pollaczek-Khinchine (Kleinrock 1975, eq. 5.63); theorem ``batch_law``. Derivations of
what follows from the family: theorems ``shared_budget``, ``pd_ratio``, ``dual_cut``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdalloc.closed_forms.checks import not_negative, positive
from pdalloc.errors import InfeasibleError, InputError, UnstableError


@dataclass(frozen=True)
class Stage:
    """A role served by one replica type of ``price`` USD/h, as numbers of the family above.

    ``work`` s, ``congestion`` s^2, ``floor`` s. Raises InputError unless all but the floor are
    positive (a floor of 0 is allowed).
    """

    price: float
    work: float
    congestion: float
    floor: float

    def __post_init__(self) -> None:
        positive(price=self.price, work=self.work, congestion=self.congestion)
        not_negative(floor=self.floor)

    @classmethod
    def mm1(cls, price: float, service_rate: float) -> Stage:
        """Exponential service at ``service_rate`` requests/s."""
        return cls.mg1(price, service_rate, 1.0)

    @classmethod
    def mg1(cls, price: float, service_rate: float, scv: float) -> Stage:
        """Service at ``service_rate`` requests/s whose time has squared variation ``scv``.

        >>> Stage.mg1(2.0, 4.0, 0.0).delay(0.5, 1)  # M/D/1 at utilisation 1/8
        0.26785
        """
        positive(service_rate=service_rate)
        not_negative(scv=scv)
        mean = 1.0 / service_rate
        return cls(price, mean, (1.0 + scv) / 2.0 * mean**2, mean)

    @classmethod
    def batch(cls, price: float, steps: float, base: float, per_request: float) -> Stage:
        """Decode by the batch law: ``steps`` = L of a + b k s, ``base`` = a, ``per_request`` = b.

        The delay is that of all L steps: a bound on it is L times a bound on mean TPOT.
        """
        positive(steps=steps, per_request=per_request)
        not_negative(base=base)
        work, floor = steps * per_request, steps * (base + per_request)
        return cls(price, work, work * floor, floor)

    @property
    def load_cost(self) -> float:
        """alpha = price x work: USD/h per request/s when delay does not matter."""
        return self.price * self.work

    @property
    def delay_cost(self) -> float:
        """beta = price x congestion: cost per request/s is alpha + beta/(T - floor)."""
        return self.price * self.congestion

    def replicas(self, rate: float, delay: float) -> float:
        """Replicas (real) that serve ``rate`` requests/s with mean ``delay`` s.

        >>> round(Stage.mm1(1.0, 28309 / 6144).replicas(12.52, 1.9), 3)  # lambda/(mu - 1/tau)
        3.068
        """
        not_negative(rate=rate)
        if not math.isfinite(delay) or delay <= self.floor:
            raise InfeasibleError(
                f"a mean delay of {delay:.4g} s is at or below the {self.floor:.4g} s of an "
                "idle replica: no count reaches it"
            )
        return rate * (self.work + self.congestion / (delay - self.floor))

    def delay(self, rate: float, count: float) -> float:
        """Mean delay, s, of ``rate`` requests/s split evenly over ``count`` replicas."""
        not_negative(rate=rate)
        positive(count=count)
        spare = count - rate * self.work
        if spare <= 0.0:
            raise UnstableError(
                f"{count:g} replicas are offered {rate * self.work:.4g} replicas' work; it takes "
                f"more than {math.floor(rate * self.work)}"
            )
        return self.floor + self.congestion * rate / spare


@dataclass(frozen=True)
class SharedBudget:
    """Least-cost stages under one bound on the sum of their mean delays.

    ``delays`` s and ``counts`` (real) per stage; ``cost`` USD/h; ``price_of_latency`` USD/h
    saved per second of budget granted, -d cost/d tau.
    """

    delays: tuple[float, ...]
    counts: tuple[float, ...]
    cost: float
    price_of_latency: float


def shared_budget(rate: float, stages: Sequence[Stage], budget: float) -> SharedBudget:
    r"""Stages in series whose mean delays may sum to ``budget`` s, at least cost.

    With alpha, beta of each stage and sigma = tau - sum floors,
    T_i = floor_i + sigma sqrt(beta_i) / sum sqrt(beta), cost = lambda [sum alpha +
    (sum sqrt beta)^2 / sigma], d cost/d tau = -lambda (sum sqrt beta)^2 / sigma^2. ``rate``
    requests/s pass every stage. Source: theorem ``shared_budget``; for M/M/1 links Kleinrock
    (1964). Raises InfeasibleError at or below the sum of floors.

    >>> one = Stage.mm1(2.0, 4.0)
    >>> both = shared_budget(10.0, [one, one], 1.0)
    >>> both.delays, both.counts, both.cost, both.price_of_latency
    ((0.5, 0.5), (5.0, 5.0), 20.0, 20.0)
    """
    positive(rate=rate, budget=budget)
    if not stages:
        raise InputError("shared_budget: give at least one stage")
    floor = sum(stage.floor for stage in stages)
    slack = budget - floor
    if slack <= 0.0:
        raise InfeasibleError(
            f"a mean of {budget:.4g} s for {len(stages)} stages is at or below the {floor:.4g} s "
            "of an unloaded request"
        )
    roots = [math.sqrt(stage.delay_cost) for stage in stages]
    total = sum(roots)
    delays = tuple(s.floor + slack * r / total for s, r in zip(stages, roots, strict=True))
    counts = tuple(
        rate * (s.work + s.congestion * total / (slack * r))
        for s, r in zip(stages, roots, strict=True)
    )
    cost = rate * (sum(s.load_cost for s in stages) + total**2 / slack)
    return SharedBudget(delays, counts, cost, rate * total**2 / slack**2)
