"""A schedule as users and programs read it: a fleet per period, and what others would cost."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pdalloc.planning.answer import Block, JointSloAnswer, PoolAnswer, SloAnswer

SCHEDULE, PEAK, HOURLY = "schedule", "peak fleet all the time", "each period's own optimum"
"""Names of the rivals of a schedule, itself first."""


class PeriodAnswer(Block):
    """One period: its fleet, what starts and stops before it, and what the fleet does."""

    start_hour: float = Field(description="hours after the beginning of the first period")
    hours: float
    demand_requests_per_s: float
    fleet: str
    xpyd: str
    gpus_by_type: dict[str, int]
    started: dict[str, int] = Field(description="replicas by role/type that start before it")
    stopped: dict[str, int] = Field(description="replicas by role/type that stop before it")
    cost_usd_per_hour: float
    own_optimum: str = Field(description="the cheapest fleet if this period were all there is")
    own_optimum_usd_per_hour: float
    utilisation: dict[str, float | None] = Field(
        description="by role, over its replicas, 0..1; None: no steady state"
    )
    pools: list[PoolAnswer]
    slos: list[SloAnswer]
    joint_slos: list[JointSloAnswer]

    @property
    def promises(self) -> list[SloAnswer | JointSloAnswer]:
        """Every SLO that must be met: on one latency, then joint ones."""
        return [*self.slos, *self.joint_slos]


class ScheduleCosts(Block):
    """What one way through the periods costs, in USD over all of them."""

    name: str
    running_usd: float
    starting_usd: float
    stopping_usd: float
    total_usd: float
    starts: int = Field(description="replicas over all periods")
    most_starts: int = Field(description="replicas that start at once, at most")
    most_stops: int
    keeps_limits: bool = Field(description="on starts and stops at once")


class ScheduleAnswer(Block):
    """A fleet for each period at least cost, its proven gap, and its rivals."""

    scenario: str
    title: str
    variant: str | None
    status: Literal["optimal", "feasible", "infeasible"]
    reason: str = Field("", description="why there is no schedule, in words; empty otherwise")
    cyclic: bool
    hours: float = Field(description="of all periods")
    most_starts: int | None = Field(description="limit at the beginning of a period")
    most_stops: int | None
    tokens_per_request: float
    periods: list[PeriodAnswer]
    cost: ScheduleCosts | None
    bound_usd: float | None = Field(description="proven lower bound on the cost of any schedule")
    gap: float | None = Field(description="how far the cost may be above the least, relative to it")
    rivals: list[ScheduleCosts] = Field(
        description="the greatest period's fleet all the time; each period's own optimum"
    )
    seconds: float = Field(description="that the search took")
    interrupted: bool
    validated: bool = Field(description="each period's fleet was simulated at steady demand")
    warnings: list[str]
    produced_by: dict[str, Any]

    def to_json(self) -> str:
        """Indented JSON, keys in the order above, no NaN or infinity."""
        return self.model_dump_json(indent=2)

    def saving(self, rival: str) -> float | None:
        """Saved against a rival by name, relative to its cost; None where that is not known."""
        known = {r.name: r.total_usd for r in self.rivals}
        if self.cost is None or not known.get(rival):
            return None
        return 1.0 - self.cost.total_usd / known[rival]
