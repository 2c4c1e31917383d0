"""KV transfers between two pools: which link carries them, who shares it, how long they take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from pdalloc.fleet import DECODE, PREFILL
from pdalloc.hardware.link import Link
from pdalloc.laws import Array, Atoms
from pdalloc.prediction.states import PrefillState
from pdalloc.queueing.transfer import KINDS, Feed, SharedLink, merged
from pdalloc.simulation.options import Network
from pdalloc.system import ReplicaType, System
from pdalloc.workload.traffic import RequestMix

NOISE_CELLS = 8
"""Equally likely points of an exponential prefill, where one replica feeds a link."""


@dataclass(frozen=True)
class Transfers:
    """Those of ``system`` over ``network``; ``mix`` is the law of a random request.

    Between several pairs of sites each link is taken to carry all the traffic, which is never
    too little. Jitter is left out.
    """

    system: System
    network: Network
    mix: RequestMix
    _links: dict[tuple[str, str, float, int], SharedLink | None] = field(
        default_factory=dict, repr=False
    )

    def link(self, prefill: ReplicaType, decode: ReplicaType) -> Link:
        """The link from one type's pool to the other's."""
        sites = self.network.sites
        pair = sites.get((PREFILL, prefill.name), ""), sites.get((DECODE, decode.name), "")
        return self.network.links.get(pair, self.system.link)

    def work(self, mix: RequestMix, link: Link) -> Array:
        """Seconds of bytes on ``link`` per point of ``mix``; (n,)."""
        size: Array = self.system.llm.kv_bytes_per_token * mix.prompt
        return size / link.bandwidth

    def shared(self, p: PrefillState, decode: ReplicaType) -> SharedLink | None:
        """The shared link of a path; None where transfers share none, or take it no time.

        Raises UnstableError when it is full.
        """
        sharing = self.network.sharing
        if sharing == "none":
            return None
        key = (p.replica_type.name, decode.name, p.rate, p.replicas)
        if key not in self._links:
            work = Atoms(self.work(self.mix, self.link(p.replica_type, decode)), self.mix.weight)
            found: SharedLink | None
            if work.mean == 0.0:  # nobody waits for infinite bandwidth
                found = None
            elif self.network.scope == "replica":
                name = f"the link of one prefill replica of type {p.replica_type.name}"
                found = SharedLink(name, p.rate, *self._fed(p, work), sharing=sharing)
            else:
                whole = self.system.workload
                name = f"the link of the {self.network.scope}"
                scv = whole.arrival_scv
                found = SharedLink(name, whole.rate, work, sharing=sharing, arrival_scv=scv)
            self._links[key] = found
        return self._links[key]

    def _fed(self, p: PrefillState, work: Atoms) -> tuple[Atoms, Feed]:
        """Work and prefill times of the requests of one replica, point by point."""
        latency = p.replica_type.latency
        seconds = latency.prefill_seconds(self.mix.prompt, self.mix.cached)
        if latency.prefill_noise == "exponential":
            noise = -np.log1p(-(np.arange(NOISE_CELLS) + 0.5) / NOISE_CELLS)
            few = merged(work.values, seconds, work.weights, KINDS // NOISE_CELLS)
            seconds = np.outer(few[1], noise / noise.mean()).ravel()
            values, weights = (np.repeat(x, NOISE_CELLS) for x in (few[0], few[2]))
            work = Atoms(values, weights / NOISE_CELLS)
        alone = p.replicas == 1 or self.system.dispatch[PREFILL] == "random"
        idles = 1.0 - p.utilisation if alone else p.wait.probability(0.0)
        return work, Feed(seconds, idles)

    def moved(
        self, mix: RequestMix, p: PrefillState, decode: ReplicaType
    ) -> tuple[RequestMix, Array]:
        """Requests of ``mix`` and seconds of their transfers, (m,): a point for each delay.

        Raises UnstableError when the link is offered more than it can move.
        """
        link = self.link(p.replica_type, decode)
        work = self.work(mix, link)
        shared = self.shared(p, decode)
        if shared is None or shared.rate == 0.0:
            return mix, link.latency + work
        delays, weights = shared.delays(work)
        many = mix.repeated(len(weights))
        many = replace(many, weight=np.outer(mix.weight, weights).ravel())
        return many, (link.latency + work[:, None] + delays).ravel()
