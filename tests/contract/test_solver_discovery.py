"""A solver is one file with a SOLVER: it says what it is, and is found without a list."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import pytest

from pdalloc.allocation import solvers as package
from pdalloc.allocation.solvers import solver_named, solvers
from pdalloc.errors import InputError

MODULES = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
NEW = '''"""A solver from elsewhere."""

from pdalloc.allocation.problem import Allocation, infeasible


class Nothing:
    """Says that there is nothing."""

    name = "nothing"
    exact = False
    sentence = "never finds a fleet"

    def solve(self, problem, alternatives: int = 0) -> Allocation:
        """Infeasible, always."""
        return infeasible(self.name, "it never looks")


SOLVER = Nothing()
'''


@pytest.mark.parametrize("module", MODULES)
def test_every_file_declares_a_solver(module: str) -> None:
    loaded = importlib.import_module(f"{package.__name__}.{module}")
    solver = loaded.SOLVER
    assert isinstance(solver.name, str) and solver.name
    assert isinstance(solver.exact, bool)
    assert isinstance(solver.sentence, str) and 10 < len(solver.sentence) <= 100
    assert len(solver.sentence.splitlines()) == 1
    assert inspect.getdoc(loaded) and inspect.getdoc(type(solver)) and inspect.getdoc(solver.solve)
    assert solver_named(solver.name) is solver


@pytest.mark.parametrize("module", MODULES)
def test_every_solver_is_called_in_the_same_way(module: str) -> None:
    """``solve(problem, alternatives=0)``, as the protocol has it."""
    solver = importlib.import_module(f"{package.__name__}.{module}").SOLVER
    parameters = list(inspect.signature(solver.solve).parameters.values())
    assert [p.name for p in parameters] == ["problem", "alternatives"]
    assert parameters[1].default == 0


def test_as_many_names_as_files() -> None:
    """Two files with one name would hide each other."""
    known = solvers()
    assert len(known) == len(MODULES)
    assert all(name == solver.name for name, solver in known.items())
    assert {"exact", "paper", "cvxpy", "pyomo"} <= set(known)


def test_the_default_solver_is_exact_and_the_papers_rounding_is_not() -> None:
    from pdalloc.planning import plan

    default = inspect.signature(plan).parameters["solver"].default
    assert solver_named(default).exact
    assert not solver_named("paper").exact


@pytest.mark.parametrize("name", ["", "Exact", "magic", "exact "])
def test_an_unknown_name_lists_them_all(name: str) -> None:
    with pytest.raises(InputError) as caught:
        solver_named(name)
    message = str(caught.value)
    assert repr(name) in message and len(message.splitlines()) == 1
    assert all(known in message for known in solvers())


def test_a_new_file_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Dropped into the package's path, with no other file touched."""
    before = set(solvers())
    (tmp_path / "nothing_at_all.py").write_text(NEW, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    try:
        assert set(solvers()) == before | {"nothing"}
        found = solver_named("nothing")
        assert found.sentence == "never finds a fleet" and not found.exact
        with pytest.raises(InputError, match="nothing"):
            solver_named("magic")
    finally:
        sys.modules.pop(f"{package.__name__}.nothing_at_all", None)
        vars(package).pop("nothing_at_all", None)
    monkeypatch.undo()
    assert set(solvers()) == before


def test_a_file_without_a_solver_is_a_mistake_that_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "half_written.py").write_text('"""Nothing yet."""\n', encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    try:
        with pytest.raises(AttributeError, match="SOLVER"):
            solvers()
    finally:
        sys.modules.pop(f"{package.__name__}.half_written", None)
        vars(package).pop("half_written", None)
