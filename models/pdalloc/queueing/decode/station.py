"""A decode pool as queueing theory sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np

from pdalloc.errors import InputError, UnstableError
from pdalloc.fleet import Dispatch
from pdalloc.laws import Array
from pdalloc.queueing.decode.work import DecodeWork
from pdalloc.queueing.departures import Spectrum

StepTime = Callable[[Array, Array], Array]
"""Seconds of a step from the batch and its context tokens in all; arrays (n,)."""

FAR = float(1 << 17)
"""A batch that stands for no limit."""
AFFINE = 1e-9
"""Relative difference up to which a step time counts as affine."""


@dataclass(frozen=True, eq=False)
class DecodeStation:
    """``replicas`` replicas offered ``rate`` requests/s in all.

    ``step_time(batch, context)`` as :meth:`pdalloc.latency.service.Latency.step_seconds`,
    ``work`` what requests ask for, ``slots`` = K the batch limit of one replica (inf without).
    ``arrival_scv`` is that of the gaps between arrivals at the pool (1 is Poisson), taken as
    gamma gaps; ``arrivals`` their spectrum where they are something else. ``least_loaded`` is
    fewest assigned unfinished requests.
    Raises InputError for numbers that are none, UnstableError when the pool is offered at least
    what its replicas can serve.
    """

    rate: float
    step_time: StepTime
    work: DecodeWork
    replicas: int = 1
    slots: float = math.inf
    dispatch: Dispatch = "random"
    arrival_scv: float = 1.0
    arrivals: Spectrum | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.rate) or self.rate < 0:
            raise InputError(f"a rate must be finite and not negative, got {self.rate:g} req/s")
        if not math.isfinite(self.arrival_scv) or self.arrival_scv < 0:
            raise InputError(
                f"an arrival SCV must be finite and not negative, got {self.arrival_scv:g}"
            )
        whole = type(self.replicas) is int
        if not whole or self.replicas < 1:
            raise InputError(f"replicas must be a whole number >= 1, got {self.replicas!r}")
        if self.dispatch not in get_args(Dispatch):
            known = ", ".join(get_args(Dispatch))
            raise InputError(f"no dispatch rule {self.dispatch!r}; known: {known}")
        slots = self.slots
        if (
            isinstance(slots, bool)
            or not slots >= 1
            or slots not in (math.inf, round(min(slots, 1e15)))
        ):
            raise InputError(f"slots must be a whole number >= 1, or inf, got {slots!r}")
        one = self.seconds(np.ones(1))[0]
        if not (math.isfinite(one) and one > 0):
            raise InputError(f"a step of one request must take a positive time, got {one:g} s")
        if self.utilisation >= 1.0:
            least = math.floor(self.utilisation * self.replicas) + 1
            raise UnstableError(
                f"{self.replicas} decode replica{'s are' if self.replicas > 1 else ' is'} offered "
                f"{self.rate:.4g} req/s of "
                f"{self.work.mean_steps:.4g} steps each: utilisation rho = {self.utilisation:.3f}; "
                f"it takes at least {least} replicas"
            )

    def seconds(self, batch: Array) -> Array:
        """Mean step seconds of ``batch`` requests with the mean context each; (n,)."""
        return self.step_time(batch, batch * self.work.mean_context)

    @property
    def replica_rate(self) -> float:
        """Requests/s offered to one replica."""
        return self.rate / self.replicas

    @cached_property
    def capacity(self) -> float:
        """Requests/s at which the whole pool is fully busy."""
        most = min(self.slots, FAR)
        step = float(self.seconds(np.array([most]))[0])
        if self.slots == math.inf and self.affine is not None:
            _, b, c = self.affine
            slope = b + c * self.work.mean_context
            return self.replicas / (self.work.mean_steps * slope) if slope > 0 else math.inf
        return self.replicas * most / step / self.work.mean_steps

    @property
    def limit(self) -> float:
        """Requests/s below which the pool has a steady state, whatever its rate now."""
        return self.capacity

    @property
    def utilisation(self) -> float:
        """rho: offered over greatest rate."""
        return self.rate / self.capacity

    @cached_property
    def affine(self) -> tuple[float, float, float] | None:
        """(a, b, c) of t = a + b B + c S; None where the step time is no such line."""
        context = self.work.mean_context
        far = min(self.slots, 64.0) + 1.0
        batch = np.array([1.0, 2.0, 1.0, 3.0, far, far, 0.5 * far])
        held = np.array([0.0, 0.0, 1.0, 2.0, 0.0, far * context, far * context]) * max(context, 1.0)
        held[[5, 6]] /= max(context, 1.0)
        t = self.step_time(batch, held)
        b, c = float(t[1] - t[0]), float(t[2] - t[0]) / max(context, 1.0)
        a = float(t[0]) - b
        line = a + b * batch + c * held
        return (a, b, c) if np.allclose(t, line, rtol=AFFINE, atol=0.0) else None

    def at(self, rate: float) -> DecodeStation:
        """The same station offered ``rate`` requests/s."""
        return replace(self, rate=rate)
