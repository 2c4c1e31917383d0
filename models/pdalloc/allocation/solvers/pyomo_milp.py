"""The allocation problem in Pyomo, solved by HiGHS; :mod:`.pyomo_scip` takes SCIP instead.

Constraints are named ``demand[role]``, ``stock[gpu]``, ``limit[role/type]`` and, where
replicas share a queue, ``one_size[role/type]`` and ``size[role/type]``, as in
:mod:`pdalloc.allocation.solvers.cvxpy_milp`; the model is that of
:mod:`pdalloc.allocation.linear`; :mod:`pdalloc.allocation.rounds` makes it exact also for
SLOs that couple the stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pdalloc.allocation.linear import COVERED, HIGHS_OPTIONS, SCIP_OPTIONS, Array, LinearData
from pdalloc.allocation.packages import require, silent
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.rounds import solve_in_rounds
from pdalloc.errors import UnsupportedError
from pdalloc.fleet import DECODE, PREFILL, ROLES

ENGINES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "highs": ("highspy", HIGHS_OPTIONS),
    "scip_direct": ("pyscipopt", SCIP_OPTIONS),
}
"""Package and options of each solver, by Pyomo's name for it."""


class PyomoMilp:
    """Exact: gap 0, and every answer certified. ``engine`` as in ENGINES."""

    exact = True

    def __init__(self, name: str, engine: str, sentence: str) -> None:
        self.name, self.engine, self.sentence = name, engine, sentence

    def solve(self, problem: AllocationProblem, alternatives: int = 0) -> Allocation:
        """The cheapest fleet that keeps every SLO; ``alternatives`` is ignored.

        Raises UnsupportedError without the packages it needs, or as
        :func:`~pdalloc.allocation.rounds.solve_in_rounds` does.
        """
        require(self.name, "pyomo", ENGINES[self.engine][0])
        return solve_in_rounds(problem, self.name, lambda data: minimise(data, self.engine))


def minimise(data: LinearData, engine: str = "highs") -> tuple[Array, float] | None:
    """(counts (n,), lower bound in USD/hour) of one MILP; None when it is infeasible."""
    m = model(data)
    results = optimise(m, engine)
    return None if results is None else (counts_of(m, data.labels), float(results.objective_bound))


def counts_of(m: Any, labels: list[str]) -> Array:
    """Replicas of every option in a solved model; (n,)."""
    import pyomo.environ as pyo

    return np.array([pyo.value(m.count[label]) for label in labels])


def optimise(m: Any, engine: str, seconds: float | None = None) -> Any:
    """Pyomo's results of ``m``, loaded, solved to gap 0; None when it is infeasible.

    With ``seconds`` to stop after, any results, not loaded.
    """
    from pyomo.contrib.solver.common.factory import SolverFactory
    from pyomo.contrib.solver.common.results import TerminationCondition as End

    with silent():
        results = SolverFactory(engine).solve(
            m,
            time_limit=seconds,
            solver_options=dict(ENGINES[engine][1]),
            raise_exception_on_nonoptimal_result=False,
            load_solutions=False,
        )
    end = results.termination_condition
    if seconds is not None:
        return results
    if end in (End.provenInfeasible, End.infeasibleOrUnbounded):
        return None
    if end != End.convergenceCriteriaSatisfied:
        raise UnsupportedError(f"{engine} ended with {end.name!r}; use --solver exact")
    results.solution_loader.load_vars()
    return results


def model(data: LinearData) -> Any:
    """The pyomo.ConcreteModel of ``data``; ``count[role/type]`` holds the replicas."""
    import pyomo.environ as pyo

    labels, of = data.labels, {label: i for i, label in enumerate(data.labels)}
    m = pyo.ConcreteModel(name="allocation")
    m.owned = pyo.Var(
        labels, domain=pyo.Integers, bounds=lambda _, x: (0, float(data.owned[of[x]]))
    )
    m.bought = pyo.Var(
        labels, domain=pyo.Integers, bounds=lambda _, x: (0, float(data.ceiling[of[x]]))
    )
    m.count = pyo.Expression(labels, rule=lambda m, x: m.owned[x] + m.bought[x])
    m.cost = pyo.Objective(expr=sum(float(data.usd[of[x]]) * m.bought[x] for x in labels))

    def weighted(weights: Array, members: list[int]) -> Any:
        return sum(float(weights[i]) * m.count[labels[i]] for i in members)

    _add_sizes(m, data)
    m.demand = pyo.Constraint(
        ROLES,
        rule=lambda m, role: (
            weighted(data.share, data.apart(role))
            + sum(m.pool_share[labels[i]] for i in data.pooled(role))
            >= COVERED
        ),
    )
    m.stock = pyo.Constraint(
        list(data.stock), rule=lambda _, g: weighted(data.gpus, data.on_gpu(g)) <= data.stock[g]
    )
    m.limit = pyo.Constraint(
        [labels[i] for i in data.limited], rule=lambda m, x: m.count[x] <= float(data.most[of[x]])
    )
    _add_misfits(m, data)
    _add_losses(m, data, weighted)
    _add_cuts(m, data, weighted)
    return m


def _add_sizes(m: Any, data: LinearData) -> None:
    """One size per pool whose replicas share a queue, and what it admits: ``pool_share``."""
    import pyomo.environ as pyo

    rows = {data.labels[i]: row for i, row in data.sizes.items()}
    m.is_size = pyo.Var(
        [(x, k) for x, row in rows.items() for k in range(len(row))], domain=pyo.Binary
    )

    def total(weights: Any, x: str) -> Any:
        return sum(float(w) * m.is_size[x, k] for k, w in enumerate(weights))

    m.pool_share = pyo.Expression(list(rows), rule=lambda _, x: total(rows[x], x))
    m.one_size = pyo.Constraint(list(rows), rule=lambda _, x: total(np.ones(len(rows[x])), x) == 1)
    m.size = pyo.Constraint(
        list(rows), rule=lambda m, x: m.count[x] == total(np.arange(len(rows[x])), x)
    )


def _add_misfits(m: Any, data: LinearData) -> None:
    """Of two types that do not fit each other only one is used."""
    import pyomo.environ as pyo

    top = {data.labels[i]: float(data.top[i]) for i in data.picky}
    pairs = {
        (data.options[i].replica_type, data.options[j].replica_type): (i, j)
        for i, j in data.misfits
    }
    m.is_used = pyo.Var(list(top), domain=pyo.Binary)
    m.used = pyo.Constraint(list(top), rule=lambda m, x: m.count[x] <= top[x] * m.is_used[x])
    m.compatible = pyo.Constraint(
        list(pairs), rule=lambda m, *pair: sum(m.is_used[data.labels[i]] for i in pairs[pair]) <= 1
    )


def _add_losses(m: Any, data: LinearData, weighted: Any) -> None:
    """What is ``left`` of a pool that loses replicas still covers the demand with the others."""
    import pyomo.environ as pyo

    at = {data.labels[i]: i for i in data.at_risk}
    top, lost = data.top, data.redundancy
    m.is_large = pyo.Var(list(at), domain=pyo.Binary)
    m.left_over = pyo.Var(list(at), bounds=lambda _, x: (0, float(top[at[x]])))

    def large(m: Any, x: str) -> Any:
        return m.left_over[x] <= max(float(top[at[x]]) - lost, 0.0) * m.is_large[x]

    def covered(m: Any, x: str) -> Any:
        others = [j for j in data.members(data.options[at[x]].role) if j != at[x]]
        return weighted(data.share, others) + float(data.share[at[x]]) * m.left_over[x] >= COVERED

    m.redundancy = pyo.Constraint(list(at), rule=covered)
    m.left = pyo.Constraint(
        list(at), rule=lambda m, x: m.left_over[x] <= m.count[x] - lost * m.is_large[x]
    )
    m.large = pyo.Constraint(list(at), rule=large)


def _add_cuts(m: Any, data: LinearData, weighted: Any) -> None:
    """Decode counts above or below those of each cut, or enough prefill beside them."""
    import pyomo.environ as pyo

    rounds, decode = range(len(data.cuts)), data.members(DECODE)
    labels, top = data.labels, data.top
    m.is_above = pyo.Var(rounds, decode, domain=pyo.Binary)
    m.is_below = pyo.Var(rounds, decode, domain=pyo.Binary)

    def above(m: Any, k: int, i: int) -> Any:
        return m.count[labels[i]] >= (float(data.cuts[k].decode[i]) + 1.0) * m.is_above[k, i]

    def below(m: Any, k: int, i: int) -> Any:
        room = float(top[i] - data.cuts[k].decode[i]) + 1.0
        return m.count[labels[i]] <= float(top[i]) - room * m.is_below[k, i]

    def coupled(m: Any, k: int) -> Any:
        differs = sum(m.is_above[k, i] + m.is_below[k, i] for i in decode)
        return weighted(data.cuts[k].share, data.members(PREFILL)) + differs >= COVERED

    m.above = pyo.Constraint(rounds, decode, rule=above)
    m.below = pyo.Constraint(rounds, decode, rule=below)
    m.coupled = pyo.Constraint(rounds, rule=coupled)


SOLVER = PyomoMilp("pyomo", "highs", "mixed-integer linear program in Pyomo, solved by HiGHS")
