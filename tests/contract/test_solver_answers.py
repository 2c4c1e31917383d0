"""Every solver found by discovery: its answer is certified, or says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdalloc.allocation.certify import certify
from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.allocation.solvers import solver_named, solvers
from pdalloc.errors import PdallocError
from pdalloc.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml"
MIXED = ROOT / "experiments" / "mixed_fleet" / "scenario.yaml"
CASES = {
    "paper": (PAPER, None, [], ""),
    "calibrated": (PAPER, "calibrated", [], ""),
    "mixed": (MIXED, "tight_both", [], ""),
    "stock": (MIXED, "stock", [], ""),
    "e2e": (PAPER, None, ["traffic.0.slo={e2e: {mean: 8 s}}"], ""),
    "owned": (PAPER, None, [], "2P6D"),
    "no stock": (PAPER, None, ["stock={h200: 40}"], ""),
    "limited": (PAPER, None, ["replicas.0.limits={decode: 3}"], ""),
    "out of reach": (PAPER, None, ["traffic.0.slo.ttft.mean=250 ms"], ""),
}  # fmt: skip
IMPOSSIBLE = {"no stock", "limited", "out of reach"}
NAMES = sorted(solvers())
EXACT = [name for name in NAMES if solver_named(name).exact]


def problem_of(case: str) -> AllocationProblem:
    path, variant, overrides, owned = CASES[case]
    scenario = load_scenario(path, variant, overrides)
    return (scenario.owning(owned) if owned else scenario).problem()


def answer_of(name: str, problem: AllocationProblem) -> Allocation | None:
    """None when the solver refuses, in one line."""
    try:
        return solver_named(name).solve(problem)
    except PdallocError as error:
        assert len(str(error).splitlines()) == 1 and name in str(error)
        return None


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_certified_or_flagged(name: str, case: str) -> None:
    problem = problem_of(case)
    found = answer_of(name, problem)
    if found is None:
        return
    assert found.solver == name
    broken = certify(problem, found.fleet).broken if found.fleet.pools else ("no fleet",)
    if found.status == "infeasible":
        assert broken and found.reason and len(found.reason.splitlines()) == 1
        assert found.bound is None
    else:
        assert not broken and not found.reason and case not in IMPOSSIBLE
        assert found.cost == problem.cost(found.fleet)
        assert found.bound is None or found.bound <= found.cost + 1e-9
    if not solver_named(name).exact:
        assert found.status != "optimal"
    if found.fleet.pools:
        assert found.cost == problem.cost(found.fleet)


@pytest.mark.parametrize("case", CASES)
def test_exact_solvers_agree_and_no_baseline_is_better(case: str) -> None:
    answers = {name: answer_of(name, problem_of(case)) for name in NAMES}
    proven = {
        round(a.cost or 0.0, 6) for a in answers.values() if a is not None and a.status == "optimal"
    }
    if case in IMPOSSIBLE:
        assert not proven
        assert all(a is None or a.status == "infeasible" for a in answers.values())
        return
    assert len(proven) == 1
    for a in answers.values():
        if a is not None and a.status == "feasible":
            assert (a.cost or 0.0) >= min(proven) - 1e-6
        if a is not None and a.bound is not None:
            assert a.bound <= min(proven) + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_the_same_problem_has_the_same_answer(name: str) -> None:
    first, second = (answer_of(name, problem_of("e2e")) for _ in range(2))
    if first is not None and second is not None:
        assert (first.fleet, first.status, first.details) == (
            second.fleet, second.status, second.details
        )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_baseline_says_in_its_docstring_that_it_is_one(name: str) -> None:
    """And whether it minds stock and limits."""
    solver = solver_named(name)
    text = f"{type(solver).__doc__}"
    assert solver.exact or "baseline" in text
