"""The end-to-end experiment: its questions have the loads they name, its summary counts right."""

from __future__ import annotations

import pytest
from experiments.delay_laws.end_to_end import (
    FLEET,
    LOADS,
    cells,
    lengths,
    predicted,
    question,
    simulated,
    summary,
)
from experiments.results import Row

from pdalloc.fleet import ROLES
from pdalloc.prediction import Predictor, predict


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("name", ["fixed", "correlated"])
def test_questions_have_their_loads(name: str, loads: tuple[float, float]) -> None:
    """Prefill: rate E[S]/c. Decode, without a limit in sight: rate E[n] slope / replicas."""
    system, rate = question(lengths()[name], loads, "random", 1.0)
    prediction = predict(Predictor(system), FLEET, {(role, "a"): rate for role in ROLES})
    [(p, d)] = prediction.paths()
    assert p.utilisation == pytest.approx(loads[0], rel=1e-9)
    affine = d.law.station.affine
    assert affine is not None
    base, slope, per_token = affine
    work = d.law.station.work
    load = d.rate * work.mean_steps * (slope + per_token * work.mean_context)
    assert load == pytest.approx(loads[1], rel=0.01)  # steps and context: the first token's rule
    assert base == pytest.approx(0.015)


def test_every_rule_and_length_is_there() -> None:
    assert len(list(cells())) == 4 * 4 * 4 * 2


def test_an_easy_cell_is_inside_three_percent() -> None:
    """Half load, fixed lengths, Poisson: mean E2E within 3 % and the interval."""
    system, rate = question(lengths()["fixed"], LOADS[0], "random", 1.0)
    seen, said = simulated(system, 0, requests=20_000), predicted(system, rate)
    for key, (value, half_width) in seen.items():
        assert said[key] == pytest.approx(value, abs=0.03 * value + half_width), key


def test_summary_counts() -> None:
    """Three cells by hand."""
    keys = [f"{m}_{s}" for m in ("ttft", "e2e") for s in ("mean", "p99")]
    table: list[Row] = [
        {
            "arrival_scv": scv,
            "dispatch": "random",
            **{f"{k}_error_percent": error for k in keys},
            **{f"{k}_ci_percent": 0.5 for k in keys},
        }
        for scv, error in ((1.0, -1.0), (3.0, 2.0), (3.0, 3.2))
    ]
    every = summary(table)[0]
    assert every["cells"] == 3
    assert every["e2e_p99_median_percent"] == pytest.approx(2.0)
    assert every["e2e_p99_worst_percent"] == pytest.approx(3.2)
    assert every["e2e_p99_within_3_percent"] == pytest.approx(200 / 3)
    assert every["e2e_p99_within_3_and_ci_percent"] == pytest.approx(100.0)
    bursty = next(r for r in summary(table) if r["arrival_scv"] == "3.0" and r["dispatch"] == "all")
    assert bursty["cells"] == 2
