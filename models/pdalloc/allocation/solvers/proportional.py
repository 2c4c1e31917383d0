"""A fixed ratio of prefill to decode replicas, scaled until every SLO holds.

By default the ratio follows the load: replica-seconds of work that a request brings to each
role, so that both are equally busy. It is the limit of the optimal ratio for loose SLOs
(waiting costs nothing there); tight SLOs, prices and the room that decode leaves are not in it.
"""

from __future__ import annotations

from pdalloc.allocation.baselines import along_ratio, one_type_each
from pdalloc.allocation.infeasibility import explain_infeasible
from pdalloc.allocation.problem import Allocation, AllocationProblem, infeasible
from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL


class ProportionalRatio:
    """A baseline, not exact: one type per role; stock and limits are checked, not searched.

    ``ratio`` P per D; None: by load.
    """

    exact = False

    def __init__(
        self,
        ratio: float | None = None,
        name: str = "proportional",
        sentence: str = "one P:D ratio, by the work a request brings to each role, scaled up",
    ) -> None:
        if ratio is not None and not 1e-6 < ratio < 1e6:
            raise InputError(f"a P:D ratio is positive and finite, got {ratio:g}")
        self.ratio, self.name, self.sentence = ratio, name, sentence

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The least fleet at the ratio that keeps every SLO; ``alternatives`` is ignored."""
        chosen = one_type_each(problem)
        if chosen is None:
            return infeasible(self.name, explain_infeasible(problem))
        if self.ratio is not None:
            return along_ratio(problem, self.name, self.ratio, {})
        capacity, types = problem.capacity, problem.capacity.system.replica_types
        prefill, decode = (
            capacity.stability_limit(role, types[option.replica_type])
            for role, (option, _) in zip((PREFILL, DECODE), chosen, strict=True)
        )
        work = {
            "prefill_replica_seconds_per_request": 1.0 / prefill,
            "decode_replica_seconds_per_request": 1.0 / decode,
        }
        return along_ratio(problem, self.name, decode / prefill, work)


SOLVER = ProportionalRatio()
