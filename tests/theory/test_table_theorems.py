"""The paper's table of theorems: every theorem, its formulas from sympy, LaTeX that holds."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sympy

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from paper.tables import table_theorems as script

from pdalloc.theory import theorems
from pdalloc.theory.theorem import FalseStepError, Step


@pytest.fixture(scope="module")
def text() -> str:
    return script.table()


def test_every_theorem_has_its_line() -> None:
    assert set(script.SAYS) == set(theorems())


def test_formulas_steps_and_sources_are_the_theorems_own(text: str) -> None:
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    rows = body.split("\\addlinespace\n")
    assert len(rows) == len(script.SAYS)
    for row, name in zip(rows, script.SAYS, strict=True):
        theorem = theorems()[name]
        assert all(formula.latex in row for formula in theorem.formulas)
        assert rf"& {len(theorem.steps)} & " in row
        assert theorem.source.split("_")[0] in row


def test_braces_environments_and_dollars_are_closed(text: str) -> None:
    assert text.count("{") == text.count("}")
    assert text.count("$") % 2 == 0
    assert len(re.findall(r"\\begin\{", text)) == len(re.findall(r"\\end\{", text))
    outside = re.sub(r"\$[^$]*\$", "", text)
    assert not re.search(r"(?<!\\)[_^&]{2}|(?<!\\)[_^]", outside)


def test_the_script_writes_the_same_file_each_time(text: str, tmp_path: Path) -> None:
    script.main(tmp_path / "made")
    assert (tmp_path / "made" / f"{script.NAME}.tex").read_text("utf-8") == text


def test_a_theorem_with_a_false_step_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = theorems()
    wrong = replace(known["paper"], steps=(Step("Wrong.", sympy.Integer(1)),))
    monkeypatch.setattr(script, "theorems", lambda: known | {"paper": wrong})
    with pytest.raises(FalseStepError, match="paper"):
        script.table()
