"""An explanation as programs read it: why this fleet, what each SLO costs, what moves it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pdalloc.planning.answer import Block, JointSloAnswer, SloAnswer


class FractionAnswer(Block):
    """How many replicas of its one type a role needs, as a real number."""

    role: str
    replica_type: str
    admits_per_s: float = Field(description="requests/s one replica admits within the SLOs")
    count: float = Field(description="demand over what one replica admits")
    replicas: int = Field(description="of the fleet")
    formula: str = Field("", description="the closed form that gives this count, if one does")


class MeritAnswer(Block):
    """One of several types of a role in merit order; the first is the relaxation's."""

    role: str
    replica_type: str
    admits_per_s: float = Field(description="requests/s one replica admits within the SLOs")
    usd_per_hour_per_request_per_s: float
    replicas: int = Field(description="of the fleet")


class BoundCost(Block):
    """The cheapest fleet when a bound is another, or is gone."""

    bound_s: float | None = Field(description="None: without this SLO")
    fleet: str | None
    xpyd: str | None
    cost_usd_per_hour: float | None = Field(description="None: no fleet keeps it")


class SloExplained(Block):
    """One SLO: how near its bound it is, and what the bound costs."""

    slo: SloAnswer
    slack: float | None = Field(description="1 - predicted/bound; None: no steady state")
    without: BoundCost
    looser: BoundCost
    tighter: BoundCost
    relaxed_usd_per_hour_per_s: float | None = Field(
        description="d cost/d bound of the continuous relaxation with the fleet's main types, "
        "stock aside, by finite difference; None under pooling dispatch"
    )


class JointSloExplained(Block):
    """One joint SLO: how near it is to too many late requests, and what it costs."""

    slo: JointSloAnswer
    slack: float | None = Field(description="1 - late/(1 - share); None: no steady state")
    without: BoundCost


class ChangeAnswer(Block):
    """The fleet with one replica more or fewer in one pool."""

    role: str
    replica_type: str
    change: Literal[-1, 1]
    fleet: str
    xpyd: str
    cost_usd_per_hour: float
    allowed: bool = Field(description="whether stock and limits allow it")
    keeps: bool = Field(description="whether every SLO holds")
    slos: list[SloAnswer]
    joint_slos: list[JointSloAnswer] = Field(default_factory=list)

    @property
    def promises(self) -> list[SloAnswer | JointSloAnswer]:
        """Every SLO: on one latency, then joint ones."""
        return [*self.slos, *self.joint_slos]


class AssumptionAnswer(Block):
    """The relative change of one assumption up to which the fleet stands."""

    name: str
    margin: float | None = Field(description="None: no change searched mends a broken SLO")
    effect: str = Field(description="what comes just beyond; empty beyond the range searched")


class ExplainAnswer(Block):
    """Why a fleet is what it is."""

    scenario: str
    title: str
    variant: str | None
    status: Literal["optimal", "feasible", "infeasible"]
    reason: str
    given: bool = Field(description="whether the fleet was given rather than planned")
    fleet: str | None
    xpyd: str | None
    gpus_by_type: dict[str, int]
    cost_usd_per_hour: float | None
    best_fleet: str | None = Field(description="the cheapest fleet; None: none keeps the SLOs")
    best_xpyd: str | None
    best_cost_usd_per_hour: float | None
    best_proven: bool
    demand_requests_per_s: float
    demand_tokens_per_minute: float
    relaxed_usd_per_hour: float | None = Field(
        description="cost of the continuous relaxation with the fleet's main types, stock aside"
    )
    fractions: list[FractionAnswer]
    merit: list[MeritAnswer] = Field(description="of roles that several types may serve")
    slos: list[SloExplained]
    joint_slos: list[JointSloExplained] = Field(default_factory=list)
    changes: list[ChangeAnswer]
    assumptions: list[AssumptionAnswer] = Field(description="the least margin first")
    prices: list[AssumptionAnswer] = Field(description="of each GPU type; the nearest first")
    warnings: list[str]
    interrupted: bool = Field(False, description="stopped: later parts are empty")
    produced_by: dict[str, Any]

    @property
    def explained(self) -> list[SloExplained | JointSloExplained]:
        """Every SLO: on one latency, then joint ones."""
        return [*self.slos, *self.joint_slos]

    def to_json(self) -> str:
        """Indented JSON, keys in the order above, no NaN or infinity."""
        return self.model_dump_json(indent=2)
