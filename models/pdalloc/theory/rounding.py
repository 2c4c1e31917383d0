r"""Rounding loss: whole replicas cost less than one of each type more, so ever less of the bill."""

from __future__ import annotations

from sympy import Eq, Ge, Le, limit, oo, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, work, congestion, floor, n = symbols("lambda w g f n", positive=True)
c1, c2, unit = symbols("c_1 c_2 k", positive=True)
m1, m2 = symbols("m_1 m_2", integer=True, positive=True)
left1, left2 = symbols("l_1 l_2", nonnegative=True)
spare = symbols("sigma", positive=True)

f1, f2 = 1 / (1 + left1), 1 / (1 + left2)
"""Fractions f in (0, 1] that rounding up fills, written so that sympy knows their range."""
relaxed = c1 * (m1 - f1) + c2 * (m2 - f2)
rounded = c1 * m1 + c2 * m2
loss = rounded - relaxed
delay = floor + congestion * lam / (n - lam * work)
relative = (c1 + c2) / (lam * unit)

THEOREM = Theorem(
    name="rounding",
    statement=(
        "Rounding up real counts that keep every SLO keeps them and adds sum c_i (ceil n_i - "
        "n_i), less than the prices of the types used. The rounded fleet is within that of the "
        "cheapest whole one, and with cost k per request/s within sum c/(lambda k) of it in "
        "proportion: nothing at large demand."
    ),
    assumptions=(
        "n_i = m_i - f_i with m_i = ceil(n_i); the f_i here may come up to 1, and never reach it",
        "delays fall with counts; limits on counts are whole, so they are kept",
        "the real counts are the optimum of a relaxation, whose cost is linear in demand",
    ),
    steps=(
        Step(
            "Delay falls with the count, so rounding up keeps every bound.",
            Le(delay.diff(n).subs(n, lam * work + spare), 0),
        ),
        Step("The loss is sum c f.", Eq(loss, c1 * f1 + c2 * f2)),
        Step("It is not more than the prices together.", Ge(c1 + c2 - loss, 0)),
        Step(
            "Relaxed <= best whole <= rounded: the gap to the best is at most the loss.",
            Ge(rounded - relaxed, 0),
        ),
        Step(
            "No smaller bound holds: it is met as both f tend to 1.",
            Eq(loss.subs({left1: 0, left2: 0}), c1 + c2),
        ),
        Step("In proportion the loss vanishes with demand.", limit(relative, lam, oo)),
        Step(
            "A share epsilon is safe from lambda = sum c/(epsilon k) on.",
            Eq(relative.subs(lam, (c1 + c2) / (spare * unit)), spare),
        ),
    ),
    formulas=(Formula(symbols("Delta"), (c1 + c2) / (lam * unit)),),
    source="linear relaxation of an integer covering problem; theorem merit_order",
)
