r"""Which H100/A100 price ratio changes who prefills and who decodes.

In the relaxation a role goes to the type with the least price per admissible request, so it
changes hands where the price ratio equals that of the admissible rates per GPU,

.. math:: \frac{c_{H100}}{c_{A100}} = \frac{\max_r \kappa_r / k_r}{\max_q \kappa_q / k_q},

over the H100 types r and the A100 types q, with kappa from a partner role at no load. Plans
along a sweep of the ratio show what integrality makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import yaml
from experiments.mixed_fleet.pairings import LLAMA31, bounds, gpu_shares
from experiments.results import Row, Value

from pdalloc.catalog.loader import usd_per_gpu_hour
from pdalloc.fleet import ROLES
from pdalloc.planning import plan
from pdalloc.scenario import Scenario, load_scenario

CHEAP, DEAR = "a100", "h100"
HALF = 50.0
"""Percent of a role's requests."""


@dataclass(frozen=True)
class Case:
    """A setting of the sweep: bounds in seconds, ``rate`` in requests/s."""

    ttft: float
    tpot: float
    rate: float

    @property
    def columns(self) -> dict[str, float]:
        """The columns that name the case."""
        return {
            "ttft_mean_bound_s": self.ttft,
            "tpot_mean_bound_ms": 1e3 * self.tpot,
            "rate_requests_per_s": self.rate,
        }

    def scenario(self, ratio: float | None = None) -> Scenario:
        """The question at list prices, or with H100 at ``ratio`` times the A100 list price."""
        overrides = [*bounds("mean", self.ttft, self.tpot), f"traffic.0.rate={self.rate!r} req/s"]
        if ratio is not None:
            cheap, _ = list_prices()
            units = "USD/GPU/hour"
            prices = f"{{{CHEAP}: {cheap!r} {units}, {DEAR}: {cheap * ratio!r} {units}}}"
            overrides.append(f"prices={prices}")
        return load_scenario(LLAMA31, None, overrides)


SWEPT = (Case(1.0, 0.03, 200.0), Case(1.0, 0.03, 1000.0), Case(1.0, 0.05, 200.0))
CASES = (*SWEPT, Case(1.0, 0.08, 200.0))
RATIOS = tuple(float(ratio) for ratio in np.round(np.arange(2.0, 4.41, 0.2), 3))


def list_prices() -> tuple[float, float]:
    """USD per GPU and hour of A100 and H100 in the scenario's price list."""
    name = yaml.safe_load(LLAMA31.read_text(encoding="utf-8"))["prices"]
    return usd_per_gpu_hour(name, CHEAP, "prices"), usd_per_gpu_hour(name, DEAR, "prices")


def ratio_rows(cases: Iterable[Case] = SWEPT, ratios: Sequence[float] = RATIOS) -> list[Row]:
    """The cheapest fleet, and what H100 carries of each role, at each price ratio."""
    rows: list[Row] = []
    for case in cases:
        for ratio in ratios:
            answer = plan(case.scenario(ratio))
            shares = {role: gpu_shares(answer, role).get(DEAR, 0.0) for role in ROLES}
            row: dict[str, Value] = {**case.columns, "h100_over_a100_price": ratio}
            row |= {"fleet": answer.fleet, "cost_usd_per_hour": answer.cost_usd_per_hour}
            row |= {f"h100_{role}_share_percent": 100.0 * shares[role] for role in ROLES}
            rows.append(row)
    return rows


def switch_rows(cases: Iterable[Case], swept: Sequence[Row]) -> list[Row]:
    """The closed form's switching ratio per role, beside the bracket that ``swept`` shows."""
    cheap, dear = list_prices()
    rows: list[Row] = []
    for case in cases:
        best = {gpu: _best_rates(case, gpu) for gpu in (CHEAP, DEAR)}
        for role in ROLES:
            (cheap_type, cheap_rate), (dear_type, dear_rate) = best[CHEAP][role], best[DEAR][role]
            low, high = _bracket(case, role, swept)
            switch = dear_rate / cheap_rate
            row: dict[str, Value] = {**case.columns, "role": role}
            row |= {"a100_type": cheap_type, "a100_requests_per_s_per_gpu": cheap_rate}
            row |= {"h100_type": dear_type, "h100_requests_per_s_per_gpu": dear_rate}
            row |= {"switch_price_ratio": switch, "list_price_ratio": dear / cheap}
            row |= {"winner_at_list_prices": DEAR if dear / cheap < switch else CHEAP}
            row |= {"h100_leads_up_to_ratio": low, "a100_leads_from_ratio": high}
            rows.append(row)
    return rows


def _best_rates(case: Case, gpu: str) -> dict[str, tuple[str, float]]:
    """Per role the type on ``gpu`` that admits most per GPU, and its requests/s per GPU."""
    problem = case.scenario().problem()
    return {
        role: max(
            (
                (o.replica_type, problem.rate(o) / o.gpus)
                for o in problem.in_role(role)
                if o.gpu == gpu
            ),
            key=lambda pair: pair[1],
        )
        for role in ROLES
    }


def _bracket(case: Case, role: str, swept: Sequence[Row]) -> tuple[float | None, float | None]:
    """(greatest ratio with H100 carrying half of ``role``, least with it carrying less)."""
    shares = {
        float(row["h100_over_a100_price"] or 0.0): float(row[f"h100_{role}_share_percent"] or 0.0)
        for row in swept
        if case.columns.items() <= row.items()
    }
    kept = [ratio for ratio, share in shares.items() if share >= HALF]
    left = [ratio for ratio, share in shares.items() if share < HALF]
    return max(kept, default=None), min(left, default=None)
