"""The conda environment, both locks and the citation stay in step with pyproject.toml.

No conda runs in the project's own checks, so environment.yml is compared, not executed.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
NAMED_BY_USERS = {"cvxpy", "pyomo", "numpy", "scipy", "sympy", "jupyter", "pytest"}
LOCKS = ("run", "dev")

Pins = dict[str, dict[str, str]]
"""Canonical name -> {marker, or "" for every environment: version}."""


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def project() -> dict[str, Any]:
    """The [project] table."""
    table: dict[str, Any] = pyproject()["project"]
    return table


def declared(*extras: str) -> dict[str, Requirement]:
    """Requirements of the project and of the extras named, without references to itself."""
    table = project()
    lines = list(table["dependencies"])
    for extra in extras:
        lines += table["optional-dependencies"][extra]
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(r.name): r for r in requirements if r.name != table["name"]}


def conda() -> tuple[dict[str, Requirement], list[str]]:
    """(conda packages by name, lines handed to pip) of environment.yml."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    packages = [Requirement(entry) for entry in entries if isinstance(entry, str)]
    pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    return {canonicalize_name(r.name): r for r in packages}, pip


def lock_text(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def pins(name: str) -> Pins:
    """The pins of requirements/<name>.txt; a package may have one per range of Python."""
    found: Pins = {}
    for line in lock_text(name).splitlines():
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", line
        marker = str(requirement.marker or "")
        found.setdefault(canonicalize_name(requirement.name), {})[marker] = specifier.version
    return found


def lower_bound(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == ">=", requirement
    return specifier.version


def test_python_bound_is_the_projects() -> None:
    packages, _ = conda()
    assert str(packages["python"].specifier) == project()["requires-python"]


def test_conda_lists_the_packages_users_named() -> None:
    packages, _ = conda()
    assert set(packages) >= NAMED_BY_USERS
    assert "pip" in packages


def test_conda_and_project_have_the_same_lower_bounds() -> None:
    packages, _ = conda()
    ours = declared("dev", "notebooks")
    for name in set(packages) - {"python", "pip"}:
        assert lower_bound(packages[name]) == lower_bound(ours[name]), name


def test_conda_installs_the_project_in_place_with_existing_extras() -> None:
    _, pip = conda()
    (line,) = pip
    assert line.startswith("-e .[") and line.endswith("]")
    extras = set(line.removeprefix("-e .[").removesuffix("]").split(","))
    assert extras == {"dev", "notebooks"} <= set(project()["optional-dependencies"])


def test_conda_name_and_channel() -> None:
    document = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert document["name"] == project()["name"]
    assert document["channels"][0] == "conda-forge"


@pytest.mark.parametrize("name", LOCKS)
def test_lock_holds_no_address_and_no_option(name: str) -> None:
    text = lock_text(name)
    assert "://" not in text
    assert "@" not in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith(("-", "#"))]


@pytest.mark.parametrize(("name", "extras"), [("run", ()), ("dev", ("dev", "scip"))])
def test_every_requirement_is_locked_within_its_bound(name: str, extras: tuple[str, ...]) -> None:
    locked = pins(name)
    for package, requirement in declared(*extras).items():
        assert package in locked, f"{package} is not in requirements/{name}.txt: make lock"
        for version in locked[package].values():
            assert requirement.specifier.contains(version), f"{package}=={version}: make lock"


def test_dev_lock_only_adds_to_the_run_lock() -> None:
    """Otherwise `make test` after `make plan` would test other versions than those planned with."""
    run, dev = pins("run"), pins("dev")
    for package, by_marker in run.items():
        assert set(dev[package].values()) == set(by_marker.values()), package


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_at_most_one_pin_applies_to_a_python(name: str, python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.7"}
    for package, by_marker in pins(name).items():
        applies = [m for m in by_marker if not m or Marker(m).evaluate(environment)]
        assert len(applies) <= 1, package


@pytest.mark.parametrize("name", LOCKS)
def test_lock_holds_the_build_backend(name: str) -> None:
    """The package is built without isolation, so the lock itself must bring setuptools."""
    (requirement,) = map(Requirement, pyproject()["build-system"]["requires"])
    assert all(requirement.specifier.contains(v) for v in pins(name)[requirement.name].values())


@pytest.mark.parametrize("name", LOCKS)
def test_lock_is_free_of_deep_learning_frameworks(name: str) -> None:
    assert not {"torch", "tensorflow", "jax"} & set(pins(name))


def test_citation_has_the_projects_version_and_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert Version(str(citation["version"])) == Version(project()["version"])
    assert citation["license"] == project()["license"]
