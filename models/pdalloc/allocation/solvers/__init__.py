"""Solvers, one per file, found by name: a module here with a ``SOLVER``.

Each declares whether it proves optimality (``exact``) and answers with an
:class:`~pdalloc.allocation.problem.Allocation`; the caller certifies it.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol

from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.errors import InputError


class Solver(Protocol):
    """A way to choose a fleet."""

    name: str
    exact: bool
    sentence: str

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The fleet, with ``alternatives`` next-cheapest ones where the solver can."""
        ...


def solvers() -> dict[str, Solver]:
    """Every solver by name."""
    found: dict[str, Solver] = {}
    for module in pkgutil.iter_modules(__path__):
        solver: Solver = importlib.import_module(f"{__name__}.{module.name}").SOLVER
        found[solver.name] = solver
    return found


def solver_named(name: str) -> Solver:
    """The solver called ``name``; raises InputError naming the others."""
    known = solvers()
    if name not in known:
        raise InputError(f"solver {name!r} is not one of {', '.join(sorted(known))}")
    return known[name]
