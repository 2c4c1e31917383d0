"""The answer to a planning question, as users and programs read it.

Every field is SI or USD/hour; names carry their unit. ``to_json`` is the machine contract
(``pdalloc schema answer`` prints its JSON Schema).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["keeps", "breaks", "too close to call", "too few to judge"]


class Block(BaseModel):
    """Base of every block of an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PoolAnswer(Block):
    """One pool; ``rate_share`` of its role's traffic, ``utilisation`` 0..1 (None: overloaded)."""

    role: str
    replica_type: str
    gpu: str
    gpus_per_replica: int
    replicas: int
    owned: int = Field(description="replicas of it that are owned already and cost nothing")
    rate_per_s: float | None
    rate_share: float | None
    utilisation: float | None
    mean_batch: float | None = Field(description="decoding requests per replica; decode only")
    cost_usd_per_hour: float


class LinkAnswer(Block):
    """One link that KV transfers share, as formulas see it."""

    link: str
    transfers_per_s: float
    utilisation: float
    mean_delay_s: float = Field(description="what sharing adds to a transfer on average")


class SloAnswer(Block):
    """One SLO: bound beside prediction, and beside simulation where one was run."""

    traffic_class: str
    metric: str
    statistic: str
    bound_s: float
    predicted_s: float | None = Field(
        description="worst path of the fleet, or all requests (slo_scope); None: no steady state"
    )
    kept: bool
    binding: bool = Field(description="broken, or breaks when some pool has one replica fewer")
    simulated_s: float | None = None
    simulated_half_width_s: float | None = Field(
        default=None, description="half of the 95 % confidence interval"
    )
    simulated_verdict: Verdict | None = Field(
        default=None, description="of the simulation, with the confidence of the interval"
    )


class JointSloAnswer(Block):
    """A joint SLO: at least ``share`` of the requests keep every latency of ``within_s``."""

    traffic_class: str
    share: float
    within_s: dict[str, float]
    predicted_share: float | None = Field(
        description="in time on the worst path of the fleet; None: no steady state"
    )
    kept: bool
    binding: bool = Field(description="broken, or breaks when some pool has one replica fewer")
    simulated_share: float | None = None
    simulated_half_width: float | None = Field(
        default=None, description="half of the 95 % confidence interval"
    )
    simulated_verdict: Verdict | None = Field(
        default=None, description="of the simulation, with the confidence of the interval"
    )


class LatenessAnswer(Block):
    """A best-effort SLO: what requests later than ``within_s`` are expected to cost.

    It is paid beside the fleet, and does not drive its choice.
    """

    traffic_class: str
    within_s: dict[str, float]
    usd_per_late_request: float
    predicted_late_share: float | None = Field(
        description="None: no steady state, or a limit on token gaps, whose keepers no law counts"
    )
    predicted_usd_per_hour: float | None
    simulated_late_share: float | None = None
    simulated_late_share_half_width: float | None = None
    simulated_usd_per_hour: float | None = None
    simulated_usd_per_hour_half_width: float | None = None


class MarginAnswer(Block):
    """How far the fleet goes before an SLO breaks, as a relative change (0.1 = 10 %).

    Negative where an SLO is broken already; None where even the least change searched does
    not mend it; values at ``MOST`` mean "at least that".
    """

    demand: float | None
    prefill: float | None = Field(description="slower prefill")
    decode: float | None = Field(description="slower decode steps")
    output_length: float | None = Field(description="longer outputs")


class AlternativeAnswer(Block):
    """A next-cheapest fleet that also keeps every SLO."""

    fleet: str
    xpyd: str
    cost_usd_per_hour: float


class Answer(Block):
    """What a fleet costs and does, and how sure that is."""

    scenario: str
    title: str
    variant: str | None
    status: Literal["optimal", "feasible", "infeasible"]
    reason: str = Field("", description="why infeasible, in words; empty otherwise")
    xpyd: str | None
    fleet: str | None
    gpus: int
    gpus_by_type: dict[str, int]
    demand_requests_per_s: float
    demand_tokens_per_minute: float
    demand_limit_tokens_per_minute: float | None = Field(
        None, description="most demand the fleet serves within its SLOs"
    )
    cost_usd_per_hour: float | None
    bound_usd_per_hour: float | None = Field(description="proven lower bound on the cost")
    cost_usd_per_million_tokens: float | None
    tokens_per_minute_per_gpu: float | None
    single_type: dict[str, float | None] = Field(
        default_factory=dict, description="cheapest fleet of one GPU type alone, USD/hour"
    )
    pools: list[PoolAnswer]
    links: list[LinkAnswer] = Field(
        default_factory=list, description="shared KV links; empty where transfers share none"
    )
    slo_scope: Literal["pool", "population"] = Field(
        "pool", description="whether each pool keeps every SLO, or all requests of a class do"
    )
    slos: list[SloAnswer]
    joint_slos: list[JointSloAnswer] = Field(default_factory=list)
    lateness: list[LatenessAnswer] = Field(
        default_factory=list, description="best-effort SLOs and the price of what they miss"
    )
    margin: MarginAnswer | None
    alternatives: list[AlternativeAnswer] = Field(default_factory=list)
    details: dict[str, float | str] = Field(default_factory=dict)
    warnings: list[str]
    estimates: list[str]
    produced_by: dict[str, Any]

    @property
    def promises(self) -> list[SloAnswer | JointSloAnswer]:
        """Every SLO that must be met: on one latency, then joint ones."""
        return [*self.slos, *self.joint_slos]

    def to_json(self) -> str:
        """Indented JSON, keys in the order above, no NaN or infinity."""
        return self.model_dump_json(indent=2)
