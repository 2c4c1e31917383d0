"""What a theorem is: a statement, its assumptions, and steps that sympy can verify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy


class FalseStepError(Exception):
    """A step that sympy cannot verify; the message names the theorem and the step."""


@dataclass(frozen=True)
class Step:
    """One sentence of a proof and what it claims.

    ``claim`` is an equation, an expression that must simplify to zero, or an inequality that
    the assumptions on its symbols (positive, non-negative) imply.
    """

    sentence: str
    claim: sympy.Basic

    @property
    def holds(self) -> bool:
        """Whether sympy proves the claim; what it cannot decide does not hold."""
        claim = self.claim
        if claim in (sympy.true, sympy.false):
            return bool(claim)
        if isinstance(claim, sympy.Eq):
            return _is_zero(claim.lhs - claim.rhs)
        if isinstance(claim, sympy.Ge | sympy.Le):
            room = sympy.simplify(claim.gts - claim.lts)
            return bool(room.is_nonnegative)
        if isinstance(claim, sympy.Expr):
            return _is_zero(claim)
        return False


def _is_zero(expression: sympy.Expr) -> bool:
    return bool(sympy.simplify(sympy.gammasimp(sympy.simplify(expression))) == 0)


@dataclass(frozen=True)
class Formula:
    """``symbol`` = ``value``, computed in numbers by ``twin`` of :mod:`pdalloc.closed_forms`.

    ``arguments``: the twin's parameters in terms of the symbols in ``value``. A twin may name
    a field of what the function returns: ``paper_counts.prefill``. Empty: no twin.
    ``shown``: what to print where the proof's symbols are not the reader's; its symbols in
    terms of the proof's are ``where``, so that ``shown`` with them put in is ``value``.
    """

    symbol: sympy.Symbol
    value: sympy.Expr
    twin: str = ""
    arguments: Mapping[str, sympy.Expr] = field(default_factory=dict)
    shown: sympy.Expr | None = None
    where: Mapping[sympy.Symbol, sympy.Expr] = field(default_factory=dict)

    @property
    def latex(self) -> str:
        """The equation in LaTeX, without math delimiters."""
        value = self.value if self.shown is None else self.shown
        return f"{sympy.latex(self.symbol)} = {sympy.latex(value, order='none')}"


@dataclass(frozen=True)
class Theorem:
    """A result of the planner's theory, with the derivation that proves it."""

    name: str
    statement: str
    assumptions: tuple[str, ...]
    steps: tuple[Step, ...]
    formulas: tuple[Formula, ...]
    source: str = ""

    @property
    def latex(self) -> str:
        r"""The formulas in LaTeX, aligned lines for an ``align*`` environment."""
        lines = [formula.latex.replace(" = ", " &= ", 1) for formula in self.formulas]
        return " \\\\\n".join(lines)

    def check(self) -> None:
        """Verify every step; raises FalseStepError at the first that fails."""
        for number, step in enumerate(self.steps, 1):
            if not step.holds:
                raise FalseStepError(
                    f"theorem {self.name!r}, step {number}: {step.sentence} "
                    f"[not verified: {step.claim}]"
                )
