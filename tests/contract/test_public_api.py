"""The front door: few names, all documented, and nothing heavy behind it until it is used."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pdalloc

MODELS = Path(__file__).resolve().parents[2] / "models"
HEAVY = ("numpy", "scipy", "cvxpy", "pyomo", "sympy", "matplotlib", "pint", "pandas", "numba")
MOST_NAMES = 20


def test_names_are_few_sorted_and_listed_once() -> None:
    assert 0 < len(pdalloc.__all__) <= MOST_NAMES
    assert list(pdalloc.__all__) == sorted(set(pdalloc.__all__))
    assert not any(name.startswith("_") for name in pdalloc.__all__)


@pytest.mark.parametrize("name", pdalloc.__all__)
def test_every_name_is_there_documented_and_has_one_home(name: str) -> None:
    thing = getattr(pdalloc, name)
    assert getattr(pdalloc, name) is thing
    assert thing.__name__ == name and thing.__module__.startswith("pdalloc.")
    assert inspect.getdoc(thing)
    assert getattr(importlib.import_module(thing.__module__), name) is thing
    own = thing.__doc__ or ""
    assert own.strip() and not own.startswith(f"{name}("), "a docstring of its own"


@pytest.mark.parametrize("name", [n for n in pdalloc.__all__ if n[0].islower()])
def test_functions_are_annotated_throughout(name: str) -> None:
    signature = inspect.signature(getattr(pdalloc, name))
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name


def test_dir_lists_exactly_the_public_names() -> None:
    assert sorted(dir(pdalloc)) == list(pdalloc.__all__)


def test_star_import_brings_them_all() -> None:
    found: dict[str, object] = {}
    exec("from pdalloc import *", found)
    assert set(pdalloc.__all__) <= set(found)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'pdalloc' has no attribute 'planner'"):
        _ = pdalloc.planner
    with pytest.raises(ImportError, match="planner"):
        exec("from pdalloc import planner")


def loaded_by(statement: str) -> set[str]:
    """Top-level modules after ``statement`` in a fresh interpreter."""
    code = f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(MODELS)},
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    ["import pdalloc", "import pdalloc.cli", "import pdalloc; pdalloc.PdallocError; dir(pdalloc)"],
)
def test_importing_loads_nothing_heavy(statement: str) -> None:
    """`pdalloc --help` must be quick: heavy libraries wait for the command that needs them."""
    loaded = loaded_by(statement)
    assert "pdalloc" in loaded
    assert not loaded & set(HEAVY)


def test_a_plan_never_loads_the_libraries_of_other_backends() -> None:
    """The default solver needs neither modelling language, nor sympy, nor a figure's library."""
    loaded = loaded_by("from pdalloc import plan, load_scenario, evaluate, Answer")
    assert not loaded & {"cvxpy", "pyomo", "sympy", "matplotlib"}
    assert "numpy" in loaded  # so the check above sees what a process loads
