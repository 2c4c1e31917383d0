"""A frontier as users and programs read it: its points, and the stretches of one cost."""

from __future__ import annotations

import itertools
from typing import Any

from pydantic import Field

from pdalloc.planning.answer import Block
from pdalloc.planning.effort import SEED
from pdalloc.planning.frontier import DEMAND, Frontier, FrontierPoint
from pdalloc.planning.sweeps import SAME_COST
from pdalloc.version import provenance


class FrontierPointAnswer(Block):
    """The cheapest fleet at one value and to the right of it."""

    value: float = Field(description="the bound in seconds, or the demand in requests/s")
    corner: bool = Field(description="the cheapest fleet changes exactly here")
    fleet: str | None
    xpyd: str | None
    gpus_by_type: dict[str, int]
    cost_usd_per_hour: float | None = Field(description="None: no fleet keeps every SLO")
    proven: bool
    reason: str = Field("", description="why there is no fleet, in words")


class Stretch(Block):
    """Values over which the least cost stays the same; ``start`` may be known exactly."""

    start: float
    end: float = Field(description="where the next one starts")
    last: float = Field(description="the greatest value of it that was looked at")
    exact: bool = Field(description="start is a corner, or the first value looked at")
    point: FrontierPointAnswer


class FrontierAnswer(Block):
    """The least cost against one bound, or against demand."""

    scenario: str
    title: str
    variant: str | None
    over: str = Field(description="demand, or metric.statistic, with its class/ where several")
    unit: str = Field(description="of value: s, or requests/s")
    here: float = Field(description="the scenario's own value")
    demand_requests_per_s: float
    tokens_per_request: float
    points: list[FrontierPointAnswer]
    interrupted: bool
    produced_by: dict[str, Any]

    def to_json(self) -> str:
        """Indented JSON, keys in the order above, no NaN or infinity."""
        return self.model_dump_json(indent=2)

    @property
    def stretches(self) -> list[Stretch]:
        """Runs of points of one cost, from the least value on; without a fleet, too."""
        found: list[Stretch] = []
        runs = itertools.groupby(self.points, key=_cost_key)
        for i, run in enumerate(list(group) for _, group in runs):
            if found:
                found[-1] = found[-1].model_copy(update={"end": run[0].value})
            exact = i == 0 or run[0].corner
            found.append(
                Stretch(
                    start=run[0].value,
                    end=run[-1].value,
                    last=run[-1].value,
                    exact=exact,
                    point=run[0],
                )
            )
        return found


def _cost_key(point: FrontierPointAnswer) -> int | None:
    cost = point.cost_usd_per_hour
    return None if cost is None else round(cost / SAME_COST)


def frontier_answer(frontier: Frontier) -> FrontierAnswer:
    """The answer of a computed frontier."""
    scenario, slo = frontier.scenario, frontier.axis.slo
    problem = scenario.problem()
    name = "" if slo is None else slo.name
    if slo is not None and len(scenario.system.workload.classes) > 1:
        name = f"{slo.traffic_class}/{name}"

    def point(p: FrontierPoint) -> FrontierPointAnswer:
        return FrontierPointAnswer(
            value=p.value,
            corner=p.corner,
            fleet=None if p.fleet is None else str(p.fleet),
            xpyd=None if p.fleet is None else p.fleet.xpyd,
            gpus_by_type={} if p.fleet is None else problem.gpus(p.fleet),
            cost_usd_per_hour=p.cost,
            proven=p.proven,
            reason=p.reason,
        )

    return FrontierAnswer(
        scenario=scenario.name,
        title=scenario.title,
        variant=scenario.variant,
        over=DEMAND if slo is None else name,
        unit="requests/s" if slo is None else "s",
        here=frontier.axis.here,
        demand_requests_per_s=scenario.demand,
        tokens_per_request=scenario.system.workload.mean_tokens,
        points=[point(p) for p in frontier.points],
        interrupted=frontier.interrupted,
        produced_by=provenance("exact", SEED),
    )
