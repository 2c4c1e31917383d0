"""Every theorem's derivation holds, and its numeric twin computes what it states."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
import sympy

from pdalloc import closed_forms
from pdalloc.queueing.batch import BatchLaw
from pdalloc.theory import theorems
from pdalloc.theory.paper import PAPER_CASE
from pdalloc.theory.theorem import FalseStepError, Formula, Step, Theorem

THEOREMS = theorems()
TWINS = [(t.name, f) for t in THEOREMS.values() for f in t.formulas if f.twin]
a, b = sympy.symbols("a b", positive=True)


def ids(value: object) -> str:
    return value.twin if isinstance(value, Formula) else str(value)


def test_every_theorem_is_found() -> None:
    files = {path.stem for path in Path(inspect.getfile(theorems)).parent.glob("*.py")}
    assert set(THEOREMS) == files - {"__init__", "theorem"}
    assert list(THEOREMS) == sorted(THEOREMS)


@pytest.mark.parametrize("name", THEOREMS)
def test_every_step_holds(name: str) -> None:
    THEOREMS[name].check()


@pytest.mark.parametrize("name", THEOREMS)
def test_every_theorem_says_what_it_assumes_and_prints(name: str) -> None:
    theorem = THEOREMS[name]
    assert theorem.statement and theorem.assumptions and theorem.source
    assert all(step.sentence.endswith(".") for step in theorem.steps)
    assert theorem.latex.count("&=") == len(theorem.formulas)


@pytest.mark.parametrize("name", THEOREMS)
def test_what_is_printed_is_what_is_proved(name: str) -> None:
    """Put back the proof's symbols, the printed formula is the proved one."""
    for formula in THEOREMS[name].formulas:
        if formula.shown is not None:
            assert sympy.simplify(formula.shown.subs(formula.where) - formula.value) == 0
            assert sympy.latex(formula.shown, order="none") in formula.latex


def negated(step: Step) -> sympy.Basic | None:
    """A false claim close to ``step``'s: one more on the left of an equation."""
    if isinstance(step.claim, sympy.Eq):
        return sympy.Eq(step.claim.lhs + 1, step.claim.rhs)
    return step.claim + 1 if isinstance(step.claim, sympy.Expr) else None


@pytest.mark.parametrize("name", THEOREMS)
def test_a_false_step_is_caught_wherever_it_stands(name: str) -> None:
    theorem = THEOREMS[name]
    for i, step in enumerate(theorem.steps):
        claim = negated(step)
        if claim is None:
            continue
        # What stands before it is checked above; here it only takes its place.
        before = (Step("Fine.", sympy.true),) * i
        broken = replace(theorem, steps=(*before, Step(step.sentence, claim)))
        with pytest.raises(FalseStepError, match=rf"{name}.*step {i + 1}:"):
            broken.check()


@pytest.mark.parametrize(
    "claim",
    [
        sympy.Eq((a + b) ** 2, a**2 + b**2),
        (a + b) ** 2 - a**2 - b**2,
        sympy.Ge(a - b, 0),
        sympy.Le(a + b, a),
        sympy.false,
        a,
        sympy.Symbol("q", positive=True) > b,
    ],
)
def test_false_or_undecided_claims_do_not_hold(claim: sympy.Basic) -> None:
    assert not Step("Wrong.", claim).holds


@pytest.mark.parametrize(
    "claim",
    [
        sympy.Eq((a + b) ** 2, a**2 + 2 * a * b + b**2),
        sympy.gamma(a + 1) - a * sympy.gamma(a),
        sympy.Ge((a + b) ** 2 - a**2, 0),
        sympy.Le(a, a + b),
        sympy.true,
    ],
)
def test_true_claims_hold(claim: sympy.Basic) -> None:
    assert Step("Right.", claim).holds


def test_the_error_names_theorem_step_and_claim() -> None:
    theorem = Theorem("t", "s", ("x",), (Step("Fine.", a - a), Step("Wrong.", a - b)), ())
    with pytest.raises(FalseStepError, match=r"'t', step 2: Wrong\. \[not verified: a - b\]"):
        theorem.check()


def test_every_twin_exists_and_takes_the_arguments_given() -> None:
    for name, formula in TWINS:
        function = getattr(closed_forms, formula.twin.split(".")[0])
        assert list(inspect.signature(function).parameters) == list(formula.arguments), name


def random_point(formula: Formula, rng: Random) -> dict[sympy.Symbol, sympy.Rational]:
    """Rationals at which the formula has a value: bounds well above their floors."""
    point = {}
    symbols = {s for e in (formula.value, *formula.arguments.values()) for s in e.free_symbols}
    for symbol in sorted(symbols, key=str):
        scale = {"tau": Fraction(40), "TP_max": Fraction(500), "p": Fraction(1, 40)}
        value = Fraction(rng.randint(1, 30), rng.randint(31, 60)) * scale.get(
            str(symbol), Fraction(1)
        )
        point[symbol] = sympy.Rational(value.numerator, value.denominator)
    if "tau" in map(str, symbols):  # clear of every floor: 1/mu, ln(1/(1-p))/mu, a + b, o + L/TP
        tau = next(s for s in symbols if str(s) == "tau")
        point[tau] += 61
    return point


@pytest.mark.parametrize(("name", "formula"), TWINS, ids=ids)
def test_numeric_twin_equals_the_expression_at_rational_points(name: str, formula: Formula) -> None:
    rng = Random(name + formula.twin)
    function, _, part = formula.twin.partition(".")
    for _ in range(12):
        point = random_point(formula, rng)
        numbers = {k: float(v.subs(point).evalf(30)) for k, v in formula.arguments.items()}
        got = getattr(closed_forms, function)(**numbers)
        exact = formula.value.subs(point).evalf(40)
        assert exact > 0
        assert (getattr(got, part) if part else got) == pytest.approx(float(exact), rel=1e-12)


def test_the_papers_case_in_exact_arithmetic() -> None:
    values = {
        formula.twin: formula.value.subs(PAPER_CASE)
        for formula in THEOREMS["paper"].formulas
        if formula.twin != "mm1_count"
    }
    throughput = values["effective_prefill_throughput"]
    assert throughput == sympy.Rational(28309) - sympy.Rational(6144) / sympy.Rational(19, 10)
    assert round(float(throughput)) == 25075
    assert round(float(values["paper_counts.prefill"]), 2) == 3.07
    assert round(float(values["paper_counts.decode"]), 2) == 3.74
    assert round(float(values["paper_counts.ratio"]), 2) == 0.82


@pytest.mark.parametrize("seed", range(8))
def test_batch_law_theorem_is_the_numeric_batch_law(seed: int) -> None:
    rng = Random(seed)
    base, per_request, steps = rng.uniform(0.005, 0.05), rng.uniform(1e-4, 2e-3), 300.0
    rate = rng.uniform(0.05, 0.85) / (steps * per_request)
    law = BatchLaw(rate, steps, lambda k: base + per_request * k)
    values = {"lambda": rate, "L": steps, "a": base, "b": per_request}
    expression = THEOREMS["batch_law"].formulas[0].value
    symbols = {symbol: values[str(symbol)] for symbol in expression.free_symbols}
    assert law.mean_step == pytest.approx(float(expression.subs(symbols)), rel=1e-9)


@pytest.mark.parametrize(
    ("p", "r"), [(Fraction(1, 4), 3), (Fraction(3, 5), 1), (Fraction(1, 2), 7)]
)
def test_negative_binomial_series_sums_to_its_closed_form(p: Fraction, r: int) -> None:
    """w(k) rho^k of theorem batch_law at integer a/b, summed in exact fractions."""
    total = sum(math.comb(k + r, k) * p**k for k in range(400))
    assert float(total) == pytest.approx(float((1 - p) ** -(r + 1)), rel=1e-12)
