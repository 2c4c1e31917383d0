r"""Decode replicas under a mean TPOT: the batch law's mean, inverted."""

from __future__ import annotations

import sympy
from sympy import Eq, Ge, Le, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, steps, a, b, tau, n = symbols("lambda L a b tau n", positive=True)
spare = symbols("sigma", positive=True)

tpot = (a + b) / (1 - lam * steps * b / n)
value = lam * steps * b / (1 - (a + b) / tau)
fluid = lam * steps * b / (1 - a / tau)
(solution,) = sympy.solve(Eq(tpot, tau), n)
slope = sympy.diff(tpot, n)

THEOREM = Theorem(
    name="decode_count",
    statement=(
        "Decode replicas that keep a mean TPOT of tau under t(k) = a + b k number "
        "n = lambda L b / (1 - (a + b)/tau)."
    ),
    assumptions=(
        "the batch law: Poisson arrivals split at random, no limit on the batch",
        "tau > a + b, the step of a request decoding alone",
    ),
    steps=(
        Step(
            "Each replica is offered rho = lambda L b / n; (a + b)/(1 - rho) is tau at one n only.",
            Eq(solution, value),
        ),
        Step("At that count the mean TPOT is tau.", Eq(tpot.subs(n, value), tau)),
        Step(
            "The load per replica is then 1 - (a + b)/tau, below 1: it is stable.",
            Eq(lam * steps * b / value, 1 - (a + b) / tau),
        ),
        Step(
            "Mean TPOT falls as n grows from lambda L b, so more replicas keep the bound too.",
            Le(slope.subs(n, lam * steps * b + spare), 0),
        ),
        Step(
            "The fluid law a/(1 - rho) asks for fewer: it leaves out the request's own share b.",
            Ge((value - fluid).subs(tau, a + b + spare), 0),
        ),
    ),
    formulas=(
        Formula(
            symbols("n"),
            value,
            "decode_count",
            {"rate": lam, "steps": steps, "base": a, "per_request": b, "tpot": tau},
        ),
    ),
    source="theorem batch_law",
)
