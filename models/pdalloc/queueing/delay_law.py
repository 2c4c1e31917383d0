r"""What every delay law of a station gives, from three things of its own.

A rival states its mean wait; P(W > 0) and the law of W | W > 0 have defaults. From these
follow queue length (Little: L_q = lambda E[W]), the laws of wait and of sojourn (wait plus the
true service law), their percentiles, and the greatest rate under a bound (:mod:`.inverse`).

W_M and C are wait and P(W > 0) of M/M/c, W_D and P_D those of M/D/c, s the service SCV.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from pdalloc.errors import UnsupportedError
from pdalloc.fleet import Dispatch
from pdalloc.laws import Atoms, Exponentials, Law, Sum
from pdalloc.queueing.delayed import DelayedWait, LeastResidualWait
from pdalloc.queueing.deterministic import mdc
from pdalloc.queueing.erlang import erlang_c
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Station

NEVER = 1e-200
"""Erlang's C below this: nobody waits."""

Shape = Literal["any", "constant", "exponential"]


@dataclass(frozen=True)
class Claim:
    """Stations that a law is meant for: closed ranges; one server knows no dispatch rule."""

    dispatch: tuple[Dispatch, ...] = ("central_queue",)
    servers: tuple[float, float] = (1, math.inf)
    service: Shape = "any"
    service_scv: tuple[float, float] = (0.0, math.inf)
    arrival_scv: tuple[float, float] = (1.0, 1.0)

    def holds(self, station: Station) -> bool:
        """Whether ``station`` is one of them."""
        return (
            (station.dispatch in self.dispatch or station.servers == 1)
            and self.servers[0] <= station.servers <= self.servers[1]
            and self.service_scv[0] <= station.service.scv <= self.service_scv[1]
            and self.arrival_scv[0] <= station.arrival_scv <= self.arrival_scv[1]
            and self.service in ("any", service_shape(station.service))
        )


def service_shape(service: Service) -> Shape:
    """``constant`` or ``exponential`` where the law is exactly that, else ``any``."""
    law = service.law
    if isinstance(law, Atoms) and law.values.min() == law.values.max():
        return "constant"
    if isinstance(law, Exponentials) and not law.shifts.any():
        return "exponential" if law.means.min() == law.means.max() > 0 else "any"
    return "any"


@dataclass(frozen=True)
class DelayLaw(ABC):
    """One law of one station. Raises UnsupportedError for a station that it does not claim."""

    station: Station

    name: ClassVar[str]
    claim: ClassVar[Claim] = Claim()
    quick: ClassVar[bool] = True
    """Whether a call takes a few milliseconds at most, so that it can be a default."""
    exact: ClassVar[bool] = False
    """Whether it is the law of every station that it claims, up to the numerics."""
    on_lattice: ClassVar[bool] = False
    """Whether its mean too comes from a lattice."""

    def __post_init__(self) -> None:
        if not self.claim.holds(self.station):
            raise unclaimed(f"delay law {self.name!r}", self.station)

    @abstractmethod
    def _mean_wait(self) -> float:
        """E[W] in seconds where somebody waits."""

    def _p_wait(self) -> float:
        """P(W > 0): harmonic between M/D/c and M/M/c, (1+s)/PW = (1-s)/P_D + 2s/C."""
        s, c, d = self.scv, self.erlang_probability, self.constant_probability
        return min((1.0 + s) * c * d / ((1.0 - s) * c + 2.0 * s * d), 1.0)

    def _shape(self) -> Law:
        """Law of W | W > 0, up to its scale."""
        return LeastResidualWait(self.station.service, self.station.servers, self.rho)

    @cached_property
    def mean_wait(self) -> float:
        """E[W], seconds."""
        return 0.0 if self.nobody_waits else self._mean_wait()

    @cached_property
    def p_wait(self) -> float:
        """P(W > 0)."""
        return 0.0 if self.nobody_waits else self._p_wait()

    @cached_property
    def wait(self) -> Law:
        """Law of the wait before service, seconds."""
        if self.mean_wait <= 0.0 or self.p_wait <= 0.0:
            return DelayedWait(0.0, 0.0, self.station.service.law)
        return DelayedWait(self.p_wait, self.mean_wait, self._shape())

    @cached_property
    def sojourn(self) -> Law:
        """Law of wait plus service, seconds."""
        return Sum((self.wait, self.station.service.law))

    @property
    def mean_sojourn(self) -> float:
        """E[W] + E[S], seconds."""
        return self.mean_wait + self.station.service.mean

    @property
    def queue_length(self) -> float:
        """Mean number waiting (Little 1961)."""
        return self.station.rate * self.mean_wait

    @property
    def nobody_waits(self) -> bool:
        """No load, or so little that no double holds the chance of a wait."""
        return self.station.rate == 0.0 or self.erlang_probability < NEVER

    @property
    def rho(self) -> float:
        """Utilisation."""
        return self.station.utilisation

    @property
    def scv(self) -> float:
        """Service SCV s."""
        return self.station.service.scv

    @cached_property
    def erlang_probability(self) -> float:
        """C, P(W > 0) of M/M/c."""
        return erlang_c(self.station.servers, self.station.load)

    @cached_property
    def erlang_wait(self) -> float:
        """W_M = C E[S] / (c (1 - rho)), seconds."""
        spare = self.station.servers * (1.0 - self.rho)
        return self.erlang_probability * self.station.service.mean / spare

    @property
    def constant_wait(self) -> float:
        """W_D, seconds."""
        return mdc(self.station.servers, self.rho)[0] * self.station.service.mean

    @property
    def constant_probability(self) -> float:
        """P_D."""
        return mdc(self.station.servers, self.rho)[1]


def unclaimed(who: str, station: Station) -> UnsupportedError:
    """The error for a station that ``who`` does not claim."""
    return UnsupportedError(
        f"{who} does not claim {station.servers} servers, dispatch {station.dispatch}, service "
        f"SCV {station.service.scv:.3g}, arrival SCV {station.arrival_scv:.3g}; "
        "laws_for(station) lists the laws that do"
    )
