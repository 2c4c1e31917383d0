"""The block ``periods:``: how traffic changes over a day, and what starts and stops cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import Field

from pdalloc.errors import InputError
from pdalloc.fleet import Fleet, parse_fleet
from pdalloc.scenario.base import Count, Number, Quantity, Spec
from pdalloc.system import System
from pdalloc.units import parse_quantities, parse_quantity

SECONDS_PER_HOUR = 3600.0
LEAST_FACTOR = 1e-6
"""A period with less than this share of the traffic's rate is taken for a slip."""


class PeriodsSpec(Spec):
    """Periods of steady traffic, one after the other; ``pdalloc schedule`` plans them."""

    lasts: Quantity = Field("1 h", description='"1 h" for all of them, or one each: "6 12 6 h"')
    factors: list[Number] | None = Field(
        None, description="of each period, times the rate of the traffic: [0.4, 1, 0.8]"
    )
    rates: Quantity | None = Field(
        None, description='instead of factors, over all classes: "20 50 40 req/s"'
    )
    start_cost: Quantity = Field(
        "0 USD", description='of a replica that starts: "5 USD", or running time paid for: "10 min"'
    )
    stop_cost: Quantity = Field("0 USD", description="of a replica that stops, as start_cost")
    most_starts: Count | None = Field(
        None, description="most replicas that start at the beginning of a period, over all pools"
    )
    most_stops: Count | None = Field(None, description="the same of replicas that stop")
    cyclic: bool = Field(True, description="the periods repeat: the last comes before the first")
    initial: str | None = Field(
        None, description="fleet that runs before the first period, with cyclic: false"
    )


@dataclass(frozen=True)
class ChangeCost:
    """What it costs to start or stop a replica: ``usd`` and ``seconds`` of its running time."""

    usd: float = 0.0
    seconds: float = 0.0

    def of(self, usd_per_hour: float) -> float:
        """USD for a replica of this price."""
        return self.usd + self.seconds / SECONDS_PER_HOUR * usd_per_hour


@dataclass(frozen=True)
class Periods:
    """``hours`` and ``factors`` on the rate of all traffic, one per period.

    ``initial`` fleet before the first period; None: the periods repeat.
    """

    hours: tuple[float, ...]
    factors: tuple[float, ...]
    start: ChangeCost = ChangeCost()
    stop: ChangeCost = ChangeCost()
    most_starts: float = math.inf
    most_stops: float = math.inf
    initial: Fleet | None = None


def build_periods(spec: PeriodsSpec | None, system: System) -> Periods | None:
    """The periods of ``spec``; None without the block. Raises InputError or UnitError."""
    if spec is None:
        return None
    factors = _factors(spec, system)
    seconds = parse_quantities(spec.lasts, "time", "periods.lasts")
    if len(seconds) not in (1, len(factors)):
        raise InputError(
            f"periods.lasts: give one time, or one per period; got {len(seconds)} for "
            f"{len(factors)} periods"
        )
    if min(seconds) <= 0.0:
        raise InputError(f"periods.lasts: times must be positive, got {spec.lasts}")
    if len(seconds) == 1:
        seconds *= len(factors)
    return Periods(
        tuple(s / SECONDS_PER_HOUR for s in seconds),
        factors,
        _change_cost(spec.start_cost, "periods.start_cost"),
        _change_cost(spec.stop_cost, "periods.stop_cost"),
        _most(spec.most_starts, "most_starts"),
        _most(spec.most_stops, "most_stops"),
        _initial(spec, system),
    )


def _factors(spec: PeriodsSpec, system: System) -> tuple[float, ...]:
    if (spec.factors is None) == (spec.rates is None):
        raise InputError("periods: give either factors or rates, one number per period")
    if spec.factors is not None:
        where, found = "periods.factors", list(spec.factors)
    elif "tok" in str(spec.rates):
        where, whole = "periods.rates", system.workload.tokens_per_second
        found = [r / whole for r in parse_quantities(spec.rates, "tokens_rate", where)]
    else:
        where, whole = "periods.rates", system.workload.rate
        found = [r / whole for r in parse_quantities(spec.rates, "requests_rate", where)]
    if not found:
        raise InputError(f"{where}: give at least one period")
    if min(found) < LEAST_FACTOR:
        raise InputError(
            f"{where}: every period needs traffic, got {min(found):g} times the rate; "
            "leave out a period without any"
        )
    return tuple(found)


def _change_cost(value: Quantity, where: str) -> ChangeCost:
    money = "usd" in str(value).lower() or "dollar" in str(value).lower()
    number = parse_quantity(value, "money" if money else "time", where)
    if number < 0.0:
        raise InputError(f"{where}: must not be negative, got {value}")
    return ChangeCost(usd=number) if money else ChangeCost(seconds=number)


def _most(count: int | None, name: str) -> float:
    if count is not None and count < 0:
        raise InputError(f"periods.{name}: must not be negative, got {count}")
    return math.inf if count is None else float(count)


def _initial(spec: PeriodsSpec, system: System) -> Fleet | None:
    if spec.cyclic and spec.initial is None:
        return None
    if spec.cyclic:
        raise InputError(
            "periods.initial: a day that repeats begins with its own last fleet; set cyclic: false"
        )
    if spec.initial is None:
        raise InputError(
            "periods.initial: this key is missing; with cyclic: false, add the fleet that runs "
            "before the first period"
        )
    return parse_fleet(spec.initial, system.type_names)
