"""The paper's method as it stands: fractional counts by its formulas, rounded to nearest.

arXiv 2603.04716: prefill by the M/M/1 effective throughput, decode by the batch at which
the step curve meets the TPOT bound, each divided into the demand. Rounding may go down, so
the result is certified like any other and may break the SLO it was sized for.
"""

from __future__ import annotations

import numpy as np

from pdalloc.allocation.baselines import judged
from pdalloc.allocation.problem import Allocation, AllocationProblem, Option, infeasible
from pdalloc.capacity import greatest_rate
from pdalloc.closed_forms import PaperCounts, effective_prefill_throughput, paper_counts
from pdalloc.errors import InfeasibleError, UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, Fleet, Role

MOST_BATCH = 4096.0


class PaperRounding:
    """A baseline, not exact: it sizes by means and ignores what rounding down does."""

    name = "paper"
    exact = False
    sentence = "the counts and rounding of arXiv 2603.04716 (one type per role, mean SLOs)"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The paper's fleet; ``alternatives`` is ignored."""
        prefill, decode = _only(problem, PREFILL), _only(problem, DECODE)
        try:
            counts = _counts(problem, prefill, decode)
        except InfeasibleError as error:
            return infeasible(self.name, str(error))
        xp, yd = counts.rounded
        fleet = Fleet.of({(PREFILL, prefill.replica_type): xp, (DECODE, decode.replica_type): yd})
        details: dict[str, float | str] = {
            "prefill_tokens_per_s_per_replica": counts.prefill_throughput,
            "decode_tokens_per_s_per_replica": counts.decode_throughput,
            "prefill_replicas": counts.prefill,
            "decode_replicas": counts.decode,
            "ratio": counts.ratio,
            "rounds_to": fleet.xpyd,
        }
        return judged(problem, self.name, fleet, details)


def _only(problem: AllocationProblem, role: Role) -> Option:
    options = problem.in_role(role)
    if len(options) != 1:
        raise UnsupportedError(
            f"solver 'paper' knows one replica type per role, {role} has {len(options)}; "
            "use --solver exact"
        )
    return options[0]


def _counts(problem: AllocationProblem, prefill: Option, decode: Option) -> PaperCounts:
    capacity = problem.capacity
    predictor, types = capacity.predictor, capacity.system.replica_types
    mix = predictor.mix
    prompt, output = float(mix.weight @ mix.prompt), float(mix.weight @ mix.output)
    service = predictor.prefill(types[prefill.replica_type], 0.0).service.mean
    overhead = float(mix.weight @ capacity.system.transfer_seconds(mix))
    throughput = effective_prefill_throughput(
        prompt / service, prompt, _mean_bound(problem, "ttft"), overhead
    )
    tpot = _mean_bound(problem, "tpot")
    latency = types[decode.replica_type].latency

    def room(batch: float) -> float:
        k = np.array([max(batch, 1.0)])
        return 1.0 - float(latency.step_seconds(k, k * predictor.context)[0]) / tpot

    batch = greatest_rate(room, MOST_BATCH)
    if batch <= 0.0:
        raise InfeasibleError(f"mean TPOT {tpot:.4g} s is below one request's decode step")
    return paper_counts(problem.demand, prompt, output, throughput, batch / tpot)


def _mean_bound(problem: AllocationProblem, metric: str) -> float:
    bounds = [slo.bound for slo in problem.capacity.slos if slo.name == f"{metric}.mean"]
    if not bounds:
        raise UnsupportedError(f"solver 'paper' needs a mean {metric.upper()} SLO")
    return min(bounds)


SOLVER = PaperRounding()
