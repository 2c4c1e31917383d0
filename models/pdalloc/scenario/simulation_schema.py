"""What only a simulation knows, as the scenario file writes it: arrivals and options.

Formulas read a class's rate and burstiness; everything in these blocks beside that changes
what is simulated and not what is predicted. An answer names what its formula left out.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pdalloc.scenario.base import Count, Number, Quantity, RoleName, Spec


class ArrivalsSpec(Spec):
    """How requests of a class arrive; its mean rate is always the class's ``rate``."""

    process: Literal["renewal", "bursts", "profile", "sessions", "trace"]
    law: Literal["gamma", "weibull"] = Field(
        "gamma", description="renewal: law of the gaps; their SCV is arrival_scv"
    )
    levels: list[Number] | None = Field(
        None, description="bursts, profile: rates relative to each other, e.g. [1, 5]"
    )
    lasts: Quantity | None = Field(
        None, description='how long each level lasts, bursts: on average; "60 5 s" or one for all'
    )
    repeats: bool = Field(True, description="profile: begins again when it is over (a day)")
    turns: Number | None = Field(None, description="sessions: mean turns of a conversation")
    think: Quantity | None = Field(
        None, description="sessions: mean time from a turn's arrival to the next one's"
    )
    context_limit: Quantity | None = Field(
        None, description="sessions: tokens at which one starts anew; default the LLM's window"
    )
    at: Quantity | None = Field(
        None, description='trace: arrival times, "0 0.4 1.1 s", replayed at the class\'s rate'
    )


class NoiseSpec(Spec):
    """A random factor of mean 1."""

    law: Literal["exponential", "gamma", "lognormal"]
    scv: Number = 1.0


class PassBudgetSpec(Spec):
    """Prefill passes of several prompts; ``split`` cuts prompts (chunked prefill)."""

    tokens: Quantity
    split: bool = False


class SiteLinkSpec(Spec):
    """The link from one site's prefill pools to another site's decode pools."""

    origin: str = Field(description="site of the prefill pool", alias="from")
    to: str = Field(description="site of the decode pool")
    latency: Quantity = "0 s"
    bandwidth: Quantity | None = None


class TransfersSpec(Spec):
    """How KV transfers share links, and where pools stand."""

    sharing: Literal["none", "fcfs", "processor_sharing"] = "none"
    scope: Literal["replica", "sites", "fabric"] = "replica"
    jitter: NoiseSpec | None = None
    sites: dict[str, str] = Field(
        default_factory=dict, description="pool -> site, e.g. {prefill/h100x8: east}"
    )
    links: list[SiteLinkSpec] = Field(default=[])


class KvSpec(Spec):
    """KV cache counted token by token, with preemption and recompute."""

    reserve: Literal["context", "full"] = "context"
    watermark: Number = 0.0
    back_pressure: bool = False


class MultiTokenSpec(Spec):
    """Several tokens a step (speculative decoding, multi-token prediction)."""

    mean: Number
    law: Literal["fixed", "geometric"] = "fixed"


class ClientsSpec(Spec):
    """Clients that give up and come again; servers that refuse."""

    timeout: Quantity | None = None
    max_queue: Count | None = Field(None, description="prompts that may wait per prefill replica")
    retries: Count = 0
    retry_delay: Quantity = "0 s"


class FailuresSpec(Spec):
    """Mean time between failures and to repair, of every replica."""

    mtbf: Quantity
    mttr: Quantity


class ColocatedSpec(Spec):
    """One pool does both roles: what disaggregation is compared with."""

    policy: Literal["prefill_first", "chunked"]
    tokens: Quantity | None = Field(None, description="most tokens of a pass")


class SlowSpec(Spec):
    """One replica slower than its kind; numbered over the role in the fleet's order, from 0."""

    role: RoleName
    replica: Count
    factor: Number = Field(description="on all its times")


class SimulationSpec(Spec):
    """Options of the simulator; what is left out is off (docs/simulation.md)."""

    prefill_budget: PassBudgetSpec | None = None
    prefill_noise: NoiseSpec | None = None
    step_noise: NoiseSpec | None = None
    transfers: TransfersSpec | None = None
    kv: KvSpec | None = None
    multi_token: MultiTokenSpec | None = None
    clients: ClientsSpec | None = None
    failures: FailuresSpec | None = None
    colocated: ColocatedSpec | None = None
    slow: list[SlowSpec] = Field(default=[])
