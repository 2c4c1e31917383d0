"""SLOs and prices of lateness as rows of an answer: predicted, then simulated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pdalloc.allocation.certify import SloCheck
from pdalloc.attainment import attainment
from pdalloc.planning.answer import Answer, JointSloAnswer, LatenessAnswer, SloAnswer
from pdalloc.planning.simulation_answer import (
    EstimateAnswer,
    SimulatedJointSlo,
    SimulatedLateness,
    SimulatedSlo,
)
from pdalloc.prediction import Prediction
from pdalloc.scenario import Scenario
from pdalloc.simulation.attainment import PER_REQUEST, Bound
from pdalloc.simulation.statistics import Run
from pdalloc.slo.interface import Objective
from pdalloc.slo.joint import JointSlo
from pdalloc.slo.objective import Slo
from pdalloc.validation import Seen, estimated, lost_share, requests_of, verdict

Found = tuple[Objective, float, float]
"""An SLO, its simulated number and the half-width of the 95 % interval."""


def predicted_rows(
    checks: Iterable[SloCheck], binding: set[Objective]
) -> tuple[list[SloAnswer], list[JointSloAnswer]]:
    """The rows of SLOs on one latency, and of joint ones, in order."""
    single: list[SloAnswer] = []
    joint: list[JointSloAnswer] = []
    for c in checks:
        slo = c.slo
        common = {"traffic_class": slo.traffic_class, "kept": c.kept, "binding": slo in binding}
        if isinstance(slo, Slo):
            row = {"metric": slo.metric, "statistic": slo.statistic.name, "bound_s": slo.bound}
            single.append(SloAnswer.model_validate({**common, **row, "predicted_s": c.predicted}))
        elif isinstance(slo, JointSlo):
            share = None if c.predicted is None else 1.0 - c.predicted
            row = {"share": slo.share, "within_s": slo.limits, "predicted_share": share}
            joint.append(JointSloAnswer.model_validate({**common, **row}))
    return single, joint


def simulated_rows(
    scenario: Scenario, samples: Mapping[Objective, Sequence[float]]
) -> tuple[list[SimulatedSlo], list[SimulatedJointSlo]]:
    """As :func:`predicted_rows`, of ``samples``: each SLO's number in every replication."""
    single: list[SimulatedSlo] = []
    joint: list[SimulatedJointSlo] = []
    for slo in scenario.slos:
        value, half_width = estimated(samples[slo])
        known = math.isfinite(value)
        common = {"traffic_class": slo.traffic_class, "verdict": verdict(slo, value, half_width)}
        if isinstance(slo, Slo):
            row = {"metric": slo.metric, "statistic": slo.statistic.name, "bound_s": slo.bound}
            row |= {"simulated_s": value if known else None}
            row |= {"half_width_s": half_width if known else None}
            single.append(SimulatedSlo.model_validate({**common, **row}))
        elif isinstance(slo, JointSlo):
            found = {"share": slo.share, "within_s": slo.limits}
            found |= {"simulated_share": 1.0 - value if known else None}
            found |= {"half_width": half_width if known else None}
            joint.append(SimulatedJointSlo.model_validate({**common, **found}))
    return single, joint


def predicted_lateness(scenario: Scenario, prediction: Prediction | None) -> list[LatenessAnswer]:
    """What late requests are expected to cost, over all paths by their traffic.

    Not predicted where no law knows who is late: a price binds nothing, so the rest stands.
    """
    rows = []
    for effort in scenario.best_effort:
        rate, index = _class_of(scenario, effort.traffic_class)
        late = None
        if prediction is not None and effort.limits.keys() <= set(PER_REQUEST):
            bounds = [Bound(metric, seconds) for metric, seconds in effort.within]
            late = 1.0 - attainment(prediction, bounds, index)
        rows.append(
            LatenessAnswer(
                traffic_class=effort.traffic_class,
                within_s=effort.limits,
                usd_per_late_request=effort.price,
                predicted_late_share=late,
                predicted_usd_per_hour=None if late is None else effort.usd_per_hour(rate, late),
            )
        )
    return rows


def late_shares(scenario: Scenario, run: Run) -> list[float]:
    """Share of late requests of a run for each best-effort SLO; who got no answer is late."""
    shares = []
    for effort in scenario.best_effort:
        mine = requests_of(scenario.system, run, effort.traffic_class)
        shares.append(Seen(run, mine, lost_share(run, mine)).late_share(effort.limits))
    return shares


def with_lateness(scenario: Scenario, answer: Answer, shares: Sequence[Sequence[float]]) -> Answer:
    """``answer`` with simulated prices; ``shares[replication][k]`` late of best effort k."""
    found = simulated_lateness(scenario, shares)
    rows = [
        row
        if late is None or usd is None
        else row.model_copy(
            update={
                "simulated_late_share": late.value,
                "simulated_late_share_half_width": late.half_width,
                "simulated_usd_per_hour": usd.value,
                "simulated_usd_per_hour_half_width": usd.half_width,
            }
        )
        for row, (late, usd) in zip(
            answer.lateness, ((x.late_share, x.usd_per_hour) for x in found), strict=True
        )
    ]
    return answer.model_copy(update={"lateness": rows})


def simulated_lateness(
    scenario: Scenario, shares: Sequence[Sequence[float]]
) -> list[SimulatedLateness]:
    """Late shares and their prices with intervals; ``shares[replication][k]``."""
    rows = []
    for k, effort in enumerate(scenario.best_effort):
        rate, _ = _class_of(scenario, effort.traffic_class)
        late, half_width = estimated([run[k] for run in shares])
        known = math.isfinite(late)
        usd = effort.usd_per_hour(rate, late), effort.usd_per_hour(rate, half_width)
        rows.append(
            SimulatedLateness(
                traffic_class=effort.traffic_class,
                within_s=effort.limits,
                usd_per_late_request=effort.price,
                late_share=EstimateAnswer(value=late, half_width=half_width) if known else None,
                usd_per_hour=EstimateAnswer(value=usd[0], half_width=usd[1]) if known else None,
            )
        )
    return rows


def _class_of(scenario: Scenario, name: str) -> tuple[float, int]:
    """(requests/s, index) of a traffic class."""
    classes = scenario.system.workload.classes
    index = [c.name for c in classes].index(name)
    return classes[index].rate, index
