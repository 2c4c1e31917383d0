r"""The golden ratio of prefill to decode replicas, scaled until every SLO holds.

.. math:: \min\; c_P P + c_D D \;\text{ s.t. }\; A/P + B/D \le \tau
          \quad\Rightarrow\quad P/D = \sqrt{A\,c_D / (B\,c_P)}

with A and B a request's seconds of prefill and of decoding alone on one replica (speeds are
inside them), c USD/hour per replica. The model takes a pool for one fast server without a
queue or a batch: for queues it is the limit of tight SLOs only, and under separate TTFT and
TPOT SLOs prices do not belong in the ratio at all.
"""

from __future__ import annotations

import numpy as np

from pdalloc.allocation.baselines import along_ratio, one_type_each
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.problem import Allocation, AllocationProblem, infeasible
from pdalloc.closed_forms import golden_ratio


class GoldenRatio:
    """A baseline, not exact: one type per role; stock and limits are checked, not searched."""

    name = "golden"
    exact = False
    sentence = "P:D = sqrt(A c_D / (B c_P)), pools as single fast servers, scaled up"

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The least fleet at the ratio that keeps every SLO; ``alternatives`` is ignored."""
        chosen = one_type_each(problem)
        if chosen is None:
            return infeasible(self.name, explain_infeasible(problem))
        (prefill, _), (decode, _) = chosen
        predictor, types = problem.capacity.predictor, problem.capacity.system.replica_types
        one = np.ones(1)
        step = types[decode.replica_type].latency.step_seconds(one, one * predictor.context)[0]
        before = predictor.prefill(types[prefill.replica_type], 0.0).service.mean
        after = predictor.mean_steps * float(step)
        ratio = golden_ratio(before, after, prefill.usd_per_hour, decode.usd_per_hour)
        alone = {"prefill_seconds_alone": before, "decode_seconds_alone": after}
        return along_ratio(problem, self.name, ratio, alone)


SOLVER = GoldenRatio()
