r"""From a fleet and its traffic shares to laws of TTFT, TPOT, ITL and E2E.

A request waits for a prefill replica (W), is prefilled (S), its KV cache moves (X), it
enters a decode batch (B: step boundary, or a slot) and decodes. On the path from prefill
type r to decode type r':

.. math:: TTFT = W_r + S_r + X \; [+ B_{r'} + \text{first step}], \qquad
          E2E = W_r + (S_r + X + n\,\bar t_{r'} \mid \text{request}) + B_{r'}

with n decode iterations of mean :math:`\bar t`. The wait is convolved with the joint law of
(S, X, decode) of one request, so correlated prompt and output lengths are kept
(design 3.4); percentiles of stages are never added.

**Dispatch.** Under ``random`` a replica is alone with its share of the whole stream; under the
other rules a pool is one station whose law depends on how many replicas it has.

**Arrivals.** A pool that gets a share p of the workload's requests sees gaps of SCV 1 + p (c_a^2
- 1) (thinning; Cox 1962, "Renewal Theory", section 8.5). The same is taken for decode: what
leaves a stable prefill pool has the long-run dispersion of what arrives, and a decode batch
averages over long stays (reference: Poisson in, Poisson out errs -6 to -1 % after a random split).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, Fleet, Role
from pdalloc.laws import Array, Atoms, Exponentials, Law, Mixture, StopLossLaw, constant, total
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, DecodeWork, decode_work
from pdalloc.queueing.decode.requests import ClassRequests
from pdalloc.queueing.delay_laws import delay_law
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Station
from pdalloc.queueing.thinned import thinned_wait
from pdalloc.system import ReplicaType, System
from pdalloc.workload.traffic import RequestMix

PoolKey = tuple[Role, str]

SPREAD_CELLS = (24, 200)
"""Cells of probability, least and most, that carry the spread of a request's decode time."""
NOISY_CELLS = 6
"""The least under exponential prefill noise, which blurs them."""
SPREAD_POINTS = 1000
"""Cells over all kinds of requests, where these are few."""
SPREAD_END = 3.3
"""Standard deviations from the mean at which the outermost cells begin."""


@cache
def spread_cells(kinds: int, least: int = SPREAD_CELLS[0]) -> Array:
    """Edges of cells of probability, 0 to 1, evenly apart on a normal law's axis."""
    cells = min(max(SPREAD_POINTS // kinds, least), SPREAD_CELLS[1])
    inner = ndtr(np.linspace(-SPREAD_END, SPREAD_END, cells - 1))
    edges: Array = np.concatenate([[0.0], inner, [1.0]])
    return edges


@cache
def spread_nodes(kinds: int, least: int = SPREAD_CELLS[0]) -> tuple[Array, Array]:
    """Means of a standard normal law in each cell and their weights; mean 0, variance 1."""
    edges = spread_cells(kinds, least)
    weights = np.diff(edges)
    density = np.exp(-0.5 * ndtri(edges) ** 2) / np.sqrt(2.0 * np.pi)
    nodes = -np.diff(density) / weights  # E[Z | cell]
    return nodes / np.sqrt(weights @ nodes**2), weights


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
class Predictor:
    """Laws of one replica and of one path; everything is per system, nothing per fleet."""

    system: System
    _services: dict[str, Service] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def mix(self) -> RequestMix:
        """The law of a random request."""
        return self.system.workload.mix()

    @cached_property
    def _class_mixes(self) -> list[RequestMix]:
        return [self.mix.of_class(i) for i in range(len(self.system.workload.classes))]

    @cached_property
    def work(self) -> DecodeWork:
        """What requests ask of decode; InputError where that is nothing."""
        first = self.system.first_token == "decode"
        return decode_work(self.mix.prompt, self.mix.output, self.mix.weight, first)

    @property
    def mean_steps(self) -> float:
        """E[decode iterations] of a random request."""
        return self.work.mean_steps

    @cached_property
    def context(self) -> float:
        """Mean context of a decoding request, tokens, seen at a random step (size-biased)."""
        return self.work.mean_context

    def arrival_scv(self, rate: float) -> float:
        """SCV of the gaps at a pool that gets ``rate`` requests/s of the workload's."""
        share = min(rate / self.system.workload.rate, 1.0)
        return 1.0 + share * (self.system.workload.arrival_scv - 1.0)

    def prefill(self, replica_type: ReplicaType, rate: float, replicas: int = 1) -> PrefillState:
        """A pool of ``replicas`` at ``rate`` requests/s each; UnstableError at utilisation >= 1."""
        service = self._pool_service(replica_type)
        rule, offered = self.system.dispatch[PREFILL], rate * replicas
        station = Station(offered, service, replicas, self.arrival_scv(offered), rule)
        wait: Law
        if rule == "random" or replicas == 1:
            whole = self.system.workload
            wait = thinned_wait(service.law, rate, whole.rate, whole.arrival_scv)
        else:
            wait = delay_law(station).wait
        return PrefillState(replica_type, station, wait)

    def decode(self, replica_type: ReplicaType, rate: float, replicas: int = 1) -> DecodeState:
        """As :meth:`prefill` for decode; UnstableError beyond what the replicas can serve."""
        rule = self.system.dispatch[DECODE]
        together = 1 if rule == "random" else replicas
        offered = rate * together
        station = DecodeStation(
            offered,
            replica_type.latency.step_seconds,
            self.work,
            together,
            replica_type.batch_limit(self.context),
            rule,
            self.arrival_scv(offered),
        )
        return DecodeState(replica_type, replicas, DecodeLaw(station))

    def _pool_service(self, r: ReplicaType) -> Service:
        """Law of prefill time of a random request; kept, as its numerics are."""
        if r.name not in self._services:
            nothing = np.zeros_like(self.mix.prompt)
            self._services[r.name] = Service(self._service(r, self.mix, nothing))
        return self._services[r.name]

    def _service(self, r: ReplicaType, mix: RequestMix, extra: Array) -> StopLossLaw:
        """Law of prefill time plus ``extra`` seconds per request; ``extra`` shape (n,)."""
        seconds = r.latency.prefill_seconds(mix.prompt, mix.cached)
        if r.latency.prefill_noise == "exponential":
            return Exponentials(seconds, mix.weight, extra)
        return Atoms(seconds + extra, mix.weight)

    def law(self, metric: str, class_index: int, p: PrefillState, d: DecodeState) -> Law:
        """Law of ``metric`` in seconds for class ``class_index`` on the path p -> d."""
        mix = self._class_mixes[class_index]
        if metric == "ttft":
            return self._ttft(mix, p, d)
        if metric == "e2e":
            return self._e2e(mix, p, d)
        if metric == "itl":
            return self._itl(mix, d)
        if metric == "tpot":
            return self._tpot(mix, d)
        raise InputError(f"no prediction for metric {metric!r}")

    def _ttft(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        rule = self.system.first_token
        moved = self.system.transfer_seconds(mix)
        extra = np.zeros_like(moved) if rule == "prefill" else moved
        parts: list[Law] = [p.wait, self._service(p.replica_type, mix, extra)]
        if rule == "decode":
            parts.append(_KnownMean(d.law.first_token, d.law.mean_first_token))
        return total(parts)

    def _e2e(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        steps = self.system.decode_steps(mix)
        moved = self.system.transfer_seconds(mix)
        if self.system.first_token == "prefill":
            moved = np.where(steps > 0, moved, 0.0)  # nothing to decode, nothing to move
        decoding = steps > 0
        laws: list[Law] = []
        shares: list[float] = []
        if not decoding.all():
            rest = mix.where(~decoding)
            stay = self._service(p.replica_type, rest, moved[~decoding])
            laws.append(total([p.wait, stay]))
            shares.append(float(mix.weight[~decoding].sum()))
        if decoding.any():
            some, steps = mix.where(decoding), steps[decoding]
            made = self._made_before
            extra = moved[decoding] + steps * d.requests.mean_steps(steps, some.prompt + made)
            noisy = p.replica_type.latency.prefill_noise != "none"
            cells = NOISY_CELLS if noisy else SPREAD_CELLS[0]
            many, points = _spread(some, extra, steps, d, cells)
            stay = self._service(p.replica_type, many, points)
            entry = _KnownMean(d.law.entry, d.law.mean_entry)
            laws.append(total([p.wait, stay, entry]))
            shares.append(float(mix.weight[decoding].sum()))
        return laws[0] if len(laws) == 1 else Mixture(tuple(laws), tuple(shares))

    def _itl(self, mix: RequestMix, d: DecodeState) -> Law:
        """Token-weighted: under ``prefill`` and ``transfer`` first gaps hold the entry too."""
        rule = self.system.first_token
        later = mix.where(mix.output > 1) if (mix.output > 1).any() else None
        if rule == "decode" or later is None:
            return d.law.itl
        first = 1.0 / float(later.weight @ (later.output - 1.0))
        parts: list[Law] = [d.law.itl, _KnownMean(d.law.entry, d.law.mean_entry)]
        if rule == "prefill":
            parts.append(Atoms(self.system.transfer_seconds(later), later.weight))
        return Mixture((d.law.itl, total(parts)), (1.0 - first, first))

    def _tpot(self, mix: RequestMix, d: DecodeState) -> Law:
        if not (mix.output > 1).any():
            return constant(0.0)  # one-token answers have no gap
        later = mix.where(mix.output > 1)
        rule = self.system.first_token
        moved = np.zeros_like(later.output)
        if rule == "prefill":
            moved = self.system.transfer_seconds(later)
        held = later.prompt + self._made_before
        return d.requests.tpot(
            later.output - 1.0, held, moved, later.weight, enters=rule != "decode"
        )

    @property
    def _made_before(self) -> float:
        """Output tokens that a request holds when its decoding starts."""
        return 0.0 if self.system.first_token == "decode" else 1.0


def _spread(
    mix: RequestMix, mean: Array, steps: Array, d: DecodeState, cells: int
) -> tuple[RequestMix, Array]:
    """Each request of ``mix`` at points of its decode time: (the points' mix, seconds); (n m,).

    ``mean`` seconds and ``steps`` per request, (n,); ``cells`` of them at least. Normal points
    with the third cumulant of their law (Cornish and Fisher 1938).
    """
    variance, scale = d.requests.spread(steps)
    deviation = np.sqrt(variance)
    skew = 2.0 * scale / np.maximum(deviation, 1e-300)
    nodes, weights = spread_nodes(len(steps), cells)
    off = nodes + skew[:, None] / 6.0 * (nodes**2 - 1.0)
    seconds = np.maximum(mean[:, None] + (steps * deviation)[:, None] * off, 0.0)
    many = mix.repeated(len(nodes))
    return replace(many, weight=np.outer(mix.weight, weights).ravel()), seconds.ravel()


@dataclass(frozen=True)
class _KnownMean(Law):
    """``law`` with its mean known better than its points give it, seconds."""

    law: Law
    known: float

    @property
    def mean(self) -> float:
        return self.known

    def _horizon_guess(self) -> float:
        return self.law._horizon_guess()

    def lattice(self, step: float, points: int) -> Array:
        return self.law.lattice(step, points)


@dataclass(frozen=True)
class Prediction:
    """States of every pool of a fleet under given shares, and the laws on its paths."""

    predictor: Predictor
    fleet: Fleet
    rates: Mapping[PoolKey, float]
    prefill: Mapping[str, PrefillState]
    decode: Mapping[str, DecodeState]

    def state(self, role: Role, replica_type: str) -> PrefillState | DecodeState | None:
        """State of one replica of a pool; None where it carries no traffic."""
        if role == PREFILL:
            return self.prefill.get(replica_type)
        return self.decode.get(replica_type)

    def paths(self) -> list[tuple[PrefillState, DecodeState]]:
        """Every (prefill, decode) pair of types that carries traffic."""
        return [(p, d) for p in self.prefill.values() for d in self.decode.values()]


def predict(predictor: Predictor, fleet: Fleet, rates: Mapping[PoolKey, float]) -> Prediction:
    """States of ``fleet`` when pool (role, type) is offered ``rates`` requests/s in all.

    Pools with rate 0 carry no traffic and are left out of the paths. Raises UnstableError
    when a pool is offered more than it can serve.
    """
    types = predictor.system.replica_types
    used = [pool for pool in fleet.pools if rates[pool.role, pool.replica_type] > 0]
    states: dict[Role, dict[str, Any]] = {PREFILL: {}, DECODE: {}}
    for pool in used:
        name, n = pool.replica_type, pool.replicas
        state = predictor.prefill if pool.role == PREFILL else predictor.decode
        states[pool.role][name] = state(types[name], rates[pool.role, name] / n, n)
    return Prediction(predictor, fleet, rates, states[PREFILL], states[DECODE])
