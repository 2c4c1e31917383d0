"""What a simulated fleet does, as users and programs read it (``pdalloc schema simulation``)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pdalloc.planning.answer import Block, Verdict


class EstimateAnswer(Block):
    """A mean over independent replications and half of its 95 % confidence interval."""

    value: float
    half_width: float


class SimulatedSlo(Block):
    """One SLO over all requests of its class; who got no answer is later than any."""

    traffic_class: str
    metric: str
    statistic: str
    bound_s: float
    simulated_s: float | None = Field(
        description="None: too few requests to judge, or infinite: too many got no answer"
    )
    half_width_s: float | None
    verdict: Verdict


class SimulatedJointSlo(Block):
    """A joint SLO over all requests of its class; who got no answer is late."""

    traffic_class: str
    share: float
    within_s: dict[str, float]
    simulated_share: float | None = Field(description="in time; None: too few requests to judge")
    half_width: float | None
    verdict: Verdict


class SimulatedLateness(Block):
    """A best-effort SLO: requests later than ``within_s``, and what they cost."""

    traffic_class: str
    within_s: dict[str, float]
    usd_per_late_request: float
    late_share: EstimateAnswer | None
    usd_per_hour: EstimateAnswer | None


class LatencyAnswer(Block):
    """Mean and percentiles of one latency of one class, seconds."""

    traffic_class: str
    metric: str
    mean_s: EstimateAnswer
    p50_s: EstimateAnswer
    p90_s: EstimateAnswer
    p95_s: EstimateAnswer
    p99_s: EstimateAnswer


class SimulatedPool(Block):
    """One pool and the share of time that a replica of it works."""

    role: str
    replica_type: str
    gpu: str
    gpus_per_replica: int
    replicas: int
    rate_per_s: float
    utilisation: EstimateAnswer


class SimulationAnswer(Block):
    """What a fleet does under a scenario's traffic, by simulation alone."""

    scenario: str
    title: str
    variant: str | None
    fleet: str
    xpyd: str | None = Field(description="None: co-located, every replica does both roles")
    gpus: int
    gpus_by_type: dict[str, int]
    cost_usd_per_hour: float
    demand_requests_per_s: float
    demand_tokens_per_minute: float
    requests: int = Field(description="per replication")
    replications: int
    replications_asked: int = Field(description="more than were done: the run was interrupted")
    slos: list[SimulatedSlo]
    joint_slos: list[SimulatedJointSlo] = Field(default_factory=list)
    lateness: list[SimulatedLateness] = Field(default_factory=list)
    latencies: list[LatencyAnswer]
    attainment: EstimateAnswer = Field(
        description="share of requests that finish and keep every bound on their class"
    )
    attainment_bounds: list[str] = Field(description="the bounds that attainment counts")
    goodput_requests_per_s: EstimateAnswer
    offered_requests_per_s: EstimateAnswer
    timeout_share: EstimateAnswer
    rejected_share: EstimateAnswer
    retries_per_request: EstimateAnswer
    recomputes_per_request: EstimateAnswer
    pools: list[SimulatedPool]
    stages: dict[str, EstimateAnswer] = Field(description="mean number of requests in each stage")
    usd_per_million_tokens: EstimateAnswer | None
    usd_per_million_output_tokens: EstimateAnswer | None
    littles_law_gap: EstimateAnswer = Field(description="N / (lambda T) - 1; 0 in a steady state")
    warnings: list[str]
    estimates: list[str]
    produced_by: dict[str, Any]

    @property
    def interrupted(self) -> bool:
        """Whether fewer replications were done than asked."""
        return self.replications < self.replications_asked

    @property
    def promises(self) -> list[SimulatedSlo | SimulatedJointSlo]:
        """Every SLO that must be met: on one latency, then joint ones."""
        return [*self.slos, *self.joint_slos]

    def to_json(self) -> str:
        """Indented JSON, keys in the order above, no NaN or infinity."""
        return self.model_dump_json(indent=2)
