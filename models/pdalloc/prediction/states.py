"""What a pool does in the steady state: the station or law of one, and its waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.laws import Array, Law
from pdalloc.queueing.decode import DecodeLaw
from pdalloc.queueing.decode.requests import ClassRequests, Points
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Station
from pdalloc.system import FirstToken, ReplicaType
from pdalloc.workload.traffic import RequestMix


@dataclass(frozen=True)
class PrefillState:
    """A prefill pool: its station, and the law of the wait of its requests, seconds.

    ``share`` of all requests come to it.
    """

    replica_type: ReplicaType
    station: Station
    wait: Law
    share: float = 1.0

    @property
    def rate(self) -> float:
        """Requests/s on one replica."""
        return self.station.rate / self.station.servers

    @property
    def offered(self) -> float:
        """Requests/s to the whole pool."""
        return self.station.rate

    @property
    def replicas(self) -> int:
        """Replicas of the pool."""
        return self.station.servers

    @property
    def service(self) -> Service:
        """Law of a prefill, seconds."""
        return self.station.service

    @property
    def utilisation(self) -> float:
        """Share of time a replica is busy."""
        return self.station.utilisation


@dataclass(frozen=True)
class DecodeState:
    """A decode pool of ``replicas``; under random dispatch its law is that of one of them.

    ``lean``: what prefill does to the skewness of its arrivals, by seconds (n,).
    """

    replica_type: ReplicaType
    replicas: int
    law: DecodeLaw
    lean: Callable[[Array], Array] | None = None

    @property
    def rate(self) -> float:
        """Requests/s on one replica."""
        return self.law.rate

    @cached_property
    def requests(self) -> ClassRequests:
        """What requests of a class see of it."""
        return ClassRequests(self.law, self.lean)

    @property
    def utilisation(self) -> float:
        """Offered requests/s over the most the replicas can serve."""
        return self.law.utilisation


def first_gap_entry(rule: FirstToken, d: DecodeState) -> Points | None:
    """Points of the way into the batch that first gaps hold; None where decode makes the first."""
    if rule == "decode":
        return None
    return d.requests.entry if rule == "prefill" else d.requests.entry_after_transfer


@dataclass(frozen=True)
class Decoding:
    """Requests of ``mix`` after prefill: a point for each transfer and number of steps.

    ``moved`` seconds of the KV transfer and ``steps`` of each, ``held`` tokens at the first,
    ``growth`` tokens per step, ``ends`` the steps that end a gap between tokens; (n,).
    """

    mix: RequestMix
    moved: Array
    steps: Array
    held: Array
    growth: Array
    ends: Array

    @property
    def ratio(self) -> Array:
        """Steps that end a gap, per gap: 1 with one token a step."""
        gaps = np.maximum(self.mix.output - 1.0, 1.0)
        return np.asarray(self.ends / gaps)
