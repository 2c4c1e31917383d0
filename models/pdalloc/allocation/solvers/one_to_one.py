"""As many prefill as decode replicas: what is deployed where nobody has asked."""

from __future__ import annotations

from pdalloc.allocation.solvers.proportional import ProportionalRatio

SOLVER = ProportionalRatio(
    1.0, "one_to_one", "as many prefill as decode replicas, scaled until the SLOs hold"
)
