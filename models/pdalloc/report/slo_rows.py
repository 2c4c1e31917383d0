"""SLOs as cells of a table, and prices of lateness as sentences: on one latency, or joint."""

from __future__ import annotations

from pdalloc.planning.answer import Answer, JointSloAnswer, LatenessAnswer, SloAnswer
from pdalloc.planning.simulation_answer import SimulatedJointSlo, SimulatedLateness, SimulatedSlo
from pdalloc.report.words import interval, seconds, share, time_interval, usd

NOT_DRIVEN = "Prices of lateness come beside the cost of the fleet and did not choose it."


def slo_name(slo: SloAnswer | JointSloAnswer | SimulatedSlo | SimulatedJointSlo) -> str:
    """``TTFT P99``, or ``TTFT <= 2000 ms, TPOT <= 50 ms``, a limit a line."""
    if isinstance(slo, JointSloAnswer | SimulatedJointSlo):
        return ",\n".join(_limits(slo.within_s))
    name = slo.statistic if slo.statistic == "mean" else slo.statistic.upper()
    return f"{slo.metric.upper()} {name}"


def slo_bound(slo: SloAnswer | JointSloAnswer | SimulatedSlo | SimulatedJointSlo) -> str:
    """``2000 ms``, or ``>= 99 %``."""
    if isinstance(slo, JointSloAnswer | SimulatedJointSlo):
        return f">= {100.0 * slo.share:.10g} %"
    return seconds(slo.bound_s)


def slo_predicted(slo: SloAnswer | JointSloAnswer) -> str:
    """The predicted value; ``unstable`` without a steady state."""
    if isinstance(slo, JointSloAnswer):
        return "unstable" if slo.predicted_share is None else share(slo.predicted_share)
    return "unstable" if slo.predicted_s is None else seconds(slo.predicted_s)


def verdict(slo: SloAnswer | JointSloAnswer) -> str:
    """What the prediction says of the bound, and the simulation where it says something else."""
    if not slo.kept:
        return "BROKEN"
    words = "kept, binding" if slo.binding else "kept"
    if slo.simulated_verdict == "breaks":
        return f"{words}; simulated BROKEN"
    if slo.simulated_verdict == "too few to judge":
        return f"{words}; too few simulated"
    return words + (
        "; simulation too close" if slo.simulated_verdict == "too close to call" else ""
    )


def measured(slo: SloAnswer | JointSloAnswer, plus_minus: str) -> str:
    """``777 ± 12 ms``: the simulated value and the half-width of its 95 % interval.

    Both to the second digit of the half-width.
    """
    if isinstance(slo, JointSloAnswer):
        return share_interval(slo.simulated_share, slo.simulated_half_width, plus_minus)
    if slo.simulated_s is None:
        return "-"
    if slo.simulated_half_width_s is None:
        return seconds(slo.simulated_s)
    return time_interval(slo.simulated_s, slo.simulated_half_width_s, plus_minus)


def simulated(slo: SimulatedSlo | SimulatedJointSlo, plus_minus: str) -> str:
    """The same of a simulation without a plan."""
    if isinstance(slo, SimulatedJointSlo):
        return share_interval(slo.simulated_share, slo.half_width, plus_minus)
    if slo.simulated_s is None or slo.half_width_s is None:
        return "-"
    return time_interval(slo.simulated_s, slo.half_width_s, plus_minus)


def share_interval(value: float | None, half_width: float | None, plus_minus: str) -> str:
    """``99.42 ± 0.03 %``; ``-`` where there is none."""
    if value is None or half_width is None:
        return "-"
    return interval(value, half_width, plus_minus, 100.0, " %")


def agreement(slo: SloAnswer | JointSloAnswer) -> str:
    """Whether the prediction lies inside the simulated interval, and by how much it is off."""
    if isinstance(slo, JointSloAnswer):
        return _points(slo)
    if slo.simulated_s is None or slo.predicted_s is None:
        return "-"
    off = slo.predicted_s - slo.simulated_s
    if abs(off) <= (slo.simulated_half_width_s or 0.0):
        return "inside"
    return f"off {off / slo.simulated_s:+.1%}" if slo.simulated_s else "off"


def _points(slo: JointSloAnswer) -> str:
    if slo.simulated_share is None or slo.predicted_share is None:
        return "-"
    off = slo.predicted_share - slo.simulated_share
    if abs(off) <= (slo.simulated_half_width or 0.0):
        return "inside"
    return f"off {100.0 * off:+.2g} points"


def lateness(answer: Answer, plus_minus: str) -> list[str]:
    """What late requests are expected to cost, and where that did not drive the plan."""
    rows = answer.lateness if answer.fleet else []
    lines = []
    for row in rows:
        cost = _cost(row)
        late = "" if row.predicted_late_share is None else f"{row.predicted_late_share:.3%} "
        line = f"Expected price of lateness: {cost} ({late.replace('%', ' %')}{_priced(row)})"
        found, half = row.simulated_usd_per_hour, row.simulated_usd_per_hour_half_width
        if found is not None and half is not None:
            line += f"; simulated {interval(found, half, plus_minus, 1.0, ' USD/h')}"
        lines.append(f"{line}.")
    return [*lines, NOT_DRIVEN] if lines and answer.shortfall is None else lines


def _cost(row: LatenessAnswer) -> str:
    if row.predicted_usd_per_hour is not None:
        return f"{usd(row.predicted_usd_per_hour)} USD/h"
    if "itl" in row.within_s:
        return "not predicted"
    return "no limit without a steady state"


def simulated_lateness(rows: list[SimulatedLateness], plus_minus: str) -> list[str]:
    """What late requests cost in a simulation, one line each."""
    return [
        f"Price of lateness: "
        f"{interval(x.usd_per_hour.value, x.usd_per_hour.half_width, plus_minus, 1.0, ' USD/h')} "
        f"({share_interval(x.late_share.value, x.late_share.half_width, plus_minus)} {_priced(x)})."
        for x in rows
        if x.usd_per_hour is not None and x.late_share is not None
    ]


def _priced(row: LatenessAnswer | SimulatedLateness) -> str:
    return (
        f"of {row.traffic_class} break {_within(row.within_s)}, "
        f"{1e3 * row.usd_per_late_request:.4g} USD per 1000 of them"
    )


def _within(limits: dict[str, float]) -> str:
    return ", ".join(_limits(limits))


def _limits(limits: dict[str, float]) -> list[str]:
    return [f"{metric.upper()} <= {seconds(x)}" for metric, x in limits.items()]
