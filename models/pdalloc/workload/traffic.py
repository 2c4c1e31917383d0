"""Traffic classes and the workload they make together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.workload.arrivals import ArrivalProcess, Renewal, Sessions
from pdalloc.workload.lengths import LengthLaw

Array = NDArray[np.float64]
RATE_TOLERANCE = 1e-6
"""Relative difference allowed between a class's rate and that of its arrival process."""


LEAST_RATE, MOST_RATE = 1e-9, 1e9
"""Requests/s beyond which a rate is taken for a slip."""


@dataclass(frozen=True)
class TrafficClass:
    """Requests that share an SLO.

    ``rate`` in requests/s; ``arrival_scv`` the squared coefficient of variation of the gaps
    between arrivals (1: Poisson); ``prefix_hit_rate`` the share of each prompt whose KV is
    already cached (0..1), so only the rest is computed. ``arrivals`` is how a simulation draws
    the arrivals: None for gamma gaps of that SCV, else a process of the same mean rate
    (formulas read ``rate`` and ``arrival_scv``, and the context that sessions carry).
    """

    name: str
    rate: float
    lengths: LengthLaw
    arrival_scv: float = 1.0
    prefix_hit_rate: float = 0.0
    arrivals: ArrivalProcess | None = None

    def __post_init__(self) -> None:
        where = f"traffic class {self.name!r}"
        if not np.isfinite(self.rate) or self.rate <= 0:
            raise InputError(f"{where}: rate must be positive and finite, got {self.rate:g} req/s")
        if self.rate > MOST_RATE:
            raise InputError(f"{where}: {self.rate:g} req/s is more than any service has; mend it")
        if self.rate < LEAST_RATE:
            raise InputError(f"{where}: {self.rate:g} req/s is next to nothing; mend its unit")
        if not np.isfinite(self.arrival_scv) or self.arrival_scv < 0:
            raise InputError(f"{where}: arrival_scv must be finite and not negative")
        if not 0.0 <= self.prefix_hit_rate < 1.0:
            raise InputError(f"{where}: prefix_hit_rate must be in [0, 1)")
        if self.arrivals is not None:
            mean = self.arrivals.rate
            if abs(mean - self.rate) > RATE_TOLERANCE * self.rate:
                raise InputError(
                    f"{where}: its arrivals come at {mean:g} req/s but its rate is "
                    f"{self.rate:g}; give both the same"
                )

    @property
    def process(self) -> ArrivalProcess:
        """How its requests arrive."""
        return self.arrivals or Renewal(self.rate, self.arrival_scv)

    @property
    def mean_tokens(self) -> float:
        """Mean prompt plus output tokens of one of its requests."""
        points = self.points()
        return float(points.weight @ (points.prompt + points.output))

    def points(self) -> RequestMix:
        """The law of one of its requests; for sessions a fixed sample of turns.

        A turn's prompt holds the conversation so far, which is cached.
        """
        law, hit = self.lengths, self.prefix_hit_rate
        if not isinstance(self.arrivals, Sessions):
            none = np.zeros(len(law.weight), np.int64)
            return RequestMix(law.prompt, law.prompt * hit, law.output, law.weight, none)
        rng = np.random.default_rng(0)
        chosen, context = self.arrivals.turn_sample(law.prompt, law.output, law.weight, rng)
        new = law.prompt[chosen]
        return RequestMix(
            context + new,
            context + hit * new,
            law.output[chosen],
            np.full(len(chosen), 1.0 / len(chosen)),
            np.zeros(len(chosen), np.int64),
        )

    def scaled(self, factor: float) -> TrafficClass:
        """The same class at ``factor`` times the rate."""
        arrivals = None if self.arrivals is None else self.arrivals.scaled(factor)
        return replace(self, rate=self.rate * factor, arrivals=arrivals)


@dataclass(frozen=True)
class Workload:
    """All traffic classes; each replica sees their common mix."""

    classes: tuple[TrafficClass, ...]

    def __post_init__(self) -> None:
        names = [c.name for c in self.classes]
        if not names:
            raise InputError("a workload needs at least one traffic class")
        if len(set(names)) < len(names):
            raise InputError(f"traffic class names must differ, got {', '.join(names)}")

    @property
    def rate(self) -> float:
        """Offered requests/s over all classes."""
        return sum(c.rate for c in self.classes)

    @property
    def mean_tokens(self) -> float:
        """Mean prompt plus output tokens of a request."""
        return self.tokens_per_second / self.rate

    @property
    def tokens_per_second(self) -> float:
        """Offered prompt plus output tokens/s; a session's prompts hold what was said before."""
        return sum(c.rate * c.mean_tokens for c in self.classes)

    @property
    def arrival_scv(self) -> float:
        """SCV of the superposed gaps; rate-weighted (Albin 1984's asymptotic method)."""
        return sum(c.rate * c.arrival_scv for c in self.classes) / self.rate

    def mix(self) -> RequestMix:
        """One request drawn at random over classes and lengths; no point has weight 0."""
        parts = [c.points() for c in self.classes]
        share = [c.rate / self.rate for c in self.classes]
        weight = [s * p.weight for s, p in zip(share, parts, strict=True)]
        whole = RequestMix(
            prompt=np.concatenate([p.prompt for p in parts]),
            cached=np.concatenate([p.cached for p in parts]),
            output=np.concatenate([p.output for p in parts]),
            weight=np.concatenate(weight),
            traffic_class=np.repeat(np.arange(len(parts)), [len(p.weight) for p in parts]),
        )
        never = whole.weight == 0.0
        return whole.where(~never) if never.any() else whole

    def scaled(self, factor: float) -> Workload:
        """The same traffic at ``factor`` times the rate."""
        return Workload(tuple(c.scaled(factor) for c in self.classes))

    def with_longer_outputs(self, factor: float) -> Workload:
        """The same traffic with outputs ``factor`` times as long."""
        longer = (replace(c, lengths=c.lengths.scaled_output(factor)) for c in self.classes)
        return Workload(tuple(longer))


@dataclass(frozen=True)
class RequestMix:
    """Points of the joint law of a random request; arrays (n,), weights sum to 1."""

    prompt: Array
    cached: Array
    output: Array
    weight: Array
    traffic_class: NDArray[np.int64]

    def of_class(self, index: int) -> RequestMix:
        """The law of a request given that it belongs to class ``index``."""
        return self.where(self.traffic_class == index)

    def where(self, keep: NDArray[np.bool_]) -> RequestMix:
        """The law of a request given that it is one of the points ``keep`` (shape (n,))."""
        weight = self.weight[keep]
        return RequestMix(
            self.prompt[keep],
            self.cached[keep],
            self.output[keep],
            weight / weight.sum(),
            self.traffic_class[keep],
        )

    def repeated(self, times: int) -> RequestMix:
        """Every point ``times`` times in a row at an equal part of its weight."""
        return RequestMix(
            np.repeat(self.prompt, times),
            np.repeat(self.cached, times),
            np.repeat(self.output, times),
            np.repeat(self.weight / times, times),
            np.repeat(self.traffic_class, times),
        )
