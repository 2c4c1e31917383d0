"""A pool as queueing theory sees it: one stream of requests, c equal servers, a dispatch rule.

Dispatch matters more than the delay formula. Mean wait in mean services at utilisation 0.8
with exponential service, c = 4 and 16: one central queue .75 and .10, least assigned work .83
and .13, round robin 2.27 and 1.84, random 4.0 and 4.0.

A server takes one request at a time: prefill passes of several prompts are not modelled.
What that costs is simulated in ``experiments/delay_laws/results/batching.csv``: without a base
time per pass the law is low (a few per cent for a budget of two mean prompts, 20 % for eight at
utilisation .8), with one it is high, without bound as the unbatched pool nears its capacity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

from pdalloc.errors import InputError, UnstableError
from pdalloc.fleet import Dispatch
from pdalloc.laws import StopLossLaw
from pdalloc.queueing.service import Service

Gaps = Literal["gamma", "hyperexponential"]
"""Law of independent gaps whose SCV is not 1; hyperexponential (balanced means) above 1 only."""


@dataclass(frozen=True)
class Station:
    """``servers`` replicas offered ``rate`` requests/s in all, ``service`` seconds each.

    ``arrival_scv`` is that of the gaps between arrivals at the pool (1 is Poisson), ``gaps``
    their law where a delay law needs more: at one server and SCV 4 the choice moves the mean
    wait by up to 37 %. ``least_loaded`` is least assigned unfinished work, the running request
    counted whole. Raises InputError for numbers that are none, UnstableError at utilisation
    >= 1.
    """

    rate: float
    service: Service
    servers: int = 1
    arrival_scv: float = 1.0
    dispatch: Dispatch = "central_queue"
    gaps: Gaps = "gamma"

    def __post_init__(self) -> None:
        if not math.isfinite(self.rate) or self.rate < 0:
            raise InputError(f"a rate must be finite and not negative, got {self.rate:g} req/s")
        if not math.isfinite(self.arrival_scv) or self.arrival_scv < 0:
            raise InputError(
                f"an arrival SCV must be finite and not negative, got {self.arrival_scv:g}"
            )
        if type(self.servers) is not int or self.servers < 1:
            raise InputError(f"servers must be a whole number >= 1, got {self.servers!r}")
        if self.dispatch not in get_args(Dispatch):
            known = ", ".join(get_args(Dispatch))
            raise InputError(f"no dispatch rule {self.dispatch!r}; known: {known}")
        if self.gaps not in get_args(Gaps):
            raise InputError(f"no law of gaps {self.gaps!r}; known: {', '.join(get_args(Gaps))}")
        if self.gaps == "hyperexponential" and self.arrival_scv <= 1.0:
            raise InputError("hyperexponential gaps have an SCV above 1; use gaps: gamma")
        if self.utilisation >= 1.0:
            raise UnstableError(
                f"{self.servers} server{'s are' if self.servers > 1 else ' is'} offered "
                f"{self.rate:.4g} req/s of "
                f"{self.service.mean:.4g} s each: utilisation {self.utilisation:.3f}; it takes "
                f"at least {int(self.load) + 1} servers"
            )

    @property
    def load(self) -> float:
        """Offered load a = rate E[S], in servers."""
        return self.rate * self.service.mean

    @cached_property
    def utilisation(self) -> float:
        """rho = a / c."""
        return self.load / self.servers

    @property
    def poisson(self) -> Station:
        """The same station under Poisson arrivals."""
        return replace(self, arrival_scv=1.0, gaps="gamma")

    def at(self, rate: float) -> Station:
        """The same station offered ``rate`` requests/s."""
        return replace(self, rate=rate)

    def share(self, share: float, servers: int = 1) -> Station:
        """``servers`` of its replicas that get each request with probability ``share``.

        Thinning a renewal stream moves its SCV to 1 + share (SCV - 1) (Cox 1962): so a role
        of several pools, or c replicas under random dispatch, are stations of their own.
        """
        if not 0.0 < share <= 1.0:
            raise InputError(f"a share of traffic must be above 0 and at most 1, got {share:g}")
        scv = 1.0 + share * (self.arrival_scv - 1.0)
        gaps = self.gaps if scv > 1.0 else "gamma"
        return replace(self, rate=share * self.rate, servers=servers, arrival_scv=scv, gaps=gaps)


def station(
    rate: float,
    law: StopLossLaw,
    servers: int = 1,
    arrival_scv: float = 1.0,
    dispatch: Dispatch = "central_queue",
    gaps: Gaps = "gamma",
) -> Station:
    """A :class:`Station` from a bare law of service seconds."""
    return Station(rate, Service(law), servers, arrival_scv, dispatch, gaps)
