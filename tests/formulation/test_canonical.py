"""Each named constraint in both languages: the same row, and the one written here by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.formulation.canonical import Row, both, cvxpy_rows, pyomo_rows

from pdalloc.allocation.linear import COVERED, Cut, LinearData, linear_data
from pdalloc.allocation.solvers import cvxpy_milp, pyomo_milp
from pdalloc.fleet import DECODE, PREFILL

LABELS = ["prefill/p", "prefill/q", "decode/d"]


@pytest.fixture
def data(small: Any) -> LinearData:
    """Two prefill types and a decode type; q's replicas share a queue; one cut; one limit.

    A replica of any pool may be lost, and p does not fit d.
    """
    rows = [
        (PREFILL, "p", "a", 2, 3.0, 2.0, 1, 4.0),
        (PREFILL, "q", "b", 1, 5.0, 4.0, 0, math.inf),
        (DECODE, "d", "a", 1, 2.0, 1.0, 0, math.inf),
    ]
    plain = linear_data(small.problem_of(rows, 8.0, {"a": 9}))
    cut = Cut(decode=np.array([0.0, 0.0, 5.0]), share=np.array([0.125, 0.25, 0.0]))
    sizes = {1: np.array([0.0, 0.25, 0.75])}
    return replace(plain, cuts=(cut,), sizes=sizes, redundancy=1, misfits=((0, 2),))


def losses(label: str, top: float, role: dict[str, float], share: float) -> dict[str, Row]:
    """Of at most ``top`` replicas one may be lost: what is left of them, and what they cover."""
    left, large = f"left_over[{label}]", f"is_large[{label}]"
    return {
        f"redundancy[{label}]": (role | {left: share}, COVERED),
        f"left[{label}]": (both(label, 1.0) | {large: -1.0, left: -1.0}, 0.0),
        f"large[{label}]": ({large: top - 1.0, left: -1.0}, 0.0),
    }


GOLDEN: dict[str, Row] = {
    # 2/8 of the demand per replica of p; pools of one and two q admit 0.25 and 0.75 of it
    "demand[prefill]": (both(LABELS[0], 0.25) | {"size1": 0.25, "size2": 0.75}, COVERED),
    "demand[decode]": (both(LABELS[2], 0.125), COVERED),
    "stock[a]": (both(LABELS[0], -2.0) | both(LABELS[2], -1.0), -9.0),
    "limit[prefill/p]": (both(LABELS[0], -1.0), -4.0),
    "one_size[prefill/q]": ({"size0": 1.0, "size1": 1.0, "size2": 1.0}, 1.0),
    "size[prefill/q]": (both(LABELS[1], 1.0) | {"size1": -1.0, "size2": -2.0}, 0.0),
    # at least 6 decode replicas where is_above; at most 4 of the 8 bought where is_below
    "above": (both(LABELS[2], 1.0) | {"is_above": -6.0}, 0.0),
    "below": (both(LABELS[2], -1.0) | {"is_below": -4.0}, -8.0),
    "coupled": (
        both(LABELS[0], 0.125) | both(LABELS[1], 0.25) | {"is_above": 1.0, "is_below": 1.0},
        COVERED,
    ),
    # 4 replicas of p serve all of the demand and 1 more is owned; of d 8 do
    "used[prefill/p]": (both(LABELS[0], -1.0) | {"is_used[prefill/p]": 5.0}, 0.0),
    "used[decode/d]": (both(LABELS[2], -1.0) | {"is_used[decode/d]": 8.0}, 0.0),
    "compatible[p,d]": ({"is_used[prefill/p]": -1.0, "is_used[decode/d]": -1.0}, -1.0),
    **losses(LABELS[0], 5.0, both(LABELS[1], 0.5), 0.25),
    **losses(LABELS[1], 2.0, both(LABELS[0], 0.25), 0.5),
    **losses(LABELS[2], 8.0, {}, 0.125),
}


def rows_in_pyomo(data: LinearData) -> dict[str, Row]:
    m = pyomo_milp.model(data)
    short = {m.is_above[0, 2].name: "is_above", m.is_below[0, 2].name: "is_below"}
    short |= {m.is_size["prefill/q", k].name: f"size{k}" for k in range(3)}
    found = pyomo_rows(m, lambda name: short.get(name, name))
    several = ("above", "below", "coupled")
    return {next((s for s in several if name.startswith(s)), name): r for name, r in found.items()}


def rows_in_cvxpy(data: LinearData) -> dict[str, Row]:
    def name_of(vector: str, k: int) -> str:
        if vector in ("owned", "bought", "is_used", "is_large", "left_over"):
            return f"{vector}[{LABELS[k]}]"
        return f"size{k}" if vector == "is_size[prefill/q]" else vector

    return cvxpy_rows(cvxpy_milp.model(data)[0], name_of)


@pytest.mark.parametrize("rows", [rows_in_pyomo, rows_in_cvxpy])
def test_every_named_row_is_the_golden_one(data: LinearData, rows: Any) -> None:
    found = rows(data)
    assert set(found) == set(GOLDEN)
    for name, (terms, bound) in GOLDEN.items():
        assert found[name][0] == pytest.approx(terms, abs=1e-12), name
        assert found[name][1] == pytest.approx(bound, abs=1e-12), name


def test_both_minimise_the_price_of_bought_replicas(data: LinearData) -> None:
    from pyomo.repn import generate_standard_repn

    repn = generate_standard_repn(pyomo_milp.model(data).cost.expr)
    found = {v.name: w for v, w in zip(repn.linear_vars, repn.linear_coefs, strict=True)}
    assert found == {"bought[prefill/p]": 3.0, "bought[prefill/q]": 5.0, "bought[decode/d]": 2.0}
    problem, _ = cvxpy_milp.model(data)
    (bought,) = (v for v in problem.objective.variables() if v.name() == "bought")
    for k, usd in enumerate((3.0, 5.0, 2.0)):
        bought.save_value(np.eye(3)[k])
        assert float(problem.objective.expr.value) == usd
