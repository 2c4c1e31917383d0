"""The answer to a question with pools per traffic class: a part per group, and their sum."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pdalloc.planning.answer import Answer, Block


class PartAnswer(Block):
    """Classes with pools of their own: an ordinary answer about their traffic alone.

    Its status and bound are given what the other parts hold.
    """

    classes: list[str]
    rate_share: float = Field(description="its share of all requests, 0..1")
    token_share: float = Field(description="its share of all prompt and output tokens, 0..1")
    left_out: list[str] = Field(
        description="role/type whose KV memory does not hold its longest request"
    )
    answer: Answer


class TriedAnswer(Block):
    """Buckets that were tried where a class asks for the best ones."""

    buckets: list[str] = Field(description="their classes; none: the class as a whole")
    cost_usd_per_hour: float | None = Field(description="None: no fleet, or none proven")


class SharedAnswer(Block):
    """The cheapest fleet for the same traffic on pools that all classes share."""

    promise: Literal["class", "bucket"] = Field(
        description="whether SLOs hold over each class as written, or in each of its buckets"
    )
    status: Literal["optimal", "feasible", "infeasible"]
    reason: str = ""
    fleet: str | None
    xpyd: str | None
    gpus_by_type: dict[str, int]
    cost_usd_per_hour: float | None
    bound_usd_per_hour: float | None
    dedicated_change: float | None = Field(
        description="cost of dedicated pools relative to these, less 1: -0.12 is 12 % less"
    )


class DedicatedAnswer(Block):
    """Fleets of pools that serve one group of classes each, and what they cost together."""

    scenario: str
    title: str
    variant: str | None
    status: Literal["optimal", "feasible", "infeasible"]
    reason: str = Field("", description="why infeasible, in words; empty otherwise")
    parts: list[PartAnswer]
    gpus: int
    gpus_by_type: dict[str, int]
    demand_requests_per_s: float
    demand_tokens_per_minute: float
    cost_usd_per_hour: float | None
    bound_usd_per_hour: float | None = Field(description="proven lower bound on the cost")
    proof: str = Field(description="how the bound was proven")
    cost_usd_per_million_tokens: float | None
    shared: list[SharedAnswer] = Field(description="what shared pools would cost, beside it")
    tried: list[TriedAnswer] = Field(
        default_factory=list, description="what auto buckets were chosen from"
    )
    warnings: list[str]
    produced_by: dict[str, Any]

    def to_json(self) -> str:
        """Indented JSON, keys in the order above, no NaN or infinity."""
        return self.model_dump_json(indent=2)
