"""What a pool does in the steady state: the station or law of one, and its waits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pdalloc.laws import Array, Law
from pdalloc.queueing.decode import DecodeLaw
from pdalloc.queueing.decode.requests import ClassRequests
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Station
from pdalloc.system import ReplicaType
from pdalloc.workload.traffic import RequestMix


@dataclass(frozen=True)
class PrefillState:
    """A prefill pool: its station, and the law of the wait of its requests, seconds."""

    replica_type: ReplicaType
    station: Station
    wait: Law

    @property
    def rate(self) -> float:
        """Requests/s on one replica."""
        return self.station.rate / self.station.servers

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
    """A decode pool of ``replicas``; under random dispatch its law is that of one of them."""

    replica_type: ReplicaType
    replicas: int
    law: DecodeLaw

    @property
    def rate(self) -> float:
        """Requests/s on one replica."""
        return self.law.rate

    @cached_property
    def requests(self) -> ClassRequests:
        """What requests of a class see of it."""
        return ClassRequests(self.law)

    @property
    def utilisation(self) -> float:
        """Offered requests/s over the most the replicas can serve."""
        return self.law.utilisation


@dataclass(frozen=True)
class Decoding:
    """Requests of ``mix`` at decode, a point for each number of steps that one may take.

    ``steps`` of each, ``held`` tokens at the first, ``growth`` tokens per step; (n,).
    """

    mix: RequestMix
    steps: Array
    held: Array
    growth: Array
