r"""Closed forms: instant answers, and oracles for the solvers. No sympy here.

Derivations, checked step by step, are in :mod:`pdalloc.theory`. Counts are real numbers;
round up to deploy. Times in seconds, rates in requests/s, prices in USD per hour.
"""

from pdalloc.closed_forms.bounded import Bounded, bounded_budget
from pdalloc.closed_forms.counts import (
    PaperCounts,
    decode_count,
    effective_prefill_throughput,
    mm1_count,
    mm1_count_percentile,
    mm1_count_wait_percentile,
    paper_counts,
)
from pdalloc.closed_forms.itl import (
    itl_count,
    itl_count_normal,
)
from pdalloc.closed_forms.merit import (
    Merit,
    MeritOrder,
    merit_order,
    rounding_bound,
)
from pdalloc.closed_forms.mixing import (
    greatest_gain,
    mixing_gain,
    price_only_gain,
    single_type_cost,
)
from pdalloc.closed_forms.population import (
    Mix,
    index,
    population_mix,
    switch_price,
)
from pdalloc.closed_forms.ratio import (
    golden_ratio,
    loose_ratio,
    separate_ratio,
    shared_ratio,
    tight_ratio,
)
from pdalloc.closed_forms.routing import (
    best_split,
    dual_horizon,
    population_delay,
    replica_dual,
    replica_rate,
)
from pdalloc.closed_forms.staffing import (
    erlang_count,
    erlang_count_wait,
    square_root_count,
    square_root_count_wait,
    wait_probability,
)
from pdalloc.closed_forms.stages import (
    SharedBudget,
    Stage,
    shared_budget,
)

__all__ = [
    "Bounded",
    "Merit",
    "MeritOrder",
    "Mix",
    "PaperCounts",
    "SharedBudget",
    "Stage",
    "best_split",
    "bounded_budget",
    "decode_count",
    "dual_horizon",
    "effective_prefill_throughput",
    "erlang_count",
    "erlang_count_wait",
    "golden_ratio",
    "greatest_gain",
    "index",
    "itl_count",
    "itl_count_normal",
    "loose_ratio",
    "merit_order",
    "mixing_gain",
    "mm1_count",
    "mm1_count_percentile",
    "mm1_count_wait_percentile",
    "paper_counts",
    "population_delay",
    "population_mix",
    "price_only_gain",
    "replica_dual",
    "replica_rate",
    "rounding_bound",
    "separate_ratio",
    "shared_budget",
    "shared_ratio",
    "single_type_cost",
    "square_root_count",
    "square_root_count_wait",
    "switch_price",
    "tight_ratio",
    "wait_probability",
]
