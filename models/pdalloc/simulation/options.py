r"""What a simulation may add to the plain fleet; everything is off by default.

Each block states its rule once; :mod:`pdalloc.simulation.reference` states how the rules meet
(order of events, who goes first). Random numbers are hashes (:mod:`pdalloc.simulation.hashing`)
of ``Draws.key``, a kind and counters:

=================  ==============================  =========================================
kind               counters a, b                   used for
=================  ==============================  =========================================
``PREFILL_NOISE``  request                         factor on a prompt's prefill time
``STEP_NOISE``     decode replica, step number     factor on a step's time; steps from 0
``ACCEPTED``       request, tokens still to make   tokens that one step gives one request
``JITTER``         request                         factor on the latency of its transfer
``UP_TIME``        server, k                       time to the k-th failure (k from 0)
``DOWN_TIME``      server, k                       length of the k-th repair
``PREFILL_PICK``   request, dispatch number        the ``pick`` of a later dispatch (from 1)
``DECODE_PICK``    request, dispatch number        the same at decode
=================  ==============================  =========================================

A server is a prefill replica r (number r) or a decode replica d (number P + d, P prefill
replicas); replicas are numbered over the fleet as a log numbers them. Recompute passes are
not steps and take no step number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Role
from pdalloc.hardware.link import Link

NoiseName = Literal["exponential", "gamma", "lognormal"]
Sharing = Literal["none", "fcfs", "processor_sharing"]
Scope = Literal["replica", "sites", "fabric"]


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)


def _positive(what: str, value: float, unit: str) -> None:
    message = f"{what} must be positive, got {value:g} {unit}".rstrip()
    _need(math.isfinite(value) and value > 0, message)


def _not_negative(what: str, value: float, unit: str) -> None:
    _need(math.isfinite(value) and value >= 0, f"{what} must be finite and >= 0 {unit}")


@dataclass(frozen=True)
class Noise:
    """A random factor of mean 1: ``exponential``, ``gamma`` or ``lognormal`` of SCV ``scv``."""

    law: NoiseName
    scv: float = 1.0

    def __post_init__(self) -> None:
        _need(self.law in ("exponential", "gamma", "lognormal"), f"no noise law {self.law!r}")
        _positive("the SCV of a noise", self.scv, "")
        _need(self.law != "exponential" or self.scv == 1.0, "exponential noise has SCV 1")


@dataclass(frozen=True)
class PassBudget:
    """A prefill pass takes several waiting prompts, first come first served.

    ``tokens``: prompt tokens to compute in one pass. Whole prompts join while they fit, the
    first one always. With ``split`` (chunked prefill) no pass exceeds the budget: the last
    prompt of a pass may be cut, and goes on first in the next one.
    """

    tokens: float
    split: bool = False

    def __post_init__(self) -> None:
        _need(self.tokens >= 1, f"a prefill budget must be at least 1 token, got {self.tokens:g}")


@dataclass(frozen=True)
class Network:
    """How KV transfers share links, and where pools stand.

    A transfer is bytes / bandwidth seconds of work on its link, then the latency. ``sharing``:
    ``none`` (each has the bandwidth to itself), ``fcfs`` (one after another) or
    ``processor_sharing`` (k at a time, each at 1/k of the speed). ``scope``: which transfers
    share a link: those of one prefill ``replica``, those between one pair of ``sites``, or all
    (``fabric``). ``jitter``: factor on the latency, per request. ``sites[role, replica type]``
    names a pool's site ("" where not given); ``links[from, to]`` is the link from a prefill
    site to a decode site, the system's link where not given.
    """

    sharing: Sharing = "none"
    scope: Scope = "replica"
    jitter: Noise | None = None
    sites: Mapping[tuple[Role, str], str] = field(default_factory=dict)
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _need(self.sharing in ("none", "fcfs", "processor_sharing"), f"no sharing {self.sharing!r}")
        _need(self.scope in ("replica", "sites", "fabric"), f"no link scope {self.scope!r}")
        known = {*self.sites.values(), ""}
        for pair in self.links:
            lost = [site for site in pair if site not in known]
            _need(not lost, f"link {'-'.join(pair)}: no pool stands at site {', '.join(lost)}")


@dataclass(frozen=True)
class KvMemory:
    """Decode replicas hold at most ``ReplicaType.kv_tokens`` tokens of KV cache, counted.

    A transfer begins once its space is reserved at the decode replica. ``reserve``: space for
    the ``context`` (prompt and output so far; a batch that outgrows the memory preempts whoever
    joined it last, whose KV is recomputed later) or for the ``full`` length (prompt and output;
    no preemption). ``watermark``: share of the memory left free on admission. With
    ``back_pressure`` a prefill replica starts no pass while it holds a prompt whose transfer
    has not begun.
    """

    reserve: Literal["context", "full"] = "context"
    watermark: float = 0.0
    back_pressure: bool = False

    def __post_init__(self) -> None:
        _need(self.reserve in ("context", "full"), f"no KV reservation rule {self.reserve!r}")
        _need(0.0 <= self.watermark < 1.0, f"a watermark lies in [0, 1), got {self.watermark:g}")


@dataclass(frozen=True)
class MultiToken:
    """A step gives a request several tokens: ``mean`` >= 1, never more than it still needs.

    ``fixed``: floor(mean), one more with probability mean - floor(mean). ``geometric``:
    P(n) = (1 - q) q^(n - 1), q = 1 - 1 / mean (drafts accepted until the first refusal).
    A step takes as long as without it: put the drafts' cost into the decode calibration.
    """

    mean: float
    law: Literal["fixed", "geometric"] = "fixed"

    def __post_init__(self) -> None:
        _need(self.law in ("fixed", "geometric"), f"no law of tokens per step {self.law!r}")
        _need(1.0 <= self.mean < math.inf, f"tokens per step must be at least 1: {self.mean:g}")


@dataclass(frozen=True)
class Clients:
    """Clients that give up, servers that refuse, and clients that come again.

    ``timeout`` (s): leaves when no prefill pass has taken it ``timeout`` after its (latest)
    arrival. ``max_queue``: prompts that may wait per prefill replica; one more is rejected.
    ``retries`` times the client comes again, ``retry_delay`` seconds after either.
    """

    timeout: float = math.inf
    max_queue: float = math.inf
    retries: int = 0
    retry_delay: float = 0.0

    def __post_init__(self) -> None:
        _need(self.timeout > 0, f"a client timeout must be positive, got {self.timeout:g} s")
        _need(self.max_queue >= 0, f"max_queue must not be negative, got {self.max_queue:g}")
        _need(self.retries >= 0, f"retries must not be negative, got {self.retries}")
        _not_negative("retry_delay", self.retry_delay, "s")


LEAST_MTBF = 1e-3
"""Seconds; each failure is an event."""


@dataclass(frozen=True)
class Failures:
    """Replicas fail: up for Exp(``mtbf``), down for Exp(``mttr``), seconds; all start up.

    Whatever a failed replica was doing is lost; its requests go to a replica that is up.
    """

    mtbf: float
    mttr: float

    def __post_init__(self) -> None:
        _positive("mtbf", self.mtbf, "s")
        _need(self.mtbf >= LEAST_MTBF, f"mtbf of {self.mtbf:g} s: a replica that never serves")
        _positive("mttr", self.mttr, "s")


@dataclass(frozen=True)
class Colocated:
    """One pool does both roles (the baseline of disaggregation): no KV cache moves.

    ``prefill_first``: waiting prompts are prefilled, whole and up to ``tokens`` a pass, while
    those that decode wait. ``chunked``: each pass is a decode step that also takes up to
    ``tokens`` tokens in all, one per decoding request, the rest prompt chunks.
    """

    policy: Literal["prefill_first", "chunked"]
    tokens: float = math.inf

    def __post_init__(self) -> None:
        _need(self.policy in ("prefill_first", "chunked"), f"no co-location {self.policy!r}")
        _need(self.tokens >= 1, f"a pass must take at least 1 token, got {self.tokens:g}")


@dataclass(frozen=True)
class SimulationOptions:
    """All options; None (or the default) is off. ``slow[role, replica]`` multiplies its times.

    Raises InputError for combinations without a rule.
    """

    prefill_budget: PassBudget | None = None
    prefill_noise: Noise | None = None
    step_noise: Noise | None = None
    network: Network | None = None
    kv: KvMemory | None = None
    multi_token: MultiToken | None = None
    clients: Clients | None = None
    failures: Failures | None = None
    colocated: Colocated | None = None
    slow: Mapping[tuple[Role, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (role, replica), factor in self.slow.items():
            _need(role in ROLES, f"slow replica: no role {role!r}; known: {', '.join(ROLES)}")
            _positive(f"the factor of slow {role} replica {replica}", factor, "")
        if self.colocated is not None:
            for name in ("prefill_budget", "network", "failures"):
                shown = "transfers (network)" if name == "network" else name
                _need(getattr(self, name) is None, f"co-located serving has no {shown} option")
            pressure = self.kv is not None and self.kv.back_pressure
            _need(not pressure, "co-located serving has no back-pressure: nothing moves")

    @property
    def off(self) -> bool:
        """Whether nothing differs from the plain fleet."""
        return self == PLAIN

    @property
    def steps_tell(self) -> bool:
        """Whether each token of a request comes at the end of the next step of one replica.

        Its decode start and its replica's steps then say when each came.
        """
        lost = self.failures is not None or (self.kv is not None and self.kv.reserve != "full")
        return not lost and self.multi_token is None and self.colocated is None


PLAIN = SimulationOptions()
"""Every option off."""
