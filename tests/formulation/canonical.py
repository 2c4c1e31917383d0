"""Rows of a model in either language, read as coefficients >= constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Row = tuple[dict[str, float], float]
"""Coefficients by variable, and their least sum: rows are read as coefficients >= constant."""


def both(label: str, weight: float) -> dict[str, float]:
    """A weight on a count is one on its owned and on its bought replicas."""
    return {f"owned[{label}]": weight, f"bought[{label}]": weight}


def pyomo_rows(m: Any, name_of: Callable[[str], str] = str) -> dict[str, Row]:
    """Linear rows of a pyomo model by name, their variables as ``name_of`` calls them."""
    from pyomo.environ import Constraint, value
    from pyomo.repn import generate_standard_repn

    found = {}
    for c in m.component_data_objects(Constraint):
        repn = generate_standard_repn(c.body)
        if not repn.is_linear():
            continue
        at_least = c.lower is not None
        sign, bound = (1.0, c.lower) if at_least else (-1.0, c.upper)
        terms = {
            name_of(v.name): sign * w
            for v, w in zip(repn.linear_vars, repn.linear_coefs, strict=True)
            if w
        }
        name = c.name.replace("'", "")  # it quotes an index with a dot in it
        found[name] = (terms, sign * (value(bound) - repn.constant))
    return found


def cvxpy_rows(problem: Any, name_of: Callable[[str, int], str]) -> dict[str, Row]:
    """The same of a cvxpy problem, ``name_of`` (vector, index).

    Coefficients by finite differences, which are exact for affine expressions.
    """
    for v in problem.variables():
        v.save_value(np.zeros(v.shape))
    found = {}
    for c in problem.constraints:
        left, right = c.args
        if not (left.is_affine() and right.is_affine()):
            continue

        def margin(left: Any = left, right: Any = right) -> float:
            return float(np.sum(left.value) - np.sum(right.value))

        sign = -1.0 if type(c).__name__ == "Inequality" else 1.0  # cvxpy keeps left <= right
        zero, terms = margin(), {}
        for v in c.variables():
            for k in range(v.size):
                unit = np.zeros(v.size)
                unit[k] = 1.0
                v.save_value(unit.reshape(v.shape))
                slope = sign * (margin() - zero)
                v.save_value(np.zeros(v.shape))
                if abs(slope) > 1e-12:
                    terms[name_of(v.name(), k)] = slope
        found[str(c.label)] = (terms, -sign * zero)
    return found
