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
- 1) (thinning; Cox 1962, "Renewal Theory", section 8.5). Decode gets what leaves prefill: where
the prefill pools are known (:func:`.predict`), as :mod:`pdalloc.queueing.departures` has it, but
never more irregular than what came; where they are not yet (:mod:`pdalloc.capacity`), as it came.
A fleet that its own prediction then finds short is planned again (:mod:`pdalloc.planning.plan`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pdalloc.errors import InputError, UnstableError, located
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.laws import Array, Atoms, Exponentials, Law, Mixture, StopLossLaw, constant, total
from pdalloc.prediction.spread import NOISY_CELLS, SPREAD_CELLS, KnownMean, spread
from pdalloc.prediction.states import DecodeState, Decoding, PrefillState, first_gap_entry
from pdalloc.prediction.transfers import Transfers
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, DecodeWork, decode_work
from pdalloc.queueing.decode.memory import Space
from pdalloc.queueing.decode.memory_law import MemoryLaw, MemoryStation
from pdalloc.queueing.decode.multi_token import OneToken, TokensPerStep, tokens_per_step
from pdalloc.queueing.decode.operating import OperatingPoint
from pdalloc.queueing.delay_laws import delay_law
from pdalloc.queueing.departures import Leaving, Stream, renewal_spectrum, served
from pdalloc.queueing.scaled import Stretched
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Station
from pdalloc.queueing.thinned import thinned_wait
from pdalloc.simulation.options import PLAIN, Network, SimulationOptions
from pdalloc.system import ReplicaType, System
from pdalloc.workload.traffic import RequestMix

REACH = 2.0
"""Standard deviations of the wait within which its echo grows with it."""


@dataclass(frozen=True)
class Predictor:
    """Laws of one replica and of one path; everything is per system, nothing per fleet.

    Of ``options`` the laws know KV memory, several tokens a step and shared links.
    """

    system: System
    options: SimulationOptions = PLAIN
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
        return decode_work(
            self.mix.prompt, self.mix.output, self.mix.weight, first, self.tokens_per_step
        )

    @cached_property
    def tokens_per_step(self) -> TokensPerStep:
        """How many tokens a step gives a request."""
        several = self.options.multi_token
        return OneToken() if several is None else tokens_per_step(several.mean, several.law)

    @cached_property
    def transfers(self) -> Transfers:
        """How KV caches move."""
        return Transfers(self.system, self.options.network or Network(), self.mix)

    def decoding(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Decoding:
        """What requests of ``mix`` do after prefill on the path p -> d."""
        mix, moved = self.transfers.moved(mix, p, d.replica_type)
        tokens = self.system.decode_steps(mix)
        points, steps, _ = self.tokens_per_step.steps(tokens)
        many = mix.repeated(len(points) // len(tokens))
        growth = np.divide(tokens[points], steps, out=np.ones_like(steps), where=steps > 0)
        made = 0.0 if self.system.first_token == "decode" else 1.0
        ends = np.maximum(steps - (1.0 - made), 0.0)
        return Decoding(many, moved[points], steps, many.prompt + made, growth, ends)

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
        share = min(offered / self.system.workload.rate, 1.0)
        return PrefillState(replica_type, station, wait, share)

    def served(self, pools: Iterable[PrefillState]) -> Stream:
        """All requests that leave ``pools``, all that there are."""
        pools = list(pools)
        rate = sum(p.offered for p in pools)
        came = renewal_spectrum(rate, self.system.workload.arrival_scv)
        return served([Leaving(p.station, p.offered / rate) for p in pools], came)

    def decode(
        self,
        replica_type: ReplicaType,
        rate: float,
        replicas: int = 1,
        served: Stream | None = None,
    ) -> DecodeState:
        """As :meth:`prefill` for decode; UnstableError beyond what the replicas can serve.

        ``served``: what leaves prefill; None where that is not known.
        """
        rule = self.system.dispatch[DECODE]
        together = 1 if rule == "random" else replicas
        offered = rate * together
        mine = None
        if served is not None:
            mine = served.thinned(min(offered / served.rate, 1.0))
        space = self.space(replica_type)
        arguments = (
            offered,
            replica_type.latency.step_seconds,
            self.work,
            together,
            self.slots(replica_type),
            rule,
            self.arrival_scv(offered),
            mine.spectrum if mine else None,
        )
        law = (
            DecodeLaw(DecodeStation(*arguments))
            if space is None
            else MemoryLaw(MemoryStation(*arguments, space=space))
        )
        return DecodeState(replica_type, replicas, law, mine.lean if mine else None)

    def slots(self, replica_type: ReplicaType) -> float:
        """Most requests that a replica decodes at once; InputError when not even one fits."""
        space = self.space(replica_type)
        if space is None:
            return replica_type.batch_limit(self.system.mean_context)
        with located(f"replica type {replica_type.name!r}"):
            return min(replica_type.max_batch, space.needs(self.work).most)

    def space(self, r: ReplicaType) -> Space | None:
        """KV memory of a decode replica of type ``r``; None where it is not counted."""
        kv = self.options.kv
        if kv is None or not math.isfinite(r.kv_tokens):
            return None
        none = np.zeros(1)
        return Space(
            r.kv_tokens,
            kv.reserve,
            kv.watermark,
            lambda tokens: float(r.latency.prefill_seconds(np.array([tokens]), none)[0]),
            float(self.mix.weight @ (self._asked * self.system.transfer_seconds(self.mix))),
            r.max_batch,
        )

    @cached_property
    def _asked(self) -> Array:
        """KV tokens that a request holds while its cache moves; (n,)."""
        if self.options.kv is not None and self.options.kv.reserve == "full":
            return self.mix.prompt + self.mix.output
        return self.mix.prompt + (0.0 if self.system.first_token == "decode" else 1.0)

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
            return self._itl(mix, p, d)
        if metric == "tpot":
            return self._tpot(mix, p, d)
        raise InputError(f"no prediction for metric {metric!r}")

    def _ttft(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        rule = self.system.first_token
        extra = np.zeros_like(mix.prompt)
        if rule != "prefill":
            mix, extra = self.transfers.moved(mix, p, d.replica_type)
        parts: list[Law] = [p.wait, self._service(p.replica_type, mix, extra)]
        if rule == "transfer" and d.law.before_transfer is not None:
            parts.append(d.law.before_transfer)
        if rule == "decode":
            parts.append(KnownMean(d.law.first_token, d.law.mean_first_token))
        return total(parts)

    def _e2e(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        decoding = self.system.decode_steps(mix) > 0
        laws: list[Law] = []
        shares: list[float] = []
        if not decoding.all():
            rest = mix.where(~decoding)
            moved = np.zeros_like(rest.prompt)  # nothing to decode, nothing to move
            if self.system.first_token != "prefill":
                rest, moved = self.transfers.moved(rest, p, d.replica_type)
            stay = self._service(p.replica_type, rest, moved)
            laws.append(total([p.wait, stay]))
            shares.append(float(mix.weight[~decoding].sum()))
        if decoding.any():
            some = self.decoding(mix.where(decoding), p, d)
            steps = some.steps
            extra = some.moved + steps * d.requests.mean_steps(steps, some.held, some.growth)
            noisy = p.replica_type.latency.prefill_noise != "none"
            cells = NOISY_CELLS if noisy else SPREAD_CELLS[0]
            echo = self.echo(p, d, steps)
            longer = float(some.mix.weight @ (steps * echo))
            # a wait stretched for all alike keeps each request's mean and variance
            extra = extra - longer * p.wait.mean
            explained = ((1.0 + longer) ** 2 - 1.0 - 2.0 * steps * echo) * p.wait.variance
            many, points = spread(some.mix, extra, steps, d, cells, explained / steps**2)
            stay = self._service(p.replica_type, many, points)
            entry = KnownMean(d.law.entry, d.law.mean_entry)
            wait = Stretched(p.wait, 1.0 + longer)
            laws.append(total([wait, stay, entry]))
            shares.append(float(mix.weight[decoding].sum()))
        return laws[0] if len(laws) == 1 else Mixture(tuple(laws), tuple(shares))

    def echo(self, p: PrefillState, d: DecodeState, steps: Array) -> Array:
        """Seconds more per step, of requests of ``steps`` (n,), per second waited for prefill.

        Never less than none: that short waits go with long steps is left out.
        """
        if p.offered == 0.0:  # nobody waits
            return np.zeros(len(steps))
        share = d.rate * p.share / p.offered
        leaving = Leaving(p.station, 1.0)
        found = d.law.echo(steps, lambda frequency: share * leaving.echo(frequency))
        return np.clip(found, 0.0, self._most_echo(p, d))

    def _most_echo(self, p: PrefillState, d: DecodeState) -> float:
        """Prefill gives out no more than its capacity: what that makes of a step, in reach of W.

        A wait REACH standard deviations beyond its mean has at most the fluid step at that rate.
        """
        station = d.law.station
        try:
            fullest = OperatingPoint(station.at(station.rate / p.utilisation)).step
        except UnstableError:
            return math.inf
        width = REACH * math.sqrt(p.wait.variance)
        return max(fullest - d.law.mean_step, 0.0) / max(width, 1e-300)

    def _itl(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        """Token-weighted: under ``prefill`` and ``transfer`` first gaps hold the entry too."""
        rule = self.system.first_token
        later = mix.where(mix.output > 1) if (mix.output > 1).any() else None
        if rule == "decode" or later is None:
            return d.law.itl
        first = 1.0 / float(later.weight @ (later.output - 1.0))
        joins: Law = KnownMean(d.law.entry, d.law.mean_entry)
        if rule == "transfer" and d.law.before_transfer is not None:
            joins = Atoms(*d.requests.entry_after_transfer)
        parts: list[Law] = [d.law.itl, joins]
        if rule == "prefill":
            later, moved = self.transfers.moved(later, p, d.replica_type)
            parts.append(Atoms(moved, later.weight))
        return Mixture((d.law.itl, total(parts)), (1.0 - first, first))

    def _tpot(self, mix: RequestMix, p: PrefillState, d: DecodeState) -> Law:
        if not (mix.output > 1).any():
            return constant(0.0)  # one-token answers have no gap
        at = self.decoding(mix.where(mix.output > 1), p, d)
        rule, gaps = self.system.first_token, at.mix.output - 1.0
        moved = at.moved if rule == "prefill" else np.zeros_like(gaps)
        entry = first_gap_entry(rule, d)
        return d.requests.tpot(gaps, at.held, moved, at.mix.weight, entry, at.steps, at.growth)
