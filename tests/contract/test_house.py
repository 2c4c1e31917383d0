"""The house rules, as tests: sizes, docstrings, imports, unfinished work, tests per code line."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "models" / "pdalloc"

FILE_MAX, FILE_MEDIAN, BODY_MAX = 400, 150, 60
"""Lines: of a file, of the median file of models/, of a function body without its docstring."""

PYTHON_ROOTS = ("models", "tests", "experiments", "paper")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".tex", ".cff", ".bib"}
SKIPPED = {"build", "dist", "generated", "__pycache__", "node_modules"}

# Split, so that this file keeps the rule that it states.
UNFINISHED = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error"]) + r")\b"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def walk(folder: Path) -> Iterator[Path]:
    """Files below folder, without hidden, built and generated ones."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(".") or path.name in SKIPPED or path.suffix == ".egg-info":
            continue
        if path.is_dir():
            yield from walk(path)
        else:
            yield path


def python_files(*roots: str) -> list[Path]:
    return [path for root in roots for path in walk(ROOT / root) if path.suffix == ".py"]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def non_blank_lines(paths: list[Path]) -> int:
    return sum(bool(line.strip()) for p in paths for line in p.read_text("utf-8").splitlines())


def body_lines(function: Function) -> int:
    """Lines from the first statement after the docstring to the end of the function."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def public_definitions(path: Path) -> Iterator[Function | ast.ClassDef]:
    """Functions and classes at the top of a module whose names have no leading underscore."""
    for node in tree(path).body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def imported_names(path: Path) -> Iterator[str]:
    """Dotted names of the modules a file imports, relative imports left out."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def test_no_file_is_long() -> None:
    long = {relative(p): n for p in python_files(*PYTHON_ROOTS) if (n := line_count(p)) > FILE_MAX}
    assert not long, f"over {FILE_MAX} lines: {long}"


def test_the_median_file_is_short() -> None:
    counts = [line_count(path) for path in python_files("models")]
    assert median(counts) <= FILE_MEDIAN


def test_no_function_is_long() -> None:
    long = {
        f"{relative(path)}:{function.lineno} {function.name}": body_lines(function)
        for path in python_files(*PYTHON_ROOTS)
        for function in functions(path)
        if body_lines(function) > BODY_MAX
    }
    assert not long, f"bodies over {BODY_MAX} lines: {long}"


def test_every_public_definition_has_a_docstring() -> None:
    bare = [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in walk(PACKAGE)
        if path.suffix == ".py"
        for node in public_definitions(path)
        if not ast.get_docstring(node)
    ]
    assert not bare


def test_models_is_the_source_root_and_never_a_package() -> None:
    """`import models.pdalloc` would work from the root, and make a second copy of each class."""
    assert not (ROOT / "models" / "__init__.py").exists()
    offenders = [
        relative(path)
        for path in python_files(*PYTHON_ROOTS, "notebooks")
        if any(name.split(".")[0] == "models" for name in imported_names(path))
    ]
    assert not offenders


TWINS = ROOT / "models" / "pdalloc" / "simulation" / "kernels"
"""Compiled twin of the reference simulator, compared with it event by event: the reference's
own tests are its tests, so its lines ask for no others."""


def test_there_is_at_least_a_line_of_test_per_line_of_code() -> None:
    code = non_blank_lines([p for p in python_files("models") if TWINS not in p.parents])
    tests = non_blank_lines(python_files("tests"))
    assert tests >= code, f"{tests} lines of tests for {code} of code"


def test_nothing_is_left_unfinished() -> None:
    marked = [
        f"{relative(path)}: {match.group()}"
        for path in walk(ROOT)
        if path.suffix in TEXT_SUFFIXES or path.name == "Makefile"
        if (match := UNFINISHED.search(path.read_text(encoding="utf-8")))
    ]
    assert not marked


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f():\n    return 1", 1),
        ('def f():\n    """Doc.\n\n    More.\n    """\n    x = 1\n    return x', 2),
        ('def f():\n    """Doc."""', 0),
        ("def f(\n    a,\n    b,\n):\n    if a:\n        return b\n\n    return a", 4),
    ],
)
def test_body_lines_leave_signature_and_docstring_out(source: str, lines: int) -> None:
    (function,) = ast.parse(source).body
    assert isinstance(function, Function)
    assert body_lines(function) == lines
